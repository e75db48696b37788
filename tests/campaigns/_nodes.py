"""Nodes of a lab from the outside: their processes, a link that is cut, and which CPUs a job's threads may run on."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from campaigns.faults import Broken
from cosched.apps.lab.lab import Lab
from node_agent.core.attempt import Attempt

_LOOK_S = 0.1
#: Threads of a job may be elsewhere for so long, in which the guard changes its set, or looks for strays.
_STRAY_S = 3.0
#: Sets an interface of the head, a node's end of its cable, up or down (SIOCSIFFLAGS, IFF_UP).
_LINK = """
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", sys.argv[1].encode(), int(sys.argv[2] == "up")))
"""


def link(lab: Lab, node: str, how: str) -> None:
    """Cut a node off from all others (``down``), or join it to them again (``up``). Raises :class:`Broken`."""
    ended = lab.run("head", [sys.executable, "-c", _LINK, node, how])
    if ended.returncode:
        raise Broken(f"the link of {node} is not {how}: {ended.stderr.decode()}")


def processes(lab: Lab, node: str) -> Iterator[int]:
    """All processes of a node but its process 1, as this machine numbers them."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inner = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("NSpid:"))
            if _is_on(lab, node, folder) and inner.split()[-1] != "1":
                yield int(folder.name)


def _record_path(lab: Lab, node: str, job_id: int) -> Path:
    directory = next(each["directory"] for each in lab.state["nodes"] if each["name"] == node)
    return Path(directory, "state/attempts", f"{job_id}.1")


def record(lab: Lab, node: str, job_id: int) -> bytes:
    """What a node's agent has on disk of the first attempt at a job; nothing where it has nothing."""
    with contextlib.suppress(OSError):
        return _record_path(lab, node, job_id).read_bytes()
    return b""


def put_record(lab: Lab, node: str, job_id: int, data: bytes) -> None:
    """Replace it."""
    _record_path(lab, node, job_id).write_bytes(data)


def told(lab: Lab, node: str, job_id: int) -> dict[str, int] | None:
    """The shares of the map that a node's agent has on disk for a job: how many ranks are enabled on which node."""
    with contextlib.suppress(msgspec.DecodeError):
        attempt = msgspec.msgpack.decode(record(lab, node, job_id), type=Attempt)
        return None if attempt.map is None else dict(attempt.map.enabled)
    return None


def kill_all(lab: Lab, node: str) -> int:
    """Kill all processes of a node at once, agent and guard among them, but process 1; how many there were."""
    count = 0
    for _ in range(2):  # the second time those that were born meanwhile
        for pid in list(processes(lab, node)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                count += 1
    return count


def _is_on(lab: Lab, node: str, folder: Path) -> bool:
    return f"/cosched-lab/{lab.name}/{node}/" in (folder / "cgroup").read_text()


class _Stray(NamedTuple):
    """A thread that may run where its job may not."""

    node: str
    thread: int
    record: str


class Held(threading.Thread):
    """Looks whether all threads of a job may run on the CPUs alone that its nodes' guards have on record for it.

    ``strays``: who could for longer than a guard may take; ``looks``: how often threads were seen with what on record.
    """

    def __init__(self, lab: Lab, job_id: int) -> None:
        super().__init__(daemon=True)
        self._lab, self._job_id = lab, job_id
        self._over = threading.Event()
        self._since_s: dict[_Stray, float] = {}
        self.looks: Counter[str] = Counter()
        self.strays: list[str] = []

    def run(self) -> None:
        """Look until told to stop."""
        while not self._over.wait(_LOOK_S):
            now_s = time.monotonic()
            found = [stray for node in self._lab.state["nodes"] for stray in self._look(node)]
            self._since_s = {stray: self._since_s.get(stray, now_s) for stray in found}
            for stray, since_s in self._since_s.items():
                if now_s - since_s > _STRAY_S:
                    self.strays.append(f"thread {stray.thread} on {stray.node} may run beyond {stray.record}")

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()

    def _look(self, node: dict[str, Any]) -> Iterator[_Stray]:
        there = sorted(os.sched_getaffinity(0))
        for path in Path(node["directory"], "state/records").glob(f"{self._job_id}.*.group"):
            try:
                record = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            cpus = {there[place % len(there)] for place in record["processors"]}
            threads = list(self._threads(node["name"]))
            self.looks["asleep" if record["asleep"] else f"{len(record['processors'])} processors"] += bool(threads)
            for thread in threads:
                with contextlib.suppress(ProcessLookupError):
                    if not os.sched_getaffinity(thread) <= cpus:
                        yield _Stray(node["name"], thread, str(record["processors"]))

    def _threads(self, node: str) -> Iterator[int]:
        for pid in processes(self._lab, node):
            with contextlib.suppress(OSError):
                if f"/job-{self._job_id}." in Path(f"/proc/{pid}/cgroup").read_text():
                    yield from map(int, os.listdir(f"/proc/{pid}/task"))
