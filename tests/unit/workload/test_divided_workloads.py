"""A workload on several clusters: who is divided, by which rule, and what the command makes of it."""

import json
from pathlib import Path

import click
import msgspec
import pytest
from kit.snapshots import Snapshot, refusals
from msgspec import structs

from cosched.apps.cli.shared.options import experiment, settings
from cosched.apps.cli.shared.outputs import inputs_of
from cosched.config.experiment import Experiment
from cosched.errors import BadInput
from cosched.model.components import Partition
from cosched.model.width import Components, Flexible
from cosched.workload.rules import Workload
from space_scheduler.simulator.experiment import prepare_workload, run

SIZES = (3, 8, 1, 12, 15, 30)
TWO = Experiment(policies=["coalloc-fpfs(10)"], clusters=[20, 20], threshold=11)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "labs.swf"
    lines = [f"{n} {n} -1 10 {size} -1 -1 {size} 10 -1 1 1" for n, size in enumerate(SIZES, 1)]
    path.write_text("; MaxProcs: 40\n" + "".join(f"{line} -1 -1 -1 -1 -1 -1\n" for line in lines))
    return path


def prepared(log: Path, settings: Experiment, **others: object) -> Workload:
    return prepare_workload(structs.replace(settings, **others).checked(""), log)


def given(*options: str) -> Experiment:
    """What a command is given by its options."""
    command = click.command()(settings(lambda **said: experiment(said)))
    read: Experiment = command.main([*options], standalone_mode=False)
    return read


def test_only_jobs_above_the_threshold_are_divided(log: Path) -> None:
    load = prepared(log, TWO, most_components=2)
    assert load.divided == [None, None, None, Components((6, 6)), Components((7, 8)), Components((15, 15))]
    assert prepared(log, TWO, most_components=2, partition=Partition.ADAPTIVE).divided[3:] == [
        Flexible(size, 2) for size in SIZES[3:]
    ]


def test_phased_bounds_are_of_the_logs_own_large_jobs(log: Path) -> None:
    settings = structs.replace(TWO, clusters=[10, 10, 10, 10], threshold=10, partition=Partition.PHASED)
    load = prepared(log, settings)
    assert load.divided[3:] == [Components((6, 6)), Components((5, 5, 5)), Components((7, 7, 7, 9))]


def test_the_same_seed_divides_alike(log: Path) -> None:
    wide = structs.replace(TWO, clusters=[10, 10, 10, 10], threshold=2)
    drawn = [prepared(log, wide, seed=seed).divided for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1]
    assert any(other != drawn[0] for other in drawn[2:])


def test_a_shapes_file_gives_components(log: Path, tmp_path: Path) -> None:
    shapes = tmp_path / "shapes.csv"
    shapes.write_text("job_id,components\n2,5+3\n6,20+10\n")
    load = prepared(log, TWO, shapes=str(shapes), threshold=None)
    assert load.divided == [None, Components((5, 3)), None, None, None, Components((20, 10))]
    shapes.write_text("job_id,components,crossing\n2,5+3,0.25\n")
    assert prepared(log, TWO, shapes=str(shapes)).crossing_ppm[:3] == [None, 250_000, None]
    shapes.write_text("job_id,components\n2,5+4\n")
    with pytest.raises(BadInput, match=r"shapes.csv:2: components: 5\+4 of a job of 8; expected 8 together"):
        prepared(log, TWO, shapes=str(shapes))
    shapes.write_text("job_id,components\n2,5+3\n")
    with pytest.raises(BadInput, match="expected clusters for them"):
        prepared(log, Experiment(policies=["easy"]), shapes=str(shapes))


def test_who_fits_no_cluster_is_left_out(log: Path) -> None:
    assert prepared(log, TWO, threshold=None).skipped["fits_no_nodes"] == 1
    with pytest.raises(BadInput, match="job 6: one of its components needs more processors than any cluster has"):
        prepared(log, TWO, threshold=None, strict=True)


BAD: list[dict[str, object]] = [
    {"threshold": 21}, {"clusters": [20, 0]}, {"clusters": [20, 21]}, {"procs": 50}, {"clusters": []},
    {"threshold": None, "partition": Partition.PHASED}, {"most_components": 0}, {"cross_cluster_cost": -1.0},
    {"ties": "sequential"},
]  # fmt: skip


def test_what_makes_no_sense_is_refused(log: Path, snapshot: Snapshot) -> None:
    snapshot(refusals(lambda others: prepared(log, TWO, **others), *BAD))


def test_shared_nodes_lie_in_clusters(log: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("nodes: 40\n")
    options = ("--site", str(site), "--threshold", "11", "--most-components", "2", "--cross-cluster-cost", "0.5")
    chosen = given(*options, "--clusters", "20,20")
    outcome = run(chosen, "2dbf", prepare_workload(chosen, log))
    assert [width for _, width in outcome.components(3)] == [6, 6]
    assert (outcome.end_us - outcome.start_us)[3] == 15_000_000
    assert (outcome.end_us - outcome.start_us)[1] == 10_000_000
    with pytest.raises(BadInput, match="expected 40 together, those of the site"):
        prepare_workload(given(*options, "--clusters", "20,21"), log)


def test_what_the_link_costs_can_be_a_file(log: Path, tmp_path: Path) -> None:
    costs = tmp_path / "between-2ms.json"
    costs.write_text('{"ppm": {"": 500000}, "links": {"2 1": {"": 250000}}}')
    options = ("--clusters", "20,20", "--threshold", "11", "--most-components", "2", "--cross-cluster-cost")
    chosen = given(*options, str(costs))
    outcome = run(chosen, "easy", prepare_workload(chosen, log))
    assert [width for _, width in outcome.components(3)] == [6, 6]
    assert (outcome.end_us - outcome.start_us)[3] == 12_500_000  # as the pair has it
    assert (outcome.end_us - outcome.start_us)[1] == 10_000_000
    assert inputs_of(chosen, log) == [log, costs]
    assert given(*options, "0.25").cross_cluster_cost == 0.25
    costs.write_text('{"ppm": {"gpu": 1}}')
    with pytest.raises(BadInput, match="ppm: 'gpu': 1; expected cpu, comm or ''"):
        given(*options, str(costs))
    with pytest.raises(BadInput, match="No such file"):
        given(*options, str(tmp_path / "none.json"))


def test_the_settings_can_be_kept() -> None:
    kept = json.loads(msgspec.json.encode(TWO))
    assert (kept["clusters"], kept["threshold"]) == ([20, 20], 11)
