"""The Ansible collection against real hosts: from nothing to an MPI job, through upgrades, and back to nothing.

    ./run campaign ansible [--work DIR] [--image DIR] [--ansible DIR] [--old-python DIR] [--own-kernel]
                          [--only STEP ...] [--json FILE]

Six hosts with systemd as process 1 and sshd (``_systemd_hosts``) on a network of their own, so without any package
index: the scheduler's, three desks, one that is added, and one that the scheduler moves to; with ``--own-kernel`` the
desk that is added is a User Mode Linux, and so has control groups of version 2. Each step is a playbook and what must
be true after it, and is timed; a step that fails ends the campaign with 1. Needs root, debootstrap, systemd-nspawn,
ssh, libfaketime, an overlay file system; for the image and, where ``--ansible`` names no environment, for ansible-core
a network, once each.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from campaigns._ansible_lab import (
    DESKS,
    HEAD,
    NEW,
    ROOT,
    SEATED,
    USER_PORT,
    Lab,
    arguments,
    as_before,
    changed,
    gone_through,
    need,
    went_through,
)
from campaigns._ansible_moves import moved
from campaigns._ansible_refusals import refused
from campaigns._ansible_versions import go, later_checkout, restored, upgraded, waiting, wheelhouse
from campaigns._systemd_hosts import COMMANDS, USER, image, require, run

ANSIBLE = "ansible-core==2.19.*"


def from_nothing(lab: Lab) -> None:
    """The check mode on fresh hosts, which leaves them so; site.yml from nothing; then a job over three nodes.

    The command is on the path of a desk's users, and doctor sees their homes.
    """
    before = {name: lab.state(name) for name in (HEAD, *DESKS)}
    lab.play("site", "--check")
    need({name: lab.state(name) for name in (HEAD, *DESKS)} == before, "the check mode changed hosts")
    lab.play("site")
    need(lab.nodes() == dict.fromkeys(DESKS, "up"), f"nodes: {lab.nodes()}")
    lab.verified(lab.submit("once", lab.tasks(DESKS)), DESKS)
    lab.hosts.at(DESKS[0], f"runuser -l {USER} -c 'cosched desk status'")
    checks = json.loads(lab.hosts.at(HEAD, f"cosched doctor --json --user {USER} || true"))["checks"]
    told = [each for each in checks if each["what"] == f"user {USER}"]
    need(told and all(each["level"] == "ok" for each in told), f"doctor says of {USER}: {told}")


def again(lab: Lab) -> None:
    """site.yml once more changes nothing, nor would it by its check mode."""
    recap = lab.play("site")
    need(not changed(recap), f"changed: {changed(recap)}")
    recap = lab.play("site", "--check")
    need(not changed(recap), f"check mode: {changed(recap)}")


def one_setting(lab: Lab) -> None:
    """One setting changed on one desk, by --limit; the others' files stay; the next whole run takes it back."""
    extra = json.dumps({"node_agent_extra": '[presence]\npreset = "dedicated"\n'})
    recap = lab.play("site", "--limit", "desk2", "-e", extra)
    need(set(changed(recap)) == {"desk2"}, f"changed: {changed(recap)}")
    settings = {name: lab.hosts.at(name, "cat /etc/cosched/node.toml") for name in DESKS}
    need(
        [name for name in DESKS if "dedicated" in settings[name].split("[presence]")[1]] == ["desk2"], "the wrong desks"
    )
    recap = lab.play("site")
    need(set(changed(recap)) == {"desk2"}, f"taken back: {changed(recap)}")


