"""The replication of Ngubiri & van Vliet 2006, at a small scale: its workload, its groups, its result, its verdicts."""

from collections import Counter

import numpy as np
import pytest
from kit.replications import outline, quiet
from kit.snapshots import Snapshot

from cosched.apps.replicate.claims import Predicate, Verdict
from cosched.apps.replicate.coallocation import cells, claims, figures, judging, replication, setup, shares
from cosched.apps.replicate.coallocation.runs import Runs
from cosched.apps.replicate.coallocation.setup import Cell, Measured, Scale, fpfs
from cosched.apps.replicate.coallocation.shares import Kind
from cosched.apps.replicate.papers import Request
from cosched.apps.replicate.result import Result
from cosched.apps.replicate.steady import backlog_thirds, trend
from cosched.metrics.groups import components
from cosched.metrics.sequential import BLOCK, Blocks, Lengths, Reached, before_the_end
from cosched.model.components import Partition
from cosched.model.time import FOREVER_US
from cosched.model.width import Components
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import begin

pytestmark = pytest.mark.slow

SMALL = Scale(
    lengths=Lengths(precision=0.05, first=300, most=300),
    most_fcfs=300,
    jumps=(0, 10, setup.HIGH),
    thresholds=(5, 11),
    costs_ppm=(100_000,),
    qs=(0.7,),
)
RANDOM = cells.RANDOM


# the workload


def test_table_1_is_enumerated() -> None:
    made = Result("coallocation", "", {})
    shares.report(made)
    rows = {row["group"]: (row["number"], row["load"]) for row in made.tables["table1"].as_dicts()}
    assert rows == {
        "S1": (24.17, 4.80), "S2": (26.37, 11.63), "S3": (25.67, 24.46), "S4": (23.79, 59.11),
        "W1": (24.17, 4.80), "W2": (26.82, 12.70), "W3": (21.89, 24.14), "W4": (27.11, 58.35),
    }  # fmt: skip
    assert (shares.SIZE_BOUNDS, shares.WIDEST_BOUNDS, shares.PHASED_BOUNDS) == ((1, 3, 7), (1, 3, 5), (14, 17))
    verdicts = {claim.id: claim.verdict for claim in made.claims}
    assert verdicts["workload.mean"] is Verdict.HOLDS
    assert verdicts["text.widest"] is Verdict.FAILS  # 12 % of the jobs in W4: they are 33 %


def test_groups_are_all_jobs_once() -> None:
    for groups in shares.CRITERIA.values():
        for kind in shares.random_kinds():
            assert sum(chosen(kind) for chosen in groups.values()) == 1


def test_jobs_are_the_same_whatever_else_is_different() -> None:
    one = setup.workload(RANDOM, 3000)
    longer = setup.workload(RANDOM._replace(policy=setup.FCFS), 4000)
    lower = setup.workload(cells.at_threshold(5), 3000)
    for what in ("submit_us", "run_us", "procs"):
        assert (getattr(one, what) == getattr(longer, what)[:3000]).all()
        assert (getattr(one, what) == getattr(lower, what)).all()
    assert list(one.divided) == list(longer.divided[:3000])
    above = [row for row, size in enumerate(one.procs.tolist()) if size > 11]
    assert [one.divided[row] for row in above] == [lower.divided[row] for row in above]
    assert all(one.divided[row] is None for row in set(range(3000)) - set(above))


def test_large_jobs_are_divided_evenly_among_two_to_four_components() -> None:
    load = setup.workload(RANDOM, 60_000)
    counts = Counter(len(each.procs) for each in load.divided if isinstance(each, Components))
    large = sum(counts.values())
    assert set(counts) == {2, 3, 4}
    for number in counts.values():
        assert abs(number / large - 1 / 3) < 4.5 * (2 / 9 / large) ** 0.5


def test_the_load_is_the_papers_at_every_q() -> None:
    assert shares.load() == pytest.approx(0.7866, abs=5e-5)
    for q in (0.7, 0.9):
        load = setup.workload(cells.at_q(q, Partition.RANDOM), 100_000)
        work_s = float(np.dot(load.procs, load.run_us / 1e6))
        assert work_s / 100 / (load.submit_us[-1] / 1e6) == pytest.approx(0.7866, rel=0.03)
        assert load.procs.mean() == pytest.approx(float(shares.mean_size(q)), rel=0.03)


