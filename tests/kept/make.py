"""Makes the three kept journals that are driven by chance: ``python tests/kept/make.py FOLDER``.

The world around the core is this script: times are set by hand, jobs come, are held, cancelled, launched and end by
the draws of one seed, and processors, nodes and owners come and go. What the core decides is written by the service's
own journal. Made again by later code, a journal says what that code decides: it is another journal.
"""

import gzip
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import structs

from cosched import __version__
from cosched.model.coscheduling import Mode
from cosched.model.job import Job, JobState
from cosched.model.node import Node, Owner
from cosched.model.time import US_PER_S
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.machine.record import IllegalTransition, Infeasible, UnknownJob
from space_scheduler.machine.rules import MachineRules
from space_scheduler.plugins import resolve
from space_scheduler.progress import Sharing
from space_scheduler.service.core.journalled import JournalledCore, Settings
from space_scheduler.service.journal.clock import Clock, Sources
from space_scheduler.service.journal.journal import Journal

SCRIPT = Submission(script="#!/bin/sh\ntrue\n", directory="/tmp", tasks=1)
HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.ENDING)
COSTS = {"comm": {"comm": 300, "cpu": 100, "owner": 150}, "cpu": {"comm": 50}}
NAMES = ("ant", "bee", "cat", "dog")
GIB = 1 << 30


