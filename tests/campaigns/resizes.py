"""Kill -9, and ranks that die or stand still, around the resize of a malleable MPI job on a real lab.

    ./run campaign resizes [--only none,agent,…] [--rounds N] [--seed S] [--from R]

Two workstations of two processors each, under equipartition. A round submits A, a Jacobi solver with one to four ranks
enabled (``cosched.adaptive``), and when it has computed for a while B, another one: A gives up half of its processors
at its next safe point, and gets them back when B has ended. Around the moment at which A is told to shrink, one process
of the round's *site* (``scheduler``, ``agent``, ``guard``) is killed; with ``rank`` a rank of A is, with ``hang`` all
of A's ranks stand still for longer than a resize may take, and go on. With ``node`` one of the nodes is lost between
the orders and their answers: all of its processes are killed at once, or it is cut off from the others until the
scheduler takes it for lost; either while A's ranks have not adapted (they stand still), or while the node's guard has
not taken back what A gives up (it stands still). With ``liar`` A says that it has adapted, goes on computing on all of
its ranks, and tries to run everywhere; B gets half of the processors, or one. With ``early`` B follows A at once,
before A has a rank; in three rounds of four a process of scheduler, agent or guard is killed then. With ``record``
an agent is killed when B has started, and finds a record of A from before, as after a full disk. Then, but for
``node``, one job of one task lasts, and others follow one another on the processors that it leaves, each begun in the
moment the one before ends; the site's processes are killed in one of these moments, too.

Whatever happens: of what two jobs have as their own no processor is the same, by what guards have on record (looked at
all the time) and by what the kernel keeps them to; each job ends once; who was not killed completes with the answer
that the same solver gives in every other round, to the bit; who was, or has lost a node, fails alone; no thread of a
liar may run for long where the guard does not have it on record; when B has started, A's nodes were told the map of
what the scheduler has A on; and the journal, decided again, gives the same. Needs root, for a lab of tier 1.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kit.processes import standing_still

from campaigns import _nodes
from campaigns._chaos_judge import ENDED
from campaigns._processors import Processors, succession
from campaigns._rounds import Shapes, main, tried
from campaigns.faults import Broken, Field, Round, until
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.errors import Failed
from cosched.wire.api import JobDoc, Submission

SITES = ("none", "scheduler", "agent", "guard", "rank", "hang", "node", "liar", "early", "record")
PHASE = "resize"
NODES, CPUS = 2, 2
POLICY = "equipartition"
#: How long a resize may take before it is undone: the lab's launch time-out.
RESIZE_S = 10.0
SIZE = 128
#: Name and steps of its solver, each some tenths of a millisecond on two ranks.
JOBS = {"A": 12_000, "B": 2_500}
_MOMENTS_S = (0.0, 0.8)
#: Between the loss of a node and its return.
_AWAY_S = (0.0, 2.0)
_PATIENCE_S = 180.0
_SCRIPT = """#!/bin/sh
echo "$COSCHED_JOB_ID $$" >> {canary}
mpirun --oversubscribe {python} {program} heat --size {size} --steps {steps} --json || exit 9
"""
_HONEST = "cosched.programs.malleable"
_LIAR = str(Path(__file__).with_name("_liar.py"))
#: Whose processes are killed in early rounds, by their number; empty: none's.
_EARLY = ("", "scheduler", "agent", "guard")
#: Within so long nodes are told what the scheduler has: some heartbeats, on a machine that is busy.
_TOLD_S = 20.0
#: How a job ends that has lost a node.
_LOST = ("failed", "node lost")


class ResizeField(Field):
    """The lab that resizes are tried on. ``digests``: of each solver's answer, from the first round."""

    def __init__(self, lab: Lab, shared: Path) -> None:
        super().__init__(lab, shared)
        self.digests: dict[str, str] = {}

    def run(self, fault: Round) -> None:
        """One round. Raises :class:`Broken`."""
        mark, follows = f"{fault.site}-{fault.number}", fault.site != "node"
        processors = Processors(self.lab)
        processors.start()
        try:
            with self.lab.client() as client:
                jobs = {"A": self._given(client, mark, "A", _LIAR if fault.site == "liar" else f"-m {_HONEST}")}
                if fault.site != "early":
                    self._await_ranks(client, jobs["A"])
                with self._struck(client, fault, jobs["A"]):
                    most = 1 if fault.site == "liar" and fault.number % 2 else NODES * CPUS
                    jobs["B"] = self._given(client, mark, "B", f"-m {_HONEST}", most)
                self._judge_told(client, fault, jobs["A"], jobs["B"])
                told = {name: self._ended(client, job_id) for name, job_id in jobs.items()}
                for name, job in told.items():
                    fault.outcomes[f"{name} {job.state}"] += 1
                    self._judge_solver(client, fault, name, job, self.shared / f"{mark}-{name}")
                self._judge_changes(fault, told["A"])
                self._services_back(client)
                one_by_one = succession(self, client, fault, NODES * CPUS - 1, mark) if follows else []
                self._services_back(client)
                self._nothing_left([*jobs.values(), *one_by_one])
        finally:
            processors.stop()
        processors.judge(beside=follows)

    def _given(self, client: Client, mark: str, name: str, program: str, most: int = NODES * CPUS) -> int:
        script = _SCRIPT.format(
            canary=self.shared / f"{mark}-{name}", python=sys.executable, program=program, size=SIZE, steps=JOBS[name]
        )
        how = {"time_limit_s": 120.0, "directory": "/", "environment": {"PATH": self.path}}
        return client.submit(Submission(script=script, name=name, min_tasks=1, max_tasks=most, **how)).job_id  # type: ignore[arg-type]

    def _await_ranks(self, client: Client, job_id: int) -> None:
        def joined() -> bool:
            job = client.job(job_id)
            if job.state in ENDED:
                raise Broken(f"A is {job.state} before all of its ranks joined: {job.failure}")
            return self._joined(job_id) == NODES * CPUS

        def what() -> str:
            job = client.job(job_id)
            return f"all ranks of A: {self._joined(job_id)} have joined, it is {job.state} on {job.nodes}"

        until(joined, what, _PATIENCE_S)

    def _joined(self, job_id: int) -> int:
        """How many ranks of the job, the only one, are connected to their nodes' agents, which tell them of maps."""
        connected = set()
        for pid in self.pids("rank", job_id):
            with contextlib.suppress(OSError):
                sockets = Path(f"/proc/{pid}/net/unix").read_text().splitlines()
                lines = [line.split() for line in sockets if line.endswith("/job.sock")]
                connected |= {line[6] for line in lines if line[5] == "03"}
        return len(connected)

    def _is(self, site: str, words: list[str], name: str) -> bool:
        if site == "rank":
            return not {_HONEST, _LIAR}.isdisjoint(words) and name.startswith("python")
        return super()._is(site, words, name)

    @contextmanager
    def _struck(self, client: Client, fault: Round, job_id: int) -> Iterator[None]:
        """Do what is to befall A; in the block B is submitted."""
        if fault.site == "node":
            with self._losing_a_node(client, fault, job_id):
                yield
            return
        if fault.site == "liar":
            with self._watched(client, fault, job_id):
                yield
            return
        records = {name: _nodes.record(self.lab, name, job_id) for name in self.lab.nodes}
        yield
        if fault.site == "record":
            self._record_lost(client, fault, job_id, records)
            return
        time.sleep(fault.random.uniform(*_MOMENTS_S))
        if fault.site == "none" or (fault.site == "early" and not _EARLY[fault.number % len(_EARLY)]):
            fault.fired = True
        elif fault.site == "hang":
            self._halted(fault, job_id)
        else:
            self._killed(fault, job_id)

    def _halted(self, fault: Round, job_id: int) -> None:
        """All ranks stand still for longer than a resize may take."""
        ranks = self.pids("rank", job_id)
        with standing_still(ranks):
            time.sleep(RESIZE_S + 3.0)
        fault.fired = bool(ranks)

    def _killed(self, fault: Round, job_id: int) -> None:
        """One process of the site is killed: without both nodes' guards nobody is started."""
        site = _EARLY[fault.number % len(_EARLY)] if fault.site == "early" else fault.site
        found = self.pids(site, job_id)
        for pid in fault.random.sample(found, min(1, len(found))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                fault.fired = True

    def _record_lost(self, client: Client, fault: Round, job_id: int, records: dict[str, bytes]) -> None:
        """One node's agent is killed, and its record of A is what it was before B came."""
        other = self._newest(client)
        until(lambda: client.job(other).state != "starting", "B to start", _PATIENCE_S)
        node = fault.random.choice(sorted(records))
        theirs = set(_nodes.processes(self.lab, node))
        agents = [pid for pid in self.pids("agent", 0) if pid in theirs]
        with standing_still(agents):
            _nodes.put_record(self.lab, node, job_id, records[node])
            for pid in agents:
                os.kill(pid, signal.SIGKILL)
        fault.fired = bool(agents)

    @contextmanager
    def _losing_a_node(self, client: Client, fault: Round, job_id: int) -> Iterator[None]:
        """A node is lost while A's resize waits for its ranks, or for the guard of the node where it gives up most."""
        by_kill, for_guard = fault.number % 2 == 0, fault.number % 4 > 1
        nodes = [share.name for share in client.job(job_id).nodes]
        node = nodes[-1] if for_guard else fault.random.choice(nodes)
        theirs = set(_nodes.processes(self.lab, node))
        waited_for = [pid for pid in self.pids("guard", 0) if pid in theirs] if for_guard else self.pids("rank", job_id)
        with standing_still(waited_for):
            yield
            until(lambda: client.explain(self._newest(client)).state == "starting", "B to wait for A")
            time.sleep(fault.random.uniform(*_MOMENTS_S))
            if by_kill:
                fault.fired = bool(waited_for) and _nodes.kill_all(self.lab, node) > 0
            else:
                _nodes.link(self.lab, node, "down")
                fault.fired = bool(waited_for)
        if not by_kill:
            try:
                until(lambda: self._state(client, node) == "lost", f"{node} to be lost")
                time.sleep(fault.random.uniform(*_AWAY_S))
            finally:
                _nodes.link(self.lab, node, "up")
            until(lambda: self._state(client, node) != "lost", f"{node} to be back")
            client.resume(node)  # one that is lost often is set aside

    def _newest(self, client: Client) -> int:
        return max(job.job_id for job in client.jobs())

    def _state(self, client: Client, name: str) -> str:
        return next(node.state for node in client.nodes() if node.name == name)

    @contextmanager
    def _watched(self, client: Client, fault: Round, job_id: int) -> Iterator[None]:
        """Look at where A's threads may run, to its end."""
        held = _nodes.Held(self.lab, job_id)
        held.start()
        try:
            yield
            self._ended(client, job_id)
        finally:
            held.stop()
        given_up = held.looks["asleep"] + held.looks["1 processors"]
        fault.fired = given_up > 0
        fault.outcomes["looks at what A had given up"] += given_up
        if held.strays:
            raise Broken(held.strays[0])

    def _judge_solver(self, client: Client, fault: Round, name: str, job: JobDoc, canary: Path) -> None:
        ran = canary.read_text().splitlines() if canary.exists() else []
        if len(ran) != 1:
            raise Broken(f"{name}, job {job.job_id}, is {job.state} and ran {len(ran)} times: {job.failure}")
        if fault.site == "rank" and name == "A" and fault.fired and job.state == "failed":
            return
        if fault.site == "node" and name == "A" and fault.fired:
            if job.state not in _LOST:
                raise Broken(f"A has lost a node, and is {job.state}")
            return
        if job.state != "completed":
            raise Broken(f"{name}, job {job.job_id}, is {job.state}: {job.failure}")
        report = json.loads(client.output(job.job_id, "stdout").data.decode().splitlines()[-1])
        if not report["verified"] or report["digest"] != self.digests.setdefault(name, report["digest"]):
            raise Broken(f"{name} has a wrong answer, or another than in an earlier round: {report}")

    def _judge_told(self, client: Client, fault: Round, resized: int, other: int) -> None:
        """While both jobs run, each node of the first was told the shares that the scheduler has it on, or is soon."""
        seen: dict[str, str] = {}

        def as_held() -> bool:
            with contextlib.suppress(Failed):  # the scheduler may be on its way back
                seen["other"] = client.job(other).state
                job = client.job(resized)
                held = {share.name: share.cpus for share in job.nodes}
                found = {name: _nodes.told(self.lab, name, resized) for name in held}
                seen["told"] = f"{found}, and job {resized} is {job.state} on {held}"
                same = seen["other"] == "running" and all(shares == held for shares in found.values())
                fault.outcomes["A's nodes told what it has"] += same
                return same or job.state in ENDED or seen["other"] in ENDED
            return False

        until(lambda: as_held() or seen.get("other") == "running", f"job {other} to start", _PATIENCE_S)
        until(as_held, lambda: f"A's nodes to be told what it has; they were told {seen['told']}", _TOLD_S)

    def _judge_changes(self, fault: Round, job: JobDoc) -> None:
        fault.outcomes["A shrank" if any(each.cpus < NODES * CPUS for each in job.changes) else "A kept"] += 1
        if any(each.tasks != NODES * CPUS for each in job.changes):
            raise Broken(f"a rank of A came or went: {job.changes}")


RESIZES = Shapes("resizes", ResizeField, PHASE, NODES, CPUS, POLICY)
#: All these rounds on one lab (:func:`tried`).
campaign = partial(tried, RESIZES)


if __name__ == "__main__":
    main(RESIZES, __doc__, SITES, 9)
