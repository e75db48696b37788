"""The Ansible collection against real hosts: from nothing to an MPI job, through upgrades, and back to nothing.

    ./run campaign ansible [--work DIR] [--image DIR] [--ansible DIR] [--only STEP ...] [--json FILE]

Five hosts with systemd as process 1 and sshd (``_systemd_hosts``) on a network of their own, so without any package
index: the scheduler's, three desks, and one that is added. Each step is a playbook and what must be true after it, and
is timed; a step that fails ends the campaign with 1. Needs root, debootstrap, systemd-nspawn, ssh, an overlay file
system; for the image and, where ``--ansible`` names no environment, for ansible-core a network, once each.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaigns._systemd_hosts import HOME, NETWORK, USER, SystemdHosts, image, run

ROOT = Path(__file__).resolve().parents[2]
HEAD, DESKS, NEW = "head", ("desk1", "desk2", "desk3"), "desk4"
ANSIBLE = "ansible-core==2.19.*"
PLAYBOOK_S = 900.0
JOB_S = 120.0
#: Whose change says nothing: logs, systemd's own notes, what ssh and Ansible leave with root, copies of account files.
VOLATILE = re.compile(
    r"^(var/log|var/tmp|tmp|run|root/[.]ansible|var/lib/systemd|var/lib/dbus|var/cache|var/backups|etc/[.]pwd[.]lock|etc/(passwd|group|shadow|gshadow"
    r"|subuid|subgid)-)(/|$)"
)
JOB = """\
import socket, time
from pathlib import Path
from mpi4py import MPI
world = MPI.COMM_WORLD
hosts = world.allgather(socket.gethostname())
total = world.allreduce(world.rank + 1)
end = time.monotonic() + 1200
while WAITS and time.monotonic() < end and not world.bcast(Path("HOME/go").exists()):
    time.sleep(0.2)
if world.rank == 0:
    print("verified", world.size, total, ",".join(sorted(set(hosts))))
