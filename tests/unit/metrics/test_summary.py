"""Measures against values worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from kit.loads import J, workload

from cosched.metrics.summary import class_labels, grouped, per_job, summarise, user_labels
from cosched.model.node import Node
from cosched.workload.schedule import Schedule
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import Site, simulate


def schedule(starts_s: list[int], *jobs: J) -> Schedule:
    load = replace(workload(4, jobs), user=np.arange(len(jobs)) % 2 + 9)
    start_us = np.array(starts_s, np.int64) * 1_000_000
    return Schedule(load, start_us, start_us + load.run_us, np.full(len(load), -1, np.int64))


#: Submission, processors, estimate, run time: the third passes the second.
THREE = schedule([0, 110, 20], J(0, 4, 20, 20), J(10, 4, 200, 100), J(15, 2, 5, 5))


def test_per_job() -> None:
    jobs = per_job(THREE)
    assert jobs.wait_s.tolist() == [0, 100, 5]
    assert jobs.response_s.tolist() == [20, 200, 10]
    assert jobs.bounded_slowdown.tolist() == [1, 2, 1]  # 10 s of response over the threshold of 10 s
    assert per_job(THREE, bound_s=1).bounded_slowdown.tolist() == [1, 2, 2]


def test_summary() -> None:
    found = summarise(THREE)
    assert found.jobs == 3
    assert found.mean_wait_s == 35
    assert found.max_wait_s == 100
    assert found.median_wait_s == 5
    assert found.makespan_s == 210
    assert found.utilization == pytest.approx((4 * 20 + 4 * 100 + 2 * 5) / (4 * 210))
    assert found.utilization_arrivals == pytest.approx(4 * 15 / (4 * 15))  # busy from 0 s to the last arrival at 15 s
    assert found.backfilled_ratio == pytest.approx(1 / 3)


def test_one_job_has_no_arrival_window() -> None:
    found = summarise(schedule([0], J(0, 1, 10)))
    assert found.utilization == 0.25
    assert found.utilization_arrivals == 0.0


def test_backfilled_means_before_an_earlier_submission() -> None:
    assert THREE.backfilled.tolist() == [False, False, True]


def test_groups_hold_every_job_once() -> None:
    by_user = grouped(THREE, user_labels(THREE))
    assert [(row.group, row.jobs, row.mean_wait_s) for row in by_user] == [(" 9", 2, 2.5), ("10", 1, 100)]
    assert sum(row.processor_hours for row in by_user) == pytest.approx((4 * 20 + 4 * 100 + 2 * 5) / 3600)
    assert class_labels(THREE, short_s=50, narrow_procs=2).tolist() == ["short wide", "long wide", "short narrow"]


def test_slowdown_on_shared_nodes_is_against_the_time_alone() -> None:
    """Two jobs of 100 s share one CPU for 200 s: each took twice as long as alone. Only what was done until the kill
    counts for a killed one."""
    load = workload(2, [J(0, 1, 100, 100), J(0, 1, 50, 100)])
    node = Node("node1", 2, 1 << 30, 1)
    done = simulate(load, resolve("normal"), site=Site([node]))
    assert done.alone_us.tolist() == [100_000_000, 50_000_000]
    assert (done.end_us / 1e6).tolist() == [150, 100]
    jobs = per_job(done)
    assert jobs.execution_s.tolist() == [150, 100]
    assert jobs.bounded_slowdown.tolist() == [1.5, 2]
    assert summarise(done).mean_execution_s == 125


def test_on_a_dedicated_machine_the_time_alone_is_the_time_executed() -> None:
    done = simulate(workload(2, [J(0, 1, 100, 60), J(0, 1, 50, 100)]), resolve("easy"))
    assert done.alone_us.tolist() == [60_000_000, 50_000_000]
