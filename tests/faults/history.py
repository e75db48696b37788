"""One history: a workload, a schedule of faults, a clean tail, a judge (docs/design/faults.md)."""

import shutil
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.config.cluster import ClusterConfig
from cosched.model.contract import SocialContract
from cosched.model.job import TERMINAL, Job, JobState
from cosched.wire.api import Submission
from cosched.wire.messages import Exit
from faults import shapes
from faults.node import Node
from faults.scheduler import APART, SHARING, Scheduler
from faults.world import S, World
from node_agent.core.attempt import Key
from space_scheduler.replay import replay

#: How probable each fault is at each opportunity, unless a schedule says otherwise.
RATES = {
    "delay": 0.01,
    "cut": 0.003,
    "partition": 0.004,
    "unreachable": 0.1,
    "crash before commit": 0.004,
    "crash after commit": 0.004,
    "scheduler crash": 0.003,
    "agent crash": 0.003,
    "crash before persist": 0.004,
    "crash after persist": 0.004,
    "order twice": 0.02,
    "guard dead": 0.004,
    "guard slow": 0.01,
    "disk full": 0.02,
    "reboot": 0.0008,
    "owner": 0.02,
    "paused": 0.004,
    "clock set": 0.01,
    "policy changed": 0.01,
}
BUSY_US = 90 * S
TAIL_US = 900 * S
JOBS = 10
_LEASE_US = 5 * S


class Violation(Exception):
    """A promise was broken; the words say which."""


class Result(NamedTuple):
    """What came of a history."""

    seed: int
    violation: str
    fired: Counter[str]
    faults: int
    trace: list[tuple[int, str]]
    states: Counter[str]


