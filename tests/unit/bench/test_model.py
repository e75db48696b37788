"""Jobs as they ran against what the model says of them, worked out by hand."""

from pathlib import Path

import pytest

from cosched.apps.experiments.model import SHAPES, Ran
from cosched.apps.experiments.model_results import GOAL, Judged, judged, plot, table, verdict
from cosched.model.coscheduling import Mode
from space_scheduler.progress import Sharing

WIDE, OTHER, SERIAL = str(SHAPES[0]), str(SHAPES[3]), str(SHAPES[4])
BOTH = {"node1": 1, "node2": 1}
FAIR = {"ccs": Sharing(Mode.CCS)}


def ran(shape: str, start_s: float, run_s: float, nodes: dict[str, int] = BOTH, *, alone: bool = False) -> Ran:
    return Ran(1, "ccs", shape, alone, nodes, start_s, start_s, run_s, 1.0)


ALONE = [ran(WIDE, 0, 10, alone=True), ran(OTHER, 0, 6, alone=True), ran(SERIAL, 0, 4, {"node1": 1}, alone=True)]


def test_two_that_share_go_at_half_their_pace_while_they_do() -> None:
    """The first is alone for 4 s, beside the other for 12, and alone again for nothing: 4 + 6 of its ten seconds."""
    first, second = judged([*ALONE, ran(WIDE, 0, 16), ran(OTHER, 4, 12)], FAIR, "normal")
    assert (first.alone_s, first.took_s, first.done_s) == (10, 16, pytest.approx(10))
    assert (second.alone_s, second.took_s, second.done_s) == (6, 12, pytest.approx(6))
    assert (first.error, second.error) == (pytest.approx(0), pytest.approx(0))
    assert (first.simulated_s, second.simulated_s) == (pytest.approx(16), pytest.approx(12))
    assert first.naive_error == pytest.approx(6 / 16)


def test_who_took_longer_than_its_rates_say_is_off_by_that() -> None:
    (only,) = judged([*ALONE, ran(SERIAL, 0, 5, {"node2": 1})], FAIR, "normal")
    assert (only.done_s, only.by_rates_s, only.error) == (5, pytest.approx(4), pytest.approx(0.2))


def test_costs_slow_down() -> None:
    costly = {"ccs": Sharing(Mode.CCS, {"comm": {"cpu": 500}})}
    first, second = judged([*ALONE, ran(WIDE, 0, 10), ran(OTHER, 0, 10)], costly, "normal")
    assert (first.done_s, second.done_s) == (pytest.approx(10 / 2 / 1.5, abs=1e-4), pytest.approx(5))


def test_a_shape_that_did_not_run_alone_is_left_out() -> None:
    assert judged([ran(WIDE, 0, 16), *ALONE[1:]], FAIR, "normal") == []


def test_half_of_the_jobs_within_the_goal_will_do() -> None:
    good, bad = Judged(1, "ccs", WIDE, 5, 10, 5.5, 10.5), Judged(1, "ccs", WIDE, 5, 10, 2.5, 20)
    met, words = verdict([good, good, bad], "ccs")
    assert met
    assert f"within the goal of {GOAL:.0%}" in words
    assert not verdict([good, bad, bad], "ccs")[0]


def test_all_modes_are_drawn(tmp_path: Path) -> None:
    found = [Judged(1, mode.value, WIDE, 5, 10, 5.5, 10.5) for mode in Mode]
    assert [path.suffix for path in plot(found, tmp_path)] == [".png", ".svg"]
    assert len(table(found).rows) == 2 * len(Mode)
