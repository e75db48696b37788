"""How fast jobs advance on shared workstations: the one function of rates (design, section 5).

A job does in a second ``rate`` millionths of what it does alone on idle nodes. Its tasks wait for each other, so the
slowest of its nodes sets it. On a node the contract and the owner leave so many CPUs to parallel work; tasks share
them, none taking more than it uses alone (max-min fairness), by the time-sharing mode in force:

- ``none``, plain Linux: each node shares for itself. What a job leaves unused because it waits elsewhere is lost.
- ``ccs``: a job's tasks get equal parts everywhere, and what that frees goes to other jobs (``fair_rates``).
- ``dcs``: communicating tasks come first, without a budget; the others share what they leave.
- ``spin``: a waiting task spins: communicating tasks want a whole CPU.
- ``gang``: tasks take turns, each with the CPU to itself, whether it uses it or not.

An owner who computes takes the whole CPU, for as long as he does: parallel work is in the idle class. On each desk that
is at other moments, and a job stands still whenever it is on one of its nodes: with owners who compute for a fifth of
their time on two of them, its rate is 0.8 times 0.8 of what ceilings and shares leave.

No rate is 0. Beside an owner who never pauses the idle class still has its weight, 3 beside the 1024 of a normal task
(``WEIGHT_IDLEPRIO`` and ``NICE_0_LOAD`` of Linux's scheduler): owners leave a job three thousandths of its rate at the
least. Where a mode of sharing leaves nothing, the rate is a millionth, so that each job has a predicted end.

What sharing costs beyond that is measured (``cosched calibrate``): a task is slower by so much for each task beyond
the CPUs that it shares a node with, by the kinds of both; and by so much beside an owner. A job of one task waits for
nobody, and pays nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from operator import truediv
from typing import Final, NamedTuple

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.components import Between
from cosched.model.coscheduling import Mode, fair_rates
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from cosched.model.width import Range, Shape
from space_scheduler.clusters import crossing_ppm, slowed

#: Millionths of what a job does alone in its own width: a whole number wherever it is one, exact anyway.
Rate = int | Fraction
#: The rate of a job that has its nodes to itself.
ALONE_PPM: Final = 1_000_000
#: The kind of an owner in tables of costs.
OWNER: Final = "owner"
_LEAST_CPU: Final = 0.001
#: What owners who compute all the time leave of a job's rate: the idle class's weight beside a normal task's.
IDLE_CLASS: Final = (3, 1024)
#: The lowest rate, whatever ceilings, shares and costs leave: a predicted end is a moment, never "not at all".
LEAST_PPM: Final = 1


#: A number while rates are worked out.
Number = float | Fraction


class Numbers(NamedTuple):
    """How rates are worked out: a value that was given, and the ratio of two whole numbers, as numbers."""

    given: Callable[[float], Number]
    ratio: Callable[[int, int], Number]


_FLOATS: Final = Numbers(float, truediv)
#: What is given are thousandths of CPUs, or parts of a machine.
_EXACT: Final = Numbers(lambda value: Fraction(value).limit_denominator(1_000_000), Fraction)
#: Floats are off by far less, in millionths; nearer to a half than this, where rounding turns, fractions decide.
_NEAR: Final = 1e-3


class Sharing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How CPUs are shared, and what that costs.

    ``cost_permille[own kind][other's kind]``: by how many thousandths of its time alone a task is slower for each task
    of the other kind beyond the CPUs; the other kind "owner" is whoever sits there. ``paging_permille``: by how much
    for each thousandth of the node's memory that is asked for and not there; not measured, so it is 0 but in journals.
    """

    mode: Mode = Mode.NONE
    cost_permille: Mapping[str, Mapping[str, int]] = {}
    paging_permille: int = 0


class NodeCpu(NamedTuple):
    """A node as rates depend on it: CPUs that parallel tasks may use together, CPUs it has, whether its owner is there.

    ``lacking_permille``: memory that is asked for and not there, in thousandths of what there is. ``bursts_permille``:
    which part of the time the owner computes, on all of its CPUs. ``cluster``: the one that it belongs to.
    """

    usable: float
    cpus: int
    owned: bool = False
    lacking_permille: int = 0
    bursts_permille: int = 0
    cluster: str = ""


class Load(NamedTuple):
    """A job as rates depend on it: its kind, what each task uses of a CPU alone, and its tasks by node.

    ``speed_up``: how fast it would be with nobody beside it, against the width it asked for.
    """

    kind: str
    cpu: float
    tasks: Mapping[str, int]
    speed_up: Rate = 1


