"""The hosts of the campaign ``ansible``, the controller's directory, and what is asked of both."""

import argparse
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from campaigns._systemd_hosts import HOME, NETWORK, USER, SystemdHosts, run

ROOT = Path(__file__).resolve().parents[2]
HEAD, DESKS, NEW = "head", ("desk1", "desk2", "desk3"), "desk4"
#: A host that the scheduler moves to.
SECOND = "second"
#: The desk of a synthetic user, and the port at which other hosts read what it measures.
SEATED, USER_PORT = "desk1", 7425
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

    def __init__(
        self,
        work: Path,
        base: Path,
        ansible: Path,
        names: tuple[str, ...] = (HEAD, *DESKS, NEW, SECOND),
        *,
        own_kernel: bool = False,
        hosts: Any = None,
    ) -> None:
        """``names`` are the hosts'; ``own_kernel``: of the desk that is added; ``hosts``: others than containers."""
        self.work, self.base, self.ansible = work, base, ansible
        self.own_kernel = own_kernel
        self.hosts = hosts or SystemdHosts(work / "hosts", base, names, (NEW,) if own_kernel else ())
        self.controller = work / "controller"
        self.head = HEAD  # the scheduler's host
        self.said = ""  # by the last playbook

    def inventory(self, desks: tuple[str, ...], wheels: Path, **more: dict[str, str]) -> None:
        """Write the inventory, as an administrator would; ``more`` is of single hosts."""
        names = (HEAD, SECOND, *desks)
        hosts = {name: {"ansible_host": self.hosts.addresses[name], **more.get(name, {})} for name in names}
        seated = {SEATED: {"local_load_listen": f"0.0.0.0:{USER_PORT}"}} if SEATED in desks else {}
        groups = {
            "cosched_scheduler": {"hosts": {self.head: hosts[self.head]}},
            "others": {"hosts": {name: hosts[name] for name in (HEAD, SECOND) if name != self.head}},
            "cosched_nodes": {"hosts": {name: hosts[name] for name in desks}},
            "cosched_local_load": {"hosts": seated},
        }
        self.written(groups, wheels, cosched_users=[USER])

    def written(self, groups: dict[str, Any], wheels: Path, **more: Any) -> None:
        """Write an inventory of these groups; ``more`` are settings of all hosts."""
        (self.controller / "group_vars").mkdir(parents=True, exist_ok=True)
        settings = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.hosts.key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.hosts.known_hosts}",
            "cosched_cluster": "office",
            "cosched_directory": str(self.controller / "office"),
            "cosched_wheelhouse": str(wheels),
            "cosched_command": f"{sys.executable} -m cosched.apps.cli.main",
            "cosched_scheduler_address": self.hosts.addresses[self.head],
            "cosched_network": NETWORK,
            **more,
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
        argv: list[str | Path] = [
            self.ansible / "bin/ansible-playbook", "-i", self.controller / "hosts.json",
            ROOT / "ansible/playbooks" / f"{playbook}.yml", *arguments,
        ]  # fmt: skip
        ended = self.hosts.controller(argv, environment, PLAYBOOK_S)
        with (self.work / "ansible.log").open("a") as log:
            log.write(f"\n$ {playbook} {' '.join(arguments)}\n{ended.stdout}{ended.stderr}\n")
        self.said = ended.stdout
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
        return json.loads(self.hosts.at(self.head, line, timeout_s))

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
        for name in self.hosts.addresses:
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
        said = self.hosts.at(self.head, f"cd {HOME} && runuser -u {USER} -- cosched logs {number}")
        tasks = int(said.split()[1])
        need(
            said.split() == ["verified", str(tasks), str(tasks * (tasks + 1) // 2), ",".join(desks)],
            f"job {number}: {said}",
        )

    def tasks(self, desks: tuple[str, ...]) -> int:
        """As many tasks as these desks have CPUs."""
        return sum(node["procs"] for node in self.cosched("nodes")["nodes"] if node["name"] in desks)

    def version(self, name: str) -> str:
        """The version in use on a host."""
        return self.hosts.at(name, "readlink /opt/cosched/current").strip()

    def ranks(self, program: str, desks: tuple[str, ...]) -> dict[str, str]:
        """The processes of a job's program on these desks, once it runs there on all."""
        look = f"pgrep -u {USER} -f '^[^ ]*python3 .*{program}.py' | sort | tr '\\n' ' '"
        procs = {node["name"]: node["procs"] for node in self.cosched("nodes")["nodes"]}
        self.until(
            lambda: all(len(self.hosts.at(name, look).split()) >= procs[name] for name in desks), f"{program} runs"
        )
        return {name: self.hosts.at(name, look) for name in desks}

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


def as_before(name: str, was: dict[str, str], now: dict[str, str], left: tuple[str, ...] = ()) -> None:
    """A host must be as it was (:meth:`Lab.state`), paths that begin with one of ``left`` apart."""
    other = [what for what in was.keys() | now.keys() if was.get(what) != now.get(what) and not what.startswith(left)]
    told = [(what, was.get(what), now.get(what)) for what in sorted(other)[:8]]
    need(not other, f"{name}: not as before: {told}")


def changed(recap: dict[str, dict[str, int]]) -> dict[str, int]:
    """How many tasks changed something, by host, where any did."""
    return {host: words["changed"] for host, words in recap.items() if words["changed"]}


def arguments(description: str) -> argparse.ArgumentParser:
    """What a campaign on such hosts may be given."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--work", type=Path, help="a directory for hosts and logs, which is kept [a temporary one]")
    parser.add_argument(
        "--image", type=Path, default=Path("/var/cache/cosched-campaign"), help="kept for the next time"
    )
    parser.add_argument("--ansible", type=Path, help="an environment with ansible-core [made beside the image]")
    parser.add_argument("--only", action="append", help="these steps; repeatable [all]")
    return parser


@contextlib.contextmanager
def workplace(kept: Path | None) -> Iterator[Path]:
    """The directory of a campaign, which goes at its end unless it is to be kept or a :class:`Broken` left it."""
    work = Path(tempfile.mkdtemp(prefix="hosts.", dir="/var/tmp")) if kept is None else kept
    (work / "hosts").mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that hosts, networks and groups go
    yield work
    if kept is None:
        shutil.rmtree(work)


def went_through(given: argparse.Namespace, steps: Callable[[Path], dict[str, float]]) -> int:
    """The exit status of a campaign whose steps are taken in a directory: 1 where one of them fails."""
    try:
        with workplace(given.work) as work:
            times = steps(work)
    except Broken:
        return 1
    if getattr(given, "json", None):
        given.json.write_text(json.dumps({name: round(value, 1) for name, value in times.items()}, indent=1) + "\n")
    return 0


def _ends_of(text: str) -> str:
    """A text's first and last 2 000 characters: a command that fails may have printed millions."""
    return text if len(text) <= 4000 else f"{text[:2000]}\n[{len(text) - 4000} characters left out]\n{text[-2000:]}"


def gone_through(steps: Mapping[str, Callable[[], None]], only: Collection[str] | None) -> dict[str, float]:
    """Take each step and print how long it took, in seconds: that of each. The first that fails is told, and raised."""
    times = {}
    for name, step in steps.items():
        if only and name not in only:
            continue
        begun_s = time.monotonic()
        try:
            step()
        except (Broken, RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name:<27} FAILED  {_ends_of(str(error))}", flush=True)
            raise Broken(name) from None
        times[name] = time.monotonic() - begun_s
        print(f"{name:<27} ok  {times[name]:7.1f} s", flush=True)
    return times