class Life:
    """A core with a journal, and the world that it lives in."""

    def __init__(self, path: Path, policy: str, seed: int) -> None:
        self.path, self.policy = path, policy
        self.chance = random.Random(seed)
        self.now_us = 1_700_000_000 * US_PER_S

    def begin(self, rules: MachineRules) -> None:
        """A start of the service."""
        self.journal = Journal(self.path)
        sources = Sources(lambda: self.now_us, lambda: self.now_us - 1_699_000_000 * US_PER_S, lambda: "a boot")
        self.clock = Clock(tuple(run.anchor for run in self.journal.runs), self.journal.last_us, sources)
        self.journal.begin_run(self.clock.anchor, __version__, self.policy, None, rules)
        self.core = JournalledCore(
            self.journal,
            Settings(
                self.journal.path,
                resolve(self.policy),
                self.policy,
                rules=rules,
                keep_events=None,
                snapshot_every=90,
            ),
        )
        self.core.save_if_rules_changed()

    def end(self) -> None:
        """The service is killed."""
        self.journal.close()

    def take_in(self, *events: ev.Event) -> None:
        """What happens, if it can."""
        for event in events:
            with suppress(IllegalTransition, UnknownJob):
                self.core.take_in(event, self.clock.now_us())

    def live(self, steps: int, about_capacity: Callable[["Life"], ev.Event], kinds: tuple[str, ...] = ("",)) -> None:
        """So many times something happens, and a pass or none follows."""
        for _ in range(steps):
            self.now_us += self.chance.choice((0, 1, 3, 20, 60)) * US_PER_S + self.chance.randrange(US_PER_S)
            dice = self.chance.random()
            if dice < 0.35:
                self.submit(self.chance.choice(kinds))
            elif dice < 0.42:
                self.take_in(about_capacity(self))
            else:
                self.about_a_job()
            if self.chance.random() < 0.7:
                self.core.decide(self.clock.now_us())
                for job_id in self.those(JobState.STARTING):
                    if self.chance.random() < 0.8:
                        self.take_in(ev.JobLaunched(job_id))
            self.core.commit()
            self.core.state.validate()
            self.core.save_if_due()

    def those(self, *states: JobState) -> list[int]:
        """The jobs in these states."""
        return [job_id for job_id, record in self.core.state.records.items() if record.state in states]

    def submit(self, kind: str) -> None:
        """A job comes."""
        job = Job(
            0,
            self.chance.choice((1, 1, 2, 2, 3, 4, 6)),
            self.chance.choice((30, 60, 60, 300, 900)) * US_PER_S,
            0,
            memory_bytes=self.chance.choice((0, GIB // 2, GIB)) if kind else 0,
            requeue=self.chance.random() < 0.2,
            kind=kind,
            cpu_permille={"comm": 690, "cpu": 930}.get(kind, 1000),
        )
        with suppress(Infeasible):
            self.core.submit(job, SCRIPT, "ann", self.clock.now_us(), hold=self.chance.random() < 0.1)

    def about_a_job(self) -> None:
        """A job ends, or its user changes his mind, or its launch fails."""
        dice = self.chance.random()
        states: tuple[JobState, ...]
        kind: type[ev.JobEvent] | None
        if dice < 0.7:
            states, kind = (JobState.RUNNING, JobState.ENDING), ev.JobEnded
        elif dice < 0.8:
            states, kind = (JobState.QUEUED, *HOLDING), ev.JobCancelled
        elif dice < 0.87:
            states, kind = (JobState.QUEUED,), ev.JobHeld
        elif dice < 0.95:
            states, kind = (JobState.WAITING,), ev.JobReleased
        else:
            states, kind = (JobState.STARTING,), None
        if not (found := self.those(*states)):
            return
        job_id = self.chance.choice(found)
        if kind is ev.JobEnded:
            self.take_in(ev.JobEnded(job_id, self.chance.choice((JobState.COMPLETED, JobState.FAILED))))
        elif kind is None:
            shares = self.core.state.records[job_id].allocation.nodes
            self.take_in(ev.LaunchFailed(job_id, tuple(share.node for share in shares[:1])))
        else:
            self.take_in(kind(job_id))


def of_processors(life: Life) -> ev.Event:
    """Processors come, go, or are lost with a job."""
    in_service = life.core.state.machine.capacity.procs_total
    if in_service < 8:
        return ev.NodesJoined(8 - in_service)
    running = life.those(JobState.RUNNING)
    if running and life.chance.random() < 0.5:
        return ev.NodesLost(1, (life.chance.choice(running),))
    return ev.NodesDrained(life.chance.choice((1, 2, 4)))


def of_nodes(life: Life) -> ev.Event:
    """A node is drained, resumed, lost or back, an owner comes or goes."""
    name = life.chance.choice(NAMES)
    status = next(each for each in life.core.state.nodes() if each.node.name == name)
    if status.lost:
        return ev.NodeJoined(status.node)
    if status.drained:
        return ev.NodeResumed(name)
    owner = Owner(life.chance.choice((100, 250)), life.chance.choice((0, GIB)))
    others = (ev.NodeDrained(name, "dust"), ev.NodeLost(name))
    return life.chance.choice((ev.OwnerLeft(name) if status.owner else ev.OwnerCame(name, owner),) * 3 + others)


def counted(path: Path) -> None:
    """Eight processors under conservative backfilling; the service is killed and starts again once."""
    life = Life(path, "conservative", seed=21)
    life.begin(MachineRules())
    life.take_in(ev.NodesJoined(8))
    life.live(70, of_processors)
    life.end()
    life.begin(MachineRules())
    life.live(50, of_processors)
    life.end()


def named(path: Path) -> None:
    """Four nodes of two CPUs under 3dbf-hard; killed, and started again with a place more on each CPU than before."""
    shared = Sharing(Mode.CCS, COSTS, 3000)
    life = Life(path, "3dbf-hard", seed=22)
    life.begin(MachineRules(launch_retries=1, sharing=shared, mpl=1))
    life.take_in(*(ev.NodeJoined(Node(name, 4, 4 * GIB, 2, 500, 3 * GIB, 6 * GIB)) for name in NAMES))
    life.live(50, of_nodes, ("cpu", "comm"))
    life.end()
    life.begin(MachineRules(launch_retries=1, sharing=shared, mpl=2))
    life.live(110, of_nodes, ("cpu", "comm"))
    life.end()


def of_a_desk(life: Life) -> ev.Event:
    """As :func:`of_nodes`, or an owner bans users, takes that back, or ends a job."""
    if life.chance.random() < 0.5:
        return of_nodes(life)
    running = life.those(JobState.RUNNING)
    if running and life.chance.random() < 0.5:
        job_id = life.chance.choice(running)
        shares = life.core.state.records[job_id].allocation.nodes
        return ev.JobSentAway(job_id, life.chance.choice(shares).node)
    status = life.chance.choice(life.core.state.nodes())
    bans = life.chance.choice(((), (0,), (7,)))
    return ev.NodeJoined(structs.replace(status.node, bans=bans))


def desks(path: Path) -> None:
    """Four nodes of two CPUs under easy, whose owners ban users and end jobs; killed once."""
    life = Life(path, "easy", seed=23)
    life.begin(MachineRules(launch_retries=1))
    life.take_in(*(ev.NodeJoined(Node(name, 2, 4 * GIB)) for name in NAMES))
    life.live(90, of_a_desk)
    life.end()
    life.begin(MachineRules(launch_retries=1))
    life.live(60, of_a_desk)
    life.end()


def packed(journal: Path, to: Path) -> None:
    """A journal as one small file."""
    with TemporaryDirectory() as folder:
        made = Path(folder) / "journal.db"
        with closing(sqlite3.connect(journal)) as source, closing(sqlite3.connect(made)) as copy:
            source.backup(copy)
            copy.executescript("PRAGMA journal_mode=DELETE; PRAGMA page_size=512; VACUUM;")
        to.write_bytes(gzip.compress(made.read_bytes(), mtime=0))


MADE = {"conservative-counted": counted, "3dbf-hard-named": named, "easy-desks": desks}

if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        for name, make in MADE.items():
            journal = Path(folder) / f"{name}.db"
            make(journal)
            packed(journal, Path(sys.argv[1]) / f"{journal.name}.gz")