class Occupancy:
    """Who is where. A copy costs little: what it holds for a node or a job is a value that is never changed."""

    __slots__ = ("_on", "between", "exact", "fold_cost_ppm", "jobs", "nodes", "sharing")

    def __init__(
        self, sharing: Sharing, fold_cost_ppm: int = 0, between: Between | None = None, *, exact: bool = True
    ) -> None:
        """``fold_cost_ppm`` as for :func:`speed_up`; ``between``: what jobs on several clusters pay.

        ``exact``: rates are those of exact fractions, rounded; else of floats, as in the first edition of the rules.
        """
        self.sharing = sharing
        self.exact = exact
        self.between = between
        self.fold_cost_ppm = fold_cost_ppm
        self.nodes: dict[str, NodeCpu] = {}
        self.jobs: dict[int, Load] = {}
        self._on: dict[str, tuple[int, ...]] = {}

    def anew(self) -> "Occupancy":
        """One with the same rules, without nodes or jobs."""
        return Occupancy(self.sharing, self.fold_cost_ppm, self.between, exact=self.exact)

    def copy(self) -> "Occupancy":
        """An independent copy."""
        other = self.anew()
        other.nodes, other.jobs, other._on = self.nodes.copy(), self.jobs.copy(), self._on.copy()
        return other

    def enter(self, job: Job, allocation: Allocation) -> None:
        """A job begins there."""
        # a job's own folded tasks are no company, and nobody is where all of them sleep
        tasks = {share.node: share.procs for share in allocation.nodes if share.procs or not allocation.procs}
        cpu = max(_LEAST_CPU, job.cpu_permille / 1000)
        speed = speed_up(job, allocation, self.fold_cost_ppm)
        if self.between is not None or job.crossing_ppm is not None:
            clusters = {self.nodes[share.node].cluster for share in allocation.nodes}
            speed = slowed(speed, crossing_ppm(job, clusters, self.between))
        self.jobs[job.id] = Load(job.kind or "cpu", cpu, tasks, speed)
        for name in tasks:
            self._on[name] = (*self._on.get(name, ()), job.id)

    def leave(self, job_id: int) -> None:
        """A job has ended."""
        for name in self.jobs.pop(job_id).tasks:
            self._on[name] = tuple(other for other in self._on[name] if other != job_id)

    def on(self, name: str) -> tuple[int, ...]:
        """The jobs with tasks on a node."""
        return self._on.get(name, ())

    def near(self, names: Iterable[str]) -> set[int]:
        """The jobs whose rates depend on who is on these nodes."""
        if self.sharing.mode is not Mode.CCS:
            return {job_id for name in names for job_id in self.on(name)}
        border, seen, jobs = list(names), set[str](), set[int]()
        while border:
            name = border.pop()
            if name not in seen:
                seen.add(name)
                for job_id in self.on(name):
                    if job_id not in jobs:
                        jobs.add(job_id)
                        border += self.jobs[job_id].tasks
        return jobs

    def rates_ppm(self, touched: Iterable[str]) -> dict[int, Rate]:
        """The rates of all jobs whose rate may be another one since something changed on these nodes.

        Exact, and rounded to the nearest millionth, halves to the even one.
        """
        paces_of = self._balanced if self.sharing.mode is Mode.CCS else self._each_node
        paces = paces_of(touched, _FLOATS)
        if self.exact and any(abs(pace * ALONE_PPM % 1 - 0.5) < _NEAR for pace in paces.values()):
            paces = paces_of(touched, _EXACT)
        shares: dict[int, Rate] = {job_id: max(LEAST_PPM, round(pace * ALONE_PPM)) for job_id, pace in paces.items()}
        for job_id, rate_ppm in shares.items():
            if (speed_up := self.jobs[job_id].speed_up) != 1:
                shares[job_id] = whole(rate_ppm * Fraction(speed_up))
        return shares

    def _each_node(self, touched: Iterable[str], by: Numbers) -> dict[int, Number]:
        """The paces of all jobs on these nodes, where each node shares for itself."""
        jobs = self.near(touched)
        paces = {name: self._paces(name, by) for name in {name for job_id in jobs for name in self.jobs[job_id].tasks}}
        return {
            job_id: min(paces[name][job_id] for name in self.jobs[job_id].tasks) * self._undisturbed(job_id, by)
            for job_id in sorted(jobs)
        }

    def _paces(self, name: str, by: Numbers) -> dict[int, Number]:
        """How fast each job on a node would be if this were its only node."""
        node, here = self.nodes[name], [(job_id, self.jobs[job_id]) for job_id in self.on(name)]
        mode, one, left = self.sharing.mode, by.ratio(1, 1), by.given(node.usable)
        if mode is Mode.GANG:
            turn = min(one, left / max(1, sum(load.tasks[name] for _, load in here)))  # 0: of suspended jobs
            return {job_id: turn / self._cost(name, job_id, by) for job_id, load in here}
        wants = {
            job_id: one if mode is Mode.SPIN and load.kind == "comm" else by.given(load.cpu) for job_id, load in here
        }
        groups = [here]
        if mode is Mode.DCS:
            groups = [[each for each in here if (each[1].kind == "comm") is first] for first in (True, False)]
        paces = {}
        for group in groups:
            level = _level(left, [(wants[job_id], load.tasks[name]) for job_id, load in group])
            for job_id, load in group:
                got = min(wants[job_id], level)
                left -= got * load.tasks[name]
                paces[job_id] = got / wants[job_id] / self._cost(name, job_id, by)
        return paces

    def _balanced(self, touched: Iterable[str], by: Numbers) -> dict[int, Number]:
        """The paces of all jobs that share a node with a job that does, and so on: they depend on each other."""
        jobs = self.near(touched)
        names = {name for job_id in jobs for name in self.jobs[job_id].tasks}
        # nodes with room for all that their tasks use hold nobody back
        tight = {
            name: by.given(node.usable)
            for name in names
            if (node := self.nodes[name]).usable
            < sum(self.jobs[job_id].cpu * self.jobs[job_id].tasks[name] for job_id in self.on(name))
        }
        held = {job_id for name in tight for job_id in self.on(name)}
        most = {job_id: by.given(self.jobs[job_id].cpu) for job_id in jobs}
        shares = most | fair_rates(tight, {job_id: self.jobs[job_id].tasks for job_id in held}, most)
        return {
            job_id: shares[job_id]
            / most[job_id]
            / max(self._cost(name, job_id, by) for name in self.jobs[job_id].tasks)
            * self._undisturbed(job_id, by)
            for job_id in sorted(jobs)
        }

    def _undisturbed(self, job_id: int, by: Numbers) -> Number:
        """Which part of the time no owner of a job's nodes computes."""
        part = by.ratio(1, 1)
        for name in self.jobs[job_id].tasks:
            if bursts := self.nodes[name].bursts_permille:
                part *= 1 - by.ratio(bursts, 1000)
        return max(by.ratio(*IDLE_CLASS), part)

    def _cost(self, name: str, job_id: int, by: Numbers) -> Number:
        """How many times slower than its share of CPU a task is there."""
        node, own = self.nodes[name], self.jobs[job_id]
        waits = sum(own.tasks.values()) > 1
        costs = self.sharing.cost_permille.get(own.kind, {}) if waits else {}
        cost = by.ratio(1000 + (costs.get(OWNER, 0) if node.owned else 0), 1)
        here = [self.jobs[other] for other in self.on(name)]
        tasks = sum(load.tasks[name] for load in here)
        if tasks > node.cpus and costs:
            beyond = by.ratio(tasks - node.cpus, tasks - 1)
            for load in here:
                others = load.tasks[name] - (load is own)
                cost += beyond * others * costs.get(load.kind, 0)
        return cost / 1000 * (1 + by.ratio(node.lacking_permille * self.sharing.paging_permille, 1_000_000))