def test_control_variates_are_of_these_jobs() -> None:
    for q in (0.7, 0.85):
        load = setup.workload(cells.at_q(q, Partition.RANDOM), 200_000)
        busy = setup._controls(load, q)
        assert busy.shape == (200_000, 4)
        known = np.abs(busy.min(axis=0))  # a job that does not wait is so far below the mean
        assert (np.abs(busy.mean(axis=0))[:2] < 0.15 * known[:2]).all()
        assert known[0] < known[1] < known[2] < known[3]


def test_communication_makes_jobs_on_several_clusters_longer() -> None:
    found = setup.simulated(cells.at_cost("balanced, above 11", 100_000), 500)
    longer = found.end_us - found.start_us - found.workload.run_us
    for row, shape in enumerate(found.workload.divided):
        assert longer[row] == (0 if shape is None else -(-int(found.workload.run_us[row]) // 10))


def test_a_large_moldable_job_has_half_to_all_of_its_processors_and_the_same_work() -> None:
    found = setup.simulated(cells.molding(2), 400)
    assert found.workload.shapes
    placed = found.placed
    assert placed is not None
    narrower = 0
    for row, (size, shaped) in enumerate(zip(found.workload.procs.tolist(), found.workload.shapes, strict=True)):
        assert (shaped is not None) == (size > 11)
        width = sum(part for _, part in placed[row])
        assert width == size or (shaped is not None and -(-size // 2) <= width < size)
        narrower += width < size
        took_us = found.end_us[row] - found.start_us[row]
        assert abs(took_us * width - found.workload.run_us[row] * size) <= width
    assert narrower > 5


# runs, from what is known


def run(means: dict[Kind, float], jobs: int = 20 * BLOCK, noise: float = 0.1, seed: int = 1) -> Measured:
    """As many jobs of each kind, which respond so on the average."""
    kinds = tuple(means)
    blocks = jobs // BLOCK
    draws = np.random.default_rng(seed).normal(0, noise, (blocks, len(kinds)))
    each = BLOCK // len(kinds)
    sums = (np.array(list(means.values())) + draws) * each
    counts = np.full((blocks, len(kinds)), each)
    squares = (sums**2 / each).sum(axis=1) + each
    made = Blocks(sums, counts, squares, np.empty((blocks, 0)), 0, blocks)
    return Measured(kinds, made, Reached(0.01, 0.0, jobs, steady=True), (0.0, 0.0, 0.0))


KINDS = {Kind(1, 1, 1): 10.0, Kind(6, 1, 6): 20.0, Kind(12, 2, 6): 20.0, Kind(12, 4, 3): 12.0}


def test_means_and_differences_of_groups() -> None:
    slower = {kind: 1.5 * mean for kind, mean in KINDS.items()}
    runs = Runs({RANDOM: run(KINDS), cells.at_jumps(0): run(slower)})
    assert runs.mean(RANDOM, "S1").mean == pytest.approx(10, abs=0.1)
    assert runs.mean(RANDOM, "S4").mean == pytest.approx(16, abs=0.1)
    assert runs.mean(RANDOM).mean == pytest.approx(15.5, abs=0.1)
    against = runs.relative(RANDOM, cells.at_jumps(0), "C2")
    assert against.low < -1 / 3 < against.high
    assert runs.relative(RANDOM, RANDOM, "C2").half_width == pytest.approx(0)
    assert runs.between(RANDOM, "C2", "C4").mean == pytest.approx(20 / 12 - 1, abs=0.02)
    assert np.isnan(runs.mean(RANDOM, "C3").mean)


def test_what_explains_the_variance_is_told() -> None:
    runs = Runs({RANDOM: run(KINDS, noise=0.01)})
    found = runs.explained(RANDOM, lambda kind: kind.widest, lambda kind: kind.size)
    assert found.low > 0  # of these kinds the widest component alone decides
    assert runs.explained(RANDOM, lambda kind: kind.size, lambda kind: kind.widest).high < 0


def test_a_claim_that_does_not_hold_fails() -> None:
    better = {kind: 2 * mean for kind, mean in KINDS.items()}
    worse = Runs({RANDOM: run(better), cells.at_jumps(0): run(KINDS)})
    found = {claim.id: claim.verdict for claim in judging._figure1(worse)}
    assert found[claims.BETTER.id] is Verdict.FAILS
    assert found[claims.SAME.id] is Verdict.HOLDS
    assert found[claims.EQUAL_SIZE.id] is Verdict.HOLDS


def test_what_waits_in_a_long_run_is_a_small_part_of_it() -> None:
    grows = (0.005, 0.011, 0.018)  # FCFS at thres 17: 8600 jobs wait at the end of 480 000
    assert not trend([grows]).unstable
    assert Measured((), run(KINDS).blocks, Reached(1, 1, 480_000, steady=False), grows).unstable
    assert not Measured((), run(KINDS).blocks, Reached(1, 1, 10_000, steady=False), grows).unstable


def test_runs_are_as_long_as_they_must_be() -> None:
    adaptive = cells.at_jumps(10, Partition.ADAPTIVE)
    found = setup.measured(adaptive, Lengths(precision=0.5, first=11_000, most=88_000))
    assert 20_000 < found.reached.jobs < 88_000  # at 11 000 there are fewer blocks than short batches
    assert found.reached.steady
    assert found.reached.enough(0.5)
    assert not found.unstable
    assert set(setup.of_interest(adaptive)) == {"S1", "S2", "S3", "S4"}
    assert len(setup.of_interest(Cell(fpfs(2)))) == 12


@pytest.mark.parametrize("cell", [cells.RANDOM, cells.at_jumps(10, Partition.ADAPTIVE), cells.molding(2)])
def test_a_run_on_its_way_is_that_of_its_first_jobs(cell: Cell) -> None:
    alone, whole = setup.simulated(cell, 740), setup.simulated(cell, 1500)
    running = begin(setup.workload(cell, 1500), resolve(cell.policy), site=setup.site(cell))
    found = running.until(740)
    last_us = int(alone.workload.submit_us[-1])
    by_then = alone.start_us <= last_us
    assert 700 < by_then.sum() < 740
    assert (found.workload.submit_us == alone.workload.submit_us).all()
    assert (found.start_us[by_then] == alone.start_us[by_then]).all()
    assert (found.end_us[by_then] == alone.end_us[by_then]).all()
    assert (found.start_us[~by_then] == FOREVER_US).all()
    assert before_the_end(found) == before_the_end(alone)
    assert backlog_thirds(found) == backlog_thirds(alone)
    assert (components(found)[by_then] == components(alone)[by_then]).all()
    running.until(1000)
    finished = running.finish()
    assert (finished.start_us == whole.start_us).all()
    assert finished.placed == whole.placed
    assert finished.reasons == whole.reasons


# the result


def test_every_table_figure_and_claim_is_there(snapshot: Snapshot) -> None:
    """Runs that are too short for an interval say that they are not precise, and decide no claim."""
    result = replication.replicate_at(SMALL, Request(paper="coallocation", workers=1), quiet)
    snapshot(outline(result))
    predicates = [each for each in vars(claims).values() if isinstance(each, Predicate)]
    assert {each.id for each in predicates} == {claim.id for claim in result.claims}
    rows = result.tables["runs"].as_dicts()
    assert len(rows) == len(dict.fromkeys(cells.every(SMALL)))
    assert {(row["jobs"], row["precise"]) for row in rows} == {(300, False)}  # fewer than 200 blocks


def test_fpfs_beats_fcfs_by_far() -> None:
    lengths, fcfs = Lengths(precision=0.05, first=3500, most=3500), cells.at_jumps(0)
    runs = Runs({cell: setup.measured(cell, lengths) for cell in (RANDOM, fcfs)})
    verdicts = {claim.id: claim.verdict for claim in judging._figure1(runs)}
    assert verdicts[claims.BETTER.id] is Verdict.HOLDS
    assert verdicts[claims.SAME.id] is Verdict.HOLDS
    figure1 = {row["group"]: row for row in figures._figure1(runs).as_dicts()}
    assert figure1["all"]["low"] < figure1["all"]["FCFS"] < figure1["all"]["high"]
    assert figure1["all"]["FPFS(10)"] < figure1["all"]["FCFS"]
    assert figure1["S4"]["FPFS(10)"] == runs.mean(RANDOM, "S4").mean


def test_the_same_run_says_the_same() -> None:
    one, again = (setup.measured(RANDOM, SMALL.lengths).blocks for _ in range(2))
    assert (one.sums == again.sums).all()
    assert one.sums.any()