"""


class Broken(Exception):
    """What should be so is not."""


def need(holds: object, what: str) -> None:
    """Raise :class:`Broken` where something does not hold."""
    if not holds:
        raise Broken(what)


class Lab:
    """The hosts, the controller's directory, and what is asked of both."""

    def __init__(self, work: Path, base: Path, ansible: Path) -> None:
        self.work, self.base, self.ansible = work, base, ansible
        self.hosts = SystemdHosts(work / "hosts", base, (HEAD, *DESKS, NEW))
        self.controller = work / "controller"
        self.times: dict[str, float] = {}

    def inventory(self, desks: tuple[str, ...], wheels: Path) -> None:
        """Write the inventory, as an administrator would."""
        (self.controller / "group_vars").mkdir(parents=True, exist_ok=True)
        hosts = {name: {"ansible_host": self.hosts.addresses[name]} for name in (HEAD, *desks)}
        groups = {
            "cosched_scheduler": {"hosts": {HEAD: hosts[HEAD]}},
            "cosched_nodes": {"hosts": {name: hosts[name] for name in desks}},
            "cosched_local_load": {"hosts": {}},
        }
        settings = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.hosts.key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.hosts.known_hosts}",
            "cosched_cluster": "office",
            "cosched_directory": str(self.controller / "office"),
            "cosched_wheelhouse": str(wheels),
            "cosched_command": f"{sys.executable} -m cosched.apps.cli.main",
            "cosched_scheduler_address": self.hosts.addresses[HEAD],
            "cosched_network": NETWORK,
            "cosched_users": [USER],
        }
        (self.controller / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
        (self.controller / "group_vars/all.json").write_text(json.dumps(settings))

    def play(self, playbook: str, *arguments: str, fails: bool = False) -> dict[str, dict[str, int]]:
        """Run a playbook; what became of each host, as Ansible's recap has it. Raises :class:`Broken`."""
        environment = {
            "PATH": f"{self.ansible / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.controller),
            "LANG": "C.UTF-8",
            "ANSIBLE_HOME": str(self.controller / "ansible"),
            "ANSIBLE_CONFIG": str(ROOT / "ansible/ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(ROOT / "ansible/roles"),
        }
        argv = [
            self.ansible / "bin/ansible-playbook", "-i", self.controller / "hosts.json",
            ROOT / "ansible/playbooks" / f"{playbook}.yml", *arguments,
        ]  # fmt: skip
        ended = self.hosts.controller(argv, environment, PLAYBOOK_S)
        with (self.work / "ansible.log").open("a") as log:
            log.write(f"\n$ {playbook} {' '.join(arguments)}\n{ended.stdout}{ended.stderr}\n")
        need(
            bool(ended.returncode) == fails,
            f"{playbook}: status {ended.returncode}\n{ended.stdout[-4000:]}{ended.stderr[-2000:]}",
        )
        recap = re.findall(r"^(\S+)\s+: (ok=.*)$", ended.stdout, re.MULTILINE)
        found = {host: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", line)} for host, line in recap}
        need(found, f"{playbook}: no recap\n{ended.stdout[-2000:]}")
        return found

    def cosched(self, arguments: str, timeout_s: float = 60) -> Any:
        """What the command says on the scheduler's host, as the ordinary user."""
        verb, _, rest = arguments.partition(" ")
        line = f"cd {HOME} && runuser -u {USER} -- cosched {verb} --json {rest}"
        return json.loads(self.hosts.at(HEAD, line, timeout_s))

    def nodes(self) -> dict[str, str]:
        """The nodes and their states."""
        return {node["name"]: node["state"] for node in self.cosched("nodes")["nodes"]}

    def until(self, holds: Callable[[], object], what: str, bound_s: float = JOB_S) -> None:
        """Wait until something holds. Raises :class:`Broken`."""
        end_s = time.monotonic() + bound_s
        while not holds():
            need(time.monotonic() < end_s, f"not within {bound_s:g} s: {what}")
            time.sleep(0.5)

    def programs(self) -> None:
        """Give the user the job's programs on all hosts, as a shared home would."""
        for name in (HEAD, *DESKS, NEW):
            home = self.hosts.root(name) / str(HOME)[1:]
            for program, waits in (("once", False), ("waits", True)):
                (home / f"{program}.py").write_text(JOB.replace("WAITS", str(waits)).replace("HOME", str(HOME)))
                (home / f"{program}.sh").write_text(f"#!/bin/sh\nexec mpirun python3 {HOME}/{program}.py\n")

    def submit(self, program: str, tasks: int) -> int:
        """Submit a job; its number."""
        return int(self.cosched(f"submit -n {tasks} {program}.sh")["job_id"])

    def job(self, number: int) -> dict[str, Any]:
        """What the scheduler has of a job."""
        found: dict[str, Any] = self.cosched(f"show {number}")
        return found

    def verified(self, number: int, desks: tuple[str, ...]) -> None:
        """Wait for a job's end; it must have run on these desks, and every rank have taken part."""
        over = ("completed", "failed", "cancelled", "node lost", "lost")
        self.until(lambda: self.job(number)["state"] in over, f"job {number} ends")
        job = self.job(number)
        need(job["state"] == "completed", f"job {number}: {job['state']}: {job.get('reason')}")
        said = self.hosts.at(HEAD, f"cd {HOME} && runuser -u {USER} -- cosched logs {number}")
        tasks = int(said.split()[1])
        need(
            said.split() == ["verified", str(tasks), str(tasks * (tasks + 1) // 2), ",".join(desks)],
            f"job {number}: {said}",
        )

    def tasks(self, desks: tuple[str, ...]) -> int:
        """As many tasks as these desks have CPUs."""
        return sum(node["procs"] for node in self.cosched("nodes")["nodes"] if node["name"] in desks)

    def state(self, name: str) -> dict[str, str]:
        """What removal is compared by: files that the image has not, accounts, units, groups."""
        found = {}
        top = self.hosts.written(name)
        for path in sorted(top.rglob("*")):
            inside = str(path.relative_to(top))
            if VOLATILE.match(inside) or (path.is_dir() and not path.is_symlink()):
                continue
            is_file = path.is_file() and not path.is_symlink()
            if not (is_file and same(path, self.base / inside)):
                found[inside] = run("sha256sum", path).split()[0] if is_file else "link, device or removed"
        found["accounts"] = self.hosts.at(name, "getent passwd; getent group")
        found["units"] = self.hosts.at(name, "systemctl list-unit-files --no-legend | awk '{print $1, $2}'")
        found["groups"] = self.hosts.at(name, "find /sys/fs/cgroup -type d -name '*cosched*'")
        found["processes"] = self.hosts.at(name, "ps -eo args= | grep -c '[c]osched' || true")
        return found


def same(path: Path, other: Path) -> bool:
    """Whether both are files of the same content."""
    return other.is_file() and not other.is_symlink() and path.read_bytes() == other.read_bytes()


def changed(recap: dict[str, dict[str, int]]) -> dict[str, int]:
    """How many tasks changed something, by host, where any did."""
    return {host: words["changed"] for host, words in recap.items() if words["changed"]}


def from_nothing(lab: Lab) -> None:
    """site.yml from nothing, then a job over three nodes."""
    lab.play("site")
    need(lab.nodes() == dict.fromkeys(DESKS, "up"), f"nodes: {lab.nodes()}")
    lab.verified(lab.submit("once", lab.tasks(DESKS)), DESKS)


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


def refused(lab: Lab) -> None:
    """What cannot work is refused before anything changes."""
    before = lab.state("desk1")
    recap = lab.play("site", "-e", json.dumps({"cosched_users": [USER, "nobody-knows"]}), fails=True)
    need(not changed(recap), f"changed: {changed(recap)}")
    need(lab.state("desk1") == before, "desk1 is not as it was")
    recap = lab.play("remove", fails=True)
    need(not changed(recap), f"remove without a word of consent changed: {changed(recap)}")


def upgraded(lab: Lab, later: Path, earlier: Path) -> None:
    """To a later version and back while a job runs on all desks, which goes on."""
    number = lab.submit("waits", lab.tasks(DESKS))
    lab.until(lambda: lab.job(number)["state"] == "running", "the job runs")
    count = "pgrep -u ada -f waits.py | sort | tr '\\n' ' '"
    lab.until(lambda: all(len(lab.hosts.at(name, count).split()) >= 2 for name in DESKS), "its ranks run")
    ranks = {name: lab.hosts.at(name, count) for name in DESKS}
    names = {wheels: next(wheels.glob("cosched_testbed-*")).name.split("-")[1] for wheels in (later, earlier)}
    for playbook, wheels in (("upgrade", later), ("rollback", earlier)):
        lab.inventory(DESKS, later)
        lab.play(playbook)
        for name in (HEAD, *DESKS):
            used = lab.hosts.at(name, "readlink /opt/cosched/current").strip()
            need(used == names[wheels], f"{playbook}: {name} has {used}, not {names[wheels]}")
        need(lab.job(number)["state"] == "running", f"{playbook}: job {number} is {lab.job(number)['state']}")
        need({name: lab.hosts.at(name, count) for name in DESKS} == ranks, f"{playbook}: other processes than before")
    need(lab.hosts.at(HEAD, "ls -d /var/lib/cosched/scheduler.*").strip(), "no copy of the journal")
    lab.inventory(DESKS, earlier)
    for name in DESKS:
        lab.hosts.at(name, f"touch {HOME}/go")
    lab.verified(number, DESKS)


def added(lab: Lab, wheels: Path) -> None:
    """A fourth desk by add_node.yml; a job runs on all."""
    lab.inventory((*DESKS, NEW), wheels)
    recap = lab.play("add_node", "-e", f"cosched_new={NEW}")
    need(NEW in changed(recap), f"changed: {changed(recap)}")
    need(lab.nodes() == dict.fromkeys((*DESKS, NEW), "up"), f"nodes: {lab.nodes()}")
    lab.verified(lab.submit("once", lab.tasks((*DESKS, NEW))), (*DESKS, NEW))


def drained(lab: Lab) -> None:
    """One desk drained, a second time without a change, and back."""
    lab.play("drain", "--limit", "desk2")
    need(lab.nodes()["desk2"] == "drained", f"{lab.nodes()}")
    need(not changed(lab.play("drain", "--limit", "desk2")), "drained twice")
    lab.play("drain", "--limit", "desk2", "-e", '{"node_agent_drain_resume": true}')
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


def removed(lab: Lab, before: dict[str, dict[str, str]]) -> None:
    """remove.yml for one desk, without which the others go on; then for all: everything is as it was before."""
    others = set(lab.nodes()) - {"desk3"}
    lab.play("remove", "-e", "cosched_remove=true", "--limit", "desk3")
    need({name for name, state in lab.nodes().items() if state == "up"} == others, f"{lab.nodes()}")
    lab.play("remove", "-e", "cosched_remove=true")
    for name, was in before.items():
        now = lab.state(name)
        other = sorted(what for what in was.keys() | now.keys() if was.get(what) != now.get(what))
        need(not other, f"{name}: not as before: {[(what, was.get(what), now.get(what)) for what in other][:8]}")


def wheelhouse(directory: Path, source: Path) -> Path:
    """What './run wheelhouse' makes of a checkout."""
    minor = "3.11"  # of the image
    argv = (source / "lock/wheelhouse.py", directory, "--python", minor, "--extra", "scheduler,local-load")
    run(sys.executable, *argv, timeout_s=600)
    return directory


def later_checkout(directory: Path) -> Path:
    """This checkout's commit, said to be a later version."""
    directory.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)
    version = directory / "cosched/__init__.py"
    version.write_text(re.sub(r'(__version__ = "[^"]*)"', r'\1.post1"', version.read_text()))
    return directory


def controller_environment(given: Path | None, cache: Path) -> Path:
    """An environment with ansible-core: the given one, or one that is made once."""
    directory = given or cache / "ansible"
    if not (directory / "bin/ansible-playbook").exists():
        run(sys.executable, "-m", "venv", directory, timeout_s=300)
        run(directory / "bin/pip", "install", "-q", ANSIBLE, timeout_s=900)
    return directory


def steps(lab: Lab, earlier: Path, later: Path) -> dict[str, Callable[[], None]]:
    """The campaign, in its order."""
    before: dict[str, dict[str, str]] = {}

    def look() -> None:
        lab.programs()
        before.update({name: lab.state(name) for name in (HEAD, *DESKS, NEW)})
        lab.inventory(DESKS, earlier)

    def without_jobs() -> None:
        for name in DESKS:
            lab.hosts.at(name, f"rm -f {HOME}/go")
        removed(lab, before)

    return {
        "look": look,
        "from nothing": lambda: from_nothing(lab),
        "again": lambda: again(lab),
        "one setting": lambda: one_setting(lab),
        "refused": lambda: refused(lab),
        "upgrade and rollback": lambda: upgraded(lab, later, earlier),
        "add a node": lambda: added(lab, earlier),
        "drain": lambda: drained(lab),
        "reboot": lambda: rebooted(lab),
        "caught up": lambda: caught_up(lab),
        "remove": without_jobs,
    }


def main() -> int:
    """Go through the steps; the exit status is 1 where one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, help="a directory for hosts and logs, which is kept [a temporary one]")
    parser.add_argument(
        "--image", type=Path, default=Path("/var/cache/cosched-campaign"), help="kept for the next time"
    )
    parser.add_argument("--ansible", type=Path, help="an environment with ansible-core [made beside the image]")
    parser.add_argument("--only", action="append", help="these steps; repeatable [all]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the times")
    given = parser.parse_args()
    if os.geteuid():
        parser.error("needs root: namespaces, control groups and mounts")
    work = Path(tempfile.mkdtemp(prefix="hosts.", dir="/var/tmp")) if given.work is None else given.work
    work.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that hosts, networks and groups go
    begun_s = time.monotonic()
    times: dict[str, float] = {}
    base, ansible = image(given.image), controller_environment(given.ansible, given.image)
    earlier = wheelhouse(work / "wheels", ROOT)
    later = wheelhouse(work / "later", later_checkout(work / "checkout"))
    times["image and wheels"] = time.monotonic() - begun_s
    begun_s = time.monotonic()
    (work / "hosts").mkdir()
    lab = Lab(work, base, ansible)
    times["five hosts"] = time.monotonic() - begun_s
    failed = False
    try:
        for name, step in steps(lab, earlier, later).items():
            if given.only and name not in given.only:
                continue
            begun_s = time.monotonic()
            try:
                step()
            except (Broken, RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name:<22} FAILED  {error}", flush=True)
                failed = True
                break
            times[name] = time.monotonic() - begun_s
            print(f"{name:<22} ok  {times[name]:7.1f} s", flush=True)
    finally:
        lab.hosts.close()
        if given.work is None and not failed:
            shutil.rmtree(work)
    if given.json:
        given.json.write_text(json.dumps({name: round(value, 1) for name, value in times.items()}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
