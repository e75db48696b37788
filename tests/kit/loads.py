"""Small workloads: by hand, in ticks, and drawn by hypothesis with the situations where schedulers go wrong.

Machines of up to eight processors and a dozen jobs, so that every example can be drawn on paper. Times are few and
small, so that ends, submissions and reservations fall together; shapes repeat; a tick is a microsecond (nothing is
shorter) or a second, and some times are one microsecond off the tick.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from cosched.workload.rules import Workload, workload_of

SECOND = 1_000_000


class J(NamedTuple):
    """A job in ticks: submitted at, processors, estimate, and how long it really runs (None: exactly its estimate)."""

    submit: int
    procs: int
    estimate: int
    run: int | None = None


def workload(procs_total: int, jobs: Sequence[J], tick_us: int = SECOND) -> Workload:
    """The jobs as a workload, in order of submission; job i of the sequence has the number i when they are in order."""
    jobs = sorted(jobs, key=lambda job: job.submit)

    def column(values: list[int], scale: int = 1) -> np.ndarray:
        return np.array(values, np.int64) * scale

    estimate_us = column([job.estimate for job in jobs], tick_us)
    run_us = column([job.estimate if job.run is None else job.run for job in jobs], tick_us)
    submit_us, procs = column([job.submit for job in jobs], tick_us), column([job.procs for job in jobs])
    return workload_of("small", procs_total, submit_us, run_us, procs, estimate_us, job_id=np.arange(len(jobs)))


def story(load: Workload) -> str:
    """A workload in a form that can be pasted into a test."""
    rows = zip(load.submit_us, load.procs, load.estimate_us, load.run_us, strict=True)
    jobs = ", ".join(f"J({int(s)}, {int(p)}, {int(e)}, {int(r)})" for s, p, e, r in rows)
    return f"workload({load.procs_total}, [{jobs}], tick_us=1)"


#: Each mistake in ``kit.mutants`` that a promise on counted processors catches breaks it on one of these; most were
#: found by drawing, within 4 to 800 examples, and made smaller.
TELLING = [
    workload(procs_total, jobs, tick_us=1)
    for procs_total, jobs in (
        (4, [J(0, 1, 110), J(71, 4, 9), J(81, 3, 41, 10), J(101, 1, 10)]),
        (5, [J(0, 4, 4), J(2, 2, 1), J(4, 4, 3), J(4, 1, 3), J(4, 1, 4), J(4, 3, 1), J(4, 2, 4)]),
        (8, [J(1, 2, 9), J(2, 6, 9), J(3, 7, 3), J(5, 2, 9, 7), J(5, 1, 2)]),
        (4, [J(6, 1, 9), J(6, 3, 9, 2), J(6, 1, 11, 4), J(7, 4, 1), J(7, 3, 9), J(8, 3, 1), J(8, 3, 4, 1),
            J(14, 1, 1)]),
        (6, [J(0, 5, 9), J(1, 4, 9), J(1, 5, 4), J(1, 1, 6, 1), J(1, 1, 9), J(1, 1, 3), J(1, 2, 3), J(1, 6, 4),
            J(2, 1, 4), J(2, 4, 9, 1), J(2, 1, 9, 2)]),
        (8, [J(1, 2, 9), J(2, 6, 9), J(2, 6, 3), J(3, 1, 3), J(5, 1, 2)]),
        (4, [J(6, 1, 9, 2), J(6, 1, 11), J(6, 3, 9, 2), J(12, 1, 3, 1), J(13, 4, 1), J(13, 3, 9), J(14, 3, 4, 1),
            J(16, 1, 1)]),
    )
]  # fmt: skip


@st.composite
def loads(draw: st.DrawFn, *, beyond_limit: bool = False, max_jobs: int = 12) -> Workload:
    """A small workload. ``beyond_limit``: some jobs run past their estimate."""
    procs_total = draw(st.sampled_from([1, 2, 3, 4, 4, 5, 6, 8]))
    tick_us = draw(st.sampled_from([1, SECOND, 30 * SECOND]))
    jitter = st.sampled_from([0, 0, 0, 1, -1]) if tick_us > 1 else st.just(0)
    narrow = st.integers(1, max(1, procs_total // 3))
    wide = st.integers(procs_total // 2 + 1, procs_total)
    widths = st.one_of(narrow, wide, st.integers(1, procs_total))
    lengths = st.one_of(st.sampled_from([3, 9]), st.integers(1, 4), st.integers(1, 12))
    now = 0
    jobs = []
    for _ in range(draw(st.integers(1, max_jobs))):
        now += draw(st.sampled_from([0, 0, 0, 0, 1, 1, 2, 6])) * tick_us
        procs, length = draw(widths), draw(lengths)
        estimate = max(1, length * tick_us + draw(jitter))
        kind = draw(st.sampled_from(["exact", "early", "late"] if beyond_limit else ["exact", "early"]))
        if kind == "early":
            run = max(1, draw(st.integers(1, length)) * tick_us + draw(jitter))
            run = min(run, estimate)
        elif kind == "late":
            run = estimate + draw(st.integers(1, 12)) * tick_us
        else:
            run = estimate
        jobs.append(J(max(0, now + draw(jitter)), procs, estimate, run))
    return workload(procs_total, jobs, tick_us=1)
