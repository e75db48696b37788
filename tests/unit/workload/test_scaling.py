"""Offered load and its change by the distances between submissions alone."""

import numpy as np
import pytest

from cosched.errors import BadInput
from cosched.workload.generators.registry import generate
from cosched.workload.log import FIELDS, Field, Header, Log
from cosched.workload.rules import InputRules, ProcsFrom
from cosched.workload.scaling import by_factor, offered_load, to_load


def log(*jobs: tuple[float, float, int], procs: int = 10) -> Log:
    """A log of (submit, run, processors)."""
    rows = np.full((len(jobs), FIELDS), -1.0)
    for row, (submit, run, size) in zip(rows, jobs, strict=True):
        row[[Field.SUBMIT_S, Field.RUN_S, Field.PROCS_ALLOCATED]] = submit, run, size
    return Log(Header({"MaxProcs": str(procs)}), rows)


def test_offered_load_is_work_over_what_the_machine_can_do_while_jobs_come() -> None:
    assert offered_load(log((100, 50, 4), (150, 100, 5), (200, 30, 10))) == (200 + 500 + 300) / (10 * 100)
    assert offered_load(log((100, 50, 4), (200, 100, 5)), procs_total=20) == 700 / (20 * 100)
    assert offered_load(log((5, 50, 4), (5, 100, 5))) == np.inf


def test_offered_load_is_of_the_jobs_the_rules_admit() -> None:
    two = log((0, 50, 4), (100, 50, 5))
    two.rows[:, Field.PROCS_REQUESTED] = 8
    assert offered_load(two) == 450 / 1000
    assert offered_load(two, rules=InputRules(procs_from=ProcsFrom.REQUESTED)) == 800 / 1000


def test_a_factor_stretches_distances_and_nothing_else() -> None:
    before = log((100, 50, 4), (150, 100, 5), (130, 30, 10), (-1, 5, 1))
    after = by_factor(before, 2)
    assert after.column(Field.SUBMIT_S).tolist() == [100, 200, 160, -1]
    others = [field for field in Field if field is not Field.SUBMIT_S]
    assert np.array_equal(after.rows[:, others], before.rows[:, others])
    assert before.column(Field.SUBMIT_S).tolist() == [100, 150, 130, -1], "the log given is left alone"
    assert after.header.lines[-1] == "; Note: distances between submissions multiplied by 2"


@pytest.mark.parametrize("load", [0.1, 0.7, 1.3])
def test_a_target_load_is_met(load: float) -> None:
    generated = generate("lublin03", 2_000, 128, np.random.default_rng(1))
    assert offered_load(to_load(generated, load)) == pytest.approx(load, rel=1e-6)
    assert offered_load(to_load(generated, load, procs_total=256), procs_total=256) == pytest.approx(load, rel=1e-6)
    at_once = generate("lublin03", 2_000, 128, np.random.default_rng(1), load=load)
    assert np.array_equal(at_once.rows, to_load(generated, load).rows)


def test_what_cannot_be_scaled_is_refused() -> None:
    some = log((0, 50, 4), (100, 50, 5))
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="expected a positive number"):
            to_load(some, wrong)
        with pytest.raises(BadInput, match="expected a positive number"):
            by_factor(some, wrong)
    with pytest.raises(BadInput, match="all jobs are submitted at one instant"):
        to_load(log((5, 50, 4), (5, 100, 5)), 0.5)
    with pytest.raises(BadInput, match="no job is left"):
        to_load(log((5, 50, 40)), 0.5)
