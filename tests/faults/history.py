"""One history: a workload, a schedule of faults, a clean tail, a judge (docs/design/faults.md)."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.model.job import Job
from cosched.wire.api import Submission
from cosched.wire.messages import Exit
from faults import depending, labs, settings, shapes
from faults.judge import Judge
from faults.node import Node
from faults.ranks import WINDOW_US
from faults.scheduler import Scheduler
from faults.schedulers import Schedulers
from faults.violation import Violation
from faults.world import S, World

#: How probable each fault is at each opportunity, unless a schedule says otherwise.
RATES = {
    "delay": 0.01,
    "cut": 0.003,
    "partition": 0.008,
    "lab cut": 0.02,
    "unreachable": 0.1,
    "node slow": 0.006,
    "crash before commit": 0.004,
    "crash after commit": 0.004,
    "torn write": 0.003,
    "slow disk": 0.01,
    "journal torn": 0.004,
    "journal full": 0.004,
    "journal damaged": 0.2,
    "crash at start": 0.1,
    "scheduler crash": 0.004,
    "scheduler frozen": 0.004,
    "second scheduler": 0.01,
    "taken over": 0.002,
    "agent crash": 0.004,
    "agent frozen": 0.004,
    "crash before persist": 0.004,
    "crash after persist": 0.004,
    "order twice": 0.02,
    "old order": 0.02,
    "false word": 0.01,
    "guard dead": 0.005,
    "guard slow": 0.01,
    "guard hung": 0.002,
    "disk full": 0.02,
    "disk hangs": 0.01,
    "start stalls": 0.03,
    "write stalls": 0.04,
    "other uid": 0.02,
    "ranks slow": 0.3,
    "ranks hang": 0.2,
    "early resize refused": 0.2,
    "early resize late": 0.2,
    "early resize lost": 0.2,
    "early resize repeated": 0.3,
    "last resize refused": 0.2,
    "last resize late": 0.2,
    "last resize lost": 0.2,
    "last resize repeated": 0.3,
    "record lost": 0.3,
    "node frozen": 0.002,
    "node sleeps": 0.006,
    "call lost": 0.6,
    "reboot": 0.0016,
    "owner": 0.04,
    "owner storm": 0.002,
    "presence unknown": 0.008,
    "paused": 0.006,
    "owner contract": 0.3,
    "contract changed": 0.2,
    "clock set": 0.02,
    "policy changed": 0.02,
}
BUSY_US = 90 * S
TAIL_US = 900 * S
JOBS = 10
#: The uid of who submits them.
USER = 1000


class Result(NamedTuple):
    """What came of a history."""

    seed: int
    violation: str
    fired: Counter[str]
    faults: int
    trace: list[tuple[int, str]]
    states: Counter[str]


class History:
    """Builds a world from a seed, lives through it, and has it judged. Faults happen for ``busy_us``."""

    busy_us = BUSY_US
    tail_us = TAIL_US
    script_us = 20 * S  # how long scripts run at the most

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
        self.world = world = World(seed, RATES if rates is None else rates, self.busy_us, only)
        self.directory = Path(tempfile.mkdtemp(prefix="simulated-faults-", dir=_memory()))
        names = ["n1", "n2", "n3"]
        drawn = settings.drawn(world, self.directory, names)
        config = msgspec.structs.replace(drawn, eligibility=self._rules())
        key = Ed25519PrivateKey.from_private_bytes(bytes(world.random.getrandbits(8) for _ in range(32)))

        self.judge = judge = Judge(world)

        def make(directory: Path, before: Scheduler | None) -> Scheduler:
            return scheduler_type(world, directory, before.config if before else config, key, judge)

        self.schedulers = judge.schedulers = Schedulers(world, self.directory, make)
        self.nodes = judge.nodes = {
            name: node_type(world, name, self.schedulers.dial, key.public_key(), self._runs, judge) for name in names
        }
        for name, node in self.nodes.items():
            node.cluster = labs.lab_of(seed, name)
            node.moment = self._moment

    # --- what happens -----------------------------------------------------------------------------------------------

    def live(self) -> Result:
        """Live through it, and judge."""
        violation, states = "", Counter[str]()
        world = self.world
        try:
            self.schedulers.start()
            for node in self.nodes.values():
                world.after(world.draw_us(0, 2 * S), node.start)
            for at_us in self._arrivals():
                world.at(at_us, self._submit)
            world.after(20 * S, self._cancel)
            if labs.has_labs(self.seed):
                world.after(S, self._link)
            world.after(S, self.judge.look)
            for seconds in range(0, 120, 30):
                world.at(self.busy_us + seconds * S, self.schedulers.resume_all)
            if not world.run(self.busy_us + self.tail_us, self._settled):
                raise Violation(f"not at rest after the clean tail: {self.judge.unsettled()}")
            states = self.judge.verdict()
        except Violation as error:
            violation = str(error)
        except Exception as error:  # a host that falls over breaks all promises at once
            violation = f"{type(error).__name__}: {error}"
        finally:
            self.schedulers.stop()
            shutil.rmtree(self.directory, ignore_errors=True)
        # the same lines wherever it is lived
        trace = [(at_us, what.replace(str(self.directory), "")) for at_us, what in world.trace]
        return Result(self.seed, violation.replace(str(self.directory), ""), world.fired, world.faults, trace, states)

    def _rules(self) -> list[str]:
        """The rules before the queue, by name."""
        return depending.rules(self.seed)

    def _settled(self) -> bool:
        return self.judge.settled()

    def _arrivals(self) -> list[int]:
        """When jobs come: one now and then; more at once where shapes change, since nobody gives to an empty queue."""
        if self.schedulers.now.config.policy in shapes.POLICIES:
            return [self.world.draw_us(0, BUSY_US // 3) for _ in range(2 * JOBS)]
        return [self.world.draw_us(0, BUSY_US - 10 * S) for _ in range(JOBS)]

    def _submit(self) -> None:
        job = depending.following(self._job(), self.seed, list(self.judge.acknowledged))
        self._send(job, partial(self._acknowledge, job))

    def _job(self) -> Job:
        chance = self.world.random
        tasks = chance.choice((1, 1, 2, 2, 3, 4))
        limit_us = chance.randrange(2, 30) * S
        policy = self.schedulers.now.config.policy
        job = shapes.shaped(Job(0, tasks, limit_us, 0, USER, memory_bytes=1 << 20), policy, chance)
        return labs.divided(job, self.seed, chance)

    def _send(self, job: Job, acknowledged: Callable[[Scheduler, int], None]) -> None:
        submission = Submission(script="#!/bin/sh\ntrue\n", directory="/", tasks=job.procs)
        self.schedulers.now.submit(job, submission, acknowledged)

    def _acknowledge(self, job: Job, scheduler: Scheduler, job_id: int) -> None:
        self.judge.acknowledge(scheduler, job_id, job)

    def _cancel(self) -> None:
        if self.world.now_us >= self.busy_us:
            return
        if self.judge.acknowledged and self.world.random.random() < 0.5:
            self.schedulers.now.cancel(self.world.random.choice(sorted(self.judge.acknowledged)))
        self.world.after(20 * S, self._cancel)

    def _link(self) -> None:
        """Now and then the scheduler cannot reach a lab for a while."""
        if self.world.now_us >= self.busy_us:
            return
        if self.world.fault("lab cut"):
            lab, for_us = self.world.random.choice(("west", "east")), self.world.draw_us(S, 15 * S)
            for node in self.nodes.values():
                if node.cluster == lab:
                    node.out_of_reach(for_us)
        self.world.after(S, self._link)

    def _runs(self, job_id: int) -> tuple[int, Exit]:
        """How long the script of a job runs, and how it ends."""
        asked = self.judge.asked
        if job_id not in asked:
            chance = self.world.random
            how = Exit(status=chance.choice((0, 0, 0, 3)))
            asked[job_id] = chance.randrange(1, self.script_us), how
        return asked[job_id]

    def _moment(self, key: tuple[int, int]) -> str:
        """Whether a job is in its first seconds (early) or in its last ones; empty: in none of them."""
        for node in self.nodes.values():
            left_us = node.guard.scripts.left_us(key)
            if left_us is not None:
                early = node.guard.scripts.age_us(key) < WINDOW_US
                return "early" if early else "last" if left_us < WINDOW_US else ""
        return ""


def _memory() -> str | None:
    """A directory in memory, where there is one: a commit waits for no disk there."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def lived(seed: int, only: frozenset[int] | None = None, kind: Callable[..., History] = History, **how: Any) -> Result:
    """One history."""
    return kind(seed, only=only, **how).live()


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