def half_done(lab: Lab) -> None:
    """A run that fails after it has written settings has restarted nothing; the next one does."""
    extra = {"node_agent_extra": '[presence]\npreset = "dedicated"\n'}
    unsigned = {"node_agent_renew_days": 4000, "node_agent_command": "/bin/false"}
    lab.play("site", "--limit", "desk1", "-e", json.dumps(extra | unsigned), fails=True)
    began = "systemctl show --property=ExecMainStartTimestampMonotonic --value cosched-guard cosched-agent"
    before = lab.hosts.at("desk1", began)
    need("dedicated" in lab.hosts.at("desk1", "cat /etc/cosched/node.toml"), "the settings are not written")
    recap = lab.play("site", "--limit", "desk1", "-e", json.dumps(extra))
    need(set(changed(recap)) == {"desk1"}, f"changed: {changed(recap)}")
    after = lab.hosts.at("desk1", began)
    need(not set(after.split()) & set(before.split()), f"not both were restarted: {before} -> {after}")
    need(not changed(lab.play("site", "--limit", "desk1", "-e", json.dumps(extra))), "restarted twice")
    lab.play("site", "--limit", "desk1")


def watched(lab: Lab) -> None:
    """The synthetic user's service runs at its desk, and the scheduler's host reads what it measures."""
    address = f"http://{lab.hosts.addresses[SEATED]}:{USER_PORT}/metrics"
    program = f"import urllib.request as r; print(r.urlopen('{address}', timeout=10).read().decode())"

    def read() -> bool:
        try:
            return "cosched_local_present{" in lab.hosts.at(HEAD, f'python3 -c "{program}"')
        except RuntimeError:
            return False

    lab.until(read, f"{SEATED} answers at port {USER_PORT}")
    need(lab.hosts.at(SEATED, "systemctl is-active cosched-local-load.service").strip() == "active", "it is not active")


def unmeant(lab: Lab) -> None:
    """Removal without a word of consent changes nothing."""
    recap = lab.play("remove", fails=True)
    need(not changed(recap), f"changed: {changed(recap)}")


def added(lab: Lab, wheels: Path) -> None:
    """A fourth desk by add_node.yml; a job runs on all."""
    lab.inventory((*DESKS, NEW), wheels)
    recap = lab.play("add_node", "-e", f"cosched_new={NEW}")
    need(NEW in changed(recap), f"changed: {changed(recap)}")
    need(lab.nodes() == dict.fromkeys((*DESKS, NEW), "up"), f"nodes: {lab.nodes()}")
    lab.verified(lab.submit("once", lab.tasks((*DESKS, NEW))), (*DESKS, NEW))


def one_hierarchy(lab: Lab) -> None:
    """The desk with a kernel of its own has control groups of version 2: slice, idle class, delegation, a job in it."""
    if not lab.own_kernel:
        print("  control groups of version 2: not tried (--own-kernel)", flush=True)
        return
    look = (
        "stat -fc %T /sys/fs/cgroup; cat /sys/fs/cgroup/cosched.slice/cpu.idle; systemctl show -P Delegate cosched-jobs"
    )
    need(lab.hosts.at(NEW, look).split() == ["cgroup2fs", "1", "yes"], f"groups: {lab.hosts.at(NEW, look)}")
    check = json.loads(lab.hosts.at(NEW, "/opt/cosched/current/bin/cosched agent --check --json"))
    found = {each["what"]: each["found"] for each in check["findings"]}
    need(found["protects the desk"] == found["cpu ceiling"] == "yes", f"{found}")
    desks = (*DESKS, NEW)
    number, _ = waiting(lab, lab.tasks(desks), desks)
    groups = lab.hosts.at(NEW, f"cat $(pgrep -u {USER} -f python3.*waits.py | sed 's,.*,/proc/&/cgroup,')").split()
    place = f"0::/cosched.slice/cosched-jobs.service/jobs/job-{number}."
    need(groups and all(each.startswith(place) for each in groups), f"job {number} is in {groups}")
    go(lab, number, desks)


