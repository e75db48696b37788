"""Hosts on one machine, for tests of launchers: namespaces and a bridge, and a remote shell that is nsenter.

What the real ``cosched-rsh`` and agents do beyond that (grants, cgroups, users) is not here; their own tests have it.
"""

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cosched.wire.hostfile import hostfile
from cosched.wire.messages import Peer
from kit.command import Ended
from kit.mpi import rank_program
from kit.needs import need_root
from kit.waiting import BOUND_S, wait_for
from space_scheduler.launch import Context, job_environment

_SCRIPT = Path(__file__).with_suffix(".sh")


class Hosts:
    """``count`` hosts called node1, node2, … at 10.77.0.1, …, until :meth:`close`."""

    network = "10.77.0.0/24"

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        (directory / "tmp").mkdir()
        (directory / "resolv.conf").write_text("nameserver 10.77.0.99\noptions timeout:10 attempts:3\n")
        self._init = subprocess.Popen(
            [
                "unshare",
                "--pid",
                "--mount",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                _SCRIPT,
                directory,
                str(count),
            ],
            stdin=subprocess.DEVNULL,
        )
        self.peers = tuple(Peer(f"node{i}", f"10.77.0.{i}", 7421, 1) for i in range(1, count + 1))
        try:
            wait_for(lambda: (directory / "ready").exists() or self._init.poll() is not None, "hosts")
            assert self._init.poll() is None, "the hosts could not be made"
            children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text().split()
            self._inside = children[0]
            self._pids = [(directory / f"pid.{i}").read_text().strip() for i in range(1, count + 1)]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything in there; the kernel removes the rest."""
        self._init.send_signal(signal.SIGKILL)
        self._init.wait()

    def peers_of(self, tasks: Sequence[int]) -> tuple[Peer, ...]:
        """The first hosts with so many tasks each."""
        return tuple(Peer(p.name, p.address, p.port, n) for p, n in zip(self.peers, tasks, strict=False))

    def job(self, tasks: Sequence[int], submitted: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a job with so many tasks on the first hosts, its node file and remote shell written."""
        peers = self.peers_of(tasks)
        context = Context(
            job_id=7, attempt=1, name="test", tasks=sum(tasks), user="root", cluster="lab", peers=peers,
            network=self.network, submitted=submitted or {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        )  # fmt: skip
        (self.directory / "nodes").write_text(hostfile(peers))
        places = {
            "{node_file}": self.directory / "nodes",
            "{interface}": "eth0",
            "{rsh}": self.directory / "rsh",
            "{rank}": self._witnesses() / "cosched-rank",
            "{tmp}": self.directory / "tmp",
        }
        environment = {k: str(places.get(v, v)) for k, v in job_environment(context).items()}
        environment["HOME"] = str(self.directory)
        self._write_rsh(environment)
        return environment

    def command(self, host: int, argv: Sequence[str | Path], directory: Path | str) -> list[str]:
        """The whole command line that runs ``argv`` on a host (from 1)."""
        outer = ["nsenter", "--target", self._inside, "--pid", "--mount", "--"]
        return [*outer, *self._enter(self._pids[host - 1], str(directory)), *map(str, argv)]

    def run(
        self, host: int, argv: Sequence[str | Path], environment: Mapping[str, str], timeout_s: float = 60
    ) -> Ended:
        """Run a program on a host (from 1) with exactly this environment and wait for its end."""
        # ended from inside, too: nsenter's end alone would leave mpirun and ranks running
        bounded = ["timeout", "--kill-after=2", str(timeout_s), *argv]
        ended = subprocess.run(
            self.command(host, bounded, self.directory), env=dict(environment), stdin=subprocess.DEVNULL,
            capture_output=True, timeout=timeout_s + 10, check=False, text=True,
        )  # fmt: skip
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def inside(self, *argv: str) -> str:
        """What a command prints that sees the processes of all hosts."""
        command = ["nsenter", "--target", self._inside, "--pid", "--mount", "--", *argv]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=BOUND_S).stdout

    def clear(self) -> None:
        """End whatever runs there."""
        while left := [line.split()[0] for line in processes_in(self)]:
            self.inside("sh", "-c", 'kill -KILL "$@" || true', "sh", *left)

    @staticmethod
    def _enter(pid: str, directory: str) -> list[str]:
        # the directory is of the mount namespace that is entered; --wd alone would keep the one outside
        inner = ["nsenter", "--target", pid, "--net", "--uts", "--ipc", "--mount", "--"]
        return [*inner, "/bin/sh", "-c", f'cd {shlex.quote(directory)} && exec "$@"', "sh"]

    def _witnesses(self) -> Path:
        """Each host has a witness of ranks at a place of its own, which refuses to run on others; that of the first."""
        for peer in self.peers:
            others = "|".join(each.name for each in self.peers if each is not peer)
            program = rank_program(self.directory / f"bin-{peer.name}")
            first, _, rest = program.read_text().partition("\n")
            check = f'case "$(hostname)" in {others}) exit 99 ;; esac'
            program.write_text(f"{first}\n{check}\n{rest}")
        return self.directory / f"bin-{self.peers[0].name}"

    def _write_rsh(self, environment: Mapping[str, str]) -> None:
        """As cosched-rsh: RSH HOST COMMAND…, hosts that are not of the lab refused, calls kept in ``calls``.

        Places of the first host's programs become those of the host, as agents do it.
        """
        cases = "\n".join(
            f"{p.address}|{p.name}) pid={pid} name={p.name} ;;" for p, pid in zip(self.peers, self._pids, strict=True)
        )
        first = shlex.quote(f"/bin-{self.peers[0].name}/")
        variables = " ".join(shlex.quote(f"{k}={v}") for k, v in environment.items())
        enter = shlex.join(self._enter("PID", str(self.directory))).replace("PID", '"$pid"', 1)
        text = f"""#!/bin/sh
host=$1
shift
echo "$host $*" >>{shlex.quote(str(self.directory / "calls"))}
case $host in
{cases}
*) echo "cosched-rsh: $host: not a node of job 7" >&2; exit 255 ;;
esac
command=$(printf '%s\\n' "$*" | sed "s#"{first}"#/bin-$name/#g")
set -- {variables}
for each; do shift; set -- "$@" "$(printf '%s\\n' "$each" | sed "s#"{first}"#/bin-$name/#g")"; done
exec {enter} env -i "$@" sh -c "$command"
"""
        path = self.directory / "rsh"
        path.write_text(text)
        path.chmod(0o755)


@dataclass(frozen=True)
class System:
    """An Open MPI on hosts: its ``mpirun``, and the program of ``fail.c`` linked with it."""

    name: str
    hosts: Hosts
    mpirun: Path
    program: Path

    def run(self, tasks: Sequence[int], *words: str | Path, **changes: str) -> Ended:
        """``mpirun WORDS`` on the first node of a job with so many tasks on each, with changes to its environment."""
        return self.hosts.run(1, [self.mpirun, *words], self.hosts.job(tasks) | changes)


def processes_in(hosts: Hosts) -> list[str]:
    """Command lines of what runs in there, without what holds the hosts."""
    listed = hosts.inside("ps", "-eo", "pid=,args=")
    held = ("sleep infinity", "hosts.sh", "ps -eo", "unshare --", "<defunct>")
    return [line.strip() for line in listed.splitlines() if not any(word in line for word in held)]


def need_hosts() -> None:
    """Skip where no network of namespaces can be made: for lack of rights, of namespaces or of ``ip``."""
    need_root()
    if shutil.which("ip") is None:
        pytest.skip("needs Debian's package iproute2 (no ip on PATH)")
