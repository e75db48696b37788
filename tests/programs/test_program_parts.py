"""What the kernels are made of, without MPI."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.programs.command import PROGRAMS
from cosched.programs.kernel import Verdict, parts, uniform
from cosched.programs.mg import Level, interpolated, restricted


def test_numbers_depend_on_index_and_seed_alone() -> None:
    some = uniform(np.arange(100), 7)
    assert (uniform(np.arange(40, 60), 7) == some[40:60]).all()
    assert (uniform(np.arange(100), 8) != some).all()


def test_numbers_are_uniform() -> None:
    numbers = uniform(np.arange(100_000), 1)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.bincount((numbers * 10).astype(int), minlength=10)
    assert (abs(counts - 10_000) < 500).all()  # five standard deviations


@given(st.integers(0, 1000), st.integers(1, 50))
def test_parts_are_all_of_it_and_nearly_equal(length: int, count: int) -> None:
    found = parts(length, count)
    assert sum(found) == length
    assert len(found) == count
    assert max(found) - min(found) <= 1


@pytest.mark.parametrize(
    ("value", "right"), [(0.0, True), (1.0, True), (1.1, False), (math.nan, False), (math.inf, False)]
)
def test_what_is_no_number_is_not_right(value: float, right: bool) -> None:
    assert Verdict(value, 1.0).right is right


def test_interpolation_is_restrictions_transpose() -> None:
    """Times eight, the number of fine points for each coarse one: what a symmetric coarse correction needs."""
    rng = np.random.default_rng(3)
    fine, coarse = Level(8, None), Level(4, None)
    f, c = fine.zeros(), coarse.zeros()
    f[1:-1, 1:-1, 1:-1] = rng.normal(size=(8, 8, 8))
    c[1:-1, 1:-1, 1:-1] = rng.normal(size=(4, 4, 4))
    fine.halo(f)
    coarse.halo(c)
    up = float((restricted(f) * c[1:-1, 1:-1, 1:-1]).sum())
    down = float((f[1:-1, 1:-1, 1:-1] * interpolated(c)).sum())
    assert up == pytest.approx(down / 8)


def test_a_cycle_leaves_less_than_a_quarter_of_the_error() -> None:
    level = Level(32, None)
    rng = np.random.default_rng(4)
    wanted = level.zeros()
    wanted[1:-1, 1:-1, 1:-1] = rng.normal(size=(32, 32, 32))
    wanted[1:-1, 1:-1, 1:-1] -= wanted[1:-1, 1:-1, 1:-1].mean()
    level.halo(wanted)
    level.solution[:] = wanted
    level.right[1:-1, 1:-1, 1:-1] = -level.residual().copy()
    level.solution[:] = 0.0
    errors = []
    for _ in range(6):
        level.cycle()
        inside = level.solution[1:-1, 1:-1, 1:-1]
        inside -= inside.mean()
        level.halo(level.solution)
        errors.append(float(np.abs(level.solution - wanted).max()))
    assert all(after < before / 4 for before, after in pairwise(errors))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_class_is_more_work_than_the_one_before(name: str) -> None:
    sizes = PROGRAMS[name].sizes
    assert list(sizes) == ["S", "W", "A", "B"]
    problem = next(key for key in sizes["S"] if key != "iterations")
    numbers = [each[problem] for each in sizes.values()]
    assert numbers == sorted(set(numbers))
    assert all(each["iterations"] > 0 for each in sizes.values())
