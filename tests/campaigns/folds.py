"""Kill -9 around a fold, on a real lab with real MPI jobs: one of both shapes, no CPU twice, no work lost.

    ./run campaign folds [--only scheduler,agent,guard,none] [--rounds N] [--seed S] [--from R]

One workstation of four processors, under FJT1+BFM. A round submits A (2 ranks), B (3 ranks, the head that waits) and C
(2 ranks, backfilled beside A). When A ends, everybody who runs was backfilled: C is folded to one processor, and B
starts on the other three; when B ends, C has two again. That is Figure 1(d) of Utrera et al. 2005 with sizes of ours.
Each rank does a fixed amount of work. In the moments around A's end a process of the round's *site* is killed. Then one
job lasts, and others follow one another on the three processors that it leaves, each begun in the moment the one before
ends; the site's processes are killed in one of these moments, too.

Whatever was killed: every job completes once with the work of each rank done; of two jobs that run no processor was
ever the same, by what guards have on record (looked at all the time), and the kernel keeps each to what is on record;
C was folded and had two processors later, or B started when C had ended; and the journal, decided again, gives the
same. On a machine with fewer than four cores the
node's processors share them, and times say nothing. Needs root, for a lab of tier 1.
"""

import contextlib
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from campaigns._processors import Processors, succession
from campaigns._rounds import Shapes, main, tried
from campaigns.faults import Broken, Field, Round, until
from cosched.client.client import Client
from cosched.wire.api import JobDoc, Submission

SITES = ("none", "scheduler", "agent", "guard")
PHASE = "fold"
CPUS = 4
POLICY = "fjt1+bfm"
#: Name, ranks and CPU seconds of each rank's work.
JOBS = (("A", 2, 0.5), ("B", 3, 0.5), ("C", 2, 2.0))
#: Before and after A's end, in which something is killed.
_MOMENTS_S = (0.0, 0.4)
_PATIENCE_S = 120.0
_PROGRAM = """
import os, time
begun = time.process_time()
while time.process_time() - begun < {seconds}:
    pass
os.write(1, b"did %s\\n" % os.environ["OMPI_COMM_WORLD_RANK"].encode())
"""
_SCRIPT = """#!/bin/sh
echo "$COSCHED_JOB_ID $$" >> {canary}
mpirun --oversubscribe -n $COSCHED_TASKS {python} {program} || exit 9
echo done > {canary}.ended
"""


class FoldField(Field):
    """The lab that folds are tried on."""

    def run(self, fault: Round) -> None:
        """One round. Raises :class:`Broken`."""
        mark = f"{fault.site}-{fault.number}"
        processors = Processors(self.lab)
        processors.start()
        try:
            with self.lab.client() as client:
                jobs = {name: self._given(client, mark, name, ranks, work) for name, ranks, work in JOBS}
                self._await_running(client, jobs["A"], jobs["C"])
                until(lambda: self._over(client, jobs["A"]), "A to end", _PATIENCE_S)
                time.sleep(fault.random.uniform(*_MOMENTS_S))
                if fault.site == "none":
                    fault.fired = True
                else:
                    self._kill_one(fault)
                told = {name: self._ended(client, job_id) for name, job_id in jobs.items()}
                output = {name: client.output(job_id, "stdout").data.decode() for name, job_id in jobs.items()}
                for name, ranks, _ in JOBS:
                    fault.outcomes[told[name].state] += 1
                    self._judge_job(told[name], ranks, output[name], self.shared / f"{mark}-{name}")
                self._judge_shapes(told, fault)
                self._services_back(client)
                one_by_one = succession(self, client, fault, CPUS - 1, mark)
                self._services_back(client)
                self._nothing_left([*jobs.values(), *one_by_one])
        finally:
            processors.stop()
        processors.judge()

    def _given(self, client: Client, mark: str, name: str, ranks: int, work_s: float) -> int:
        canary, program = self.shared / f"{mark}-{name}", self.shared / f"work-{name}.py"
        program.write_text(_PROGRAM.format(seconds=work_s))
        script = _SCRIPT.format(canary=canary, python=sys.executable, program=program)
        path = {"PATH": self.path}
        asked = Submission(
            script=script, sizes=str(ranks), name=name, time_limit_s=60.0, directory="/", environment=path
        )
        return client.submit(asked).job_id

    def _await_running(self, client: Client, *jobs: int) -> None:
        for job_id in jobs:
            until(lambda: client.job(job_id).state not in ("queued", "starting"), f"job {job_id} to run")  # noqa: B023

    def _over(self, client: Client, job_id: int) -> bool:
        return client.job(job_id).end_time is not None

    def _kill_one(self, fault: Round) -> None:
        for pid in self.pids(fault.site, 0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                fault.fired = True

    def _judge_job(self, job: JobDoc, ranks: int, output: str, canary: Path) -> None:
        if job.state != "completed":
            raise Broken(f"job {job.job_id} is {job.state}: {job.failure}")
        if len(canary.read_text().splitlines()) != 1:
            raise Broken(f"job {job.job_id} ran {canary.read_text().splitlines()}")
        if sorted(output.splitlines()) != [f"did {rank}" for rank in range(ranks)]:
            raise Broken(f"job {job.job_id} of {ranks} ranks has said {output!r}")

    def _judge_shapes(self, told: dict[str, JobDoc], fault: Round) -> None:
        shapes = [(each.tasks, each.cpus) for each in told["C"].changes]
        head, folded = told["B"], told["C"]
        assert head.start_time is not None
        assert folded.end_time is not None
        if shapes[:1] == [(2, 1)] and head.start_time >= folded.changes[0].time:
            fault.outcomes["folded"] += 1
        elif not shapes and head.start_time >= folded.end_time:
            fault.outcomes["not folded"] += 1
        else:
            raise Broken(f"B started at {head.start_time}; C ended at {folded.end_time}, and was {folded.changes}")


FOLDS = Shapes("folds", FoldField, PHASE, 1, CPUS, POLICY)
#: All these rounds on one lab (:func:`tried`).
campaign = partial(tried, FOLDS)


if __name__ == "__main__":
    main(FOLDS, __doc__, SITES, 13)