def drained(lab: Lab) -> None:
    """One desk drained, a second time without a change, and back."""
    lab.play("drain", "--limit", "desk2")
    need(lab.nodes()["desk2"] == "drained", f"{lab.nodes()}")
    need(not changed(lab.play("drain", "--limit", "desk2")), "drained twice")
    lab.play("drain", "--limit", "desk2", "-e", "node_agent_drain_resume=true")
    need(lab.nodes()["desk2"] == "up", f"{lab.nodes()}")


def rebooted(lab: Lab) -> None:
    """A desk that is started anew is a node again by itself, and the scheduler's host too."""
    for name in ("desk1", HEAD):
        lab.hosts.halt(name)
        lab.hosts.boot(name)

    def all_up() -> bool:
        try:
            return set(lab.nodes().values()) == {"up"}
        except RuntimeError:
            return False

    lab.until(all_up, "all nodes are up after the boot")
    watched(lab)
    lab.verified(lab.submit("once", lab.tasks((*DESKS, NEW))), (*DESKS, NEW))


def caught_up(lab: Lab) -> None:
    """A desk that was off during a run is caught up by the next."""
    lab.hosts.halt("desk3")
    extra = ("-e", json.dumps({"node_agent_extra": '[presence]\npreset = "lab-night"\n'}))
    recap = lab.play("site", *extra, fails=True)
    need(recap["desk3"]["unreachable"] and {"desk1", "desk2"} <= set(changed(recap)), f"{recap}")
    lab.hosts.boot("desk3")
    recap = lab.play("site", *extra)
    need(set(changed(recap)) == {"desk3"}, f"caught up: {changed(recap)}")


def laid_out_anew(lab: Lab) -> None:
    """A desk that was reinstalled gets a new key by site.yml; the scheduler refuses the one of the old disk."""
    before = made_for(lab, "desk2")
    lab.hosts.at("desk2", "cp -a /etc/cosched/identity ~/old; systemctl disable --now cosched-agent cosched-guard")
    places = "/{etc,var/lib,opt}/cosched /usr/local/bin/cosched /etc/{sysusers.d,systemd/system}/cosched-*"
    lab.hosts.at("desk2", f"rm -r {places}; userdel cosched-agent")
    recap = lab.play("site", "--limit", "desk2")
    need(set(changed(recap)) == {"desk2"}, f"changed: {changed(recap)}")
    need(before <= revoked(lab) and not made_for(lab, "desk2") <= revoked(lab), f"revoked: {revoked(lab)}")
    identity, change = "/etc/cosched/identity", "chown cosched-agent: ~/old/node.key"
    swap = f"mv {identity} ~/new; mv ~/old {identity}"
    lab.hosts.at("desk2", f"{change}; systemctl stop cosched-agent; {swap}; systemctl start cosched-agent")
    said = "journalctl --unit=cosched-agent --output=cat | grep -c 'that of node .desk2. was revoked' || true"
    lab.until(lambda: int(lab.hosts.at("desk2", said)), "the agent with the old key is refused")
    lab.until(lambda: lab.nodes()["desk2"] != "up", "desk2 is lost")
    lab.hosts.at("desk2", f"rm -r {identity}; mv ~/new {identity}; systemctl restart cosched-agent")
    lab.until(lambda: lab.nodes()["desk2"] == "up", "desk2 is up with its new key")
    lab.verified(lab.submit("once", lab.tasks(DESKS)), DESKS)


def removed(lab: Lab, before: dict[str, dict[str, str]]) -> None:
    """remove.yml for one desk, then for one that is off: the others go on. Then for all: everything is as before."""
    for name in ("desk3", NEW):
        if name == NEW:
            lab.hosts.halt(name)
        lab.play("remove", "-e", "cosched_remove=true", "--limit", name, fails=name == NEW)
        need(name not in lab.nodes(), f"{name} is a node: {lab.nodes()}")
        need(made_for(lab, name) and made_for(lab, name) <= revoked(lab), f"{name} has certificates that count")
    need(lab.nodes() == {"desk1": "up", "desk2": "up"}, f"{lab.nodes()}")
    lab.hosts.boot(NEW)
    lab.play("remove", "-e", "cosched_remove=true")
    for name, was in before.items():
        as_before(name, was, lab.state(name))


