"""The parts of the campaign ``debian`` asked for by name: launchers, tests of the suite, Ansible, namespaces."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

from campaigns import _debian_jobs as jobs
from campaigns._ansible_lab import Lab, changed, need
from campaigns._ansible_versions import later_checkout, name_of, wheelhouse
from campaigns._debian_ground import CHECKOUT, DESK, HEAD, Ground
from campaigns._debian_image import HOSTS, RELEASES
from campaigns._systemd_hosts import HOME, USER
from cosched.config.cluster import ClusterConfig
from cosched.model.time import US_PER_S

#: Of each launcher: what compiles CG for it, and how a job's script starts that on all tasks (docs/guide/launchers.md).
_LAUNCHERS: Final = {
    "openmpi": ("mpicc.openmpi -O1 -o {program} cg_mpi.c -lm", "exec mpirun.openmpi {program} 2100 1"),
    "mpich": ("mpicc.mpich -O1 -o {program} cg_mpi.c mpich_finalize.c -lm", "exec mpiexec.mpich {program} 2100 1"),
    "pvm": (
        "gcc -O1 -o {program} cg_pvm.c -lpvm3 -lm",
        "set -e; echo quit | pvm >/dev/null; {program} 2100 1; echo halt | pvm >/dev/null || true",
    ),
}
#: What of ``./run test --quick`` asks the system: control groups, /proc, accounts, sockets, TLS, disks, the shell.
_SYSTEM_TESTS: Final = (
    "tests/unit/metrics", "tests/unit/install", "tests/unit/test_run_script.py", "tests/client",
    "tests/service/test_accepting.py", "tests/service/test_listen.py", "tests/service/test_full_disk.py",
    "tests/service/test_journal.py", "tests/service/test_lookups.py", "tests/service/test_callers.py",
)  # fmt: skip
_RESTRICTED: Final = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def launchers(ground: Ground) -> None:
    """A job of each launcher over both hosts gives the verified answer."""
    ground.up(HEAD, DESK)
    debs = ground.debs()
    for machine in ground.machines.values():
        machine.at("rm -rf /var/tmp/debs")
        machine.bring(debs, "/var/tmp/debs")
        jobs.installed(ground, machine, "dpkg -i --skip-same-version /var/tmp/debs/*.deb >/var/tmp/dpkg.txt")
    there = [name for name in _LAUNCHERS if list(debs.glob(f"{name}_*.deb")) or name == "openmpi"]
    print(f"  the release has no package of: {sorted({*_LAUNCHERS} - {*there})}", flush=True)
    for name in there:
        compiler = _LAUNCHERS[name][0].format(program=HOME / f"cg-{name}")
        for machine in ground.machines.values():
            machine.at(f"cd {CHECKOUT}/cosched/programs/c && {compiler}", base_s=20)
    places = ground.places(HEAD, DESK)
    for name in there:
        line = _LAUNCHERS[name][1]
        script = f"#!/bin/sh\n{line.format(program=HOME / f'cg-{name}')}\n"
        ground.head.at(f"cat >{name}.sh <<'END'\n{script}END", user=USER)
        number = ground.submit(f"-n {len(places)} --time 2h {name}.sh")
        said = json.loads(" ".join(ground.output(number)))
        need(said["verified"] is True and said["ranks"] == len(places), f"{name}: {said}")
        need(set(said["hosts"]) == {HEAD, DESK}, f"{name} ran on {said['hosts']}")
        version = ground.head.at(f"dpkg-query -W -f '${{Version}}' {name.replace('openmpi', 'openmpi-bin')}")
        print(f"  {name} {version}: {said['ranks']} ranks on {sorted(set(said['hosts']))}, verified", flush=True)


def system_tests(ground: Ground) -> None:
    """The quick tests that ask the system, on the release's kernel, systemd and Python, as root and as the user."""
    ground.up(HEAD)
    ground.head.at(f"chown -R {USER}: {CHECKOUT}")
    for user in ("root", USER):
        line = f"cd {CHECKOUT} && ./run test {' '.join(_SYSTEM_TESTS)} >~/tests.txt 2>&1"
        said = ground.head.at(f"{line}; echo status $?; tail -n 15 ~/tests.txt", user=user, base_s=150)
        need(said.startswith("status 0"), f"as {user}: {said}")
        print(f"  as {user}: {next(line for line in said.splitlines() if ' passed' in line)}", flush=True)