def speed_up(job: Job, allocation: Allocation, fold_cost_ppm: int = 0) -> Rate:
    """How fast a job would be with nobody beside it: 1 with as many processes as it asked for, each on a CPU.

    With n processes on c CPUs the most loaded CPU decides: 1 / ⌈n/c⌉ of the speed of n on n (design, section 3), less
    what folding costs beyond that, in millionths of the rate. A resident job is as fast as its enabled processes are.
    """
    if allocation.procs == job.procs and not allocation.folded:
        return 1
    if not allocation.procs:
        return 0
    resident = job.resident
    processes = allocation.procs if resident else allocation.processes
    if isinstance(job.shape, Range):
        speed = Fraction(job.shape.speed(processes), job.shape.speed(job.procs))
    else:
        speed = Fraction(processes, job.procs)
    if not resident and (fold := allocation.fold) > 1:
        speed *= Fraction(ALONE_PPM - fold_cost_ppm, ALONE_PPM * fold)
    return whole(speed)


def moves_data(shape: Shape | None, old: Allocation, new: Allocation) -> bool:
    """Whether a job's work is divided anew by a change: among other processes, or among others that are enabled."""
    if isinstance(shape, Range) and shape.resident:
        return old != new and old.procs > 0 and new.procs > 0
    return old.processes != new.processes


def whole(value: Fraction) -> Rate:
    """The same value, as a whole number where it is one."""
    return value.numerator if value.denominator == 1 else value


def end_us(now_us: int, left: Rate, rate_ppm: Rate) -> int:
    """When so much work is done at this rate: a moment before FOREVER_US, unless the rate is 0 (not known yet)."""
    if rate_ppm <= 0:
        return FOREVER_US
    end_us = now_us - -left // rate_ppm  # rounded up, also of fractions
    return end_us if end_us < FOREVER_US else FOREVER_US - 1


def _level(capacity: Number, wants: Iterable[tuple[Number, int]]) -> Number:
    """Up to where each task's share rises when a capacity is shared fairly; ``wants``: (most for a task, tasks)."""
    level: Number = 0
    left = max(0, capacity)
    waiting = sorted(wants)
    weight = sum(tasks for _, tasks in waiting)
    for most, tasks in waiting:
        if (most - level) * weight > left:
            return level + left / weight
        left -= (most - level) * weight
        level = most
        weight -= tasks
    return level
