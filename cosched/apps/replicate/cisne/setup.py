"""The paper's cluster, owners, workloads and policies, and one simulated run of them.

Hanzich et al. 2005, section 4: 16 workstations of 512 MB; local users on a quarter of them, two of three kinds of which
are XWindows users, the others Internet users; a social contract that leaves parallel work half of CPU and memory beside
them and everything elsewhere; 90 jobs. What the paper leaves open is in ``docs/replications/cisne.md``.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from cosched.config.site import SiteSettings
from cosched.model.contract import SocialContract
from cosched.model.coscheduling import Mode
from cosched.model.node import Node, Owner
from cosched.model.time import US_PER_S
from cosched.workload import estimates
from cosched.workload.generators import registry
from cosched.workload.generators.cisne import DIT, PROGRAMS, SIT, SIZES
from cosched.workload.log import Log
from cosched.workload.rules import InputRules, TaskRules, Workload, prepare
from space_scheduler.plugins import resolve
from space_scheduler.progress import Sharing
from space_scheduler.simulator.host import Outcome, Site, simulate
from space_scheduler.simulator.shared import nodes_of

NODES: Final = 16
MEMORY_BYTES: Final = 512 << 20
MPL: Final = 4
CONTRACT: Final = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=MPL)
JOBS: Final = 90
#: Table 2, in its order.
POLICIES: Final = ("basic", "normal", "uniform-light", "uniform-hard", "2dbf", "3dbf-light", "3dbf-hard")
WORKLOADS: Final = {"SIT": SIT, "DIT": DIT}
#: Plain Linux, and the paper's own.
TIME_SHARING: Final = (Mode.NONE, Mode.CCS)
#: Who sits at a desk: how likely, thousandths of a CPU, part of the memory (section 4).
OWNERS: Final = {"XWindows": (0.65, 150, 0.35), "Internet": (0.35, 200, 0.60)}
OWNED_NODES: Final = NODES // 4
#: Readings of how long they stay: from beginning to end, or in sessions at any desk, a quarter of the time at each.
STAYS: Final = ("stay", "sessions")
#: The mean of a session's length, which is exponential, as the time until the next one is; and until when they come.
_SESSION_S: Final = 1200.0
_SESSIONS_UNTIL_S: Final = 50_000.0


class Scale(msgspec.Struct, frozen=True):
    """How much is run: seeds, and the ratios of the sweep (mean time between arrivals over mean execution time)."""

    seeds: int
    sweep: tuple[float, ...]
    sweep_seeds: int


FULL: Final = Scale(30, (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0), 10)
QUICK: Final = Scale(3, (), 0)


class Measured(NamedTuple):
    """One run: means over its jobs in seconds, and the whole workload's turnaround (section 4: makespan)."""

    wait_s: float
    execution_s: float
    turnaround_s: float
    makespan_s: float


def log(ratio: float, seed: int, *, jobs: int = JOBS, count: int = NODES) -> Log:
    """The jobs of a seed, as the paper's generator draws them for so many nodes."""
    return registry.generate("cisne", jobs, count, np.random.default_rng(seed), {"ratio": ratio})


def workload(ratio: float, seed: int, *, estimate: str = "exact", jobs: int = JOBS, count: int = NODES) -> Workload:
    """What the jobs of a seed need, and when they come."""
    drawn = log(ratio, seed, jobs=jobs, count=count)
    tasks = TaskRules(memory_bytes=0, programs={at: each.kind for at, each in enumerate(PROGRAMS, 1)})
    load = prepare(drawn, InputRules(), procs_total=count * MPL, tasks=tasks)
    return estimates.with_estimates(load, estimates.parse(estimate), np.random.default_rng(seed))


def load(ratio: float) -> float:
    """Work that comes, as a part of what the nodes can do meanwhile: tasks × execution / (nodes × inter-arrival)."""
    return sum(SIZES) / len(SIZES) / (NODES * ratio)


def site(seed: int, sharing: Sharing, *, count: int = NODES, owners: str = "stay") -> Site:
    """The cluster, with the owners of a seed at the desks of a quarter of it, by one of :data:`STAYS`."""
    desks = nodes(count)
    rng = np.random.default_rng((seed, count))
    if owners == "sessions":
        return Site(desks, sorted(_sessions(desks, rng), key=lambda each: each[0]), sharing)
    drawn = rng.choice(count, count * OWNED_NODES // NODES, replace=False)
    return Site(desks, [(0, desks[at].name, owner(_kind(rng))) for at in drawn], sharing)


def _sessions(desks: Sequence[Node], rng: np.random.Generator) -> Iterator[tuple[int, str, Owner | None]]:
    """Owners who come to each desk and leave it, on average at so many desks as those who stay."""
    mean_away_s = _SESSION_S * (NODES - OWNED_NODES) / OWNED_NODES
    for desk in desks:
        there, at_s = rng.random() < OWNED_NODES / NODES, 0.0
        while at_s < _SESSIONS_UNTIL_S:
            if there or at_s:
                yield round(at_s * US_PER_S), desk.name, owner(_kind(rng)) if there else None
            at_s += rng.exponential(_SESSION_S if there else mean_away_s)
            there = not there


def _kind(rng: np.random.Generator) -> str:
    return "XWindows" if rng.random() < OWNERS["XWindows"][0] else "Internet"


def nodes(count: int = NODES) -> list[Node]:
    """The paper's workstations under its contract."""
    return nodes_of(SiteSettings(memory=f"{MEMORY_BYTES}B", contract=CONTRACT), count)


def owner(kind: str) -> Owner:
    """One of the paper's owners."""
    _, cpu_permille, memory_part = OWNERS[kind]
    return Owner(cpu_permille, round(memory_part * MEMORY_BYTES))


def simulated(
    policy: str, ratio: float, seed: int, sharing: Sharing, estimate: str = "exact", owners: str = "stay"
) -> Outcome:
    """One workload under one policy."""
    found = site(seed, sharing, owners=owners)
    return simulate(workload(ratio, seed, estimate=estimate), resolve(policy), site=found)


def measured(policy: str, ratio: float, seed: int, sharing: Sharing, owners: str = "stay") -> Measured:
    """What came out of it, estimates exact."""
    return of(simulated(policy, ratio, seed, sharing, owners=owners))


def of(found: Outcome) -> Measured:
    """The measures of a simulated run."""
    submit_us = found.workload.submit_us
    wait_s = float((found.start_us - submit_us).mean() / US_PER_S)
    execution_s = float((found.end_us - found.start_us).mean() / US_PER_S)
    makespan_s = float((found.end_us.max() - submit_us.min()) / US_PER_S)
    return Measured(wait_s, execution_s, wait_s + execution_s, makespan_s)
