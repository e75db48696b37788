"""Looks at a lab in chaos all the time: its answers, its guards' records, its processes' processors."""

import contextlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaigns import _chaos_judge as judge
from campaigns import _nodes
from cosched.apps.lab.lab import Lab
from cosched.errors import Failed
from cosched.wire.api import JobDoc

_LOOK_S = 0.5
#: Without a fault for so long, what was disturbed has been put right but for what takes its heartbeats.
_CALM_S = 5.0


class Calm:
    """Since when no fault lasts, and since when all are healed for good; both on the monotonic clock, None: not yet."""

    def __init__(self) -> None:
        self.since_s: float | None = None
        self.healed_s: float | None = None


class Watch(threading.Thread):
    """Looks at one lab until it is stopped. ``problems``: what it saw, each once, with the time since ``began_s``."""

    def __init__(self, lab: Lab, calm: Calm, began_s: float) -> None:
        super().__init__(daemon=True, name=f"watch-{lab.name}")
        self._lab, self._calm, self._began_s = lab, calm, began_s
        self._over = threading.Event()
        self._passing = judge.Lasting(judge.PASSING_S)
        self._different = judge.Lasting(judge.DIFFERENT_S)
        self._stray = judge.Lasting(judge.DIFFERENT_S)
        self.looks: Counter[str] = Counter()
        self.problems: dict[str, str] = {}
        self.latest: list[JobDoc] = []

    def run(self) -> None:
        while not self._over.wait(_LOOK_S):
            with contextlib.suppress(Failed, OSError), self._lab.client() as client:
                asked_s = time.time()
                jobs = client.jobs()
                self._look(jobs, asked_s)
                for job in jobs[-1:]:
                    asked_s = time.time()
                    self._promises([client.job(job.job_id)], asked_s)
                self.looks["desks occupied"] += sum(node.occupied for node in client.nodes())

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()

    def _look(self, jobs: list[JobDoc], asked_s: float) -> None:
        now_s = time.monotonic()
        self.latest = jobs
        self.looks["answers"] += 1
        self._promises(jobs, asked_s)
        healed_s, calm_s = self._calm.healed_s, self._calm.since_s
        passing = [(job.job_id, job.state) for job in jobs if job.state in ("starting", "ending")]
        for key in self._passing.seen(passing, now_s, now_s if healed_s is None else healed_s):
            self._problem(f"job and state {key} for {judge.PASSING_S:g} s after all was healed")
        if calm_s is None or now_s - calm_s < _CALM_S:
            self._different.forget()
            self._stray.forget()
            return
        self.looks["calm"] += 1
        records = {node["name"]: list(_groups(node)) for node in self._lab.state["nodes"]}
        differences = judge.share_differences(jobs, judge.recorded_shares(records))
        self.looks["shares compared"] += sum(job.state == "running" for job in jobs)
        for key in self._different.seen(differences, now_s, calm_s):
            self._problem(f"{key}, for {judge.DIFFERENT_S:g} s")
        for key in self._stray.seen(list(self._strays(records)), now_s, calm_s):
            self._problem(f"{key}, for {judge.DIFFERENT_S:g} s")

    def _promises(self, jobs: list[JobDoc], asked_s: float) -> None:
        for problem in judge.promise_problems(jobs, asked_s):
            self._problem(problem, problem.split(" was ")[0])

    def _problem(self, text: str, key: str = "") -> None:
        self.problems.setdefault(key or text, f"at {time.monotonic() - self._began_s:.0f} s: {text}")

    def _strays(self, records: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
        """Jobs with a thread that may run on a CPU of another job, where each node has CPUs for its processors."""
        there = sorted(os.sched_getaffinity(0))
        if self._lab.state["settings"]["cpus"] > len(there):
            return
        for node, groups in records.items():
            held = {record["request"]["job"]: {there[each] for each in record["processors"]} for record in groups}
            threads: dict[int, set[int]] = {}
            for pid in list(_nodes.processes(self._lab, node)):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    group = Path(f"/proc/{pid}/cgroup").read_text()
                    job_id = int(group.split("/job-")[1].split(".")[0])
                    threads.setdefault(job_id, set()).update(os.sched_getaffinity(pid))
            for job_id, cpus in threads.items():
                self.looks["affinities"] += 1
                if held.get(job_id) and not cpus <= held[job_id]:
                    yield f"job {job_id} on {node} may run on {sorted(cpus)}, its record has {sorted(held[job_id])}"


def _groups(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in Path(node["directory"], "state/records").glob("*.group"):
        with contextlib.suppress(OSError, ValueError):
            yield json.loads(path.read_text())
