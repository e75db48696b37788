"""What the contract's measurements come to: goals that are met and missed, controls that must have felt harm."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from cosched.apps.experiments.contract import (
    ABSENT,
    ABSENT_UNPROTECTED,
    CALLS,
    IDLE,
    UNPROTECTED,
    Felt,
    Measured,
    Runs,
)
from cosched.apps.experiments.contract_results import Cell, by_cell, cells, disturbed, plot, table


def felt(wake_ms: float, burst_ms: float, cpus: float) -> Felt:
    p99 = dict.fromkeys(CALLS, wake_ms / 1000) | {"burst": burst_ms / 1000}
    return Felt(p99, p99, p99, cpus, 1000)


def desk(wake_ms: float, burst_ms: float = 1.05, cpus: float = 0.5, unprotected_ms: float = 5.0) -> Runs:
    return {
        (2, IDLE): [felt(0.1, 1.05, 0.0)] * 3,
        (2, UNPROTECTED): [felt(unprotected_ms, 5.0, 0.9)] * 3,
        (2, "none"): [felt(wake_ms, burst_ms, cpus)] * 3,
    }


def judged(found: Runs, condition: str) -> Cell:
    return next(cell for cell in cells(found) if cell.condition == condition)


@pytest.mark.parametrize(
    ("found", "misses"),
    [
        (desk(0.14), []),
        (desk(0.16), ["wake-up p99 0.060 ms above the idle desk's"]),
        (desk(0.1, burst_ms=1.2), ["burst p99 1.200 ms"]),
        (desk(0.1, cpus=0.47), ["parallel CPU 47.0%, of 50%"]),
        (desk(0.1, cpus=0.53), ["parallel CPU 53.0%, of 50%"]),
        (desk(0.1, unprotected_ms=1.9), ["void: the unprotected desk felt no harm"]),
        ({(2, "none"): [felt(0.1, 1.0, 0.5)]}, ["no control"]),
    ],
)
def test_a_contract_is_held_against_its_controls(found: Runs, misses: list[str]) -> None:
    assert judged(found, "none").misses == misses


def test_parallel_work_gets_what_this_desks_contract_leaves_it() -> None:
    found = desk(0.1)
    found[2, "none"] = [replace(felt(0.1, 1.05, 0.29), promised=0.3)]
    assert judged(found, "none").misses == []
    found[2, "none"] = [replace(felt(0.1, 1.05, 0.5), promised=0.3)]
    assert judged(found, "none").misses == ["parallel CPU 50.0%, of 30%"]
    found[2, "none"] = [felt(0.1, 1.05, 0.99)]  # a contract that was not in force
    assert judged(found, "none").misses == ["parallel CPU 99.0%, of 50%"]


def test_runs_that_were_disturbed_do_not_count() -> None:
    quiet = Measured(2, "none", felt(0.1, 1.0, 0.5))
    stolen_from, in_company = (replace(felt(9.0, 9.0, 0.1), **taken) for taken in ({"steal": 0.01}, {"others": 0.4}))
    others = [Measured(2, "none", stolen_from), Measured(2, "gang", in_company)]
    assert by_cell([[quiet, *others]]) == {(2, "none"): [quiet.felt]}
    assert disturbed([[quiet], others]) == others


@pytest.mark.parametrize(("cpus", "misses"), [(0.99, []), (0.97, ["97.0% of what there is without a contract"])])
def test_when_nobody_is_there_parallel_work_gets_all(cpus: float, misses: list[str]) -> None:
    under_ccs = f"{ABSENT}ccs"
    absent = {(1, under_ccs): [Felt({}, {}, {}, cpus)], (1, ABSENT_UNPROTECTED): [Felt({}, {}, {}, 1.0)]}
    assert judged(absent, under_ccs).misses == misses
    assert judged(absent, under_ccs).wake_up_p99_s is None
    assert judged(absent, ABSENT_UNPROTECTED).misses == []


def test_the_middle_of_the_runs_counts() -> None:
    found = desk(0.1)
    found[2, "none"] = [felt(wake, 1.05, 0.5) for wake in (0.11, 0.12, 9.0)]
    cell = judged(found, "none")
    assert cell.misses == []
    assert cell.wake_up_p99_s is not None
    assert cell.wake_up_p99_s.median == pytest.approx(0.000_12)


def test_results_are_shown_and_drawn(tmp_path: Path) -> None:
    made = cells(desk(0.16) | {(1, IDLE): [felt(0.1, 1.0, 0.0)], (1, UNPROTECTED): [felt(4.0, 4.0, 0.9)]})
    rows = table(made).as_dicts()
    assert [(row["tasks"], row["desk"]) for row in rows] == [
        (1, "idle desk"), (1, "unprotected"), (2, "idle desk"), (2, "none"), (2, "unprotected"),
    ]  # fmt: skip
    assert [row["goals"] for row in rows] == ["", "", "", "wake-up p99 0.060 ms above the idle desk's", ""]
    assert [path.name for path in plot(made, tmp_path)] == ["contract-wake-up.png", "contract-wake-up.svg"]
    assert (tmp_path / "contract-wake-up.png").stat().st_size > 5000
