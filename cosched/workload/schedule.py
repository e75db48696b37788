"""What became of a workload: when each job started and ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
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


class Stretch(NamedTuple):
    """A job (by its row) that holds so many processors for a stretch of time, in microseconds.

    ``folded``: its processes share them. ``lost``: it was ended after that, and began anew.
    """

    job: int
    begin_us: int
    end_us: int
    procs: int
    folded: bool = False
    lost: bool = False


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
    executed. ``placed`` has each job's tasks by node where nodes have names, ``nodes`` those names in order, and
    ``clusters`` the cluster of each, where there are several.
    ``holdings`` has what each job held from when on, in order of time, where jobs change shape (None: all are rigid).
    """

    workload: Workload
    start_us: Times
    end_us: Times
    promised_us: Times
    work_us: Times | None = field(default=None, kw_only=True)
    placed: Sequence[tuple[tuple[str, int], ...]] | None = field(default=None, kw_only=True)
    nodes: Sequence[str] = field(default=(), kw_only=True)
    clusters: Sequence[str] = field(default=(), kw_only=True)
    holdings: Sequence[Holding] | None = field(default=None, kw_only=True)

    @property
    def eligible_us(self) -> Times:
        """From when on each job could be queued, shape (n,): its submission, or the end of the one that it follows and
        its think time after that. Waits and slowdowns count from there.
        """
        load = self.workload
        if load.preceding is None or load.think_us is None:
            return load.submit_us
        follows = load.preceding >= 0
        found = load.submit_us.copy()
        ready_us = self.end_us[load.preceding[follows]] + load.think_us[follows]
        found[follows] = np.maximum(found[follows], ready_us)
        return found

    @property
    def processes(self) -> NDArray[np.int64]:
        """How many processes each job had at its last start, shape (n,); of a resident job those that were enabled."""
        if self.holdings is None:
            return self.workload.procs
        found = self.workload.procs.copy()
        for each in self.holdings:
            if each.at_us == self.start_us[each.row] and each.processes:
                found[each.row] = each.procs if self._resident(each.row) else each.processes
        return found

    def _resident(self, row: int) -> bool:
        """Whether all processes of a job are there while it runs, and some of them sleep."""
        shaped = self.workload.shapes[row] if self.workload.shapes else None
        return shaped is not None and shaped.shape.resident

    def used_us(self, until_us: int | None = None) -> float:
        """Processor-microseconds that jobs held, of all time or until then."""
        last_us = int(self.end_us.max()) if until_us is None else until_us
        if self.holdings is None:
            held_us = np.minimum(self.end_us, last_us) - np.minimum(self.start_us, last_us)
            return float(np.dot(self.workload.procs, held_us.astype(np.float64)))
        held = (each.procs * (min(each.end_us, last_us) - min(each.begin_us, last_us)) for each in self.stretches())
        return float(sum(held))

    def stretches(self) -> list[Stretch]:
        """What jobs hold and for how long, in order of time, those of an instant in the workload's order.

        A job that changes shape has one for each thing that it holds.
        """
        starts, ends = self.start_us.tolist(), self.end_us.tolist()
        if self.holdings is None:
            whole = zip(range(len(starts)), starts, ends, self.workload.procs.tolist(), strict=True)
            return sorted((Stretch(*each) for each in whole), key=lambda each: each.begin_us)
        found = []
        by_job = sorted(self.holdings, key=lambda each: each.row)  # stable: in order of time for each
        for row, group in groupby(by_job, key=lambda each: each.row):
            end_us, lost = ends[row], False
            for each in reversed([*group]):
                lost = lost or not each.processes
                folded = each.processes > each.procs and not self._resident(row)
                found.append(Stretch(row, each.at_us, end_us, each.procs, folded, lost))
                end_us = each.at_us
        return sorted((each for each in found if each.procs), key=lambda each: each.begin_us)

    def components(self, row: int) -> list[tuple[str, int]]:
        """(cluster, width) of each of a job's components, the widest first; those on one cluster count as one."""
        assert self.placed is not None
        cluster_of = dict(zip(self.nodes, self.clusters, strict=True))
        widths: dict[str, int] = {}
        for node, tasks in self.placed[row]:
            widths[cluster_of[node]] = widths.get(cluster_of[node], 0) + tasks
        return [*widths.items()]

    @property
    def alone_us(self) -> Times:
        """How long each job would have taken alone on idle nodes for what it did, shape (n,)."""
        return self.end_us - self.start_us if self.work_us is None else self.work_us

    @property
    def backfilled(self) -> NDArray[np.bool_]:
        """Whether each job started before one that was eligible earlier, shape (n,)."""
        order = np.argsort(self.eligible_us, kind="stable")
        starts_us = self.start_us[order]
        latest_before = np.maximum.accumulate(starts_us)
        overtook = np.zeros(len(starts_us), np.bool_)
        overtook[order[1:]] = latest_before[:-1] > starts_us[1:]
        return overtook
