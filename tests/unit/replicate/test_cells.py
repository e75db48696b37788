"""Simulated cells are each run once, and compared seed by seed; what a replication cannot be asked for is refused."""

from typing import NamedTuple

import pytest
from kit.replications import quiet

from cosched.apps.replicate.cells import Cells, each_once, seeded
from cosched.apps.replicate.papers import Request, replicate
from cosched.errors import BadInput


class Found(NamedTuple):
    response_s: float
    backlog: tuple[float, float, float] = (0.1, 0.1, 0.1)


def measured(cell: str, seed: int) -> Found:
    return Found(len(cell) * seed, (0.1, 0.2, 0.4) if cell.startswith("growing") else (0.1, 0.1, 0.1))


@pytest.fixture
def cells() -> Cells[str]:
    seeds = {"a": 3, "bb": 5, "growing": 1}
    calls = seeded(measured, seeds, len)
    assert [(key, call.weight) for key, call in calls.items()][2:4] == [(("a", 3), 1), (("bb", 1), 2)]
    return Cells.of(seeds, each_once(calls, Request(paper="x", workers=1), quiet))


def test_cells_are_compared_over_the_seeds_that_both_have(cells: Cells[str]) -> None:
    assert cells.values("bb", "response_s").tolist() == [2, 4, 6, 8, 10]
    assert cells.mean("bb", "response_s").mean == 6
    assert cells.difference("bb", "a", "response_s").mean == 2
    relative = cells.relative("bb", "a", "response_s")
    assert (relative.mean, relative.half_width) == (1, pytest.approx(0))


def test_cell_whose_backlog_grows_is_not_steady(cells: Cells[str]) -> None:
    assert cells.steady("a", "bb")
    assert not cells.steady("a", "growing")


@pytest.mark.parametrize("paper", ["adaptive", "bfm", "cisne", "coallocation"])
def test_log_is_refused_where_the_workload_is_generated(paper: str) -> None:
    with pytest.raises(BadInput, match="the paper's workload is generated"):
        replicate(Request(paper=paper, log="x.swf"), quiet)


def test_seeds_are_refused_where_one_stream_of_jobs_is_simulated() -> None:
    with pytest.raises(BadInput, match="one stream of jobs"):
        replicate(Request(paper="coallocation", seeds=3), quiet)
