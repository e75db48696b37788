"""Real Debian machines: the README's commands and the installation guide by hand, on the system of a release.

    ./run campaign debian [--release RELEASE] [--list] [--from STEP | --only STEP ...] [--also STEP ...] [--factor N]

A machine is a qemu without hardware virtualisation, with the release's own kernel, initrd, systemd, PAM and logind; two
of them share a network, and reach no other. The image of a release is made once (a network, minutes) and kept. Each run
starts from overlays over it, which are kept too: ``--from`` and ``--only`` go on with those of the last run. Emulation
is some 16 times slower in Python: ``--factor`` multiplies all times that are waited for. Each step is a check, and
states its time; the first that fails ends the campaign with 1. What was run on a machine, and what it said, is in
``commands.log`` beside its disk. Needs root, and the packages mmdebstrap, e2fsprogs, openssh-client, qemu-system-x86
and qemu-utils.

Some steps are run by name alone (``--only``, ``--also``). ``measured …`` make tables of ``docs/measured`` on control
groups of version 2: after ``boot``, that of coscheduling after ``second node`` and those that this needs.
``launchers`` comes after ``second node``, ``system tests`` and ``namespaces`` after ``boot``; ``ansible`` begins with
fresh hosts.
``--release ubuntu24.04`` has that release's kernel and its restriction of user namespaces, up to ``demo, user``.

``--user-mode`` has this machine's User Mode Linux (user-mode-linux, gcc) in place of the release's kernel: one CPU, no
cpuset, all else as the release has it, and several times faster.
"""

import argparse
import contextlib
import functools
import json
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from campaigns import _debian_jobs as jobs
from campaigns import _debian_measured as measured
from campaigns import _debian_parts as parts
from campaigns._ansible_lab import Broken, gone_through, need
from campaigns._debian_ground import ASIDE, CHECKOUT, DESK, HEAD, Ground, work_of
from campaigns._debian_image import RELEASES
from campaigns._debian_machines import bridged
from campaigns._systemd_hosts import USER, require

#: The commands that are needed, and the package of each.
_NEEDED: Final = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "ssh": "openssh-client"}
_NEEDED_QEMU: Final = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "setpriv": "util-linux"}
_NEEDED_USER_MODE: Final = {"linux.uml": "user-mode-linux", "gcc": "gcc", "ip": "iproute2"}
_INDEX: Final = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/mnt/readme-wheels"


def packages(ground: Ground) -> None:
    """What the guide installs on each host, from a wheelhouse (Installation, Packages)."""
    said = ground.laid(
        "cd ~; ln -s /mnt/wheels wheels\n"
        "python3 -m venv --without-pip /opt/cosched\n"
        'python3 "$(echo wheels/pip-*.whl)/pip" --python /opt/cosched/bin/python install -q --root-user-action ignore'
        " --no-index --find-links wheels --require-hashes -r wheels/requirements.txt\n"
        "ln -s /opt/cosched/bin/cosched /usr/local/bin/cosched\n"
        "cosched --version; rm wheels"
    )
    need(said.startswith("cosched, version"), said)


def environment(ground: Ground) -> None:
    """``./run`` makes its environment from a fresh clone, from wheels that were made elsewhere."""
    said = ground.laid(f"git clone -q /mnt/cosched.bundle {CHECKOUT}; cd {CHECKOUT}; {_INDEX} ./run cosched --version")
    need(said.startswith("cosched, version"), said)


def booted(ground: Ground) -> None:
    """The machine is what Debian makes of it: one hierarchy of control groups, /run noexec, no unit that failed."""
    ground.fresh()
    ground.up(HEAD)
    head = ground.head
    look = "stat -fc %T /sys/fs/cgroup; findmnt -no OPTIONS /run; uname -r; systemctl --version | head -n 1"
    groups, options, kernel, systemd = head.at(look).splitlines()
    need(groups == "cgroup2fs", f"/sys/fs/cgroup is {groups}")
    need("noexec" in options.split(","), f"/run is {options}")
    failed = head.at("systemctl list-units --failed --no-legend --plain")
    need(not failed.strip(), f"units failed: {failed}")
    session = head.at("cat /proc/self/cgroup; echo $XDG_RUNTIME_DIR", user=USER).split()
    need(session[0].startswith("0::/user.slice/") and session[1:], f"no login session: {session}")
    print(f"  Linux {kernel}, {systemd}, /run {options}, session {session}", flush=True)


