"""What measurements of coscheduling come to: medians with intervals, goals and misses; progress read from lines."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cosched.apps.cli.bench import RUNS, coscheduling
from cosched.apps.experiments import testbed
from cosched.apps.experiments.coscheduling import WARM_S, _lasted, _rate
from cosched.apps.experiments.jobs import Cannot
from cosched.apps.experiments.matrix import ALONE, COMPANIES, WORKS, Cell, Company, Run, Spread, judged, spread
from cosched.apps.experiments.progress import words_in
from cosched.apps.experiments.results import misses
from cosched.apps.experiments.run_log import RunLog
from cosched.apps.lab.lab import Lab
from cosched.errors import BadInput

ONE, TWO, SECOND = COMPANIES
WORK = WORKS[0]
near: Any = pytest.approx  # in the place of a number


def test_fair_is_equal_shares() -> None:
    assert (ONE.fair_slowdown, ONE.fair_rate) == (2.0, 0.5)
    assert (TWO.fair_slowdown, TWO.fair_rate) == (3.0, pytest.approx(2 / 3))
    assert (SECOND.fair_slowdown, SECOND.fair_rate) == (2.0, 0.5)


def test_a_median_has_the_interval_of_its_order_statistics() -> None:
    assert spread([3, 1, 2]) == spread([1, 2, 3])
    assert (spread([1, 2, 3]).median, spread([1, 2, 3]).low, spread([1, 2, 3]).high) == (2, 1, 3)
    many = spread([float(each) for each in range(1, 21)])  # 20 values: the 6th and the 15th
    assert (many.low, many.median, many.high) == (6, 10.5, 15)


Took = tuple[float, float]  # seconds, the company's rate


def ran(mode: str, took: Took, company: Company = ONE) -> Run:
    return Run(WORK.name, company.name, mode, *took)


def cells_of(ccs: Took, plain: Took) -> dict[str, Cell]:
    runs = [ran(ALONE, (2.0, 0.0)), ran("plain", plain), ran("ccs", ccs)] * 3
    return {cell.mode: cell for cell in judged([runs])}


def test_each_run_is_held_against_those_alone_of_its_own_campaign() -> None:
    fast = [ran(ALONE, (2.0, 0.0)), ran("ccs", (4.0, 0.5))]
    slow = [ran(ALONE, (3.0, 0.0)), ran("ccs", (6.6, 0.4))]
    cut_short = [ran("ccs", (100.0, 0.1))]
    (cell,) = judged([fast, slow, cut_short])
    assert cell.runs == 2
    assert cell.slowdown == Spread(near(2.1), 2.0, near(2.2))
    assert cell.rate == Spread(near(0.45), 0.4, 0.5)


def test_runs_that_were_disturbed_do_not_count() -> None:
    runs = [ran(ALONE, (2.0, 0.0)), ran("ccs", (4.0, 0.5))]
    stolen, others = (
        Run(WORK.name, ONE.name, "ccs", 9.0, 0.1, steal=0.006),
        Run(WORK.name, ONE.name, ALONE, 9.0, 0.0, others=0.03),
    )
    (cell,) = judged([[*runs, stolen, others]])
    assert (cell.runs, cell.slowdown.median) == (1, 2.0)


def test_a_cell_that_meets_all_goals() -> None:
    ccs = cells_of((4.0, 0.49), (5.4, 0.47))["ccs"]
    assert (ccs.slowdown.median, ccs.rate.median, ccs.efficiency.median) == (2.0, 0.49, pytest.approx(0.99))
    assert ccs.misses == []


def test_what_has_no_plain_run_is_held_against_groups_alone() -> None:
    runs = [ran(ALONE, (2.0, 0.0)), ran("none", (4.0, 0.5)), ran("ccs", (4.4, 0.5))] * 3
    none, ccs = judged([runs])
    assert (none.misses, ccs.misses) == ([], ["slowdown 2.20 > none's 2.06", "efficiency 0.95 < none's 0.97"])


@pytest.mark.parametrize(
    ("ccs", "plain", "words"),
    [
        ((5.0, 0.6), (6.0, 0.5), "slowdown 2.50 > 2.40"),
        ((3.2, 0.4), (5.0, 0.5), "company's rate 0.40 < 0.45"),
        ((4.6, 0.45), (5.0, 0.3), "efficiency 0.88 < 0.93"),
        ((4.4, 0.5), (4.0, 0.5), "slowdown 2.20 > plain's 2.06"),
        ((4.4, 0.5), (4.4, 0.6), "efficiency 0.95 < plain's 1.02"),
    ],
)
def test_a_miss_is_told_with_its_numbers(ccs: Took, plain: Took, words: str) -> None:
    cells = cells_of(ccs, plain)
    assert words in cells["ccs"].misses
    (line,) = misses(list(cells.values()))
    assert words in line


def lines(*words: tuple[float, float]) -> str:
    return "".join(json.dumps({"time_s": time_s, "done": done}) + "\n" for time_s, done in words)


def test_progress_is_read_between_words_and_the_warm_part_does_not_count() -> None:
    mine = words_in(
        "mpirun says hello\n" + lines((10, 0), (12, WARM_S - 0.5), (14, WARM_S + 0.5), (20, 3.5)) + '{"time'
    )
    assert _lasted(mine) == pytest.approx(20 - 13)
    company = words_in(lines((9, 0), (11, 1), (21, 6), (30, 10)))
    assert _rate(company, mine) == pytest.approx(0.5)


def test_too_little_progress_is_no_measurement() -> None:
    with pytest.raises(Cannot, match="too little"):
        _lasted(words_in(lines((1, 0), (2, 0.5))))
    with pytest.raises(Cannot, match="was not there"):
        _rate(words_in(lines((16, 0), (21, 3))), words_in(lines((10, 0), (20, 3.5))))


def test_runs_that_would_be_mixed_up_are_told_of_before_a_lab_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = RunLog(tmp_path, RUNS, Run)
    kept.begin({}, add=False)
    kept.keep(Run(WORK.name, ONE.name, ALONE, 9.0, 0.0))
    made: list[str] = []
    monkeypatch.setattr(testbed, "check_room", lambda *_: None)
    monkeypatch.setattr(Lab, "up", lambda *_, **how: made.append(how["name"]))
    for name in ("COSCHED_SERVER", "COSCHED_LAB"):
        monkeypatch.delenv(name, raising=False)
    found = CliRunner().invoke(coscheduling, ["--out", str(tmp_path)], standalone_mode=False)
    assert isinstance(found.exception, BadInput)
    assert "has runs already" in str(found.exception)
    assert made == []