def namespaces(ground: Ground) -> None:
    """A lab of an ordinary user's, where user namespaces are restricted (Ubuntu) and where they are not."""
    ground.up(HEAD)
    asked = f"cat {_RESTRICTED} 2>/dev/null || echo none; {{ unshare -Urn true 2>&1 && echo allowed; }} || true"
    restricted, *said = ground.head.at(asked, user=USER).splitlines()
    print(f"  {_RESTRICTED}: {restricted}; unshare as {USER}: {said}", flush=True)
    line = f"cd {CHECKOUT} && ./run cosched lab up --lab asked --nodes 2 2>&1; echo status $?"
    up = ground.head.at(line, user=USER, base_s=60)
    print("\n".join(f"  {each}" for each in up.splitlines()[-4:]), flush=True)
    if up.splitlines()[-1] == "status 0":
        ground.head.at(f"cd {CHECKOUT} && ./run cosched lab down --lab asked", user=USER, base_s=30)
    else:
        need(restricted == "1" and "remedy" in up, f"refused without a remedy: {up}")


class _Reached:
    """The emulated hosts as a :class:`Lab` asks for them: by ssh at forwarded ports."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.addresses = HOSTS
        self.key = ground.image / "id_ed25519"
        self.known_hosts = ground.work / "known_hosts"
        found = [(machine.directory / "known_hosts").read_text("ascii") for machine in ground.machines.values()]
        self.known_hosts.write_text("".join(found), "ascii")

    def controller(
        self, argv: list[str | Path], environment: dict[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """A command of the controller's, which is this machine; a time is multiplied by the factor."""
        return subprocess.run(
            [*self._ground.head.prefix, *argv], env=environment, capture_output=True, text=True, check=False,
            timeout=timeout_s * self._ground.factor, cwd=self.known_hosts.parent,
        )  # fmt: skip

    def at(self, name: str, line: str, timeout_s: float = 60) -> str:
        """What a line of root's shell says on a host."""
        return self._ground.machines[name].at(line, base_s=timeout_s)


def ansible(ground: Ground) -> None:
    """The collection on fresh hosts: preflight, site (twice: nothing to do), a job, upgrade under it, removal."""
    ground.close()
    ground.fresh()
    ground.up(HEAD, DESK)
    for machine in ground.machines.values():
        machine.at("rm -rf /opt/cosched /usr/local/bin/cosched")
    jobs.state(ground)
    work = ground.work / "ansible"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    environment = ground.work.parent / "ansible"
    need((environment / "bin/ansible-playbook").exists(), f"no ansible-core in {environment}: ./run campaign ansible")
    lab = Lab(work, Path(), environment, hosts=_Reached(ground))
    python = RELEASES[ground.release].python
    wheels, later = work / "wheels", work / "later"
    wheelhouse(wheels, Path(__file__).parents[2], python)
    wheelhouse(later, later_checkout(work / "checkout", ".post1"), python)

    # an agent may be away for the lease while it is upgraded
    lease_s = round(ClusterConfig(name="office").time_us("lease") / US_PER_S * ground.factor)

    def inventory(of: Path) -> None:
        groups = {
            f"cosched_{group}": {"hosts": {name: ground.machines[name].reached()}}
            for group, name in (("scheduler", HEAD), ("nodes", DESK))
        }
        lab.written(groups, of, cosched_users=[USER], scheduler_extra={"lease": f"{lease_s}s"})

    inventory(wheels)
    for playbook in ("preflight", "site"):
        lab.play(playbook)
    ground.until(lambda: ground.nodes() == {DESK: "up"}, "the desk is up", base_s=60)
    need(not changed(lab.play("site")), f"site a second time: {lab.said[-2000:]}")
    ground.programs(HEAD, DESK)
    places = ground.places(DESK)
    number = ground.submit(f"-n {len(places)} --time 12h waits.sh {HOME}/go")
    ground.runs(number)
    look = f"pgrep -u {USER} -x ranks | sort"
    ground.until(lambda: len(ground.desk.at(look).split()) == len(places), "the ranks run")
    before = ground.desk.at(look)
    inventory(later)
    lab.play("upgrade")
    found = {name: lab.version(name) for name in (HEAD, DESK)}
    need(set(found.values()) == {name_of(later)}, f"in use: {found}")
    need(ground.desk.at(look) == before, "the ranks' processes are others after the upgrade")
    ground.desk.at(f"touch {HOME}/go")
    ground.verified(number, places)
    lab.play("remove", "-e", "cosched_remove=true")
    jobs.as_before(ground)