class History:
    """Builds a world from a seed, lives through it, and judges it."""

    def __init__(
        self,
        seed: int,
        rates: dict[str, float] | None = None,
        *,
        only: frozenset[int] | None = None,
        scheduler_type: type[Scheduler] = Scheduler,
        node_type: type[Node] = Node,
    ) -> None:
        self.seed = seed
        self.world = world = World(seed, RATES if rates is None else rates, BUSY_US, only)
        self.directory = Path(tempfile.mkdtemp(prefix="simulated-faults-", dir=_memory()))
        names = ["n1", "n2", "n3"]
        shared = world.random.random() < 0.4
        policy = world.random.choice(SHARING if shared else APART)
        self.reshapes = not shared and seed % 4 == 0  # a policy that changes what running jobs hold
        config = ClusterConfig(
            name="faults",
            nodes=names,
            policy=shapes.POLICY if self.reshapes else policy,
            contract=SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=2 if shared else 1),
            heartbeat="500ms",
            lease="5s",
            launch_timeout="8s",
            state=str(self.directory),
            identity=str(self.directory),
        )
        self.mpl = 2 if shared else 1
        key = Ed25519PrivateKey.from_private_bytes(bytes(world.random.getrandbits(8) for _ in range(32)))
        self.scheduler = scheduler_type(world, self.directory, config, key)
        self.nodes = {
            name: node_type(world, name, self.scheduler, key.public_key(), self._runs, self._started) for name in names
        }
        self.asked: dict[int, tuple[int, Exit]] = {}
        self.limits_us: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        self.ran: Counter[int] = Counter()
        self.cancelled: set[int] = set()

    # --- what happens -----------------------------------------------------------------------------------------------

    def live(self) -> Result:
        """Live through it, and judge."""
        violation, states = "", Counter[str]()
        world = self.world
        try:
            self.scheduler.start()
            for node in self.nodes.values():
                world.after(world.draw_us(0, 2 * S), node.start)
            for _ in range(JOBS):
                world.at(world.draw_us(0, BUSY_US - 10 * S), self._submit)
            world.after(20 * S, self._cancel)
            world.after(S, self._look)
            for seconds in range(0, 120, 30):
                world.at(BUSY_US + seconds * S, self.scheduler.resume_all)
            if not world.run(BUSY_US + TAIL_US, self._settled):
                raise Violation(f"not at rest after the clean tail: {self._unsettled()}")
            states = self._judged()
        except Violation as error:
            violation = str(error)
        except Exception as error:  # a host that falls over breaks all promises at once
            violation = f"{type(error).__name__}: {error}"
        finally:
            self.scheduler.stop()
            shutil.rmtree(self.directory, ignore_errors=True)
        return Result(self.seed, violation, world.fired, world.faults, world.trace, states)

    def _submit(self) -> None:
        chance, scheduler = self.world.random, self.scheduler
        tasks = chance.choice((1, 1, 2, 2, 3, 4))
        limit_us = chance.randrange(2, 30) * S
        submission = Submission(script="#!/bin/sh\ntrue\n", directory="/", tasks=tasks)
        shape = shapes.width(tasks) if self.reshapes else None
        job = Job(0, tasks, limit_us, 0, memory_bytes=1 << 20, shape=shape)
        scheduler.submit(job, submission, partial(self._acknowledge, limit_us))

    def _acknowledge(self, limit_us: int, job_id: int) -> None:
        self.world.say(f"job {job_id} is accepted")
        self.acknowledged[job_id] = self.world.now_us
        self.limits_us[job_id] = limit_us

    def _cancel(self) -> None:
        if self.world.now_us >= BUSY_US:
            return
        if self.acknowledged and self.world.random.random() < 0.5:
            job_id = self.world.random.choice(sorted(self.acknowledged))
            self.cancelled.add(job_id)
            self.scheduler.cancel(job_id)
        self.world.after(20 * S, self._cancel)

    def _runs(self, job_id: int) -> tuple[int, Exit]:
        """How long the script of a job runs, and how it ends."""
        if job_id not in self.asked:
            chance = self.world.random
            how = Exit(status=chance.choice((0, 0, 0, 3)))
            self.asked[job_id] = chance.randrange(1, 20 * S), how
        return self.asked[job_id]

    def _look(self) -> None:
        """Once a second: a node that was silent for a lease is not in service (O10), shapes are as they are counted."""
        scheduler, now_us = self.scheduler, self.world.now_us
        if scheduler.alive:
            for name, heard_us in scheduler.heard_us.items():
                if now_us - heard_us > _LEASE_US + 2 * S and scheduler.rules.book.entry(name).size is not None:
                    raise Violation(f"O10: {name} was silent for {(now_us - heard_us) / S:.1f} s, and is in service")
        for what in shapes.wrong(self):
            raise Violation(f"S1: {what}")
        self.world.after(S, self._look)

    # --- the judge --------------------------------------------------------------------------------------------------

    def _started(self, node: Node, key: Key) -> None:
        """A script has just been started: P1, P2, P6."""
        job_id, _ = key
        self.ran[job_id] += 1
        if self.ran[job_id] > 1:
            raise Violation(f"P2: the script of job {job_id} runs a second time, on {node.name}")
        group = node.guard.groups[key]
        limit_us = group.prepare.limit_us
        if limit_us is None or limit_us < self.limits_us.get(job_id, 0) or limit_us > 30 * S * 8:
            raise Violation(f"P1: the script of job {job_id} runs with the limit {limit_us}")
        for peer in group.prepare.peers:
            if key not in self.nodes[peer.name].ever_prepared:
                raise Violation(f"P1: the script of job {job_id} runs, and {peer.name} was never ready for it")
        for name, each in self.nodes.items():
            used = sum(own.tasks for own in each.guard.groups.values() if own.running or not own.told_empty)
            if used > 2 * self.mpl:
                raise Violation(f"P6: {used} tasks on {name}, which has {2 * self.mpl} places")

    def _states(self) -> dict[int, str]:
        journal = self.scheduler.core.journal
        found = {}
        for job_id in self.acknowledged:
            record = self.scheduler.core.records.get(job_id) or journal.job(job_id)
            found[job_id] = record.state.value if record is not None else "forgotten"
        return found

    def _settled(self) -> bool:
        return self.scheduler.alive and not self._unsettled()

    def _unsettled(self) -> str:
        if not self.scheduler.alive:
            return "the scheduler is away"
        open_jobs = sorted(self.scheduler.core.records)
        if open_jobs:
            return f"jobs {open_jobs} are " + ", ".join(
                self.scheduler.core.records[job_id].state.value for job_id in open_jobs
            )
        for node in self.nodes.values():
            if node.guard.groups:
                return f"{node.name} still has groups {sorted(node.guard.groups)}"
            if not node.alive or self.scheduler.rules.book.entry(node.name).size is None:
                return f"{node.name} is not in service"
        return ""

    def _judged(self) -> Counter[str]:
        """How many jobs came to which end, when all that was promised of the whole was kept."""
        states = self._states()
        terminal = {state.value for state in TERMINAL}
        for job_id, state in states.items():
            if state not in terminal:
                raise Violation(f"P2: job {job_id} was accepted and is {state}")
            if state == JobState.COMPLETED.value and not self.ran[job_id]:
                raise Violation(f"P2: job {job_id} is completed and has never run")
            if state == JobState.COMPLETED.value and self.asked[job_id][1].status != 0:
                raise Violation(f"P2: job {job_id} is completed, and its script has failed")
        self.scheduler.core.state.validate()
        self.scheduler.stop()
        found = replay(self.scheduler.path)
        if found.difference:
            raise Violation(f"R1: the journal replays otherwise: {found.difference}")
        return Counter(states.values())


def _memory() -> str | None:
    """A directory in memory, where there is one: a commit waits for no disk there."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def lived(seed: int, only: frozenset[int] | None = None, **how: Any) -> Result:
    """One history."""
    return History(seed, only=only, **how).live()


def shrunk(seed: int, **how: Any) -> tuple[frozenset[int], Result]:
    """Of a history that breaks a promise, the fewest faults with which it breaks one still; by leaving some out."""
    result = lived(seed, **how)
    assert result.violation
    kept = frozenset(range(1, result.faults + 1))
    size = max(1, len(kept) // 2)
    while size:
        for start in range(0, len(kept), size):
            fewer = kept - frozenset(sorted(kept)[start : start + size])
            if fewer != kept and (found := lived(seed, fewer, **how)).violation:
                kept, result = fewer, found
                break
        else:
            size //= 2
    return kept, result
