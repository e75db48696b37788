"""Random traces through coscheduling's pure core and the guard's levers: every limit kept, every boost undone (P5)."""

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cosched.linux.cgroups import Cgroups, group_name
from cosched.model.coscheduling import Mode, Receives
from node_agent.guard.base.requests import MAX_LEASE_US, MAX_PERCENT, Slots
from node_agent.guard.launcher.levers import Levers
from node_agent.policy.modes import LEASE_US, Coscheduling
from node_agent.policy.raising import HOLD_US, LONGEST_HOLD_US, Job, Key
from node_agent.policy.raising import Slots as Turns

_TRACES = 500
_STEPS = 25
_SLOT_US = 50_000


class Kernel(Cgroups):
    """The weights as a kernel would have them after the guard's writes, and who is held; nothing else is asked."""

    def __init__(self, rng: random.Random) -> None:
        self.weights: dict[str, tuple[int, bool]] = {}
        self.held: set[str] = set()
        self.refuses = rng.random() < 0.1
        self.ceiling = rng.random() < 0.5

    def hold(self, name: str, *, held: bool) -> None:
        if not held:
            self.held.discard(name)
        elif self.refuses:
            raise OSError(22, "refused")
        else:
            assert self.ceiling
            self.held.add(name)

    def ceiling_comes_or_goes(self, rng: random.Random, levers: Levers, now_us: int) -> None:
        if rng.random() < 0.1:
            self.ceiling = not self.ceiling
            levers.tick(now_us)
            assert self.ceiling or not self.held, "a ceiling that goes lets all go"

    def weigh(self, name: str, percent: int, idle: bool) -> None:
        assert 1 <= percent <= MAX_PERCENT
        self.weights[name] = (100 if idle else percent), idle

    def unneutral(self) -> dict[str, tuple[int, bool]]:
        unneutral = {name: weight for name, weight in self.weights.items() if weight != (100, False)}
        return unneutral | dict.fromkeys(self.held, (0, True))


Kernel.__abstractmethods__ = frozenset()


def trace(rng: random.Random) -> None:
    """One node's life: jobs come and go, messages arrive, CPU is used, the guard is told and its timers fire."""
    kernel: Kernel = cast(Any, Kernel)(rng)  # without the methods that are abstract: nothing here calls them
    shared: Any = SimpleNamespace(groups={}, cgroups=kernel)
    levers = Levers(shared, lambda: kernel.ceiling)
    core = Coscheduling()
    now_us = rng.randrange(1_000_000)
    begin_us = now_us
    core.clock.answered(now_us - rng.randrange(20_000), rng.randrange(10**9), now_us)
    used: dict[Key, float] = {}
    raised: dict[Key, float] = {}
    shares: dict[Key, float] = {}
    jobs: list[Job] = []
    born = 0
    for _ in range(_STEPS):
        if not jobs or rng.random() < 0.2:
            born += 1
            mode, receives = rng.choice(list(Mode)), rng.choice(list(Receives))
            share = rng.choice([0.1, 0.25, 0.5, 0.9])
            jobs.append(Job((born, 1), mode, receives, share=share, row=born % 3, rows=rng.choice([0, 3])))
            shares[born, 1] = share
        elif rng.random() < 0.1:
            gone = jobs.pop(rng.randrange(len(jobs)))
            levers.forget(gone.key)
            kernel.weights.pop(group_name(*gone.key), None)
            kernel.held.discard(group_name(*gone.key))
        jobs = [job._replace(waiting=rng.random() < 0.6, cpu_us=int(used.get(job.key, 0))) for job in jobs]
        contended = rng.random() < 0.9
        decision = core.decide(jobs, _SLOT_US, now_us, contended=contended)
        of = {job.key: job for job in jobs}
        for weight in decision.weights:
            job = of[weight.key]
            assert contended
            assert weight.until_us - now_us <= MAX_LEASE_US
            if weight.percent > 100:  # only with a message waiting, within the budget, and for a moment
                assert job.waiting
                assert job.mode in (Mode.CCS, Mode.DCS)
                assert now_us + HOLD_US <= weight.until_us <= now_us + LONGEST_HOLD_US
                if job.mode is Mode.CCS:
                    assert core._budgets[job.key].left_us > 0
                    assert job.receives in (Receives.BLOCKS, Receives.YIELDS)
            levers.weigh(weight.key, weight.percent, weight.until_us, now_us)
        turns = decision.slots
        if turns is not None:
            named = [key for row in turns.rows for key in row]
            assert sorted(named) == sorted(job.key for job in jobs if job.rows > 1)
        levers.slots(Slots(*turns) if turns is not None else Slots(0, _SLOT_US, (), 0), now_us)
        if turns is not None:
            _held(kernel, turns, jobs)
        # time goes by, in steps of the guard's timers
        end_us = now_us + rng.randrange(1_000, 60_000)
        kernel.ceiling_comes_or_goes(rng, levers, now_us)
        while now_us < end_us:
            then_us = max(now_us + 1, min(end_us, levers.due_us))
            high = {name for name, (percent, idle) in kernel.weights.items() if percent > 100 and not idle}
            cpu_us = float(then_us - now_us)  # one CPU, given to one job, raised ones first
            running = [job for job in jobs if group_name(*job.key) in high] or jobs
            for lucky in [rng.choice(running).key] if running else []:
                used[lucky] = used.get(lucky, 0.0) + cpu_us
                if of[lucky].mode is Mode.CCS and group_name(*lucky) in high:
                    raised[lucky] = raised.get(lucky, 0.0) + cpu_us
            now_us = then_us
            levers.tick(now_us)
        assert len([name for name in kernel.unneutral() if name not in {group_name(*j.key) for j in jobs}]) == 0
    for key, raised_us in raised.items():
        assert raised_us <= shares[key] * (now_us - begin_us) + HOLD_US + 60_000, f"{key} was raised beyond its budget"
    _end(rng, levers, kernel, jobs, now_us)


def _held(kernel: Kernel, turns: Turns, jobs: list[Job]) -> None:
    """Below a ceiling who waits for his turn is held, where the kernel lets him be."""
    if kernel.ceiling and not kernel.refuses:
        everybodys = not all(turns.rows) and not kernel.held
        let = {job.row % len(turns.rows) for job in jobs if job.rows > 1 and group_name(*job.key) not in kernel.held}
        assert everybodys or len(let) == 1


def _end(rng: random.Random, levers: Levers, kernel: Kernel, jobs: list[Job], now_us: int) -> None:
    """The agent falls silent, or goes: in the end all is as it was made."""
    if rng.random() < 0.5:
        levers.undo_all([job.key for job in jobs])
    else:
        levers.tick(now_us + max(LEASE_US, LONGEST_HOLD_US))
    assert kernel.unneutral() == {}
    assert levers.status_fields()["levers"] == []
    assert levers.due_us > now_us + MAX_LEASE_US


@pytest.mark.parametrize("traces", [_TRACES, pytest.param(200 * _TRACES, marks=pytest.mark.long)])
def test_boosts_keep_their_limits_and_are_undone(traces: int) -> None:
    for seed in range(traces):
        try:
            trace(random.Random(seed))
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