def demonstrated(ground: Ground, user: str) -> None:
    """The README's demonstration, in its short form, in a login session of that user's."""
    ground.up(HEAD)
    line = f"cd; rm -rf results; {CHECKOUT}/run demo --short --json 2>demo.err || {{ tail demo.err >&2; exit 1; }}"
    said = json.loads(ground.head.at(line, user=user, base_s=120))
    need(not said["unexpected"], f"{said['unexpected']}")
    print(f"  {said['tier']}", flush=True)


def scheduler(ground: Ground) -> None:
    """The scheduler by hand, line by line as the guide has it (Operating a cluster, 2 to 6)."""
    ground.up(HEAD)
    ground.head.at(
        "set -e; cd ~\n"
        f"cosched init office --scheduler {HEAD} --node {HEAD} --node {DESK} --user {USER}\n"
        f"cosched node render --role scheduler --cluster office --node {HEAD} --node {DESK} --into /\n"
        "systemd-sysusers; systemd-tmpfiles --create; systemctl daemon-reload\n"
        "cp office/scheduler/cluster.yaml /etc/cosched/; mkdir -p /etc/cosched/identity\n"
        "cosched identity request scheduler --into /etc/cosched/identity >scheduler.csr\n"
        f"cosched identity sign --authority office/authority --address {HEAD} scheduler"
        " <scheduler.csr >scheduler.json\n"
        "cosched identity accept --kind scheduler --into /etc/cosched/identity --account cosched-scheduler"
        " scheduler.json\n"
        "runuser -u cosched-scheduler -- cosched scheduler --check\n"
        "systemctl enable --now cosched-scheduler",
        base_s=90,
    )
    ground.until(lambda: set(ground.nodes()) == {HEAD, DESK}, "the scheduler answers")


def node(ground: Ground, name: str) -> None:
    """A node by hand (Operating a cluster, 7; Installation, Keys); on the scheduler's host at other places."""
    ground.up(HEAD, name)
    machine, aside = ground.machines[name], name == HEAD
    etc = f"--etc {ASIDE['etc']}" if aside else ""
    machine.at(
        f"set -e; cd ~; {ground.render(name)}\n"
        "systemd-sysusers; systemd-tmpfiles --create; systemctl daemon-reload\n"
        f"cosched node request {name} {etc} >{name}.csr",
        base_s=30,
    )
    request = machine.at(f"cat ~/{name}.csr")
    document = ground.head.at(
        f"cd ~; cat >{name}.csr <<'END'\n{request}END\ncosched node sign {name} {name}.csr --cluster office"
    )
    config = f"--config {ASIDE['etc']}/node.toml" if aside else ""
    said = machine.at(
        f"cd ~; cat >{name}.json <<'END'\n{document}END\nset -e; cosched node accept {etc} {name}.json\n"
        "systemctl enable --now cosched-guard\n"
        f"runuser -u cosched-agent -- cosched agent --check {config} >check.txt || {{ cat check.txt; exit 1; }}\n"
        "systemctl enable --now cosched-agent; cat check.txt",
        base_s=60,
    )
    print("\n".join(f"  {line}" for line in said.splitlines() if not line.startswith("ok ")), flush=True)
    ground.until(lambda: ground.nodes()[name] == "up", f"{name} is up")


