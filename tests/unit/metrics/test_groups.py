"""Groups of jobs by size, components and widest component, against what was counted by hand."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from kit.loads import J, workload

from cosched.metrics.groups import (
    by_bounds,
    component_labels,
    components,
    jain,
    quantile_bounds,
    size_labels,
    widest,
    widest_labels,
)
from cosched.model.width import Components, Flexible, Range
from cosched.workload.generators.ngubiri06 import sizes
from cosched.workload.rules import Shaped
from cosched.workload.schedule import Schedule

DIVIDED = [None, Components((7, 8)), Components((3, 3, 3, 6)), Flexible(15, 4)]
PLACED = [(("1", 5),), (("1", 7), ("2", 8)), (("1", 3), ("2", 3), ("3", 3), ("4", 6)), (("2", 6), ("1", 5), ("4", 4))]


def schedule(*, divided: bool = True, placed: bool = True) -> Schedule:
    load = workload(100, [J(at, size, 10, 10) for at, size in enumerate((5, 15, 15, 15))])
    load = replace(load, divided=DIVIDED if divided else ())
    start_us = load.submit_us.copy()
    return Schedule(load, start_us, start_us + load.run_us, np.full(4, -1, np.int64), placed=PLACED if placed else None)


def test_components_and_the_widest_of_each_job() -> None:
    assert components(schedule()).tolist() == [1, 2, 4, 3]
    assert widest(schedule()).tolist() == [5, 8, 6, 6]
    assert component_labels(schedule()).tolist() == ["1", "2", "4", "3"]


def test_a_job_that_is_not_divided_is_one_component() -> None:
    assert components(schedule(divided=False)).tolist() == [1, 1, 1, 1]
    assert widest(schedule(divided=False)).tolist() == [5, 15, 15, 15]
    assert widest(schedule(placed=False)).tolist() == [5, 8, 6, 15]  # not known how the last one lay


def test_a_moldable_job_has_the_components_that_it_was_started_with() -> None:
    plan = schedule(divided=False)
    molded = Shaped(Range(8, 15, components=4), 150, 150)
    plan = replace(plan, workload=replace(plan.workload, shapes=[None, molded, None, None]))
    assert components(plan).tolist() == [1, 2, 1, 1]
    assert widest(plan).tolist() == [5, 8, 15, 15]


def test_quartiles_of_the_papers_sizes_are_the_papers() -> None:
    chances = sizes(0.85, 1, 38)
    assert quantile_bounds(chances, 4) == (1, 3, 7)
    assert quantile_bounds(chances, 8) == (1, 2, 3, 4, 7, 10)  # an eighth and a quarter are both nearest to size 1


def test_groups_are_named_by_their_ranges() -> None:
    values = np.array([1, 2, 3, 7, 8, 38])
    assert by_bounds(values, (1, 3, 7)).tolist() == [" 1", " 2-3", " 2-3", " 4-7", " 8-38", " 8-38"]
    assert by_bounds(np.array([5, 5]), (5, 5)).tolist() == ["1-5", "1-5"]
    assert by_bounds(np.array([], np.int64), ()).tolist() == []


def test_quartiles_of_a_schedule() -> None:
    assert size_labels(schedule()).tolist() == [" 1-5", " 6-15", " 6-15", " 6-15"]
    assert widest_labels(schedule()).tolist() == ["1-5", "7-8", "6", "6"]


def test_quantiles_of_one_value_are_one_group() -> None:
    assert quantile_bounds({4: Fraction(1)}, 4) == (4,)
    assert by_bounds(np.array([4, 4]), quantile_bounds({4: 2}, 4)).tolist() == ["1-4", "1-4"]


def test_jains_index() -> None:
    assert jain([10, 10, 10]) == pytest.approx(1.0)
    assert jain([12, 0, 0]) == pytest.approx(1 / 3)
    assert jain([10, 20]) == pytest.approx(0.9)
    assert jain([0, 0]) == 1.0
