"""What became of a workload: when each job started and ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cosched.workload.rules import Times, Workload


class Holding(NamedTuple):
    """What a job (by its row) holds from a time on: processes, processors, and why. Both 0: it was ended to wait."""

    row: int
    at_us: int
    processes: int
    procs: int
    why: str


def settled(holdings: Sequence[Holding]) -> list[Holding]:
    """What jobs held after each instant, in order of time: at most a row for each job and instant, if it is another.

    A job that is ended to wait again has a row of zeros, and one more if it starts again in the same instant.
    """
    kept: list[Holding | None] = []
    latest: dict[int, int] = {}  # the place in that list of each job's latest row
    held: dict[int, tuple[int, int]] = {}  # what it held before that
    for each in holdings:
        at = latest.get(each.row)
        last = None if at is None else kept[at]
        if last is not None and at is not None and last.at_us == each.at_us and last.processes and each.processes:
            kept[at] = None
        elif last is not None:
            held[each.row] = last.processes, last.procs
        if held.get(each.row) == (each.processes, each.procs):
            continue
        latest[each.row] = len(kept)
        kept.append(each)
    return sorted((each for each in kept if each is not None), key=lambda each: each.at_us)


@dataclass(frozen=True)
class Schedule:
    """Starts and ends of a workload's jobs, in its order: arrays of shape (n,), microseconds.

    ``promised_us`` is the first start that was promised to the job, -1 where none was. ``work_us`` is what each job
    did, as time alone on idle nodes, until it ended or was killed; None on a dedicated machine, where that is the time
    executed. ``placed`` has each job's tasks by node where nodes have names, and ``nodes`` those names in order.
    ``holdings`` has what each job held from when on, in order of time, where jobs change shape (None: all are rigid).
    """

    workload: Workload
    start_us: Times
    end_us: Times
    promised_us: Times
    work_us: Times | None = field(default=None, kw_only=True)
    placed: Sequence[tuple[tuple[str, int], ...]] | None = field(default=None, kw_only=True)
    nodes: Sequence[str] = field(default=(), kw_only=True)
    holdings: Sequence[Holding] | None = field(default=None, kw_only=True)

    @property
    def processes(self) -> NDArray[np.int64]:
        """How many processes each job had at its last start, shape (n,)."""
        if self.holdings is None:
            return self.workload.procs
        found = self.workload.procs.copy()
        for each in self.holdings:
            if each.at_us == self.start_us[each.row] and each.processes:
                found[each.row] = each.processes
        return found

    def used_us(self, until_us: int | None = None) -> float:
        """Processor-microseconds that jobs held, of all time or until then."""
        last_us = int(self.end_us.max()) if until_us is None else until_us
        if self.holdings is None:
            held_us = np.minimum(self.end_us, last_us) - np.minimum(self.start_us, last_us)
            return float(np.dot(self.workload.procs, held_us.astype(np.float64)))
        used, since = 0.0, dict[int, tuple[int, int]]()
        for each in self.holdings:
            at_us = min(each.at_us, last_us)
            before_us, procs = since.get(each.row, (at_us, 0))
            used += procs * float(at_us - before_us)
            since[each.row] = at_us, each.procs
        ends = self.end_us.tolist()
        return used + sum(procs * float(min(ends[row], last_us) - at_us) for row, (at_us, procs) in since.items())

    @property
    def alone_us(self) -> Times:
        """How long each job would have taken alone on idle nodes for what it did, shape (n,)."""
        return self.end_us - self.start_us if self.work_us is None else self.work_us

    @property
    def backfilled(self) -> NDArray[np.bool_]:
        """Whether each job started before one that was submitted earlier, shape (n,)."""
        latest_before = np.maximum.accumulate(self.start_us)
        overtook = np.zeros(len(self.start_us), np.bool_)
        overtook[1:] = latest_before[:-1] > self.start_us[1:]
        return overtook