#: The campaign, in its order; each step goes on from the disks that the one before left.
STEPS: Final[Mapping[str, Callable[[Ground], None]]] = {
    "packages": packages,
    "environment": environment,
    "boot": booted,
    "state": jobs.state,
    "demo, root": lambda ground: demonstrated(ground, "root"),
    "demo, user": lambda ground: demonstrated(ground, USER),
    "scheduler": scheduler,
    "node beside it": lambda ground: node(ground, HEAD),
    "job on one host": jobs.one_host,
    "contract": jobs.contract,
    "seat": jobs.seated,
    "restarts": jobs.restarted,
    "logout": jobs.logged_out,
    "second node": lambda ground: node(ground, DESK),
    "job on two hosts": jobs.two_hosts,
    "fold": jobs.folded,
    "owner": jobs.owned,
    "reboots": jobs.rebooted,
    "twenty jobs": jobs.coscheduled,
    "fifty restarts": jobs.often_restarted,
    "launchers": parts.launchers,
    "system tests": parts.system_tests,
    "namespaces": parts.namespaces,
    "removal": jobs.removed,
    "ansible": parts.ansible,
    "measured contract": measured.contract,
    "measured coscheduling": measured.coscheduling,
    "measured folding": measured.folding,
}
#: What is run with ``--only`` or ``--also`` alone.
_BY_NAME: Final = {"launchers", "system tests", "namespaces", *[*STEPS][[*STEPS].index("removal") + 1 :]}
#: What needs a keyboard or CPU sets.
_QEMU_ALONE: Final = {"fold", "owner", "twenty jobs", "measured folding"}


def arguments() -> argparse.ArgumentParser:
    """What the campaign may be given."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--release", choices=RELEASES, default="13", help="Debian's [13]")
    parser.add_argument("--user-mode", action="store_true", help="User Mode Linux in place of qemu: a quick look")
    parser.add_argument("--counted", action="store_true", help="one CPU whose clock counts its instructions")
    parser.add_argument("--list", action="store_true", help="print the steps in their order")
    parser.add_argument("--from", dest="first", metavar="STEP", help="go on with the last run's disks at this step")
    parser.add_argument("--only", action="append", metavar="STEP", help="this step on the last run's disks; repeatable")
    parser.add_argument("--also", action="append", metavar="STEP", help="this step, too, of those that go by name")
    parser.add_argument("--factor", type=float, default=16.0, metavar="N", help="how much slower all of it is [16]")
    parser.add_argument(
        "--cache", type=Path, default=Path("/var/cache/cosched-campaign"), metavar="DIR", help="images and disks"
    )
    return parser


def chosen(names: Sequence[str], first: str | None, only: Collection[str], also: Collection[str]) -> list[str]:
    """The steps that are asked for, in their order. Raises :class:`KeyError` for one that there is not."""
    if unknown := sorted({*only, *also, *([first] if first else [])} - set(names)):
        raise KeyError(unknown[0])
    if only:
        return [name for name in names if name in {*only, *also}]
    left_out = _BY_NAME - {*also}
    return [name for name in names[names.index(first) if first else 0 :] if name not in left_out]


def main() -> int:
    """Go through the steps; the exit status is 1 where one of them fails."""
    parser = arguments()
    given = parser.parse_args()
    names = [name for name in STEPS if not (given.user_mode and name in _QEMU_ALONE)]
    if given.list:
        print("\n".join(names))
        return 0
    try:
        wanted = chosen(names, given.first, given.only or (), given.also or ())
    except KeyError as error:
        parser.error(f"no step {error}; there are: {', '.join(names)}")
    require(parser, _NEEDED | (_NEEDED_USER_MODE if given.user_mode else _NEEDED_QEMU))
    again = bool(given.first or given.only)
    work = work_of(given.cache, given.release, user_mode=given.user_mode)
    if again and not (work / "disk.img").exists():
        parser.error(f"no run to go on with in {work}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the machines are ended
    with bridged() if given.user_mode else contextlib.nullcontext() as space:
        ground = Ground(given.release, given.cache, given.factor, space, counted=given.counted)
        return _campaign(ground, wanted, again=again)


def _campaign(ground: Ground, wanted: Sequence[str], *, again: bool) -> int:
    times: dict[str, float] = {}
    taken = {} if again else {"supply": ground.supplied}
    taken |= {name: functools.partial(STEPS[name], ground) for name in wanted}
    try:
        for name, step in taken.items():
            times |= gone_through({name: step}, None)
    except Broken:
        return 1
    finally:
        ground.close()
        rows = [f"| {name} | {seconds:.0f} |" for name, seconds in times.items()]
        print("\n".join([f"| step, Debian {ground.release} | s |", "|---|---|", *rows]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
