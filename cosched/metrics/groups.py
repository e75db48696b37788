"""Groups of jobs by what makes them hard to place, and how evenly they are served.

The groups are those of Ngubiri & van Vliet, "Group-wise performance evaluation of processor co-allocation in
multi-cluster systems" (2006), section 4.2: by size, by number of components, by width of the widest component, the
first and the last in quartiles. Fairness is the index of R. Jain, D. Chiu and W. Hawe, "A quantitative measure of
fairness and discrimination for resource allocation in shared computer systems", DEC-TR-301, 1984.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cosched.model.components import phased_bounds
from cosched.model.width import Components
from cosched.workload.schedule import Schedule

Ints = NDArray[np.int64]


def components(schedule: Schedule) -> Ints:
    """Of how many components each job was, shape (n,)."""
    found = np.ones(len(schedule.workload), np.int64)
    for row, widths in _divided(schedule):
        found[row] = len(widths)
    return found


def widest(schedule: Schedule) -> Ints:
    """How many processes the widest component of each job has, shape (n,); of a job of one component, its size."""
    found = schedule.workload.procs.astype(np.int64)
    for row, widths in _divided(schedule):
        found[row] = max(widths)
    return found


def _divided(schedule: Schedule) -> Iterator[tuple[int, Sequence[int]]]:
    """The rows of jobs that could have several components, and the widths of these: as submitted, else as the job lay.

    A job that still waits to be divided is not there.
    """
    load, placed = schedule.workload, schedule.placed
    for row in [row for row, shape in enumerate(load.divided) if shape is not None]:
        shape = load.divided[row]
        if isinstance(shape, Components):
            yield row, shape.procs
        elif placed and placed[row]:
            yield row, [width for _, width in placed[row]]
    for row in [row for row, shaped in enumerate(load.shapes) if shaped is not None and shaped.shape.components > 1]:
        if placed and placed[row]:
            yield row, [width for _, width in placed[row]]


def quantile_bounds(jobs: Mapping[int, float | Fraction], parts: int) -> tuple[int, ...]:
    """The largest value of each of ``parts`` groups of about as many jobs, but the last; the same one twice is one.

    ``jobs`` is the number (or probability) of jobs of each value, above 0. Values being whole, a bound is the one after
    which the part of all jobs is nearest to its target, the lower of two.
    """
    return tuple(sorted({*phased_bounds(jobs, 0, parts + 1)}))


def by_bounds(values: Ints, bounds: Sequence[int]) -> NDArray[np.str_]:
    """The group of each value, as the range of its values, padded so that labels sort as numbers; shape (n,)."""
    if not len(values):
        return np.array([], np.str_)
    most = max(int(values.max()), bounds[-1] + 1 if bounds else 1)
    ends = [each for each in bounds if each < most] + [most]
    width = len(str(most))
    names = [
        f"{low:>{width}}" if low == high else f"{low:>{width}}-{high}"
        for low, high in zip([1, *(each + 1 for each in ends)], ends, strict=False)
    ]
    return np.array(names)[np.searchsorted(ends, values)]


def size_labels(schedule: Schedule) -> NDArray[np.str_]:
    """The quartile of each job by size."""
    return _quartiles(schedule.workload.procs)


def widest_labels(schedule: Schedule) -> NDArray[np.str_]:
    """The quartile of each job by the width of its widest component."""
    return _quartiles(widest(schedule))


def component_labels(schedule: Schedule) -> NDArray[np.str_]:
    """The number of components of each job."""
    counts = components(schedule)
    width = len(str(int(counts.max()))) if len(counts) else 1
    return np.array([f"{count:>{width}}" for count in counts.tolist()], np.str_)


def _quartiles(values: Ints) -> NDArray[np.str_]:
    found, numbers = np.unique(values, return_counts=True)
    return by_bounds(values, quantile_bounds(dict(zip(found.tolist(), numbers.tolist(), strict=True)), 4))


def jain(means: Sequence[float]) -> float:
    """How evenly groups are served: 1 where all have the same mean, 1/n where one of n has everything."""
    values = np.asarray(means, np.float64)
    total = float(np.dot(values, values))
    return float(values.sum()) ** 2 / (len(values) * total) if total else 1.0
