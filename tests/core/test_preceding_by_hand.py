"""Jobs that follow others (SWF fields 17 and 18), against schedules computed by hand."""

from pathlib import Path

import numpy as np
import pytest

from cosched.errors import BadInput
from cosched.metrics.summary import per_job
from cosched.workload import swf
from cosched.workload.rules import InputRules, Workload, prepare
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import Outcome, Ties, simulate

RULES = InputRules(preceding=True)


def line(number: int, submit: int, run: int, procs: int = 1, preceding: int = -1, think: int = -1) -> str:
    return f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {run} -1 1 1 1 1 1 -1 {preceding} {think}"


def loaded(folder: Path, *lines: str, rules: InputRules = RULES, strict: bool = False) -> Workload:
    path = folder / "log.swf"
    path.write_text("\n".join(["; MaxProcs: 4", *lines, ""]))
    return prepare(swf.read(path), rules, strict=strict)


def starts(found: Outcome) -> dict[int, int]:
    return dict(zip(found.workload.job_id.tolist(), (found.start_us // 1_000_000).tolist(), strict=True))


EVERY = pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "bestfit"])
TIES = pytest.mark.parametrize("ties", [Ties.BATCH, Ties.SEQUENTIAL])


@EVERY
@TIES
def test_job_is_eligible_at_the_later_of_submission_and_end_with_think_time(
    tmp_path: Path, policy: str, ties: Ties
) -> None:
    """Job 1 runs 0 to 100. 2: 100 + 60; 3: submitted at 200, later than that; 4: 160 + 50 + 0; 5: while 1 runs."""
    load = loaded(
        tmp_path,
        line(1, 0, 100),
        line(2, 10, 50, preceding=1, think=60),
        line(5, 20, 10, preceding=1),
        line(4, 150, 10, preceding=2, think=0),
        line(3, 200, 10, preceding=1, think=60),
    )
    found = simulate(load, resolve(policy), ties=ties, validate=True)
    assert starts(found) == {1: 0, 2: 160, 5: 100, 4: 210, 3: 200}
    assert (found.eligible_us // 1_000_000).tolist() == [0, 160, 100, 210, 200]
    assert per_job(found).wait_s.tolist() == [0] * 5
    assert not found.backfilled.any()


@TIES
def test_end_before_the_submission_leaves_the_rest_of_the_think_time(tmp_path: Path, ties: Ties) -> None:
    load = loaded(tmp_path, line(1, 0, 100), line(2, 130, 50, preceding=1, think=60))
    assert starts(simulate(load, resolve("easy"), ties=ties)) == {1: 0, 2: 160}


@TIES
def test_submission_in_the_instant_of_the_end_keeps_the_think_time(tmp_path: Path, ties: Ties) -> None:
    load = loaded(tmp_path, line(1, 0, 100), line(2, 100, 50, preceding=1, think=60))
    assert starts(simulate(load, resolve("easy"), ties=ties)) == {1: 0, 2: 160}


def test_wait_counts_from_when_a_job_is_eligible(tmp_path: Path) -> None:
    """Job 3 fills the machine from 100 to 300; 2 is eligible at 160 and waits 140 s, its slowdown is 190 / 50."""
    load = loaded(tmp_path, line(1, 0, 100), line(2, 10, 50, preceding=1, think=60), line(3, 20, 200, procs=4))
    found = simulate(load, resolve("fcfs"))
    assert starts(found) == {1: 0, 2: 300, 3: 100}
    jobs = per_job(found)
    assert jobs.wait_s.tolist() == [0, 140, 80]
    assert jobs.bounded_slowdown.tolist() == [1, 190 / 50, 280 / 200]


def test_job_has_its_place_in_the_queue_by_when_it_is_eligible(tmp_path: Path) -> None:
    """Job 4 runs alone to 1000. 2 is eligible at 160, after 3 (120) came, and before 5 (160, the same instant)."""
    load = loaded(
        tmp_path,
        line(1, 0, 100),
        line(2, 10, 50, procs=4, preceding=1, think=60),
        line(4, 15, 900, procs=4),
        line(3, 120, 50, procs=4),
        line(5, 160, 50, procs=4),
    )
    assert starts(simulate(load, resolve("fcfs"))) == {1: 0, 4: 100, 3: 1000, 2: 1050, 5: 1100}


def test_preceding_job_that_cannot_be_followed_is_counted_and_ignored(tmp_path: Path) -> None:
    lines = [
        line(1, 0, 100, preceding=9, think=5),  # later in the log
        line(2, 0, 100, preceding=77),  # not in the log
        line(3, 0, 100, procs=5),  # wider than the machine
        line(4, 10, 100, preceding=3, think=5),
        line(9, 20, 100, preceding=9),  # itself
    ]
    load = loaded(tmp_path, *lines)
    assert load.preceding is not None
    assert load.preceding.tolist() == [-1] * 4
    causes = ("preceding_job_missing", "preceding_job_dropped", "preceding_job_later")
    assert [load.adjusted[cause] for cause in causes] == [1, 1, 2]
    assert starts(simulate(load, resolve("easy"))) == {1: 0, 2: 0, 4: 10, 9: 20}
    with pytest.raises(BadInput, match="a preceding job that is submitted later"):
        loaded(tmp_path, lines[0], line(9, 20, 100), strict=True)


def test_without_the_option_preceding_jobs_are_not_waited_for_and_counted(tmp_path: Path) -> None:
    load = loaded(tmp_path, line(1, 0, 100), line(2, 10, 50, preceding=1, think=60), rules=InputRules())
    assert load.preceding is None
    assert load.adjusted == {"preceding_job_ignored": 1, "think_time_ignored": 1}
    assert starts(simulate(load, resolve("easy"))) == {1: 0, 2: 10}


def test_selected_rows_follow_each_other_as_before(tmp_path: Path) -> None:
    load = loaded(
        tmp_path, line(1, 0, 9), line(2, 1, 9), line(3, 2, 9, preceding=2, think=7), line(4, 3, 9, preceding=1)
    )
    part = load.only(np.array([1, 2, 3]))
    assert part.preceding is not None
    assert part.think_us is not None
    assert part.preceding.tolist() == [-1, 0, -1]
    assert part.think_us.tolist() == [0, 7_000_000, 0]
    first = load.only(slice(3))
    assert first.preceding is not None
    assert first.preceding.tolist() == [-1, -1, 1]