def made_for(lab: Lab, name: str) -> set[str]:
    """The serial numbers of all certificates that the authority made for a node."""
    lines = map(str.split, (lab.controller / "office/authority/issued").read_text().splitlines())
    return {words[0] for words in lines if words[1:3] == ["node", name]}


def revoked(lab: Lab) -> set[str]:
    """The serial numbers that the scheduler refuses."""
    return set(json.loads(lab.hosts.at(HEAD, "cat /var/lib/cosched/scheduler/members.json"))["revoked"])


def controller_environment(given: Path | None, cache: Path) -> Path:
    """An environment with ansible-core: the given one, or one that is made once."""
    directory = given or cache / "ansible"
    if not (directory / "bin/ansible-playbook").exists():
        run(sys.executable, "-m", "venv", directory, timeout_s=300)
        run(directory / "bin/pip", "install", "-q", ANSIBLE, timeout_s=900)
    return directory


def steps(lab: Lab, earlier: Path, later: Path, newest: Path, old_python: Path | None) -> dict[str, Callable[[], None]]:
    """The campaign, in its order."""
    before: dict[str, dict[str, str]] = {}

    def look() -> None:
        lab.programs()
        before.update({name: lab.state(name) for name in (HEAD, *DESKS, NEW)})
        lab.inventory(DESKS, earlier)

    return {
        "look": look,
        "refused": lambda: refused(lab, earlier, old_python),
        "from nothing": lambda: from_nothing(lab),
        "again": lambda: again(lab),
        "laid out anew": lambda: laid_out_anew(lab),
        "synthetic user": lambda: watched(lab),
        "scheduler moved": lambda: moved(lab, earlier),
        "one setting": lambda: one_setting(lab),
        "half done": lambda: half_done(lab),
        "remove, unmeant": lambda: unmeant(lab),
        "upgrade and rollback": lambda: upgraded(lab, later, earlier),
        "synthetic user, upgraded": lambda: watched(lab),
        "upgrade that stops": lambda: restored(lab, newest, earlier),
        "add a node": lambda: added(lab, earlier),
        "version 2": lambda: one_hierarchy(lab),
        "drain": lambda: drained(lab),
        "reboot": lambda: rebooted(lab),
        "caught up": lambda: caught_up(lab),
        "remove": lambda: removed(lab, before),
    }


def main() -> int:
    """Go through the steps; the exit status is 1 where one of them fails."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--old-python", type=Path, metavar="DIR", help="the prefix of a Python before 3.11, for preflight to refuse"
    )
    parser.add_argument(
        "--own-kernel", action="store_true", help="the desk that is added is a User Mode Linux (user-mode-linux, gcc)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the times")
    given = parser.parse_args()
    require(parser, COMMANDS)
    return went_through(given, lambda work: _campaign(work, given))


def _campaign(work: Path, given: argparse.Namespace) -> dict[str, float]:
    """How long each part took, in seconds. Raises :class:`Broken`."""
    begun_s = time.monotonic()
    base, ansible = image(given.image), controller_environment(given.ansible, given.image)
    earlier = wheelhouse(work / "wheels", ROOT)
    later = wheelhouse(work / "later", later_checkout(work / "checkout", ".post1"))
    newest = wheelhouse(work / "newest", later_checkout(work / "newest-checkout", ".post2", journal=True))
    made_s = time.monotonic()
    lab = Lab(work, base, ansible, own_kernel=given.own_kernel)
    times = {"image and wheels": made_s - begun_s, "six hosts": time.monotonic() - made_s}
    try:
        return times | gone_through(steps(lab, earlier, later, newest, given.old_python), given.only)
    finally:
        lab.hosts.close()


if __name__ == "__main__":
    sys.exit(main())
