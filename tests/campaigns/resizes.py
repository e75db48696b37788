"""Kill -9, and ranks that die or stand still, around the resize of a malleable MPI job on a real lab.

    ./run campaign resizes [--only none,scheduler,agent,guard,rank,hang] [--rounds N] [--seed S] [--from R]

Two workstations of two processors each, under equipartition. A round submits A, a Jacobi solver with one to four ranks
enabled (``cosched.adaptive``), and when it has computed for a while B, another one: A gives up half of its processors
at its next safe point, and gets them back when B has ended. Around the moment at which A is told to shrink, one process
of the round's *site* is killed; with ``rank`` a rank of A is, with ``hang`` all of A's ranks stand still for longer
than a resize may take, and go on.

Whatever happens: of what two jobs have as their own no processor is the same, by what guards have on record (looked at
all the time); each job ends once; who was not killed completes with the answer that the same solver gives in every
other round, to the bit; who was, fails alone; and the journal, decided again, gives the same. Needs root, for a lab of
tier 1.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from campaigns._rounds import Shapes, main, tried
from campaigns.faults import Broken, Field, Round, until
from campaigns.folds import Processors
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.wire.api import JobDoc, Submission

SITES = ("none", "scheduler", "agent", "guard", "rank", "hang")
PHASE = "resize"
NODES, CPUS = 2, 2
POLICY = "equipartition"
#: How long a resize may take before it is undone: the lab's launch time-out.
RESIZE_S = 10.0
SIZE = 128
#: Name and steps of its solver, each some tenths of a millisecond on two ranks.
JOBS = {"A": 12_000, "B": 2_500}
_MOMENTS_S = (0.0, 0.8)
_PATIENCE_S = 180.0
_SCRIPT = """#!/bin/sh
echo "$COSCHED_JOB_ID $$" >> {canary}
mpirun --oversubscribe {python} -m cosched.programs.malleable heat --size {size} --steps {steps} --json || exit 9
"""


class ResizeField(Field):
    """The lab that resizes are tried on. ``digests``: of each solver's answer, from the first round."""

    def __init__(self, lab: Lab, shared: Path) -> None:
        super().__init__(lab, shared)
        self.digests: dict[str, str] = {}

    def run(self, fault: Round) -> None:
        """One round. Raises :class:`Broken`."""
        mark = f"{fault.site}-{fault.number}"
        processors = Processors(self.lab)
        processors.start()
        try:
            with self.lab.client() as client:
                jobs = {"A": self._given(client, mark, "A")}
                until(lambda: self._ranks(jobs["A"]) == NODES * CPUS, "all ranks of A", _PATIENCE_S)
                time.sleep(1.0)
                jobs["B"] = self._given(client, mark, "B")
                time.sleep(fault.random.uniform(*_MOMENTS_S))
                self._strike(fault, jobs["A"])
                told = {name: self._ended(client, job_id) for name, job_id in jobs.items()}
                for name, job in told.items():
                    fault.outcomes[f"{name} {job.state}"] += 1
                    self._judge_solver(client, fault, name, job, self.shared / f"{mark}-{name}")
                self._judge_changes(fault, told["A"])
                self._services_back(client)
                self._nothing_left([*jobs.values()])
        finally:
            processors.stop()
        if processors.twice or not processors.looks:
            raise Broken(next(iter(processors.twice), "nobody has looked at the processors"))

    def _given(self, client: Client, mark: str, name: str) -> int:
        script = _SCRIPT.format(
            canary=self.shared / f"{mark}-{name}", python=sys.executable, size=SIZE, steps=JOBS[name]
        )
        how = {"time_limit_s": 120.0, "directory": "/", "environment": {"PATH": self.path}}
        return client.submit(Submission(script=script, name=name, min_tasks=1, max_tasks=NODES * CPUS, **how)).job_id  # type: ignore[arg-type]

    def _ranks(self, job_id: int) -> int:
        return len(self.pids("rank", job_id))

    def _is(self, site: str, words: list[str], name: str) -> bool:
        if site == "rank":
            return "cosched.programs.malleable" in words and name.startswith("python")
        return super()._is(site, words, name)

    def _strike(self, fault: Round, job_id: int) -> None:
        if fault.site == "none":
            fault.fired = True
            return
        if fault.site == "hang":
            for how in (signal.SIGSTOP, signal.SIGCONT):
                for pid in self.pids("rank", job_id):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, how)
                        fault.fired = True
                if how == signal.SIGSTOP:
                    time.sleep(RESIZE_S + 3.0)
            return
        found = self.pids(fault.site, job_id)  # one of them: without both nodes' guards nobody is started
        for pid in fault.random.sample(found, min(1, len(found))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                fault.fired = True

    def _judge_solver(self, client: Client, fault: Round, name: str, job: JobDoc, canary: Path) -> None:
        ran = canary.read_text().splitlines() if canary.exists() else []
        if len(ran) != 1:
            raise Broken(f"{name}, job {job.job_id}, is {job.state} and ran {len(ran)} times: {job.failure}")
        if fault.site == "rank" and name == "A" and fault.fired and job.state == "failed":
            return
        if job.state != "completed":
            raise Broken(f"{name}, job {job.job_id}, is {job.state}: {job.failure}")
        report = json.loads(client.output(job.job_id, "stdout").data.decode().splitlines()[-1])
        if not report["verified"] or report["digest"] != self.digests.setdefault(name, report["digest"]):
            raise Broken(f"{name} has a wrong answer, or another than in an earlier round: {report}")

    def _judge_changes(self, fault: Round, job: JobDoc) -> None:
        fault.outcomes["A shrank" if any(each.cpus < NODES * CPUS for each in job.changes) else "A kept"] += 1
        if any(each.tasks != NODES * CPUS for each in job.changes):
            raise Broken(f"a rank of A came or went: {job.changes}")


RESIZES = Shapes("resizes", ResizeField, PHASE, NODES, CPUS, POLICY)


def campaign(faults: list[Round], say: Callable[[str], None] = print) -> Counter[str]:
    """All these rounds on one lab; how often what came of them. Raises :class:`Broken`, with the command."""
    return tried(RESIZES, faults, say)


if __name__ == "__main__":
    main(RESIZES, __doc__, SITES, 9)
