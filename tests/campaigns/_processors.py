"""No CPU twice, looked at all the time: by guards' records, and by what the kernel keeps the jobs that live to.

And a succession of jobs, each of which begins in the moment the one before it ends, beside one that lasts.
"""

import contextlib
import json
import os
import signal
import threading
import time
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from campaigns.faults import HARMLESS, Broken, Field, Round, until
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.wire.api import Submission

_LOOK_S = 0.01
#: The kernel's set may differ from the record for so long: while a guard changes both, or was killed in between.
_DIFFER_S = 5.0
_CPUSETS = Path("/sys/fs/cgroup/cpuset")
_SUCCESSION = 6
#: After the end of one of them, in which something is killed.
_MOMENTS_S = (0.0, 0.1)
_SHORT = """#!/bin/sh
echo "$COSCHED_JOB_ID $$" >> {canary}
sleep 0.1
"""


class _Node(NamedTuple):
    """Where to look; ``apart``: it has no more processors than the machine has CPUs, so each is one of its own."""

    name: str
    records: Path
    cpusets: Path
    apart: bool


class _Held(NamedTuple):
    """What a job has as its own: the processors on record, and the CPUs that the kernel keeps its processes to.

    ``kernel`` is None where it has no processes, or no group of the controller.
    """

    job: str
    record: dict[str, Any]
    kernel: frozenset[int] | None


class Processors(threading.Thread):
    """Looks all the time which processors of each node running jobs have as their own."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(daemon=True)
        self._cpus = sorted(os.sched_getaffinity(0))
        self._nodes = [self._node(Path(node["directory"]), node["name"]) for node in lab.state["nodes"]]
        self._over = threading.Event()
        self._differ_since_s: dict[tuple[str, str, str], float] = {}
        self.looks = self.together = self.kept = 0
        self.twice: list[str] = []

    def _node(self, directory: Path, name: str) -> _Node:
        settings = tomllib.loads((directory / "node.toml").read_text())
        cpusets = _CPUSETS / settings["cgroup"]["cosched"]
        return _Node(name, directory / "state/records", cpusets, settings["procs"] <= len(self._cpus))

    def run(self) -> None:
        """Look until told to stop."""
        while not self._over.wait(_LOOK_S):
            for node in self._nodes:
                self._look(node)
            self.looks += 1

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()

    def judge(self, *, beside: bool = True) -> None:
        """Raises :class:`Broken` where a CPU was two jobs', or where that could not be seen.

        ``beside``: two jobs were beside each other.
        """
        if self.twice:
            raise Broken(self.twice[0])
        if not self.looks or (beside and not self.together) or (_CPUSETS.exists() and not self.kept):
            seen = f"{self.together} saw two jobs at once, {self.kept} the kernel's sets"
            raise Broken(f"of {self.looks} looks at the processors {seen}")

    def _look(self, node: _Node) -> None:
        held = list(self._held(node))
        self.together += len(held) > 1
        for one, other in combinations(held, 2):
            for what, shared in (
                ("on record for", {*one.record["processors"]} & {*other.record["processors"]}),
                ("by the kernel", node.apart and (one.kernel or set()) & (other.kernel or set())),
            ):
                if shared and self._lasts(node, one) and self._lasts(node, other):
                    self.twice.append(f"{sorted(shared)} of {node.name} {what} job {one.job} and job {other.job}")
        self._compare(node, [each for each in held if each.kernel is not None])

    def _held(self, node: _Node) -> Iterator[_Held]:
        # the later a job was started the earlier it is read: what is given away is given up before
        for path in sorted(node.records.glob("*.group"), key=lambda each: -int(each.name.split(".")[0])):
            job = path.name.removesuffix(".group")
            if (found := self._read(node, job)) is not None:
                yield found

    def _read(self, node: _Node, job: str) -> _Held | None:
        try:
            record = json.loads((node.records / f"{job}.group").read_text())
        except (OSError, ValueError):
            return None  # its job has been forgotten
        if record["ending"] is not None or record["asleep"] or record["stopped_us"] is not None:
            return None
        if not record["processors"] or (node.records / f"{job}.0.exit").exists():
            return None
        group, kernel = node.cpusets / f"job-{job}", None
        with contextlib.suppress(OSError):
            if (group / "cgroup.procs").read_text():
                kernel = frozenset(_numbers((group / "cpuset.cpus").read_text()))
        if kernel is None and group.is_dir() and any(node.records.glob(f"{job}.*.run")):
            return None  # its processes have ended; on a full disk no exit is on record
        if node.cpusets.is_dir() and not group.is_dir():
            return None  # it is gone; on a full disk its end is not on record
        return _Held(job, record, kernel)

    def _lasts(self, node: _Node, held: _Held) -> bool:
        """Whether it is still as it was read: then two such held at one time."""
        return self._read(node, held.job) == held

    def _compare(self, node: _Node, held: list[_Held]) -> None:
        """Whether the kernel keeps jobs to what is on record for them."""
        now_s, differ = time.monotonic(), {}
        for job, record, kernel in held:
            wanted = frozenset(self._cpus[place % len(self._cpus)] for place in record["processors"])
            self.kept += kernel == wanted
            if kernel != wanted:
                key = node.name, job, f"{sorted(kernel or ())}, and {sorted(wanted)} are on record"
                differ[key] = since_s = self._differ_since_s.get(key, now_s)
                if now_s - since_s > _DIFFER_S:
                    self.twice.append(f"job {job} on {node.name} is kept to CPUs {key[2]}")
        others = {key: since_s for key, since_s in self._differ_since_s.items() if key[0] != node.name}
        self._differ_since_s = others | differ


def _numbers(text: str) -> Iterator[int]:
    """The CPUs of a list as the kernel writes it."""
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def succession(field: Field, client: Client, fault: Round, tasks: int, mark: str) -> list[int]:
    """One job of one task lasts; others of so many tasks, all that it leaves, come one after another.

    In a moment in which one of them has just ended the round's site is killed, where it is a service. All of them
    complete once. Returns the jobs, which have ended. Raises :class:`Broken`.
    """

    def submit(script: str, tasks: int) -> int:
        asked = Submission(script=script, tasks=tasks, time_limit_s=90.0, directory="/", environment={})
        return client.submit(asked).job_id

    lasting = submit("#!/bin/sh\nexec sleep 600\n", 1)
    until(lambda: client.job(lasting).state == "running", f"job {lasting} to run")
    canaries = [field.shared / f"{mark}-after-{index}" for index in range(_SUCCESSION)]
    after = [submit(_SHORT.format(canary=canary), tasks) for canary in canaries]
    if fault.site in HARMLESS:
        field._ended(client, fault.random.choice(after[:-1]))
        time.sleep(fault.random.uniform(*_MOMENTS_S))
        for pid in field.pids(fault.site, 0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for job_id, canary in zip(after, canaries, strict=True):
        job = field._ended(client, job_id)
        ran = canary.read_text().splitlines() if canary.exists() else []
        if job.state != "completed" or len(ran) != 1:
            raise Broken(f"job {job_id} of a succession is {job.state} and ran {ran}: {job.failure}")
    client.cancel(lasting)
    field._ended(client, lasting)
    return [lasting, *after]
