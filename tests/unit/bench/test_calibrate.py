"""Costs of sharing are found again in paces that were made with them, and the shipped ones can be read."""

import json
from pathlib import Path

import msgspec
import pytest
from kit.snapshots import Snapshot, refusals

from cosched.apps.experiments.calibrate import KINDS, Paced, each_alone, fair_pace, fitted, observed, paces, shared
from cosched.config import coefficients
from cosched.model.coscheduling import Mode

RATES = {"cg": 10.0, "is": 40.0, "mg": 20.0, "bt": 100.0}
ON_CPU = {"cg": 0.6, "is": 0.7, "mg": 0.9, "bt": 0.95}
ASKED = {name: round(1000 * part) for name, part in ON_CPU.items()}
COSTS = {"comm": {"comm": 0.5, "cpu": 0.2, "owner": 0.1}, "cpu": {"comm": 0.05, "cpu": 0.0, "owner": 0.3}}


def run(mode: str, programs: tuple[str, ...], owned: bool, at: int, noise: float = 0.0) -> Paced:
    """A run as it would come out at these costs."""
    program = programs[at]
    made = Paced(mode, list(programs), owned, program, RATES[program], 0.3, cpu_ratio=ON_CPU[program])
    if made.is_alone:
        return made
    cost = COSTS[KINDS[program]]["owner"] if owned else 0.0
    cost += sum(COSTS[KINDS[program]][KINDS[other]] for i, other in enumerate(programs) if i != at)
    pace = fair_pace(made, ASKED) / (1 + cost) * (1 + noise)
    return Paced(mode, list(programs), owned, program, RATES[program] * pace, 0.3, cpu_ratio=ON_CPU[program])


def campaign(noise: float = 0.0, modes: tuple[str, ...] = ("none", "ccs")) -> list[Paced]:
    found: list[Paced] = []
    for mode in modes:
        for mix in [*each_alone(), *shared(), *each_alone(owned=True)]:
            for at in range(len(mix.programs)):
                found.append(run(mode, mix.programs, mix.owned, at, noise if len(found) % 2 else -noise))
    return found


def test_costs_are_found_again() -> None:
    for mode, kinds in fitted(observed([campaign(), campaign()])).items():
        assert mode in ("none", "ccs")
        for own, others in kinds.items():
            assert {other: cost.median for other, cost in others.items()} == pytest.approx(COSTS[own], abs=0.003)


def test_intervals_hold_the_truth_and_say_of_how_many_runs_they_are() -> None:
    costs = fitted(observed([campaign(0.05), campaign(0.03), campaign(0.04)]))["ccs"]["comm"]
    for other, cost in costs.items():
        assert cost.low - 0.1 <= COSTS["comm"][other] <= cost.high + 0.1
        assert cost.low < cost.high
        assert cost.runs >= 6


def test_runs_without_their_program_alone_are_left_out() -> None:
    assert observed([[run("ccs", ("cg", "bt"), False, 0)]]) == []
    assert paces([[run("ccs", ("cg", "bt"), False, 0)]]) == {}


def test_paces_are_against_alone_in_the_same_campaign() -> None:
    slower = [msgspec.structs.replace(each, iterations_per_s=each.iterations_per_s / 2) for each in campaign()]
    found = paces([campaign(), slower])
    median, low, high, runs = found["none", "cg+bt", "cg"]
    assert (low, high, runs) == (pytest.approx(median), pytest.approx(median), 2)


def test_a_program_that_shares_a_cpu_has_what_it_asks_for_or_half() -> None:
    assert fair_pace(Paced("none", ["bt", "bt"], False, "bt", 1, 0), ASKED) == pytest.approx(0.5 / 0.95, abs=1e-5)
    owned = fair_pace(Paced("none", ["cg"], True, "cg", 1, 0), ASKED)
    assert owned == pytest.approx(0.5 / 0.6 * 0.85 * 0.8, abs=1e-5), "neither owner may compute just then"


def test_the_shipped_coefficients_are_of_a_machine_and_a_day() -> None:
    shipped = coefficients.read()
    assert shipped.machine
    assert shipped.made
    for mode in (Mode.NONE, Mode.CCS):
        for own in ("cpu", "comm"):
            assert set(shipped.permille(mode)[own]) == {"cpu", "comm", "owner"}
            assert all(cost.low <= cost.median <= cost.high for cost in shipped.costs[mode][own].values())


BAD: list[dict[str, object]] = [
    {"costs": {"ccx": {}}},
    {"costs": {"ccs": {"gpu": {}}}},
    {"costs": {"ccs": {"cpu": {"gpu": {"median": 0.1, "low": 0, "high": 1, "runs": 3}}}}},
    {"costs": {"ccs": {"cpu": {"cpu": {"median": 1e308, "low": 0, "high": 1, "runs": 3}}}}},
    {"costs": 5},
]


def test_a_file_that_is_no_such_file_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    path = tmp_path / "c.json"

    def read(change: dict[str, object]) -> coefficients.Coefficients:
        path.write_text(json.dumps({"made": "2026-11-22", "machine": "m", "how": "measured", "costs": {}} | change))
        return coefficients.read(path)

    assert read({}).permille(Mode.CCS) == {}
    snapshot(refusals(read, *BAD) + refusals(coefficients.read, tmp_path / "none.json"))


def test_a_cost_below_nothing_counts_as_nothing() -> None:
    cost = coefficients.Cost(-0.1, -0.2, 0.0, 5)
    found = coefficients.Coefficients("", "", "", {"ccs": {"cpu": {"comm": cost}}})
    assert found.permille(Mode.CCS) == {"cpu": {"comm": 0}}
