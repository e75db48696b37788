"""A site as its file describes it: nodes and contract, owners who come and go, what tasks need, what comes of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from kit.loads import J, workload
from matplotlib.figure import Figure
from msgspec import structs

from cosched.apps.replicate.cisne import setup
from cosched.config import coefficients
from cosched.config.experiment import Experiment
from cosched.config.site import SiteOwners, SiteSettings, SiteTasks
from cosched.errors import BadInput
from cosched.model.contract import SocialContract
from cosched.model.coscheduling import Mode
from cosched.model.node import Node
from cosched.report.gantt import gantt
from cosched.workload import estimates, swf
from cosched.workload.generators import registry
from cosched.workload.rules import Tasks, Workload
from space_scheduler.plugins import resolve
from space_scheduler.progress import Sharing
from space_scheduler.simulator.experiment import prepare_workload, run
from space_scheduler.simulator.fitting import fitting
from space_scheduler.simulator.host import Site, simulate
from space_scheduler.simulator.shared import sharing_of, site_of

MIB = 1 << 20
HOUR_US = 3_600_000_000
OWNERS = SiteOwners(desks=0.5, cpu=0.2, memory="100MiB")


def settings(**more: object) -> SiteSettings:
    return SiteSettings(**{"nodes": 4, "cpus": 2, "memory": "512MiB", "owners": OWNERS} | more)  # type: ignore[arg-type]


def test_its_nodes_have_what_the_contract_leaves() -> None:
    site = site_of(settings(contract=SocialContract(cpu_ratio=0.25, memory_ratio=0.5, mpl=3)), workload(8, []), seed=1)
    assert len(site.nodes) == 4
    assert site.nodes[0] == Node("node1", 6, 512 * MIB, 2, 250, 256 * MIB, 512 * MIB)


def test_without_a_number_of_nodes_it_has_the_logs_processors() -> None:
    assert len(site_of(settings(nodes=None), workload(7, []), seed=1).nodes) == 4  # of two CPUs each


def test_owners_are_at_that_part_of_the_desks_and_drawn_by_the_seed() -> None:
    drawn = {
        tuple(name for _, name, _ in site_of(settings(nodes=20), workload(8, []), seed).owners) for seed in range(9)
    }
    assert {len(names) for names in drawn} == {10}
    assert len(drawn) > 5
    at_us, _, owner = site_of(settings(), workload(8, []), 1).owners[0]
    assert owner is not None
    assert (at_us, owner.cpu_permille, owner.memory_bytes) == (0, 200, 100 * MIB)


def came_and_went(load: Workload, hours: str, days: list[str]) -> list[tuple[float, bool]]:
    """Hours since the log's start at which somebody comes (True) or goes, over its first ten days."""
    wanted = settings(nodes=1, cpus=1, owners=SiteOwners(desks=1.0, hours=hours, days=days))
    changes = [(at / HOUR_US, owner is not None) for at, _, owner in site_of(wanted, load, 1).owners]
    return [change for change in changes if change[0] < 240]


def test_a_log_without_a_start_begins_on_a_monday() -> None:
    assert came_and_went(workload(1, []), "09:00-17:00", ["mon", "wed"]) == [
        (9, True), (17, False), (57, True), (65, False), (177, True), (185, False), (225, True), (233, False),
    ]  # fmt: skip


def test_hours_are_those_of_the_logs_own_day_and_clock() -> None:
    """1996-09-23, a Monday, 13:00:30 in Stockholm: somebody is there already; hours over midnight are one stay."""
    load = replace(workload(1, []), unix_start_s=843_476_430, timezone_offset_s=7200)
    first, *_ = came_and_went(load, "09:00-17:00", ["mon"])
    assert [first] == [(0, True)]
    second = came_and_went(load, "09:00-17:00", ["mon"])[1]
    near: Any = pytest.approx
    assert [second] == [(near(4 - 30 / 3600), False)]
    night = came_and_went(load, "22:00-06:00", ["mon"])
    assert night[:2] == [(near(9 - 30 / 3600), True), (near(17 - 30 / 3600), False)]


def test_owners_who_leave_give_the_job_its_processor_back() -> None:
    """A job that computes for ten hours alone, on a desk that is left half of its CPU from 9 to 17: 8 hours cost 4."""
    wanted = settings(
        nodes=1, cpus=1, contract=SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1),
        owners=SiteOwners(desks=1.0, cpu=0.0, hours="09:00-17:00"),
    )  # fmt: skip
    load = workload(1, [J(9 * 3600, 1, 36_000)])
    site = site_of(wanted, load, 1)
    done = simulate(load, resolve("normal"), site=site._replace(sharing=Sharing()))
    assert (done.end_us[0] - done.start_us[0]) / HOUR_US == pytest.approx(14.0, abs=1e-3)


@pytest.mark.parametrize("policy", ["normal", "uniform-light", "3dbf-light"])
def test_a_log_on_a_site_is_what_the_same_jobs_are_on_the_papers(policy: str, tmp_path: Path) -> None:
    """Generated, written to a log, read again, run by settings: start by start as the replication has it."""
    log = registry.generate("cisne", 30, setup.NODES, np.random.default_rng(3), {"ratio": 0.2})
    path = tmp_path / "cisne.swf"
    swf.write(log, path)
    site = SiteSettings(
        nodes=setup.NODES,
        memory="512MiB",
        coscheduling=Mode.CCS,
        tasks=SiteTasks(programs={"1": "comm", "2": "comm", "3": "cpu", "4": "cpu"}),
    )
    experiment = Experiment(log=str(path), policies=[policy], estimates="exact", seed=3, site=site).checked("")
    mine = run(experiment, policy, prepare_workload(experiment, path))
    theirs = setup.workload(0.2, 3, jobs=30)
    world = setup.site(3, sharing_of(site))
    expected = simulate(
        estimates.with_estimates(theirs, estimates.parse("exact"), np.random.default_rng(3)),
        resolve(policy),
        site=Site(world.nodes, (), world.sharing),
    )
    assert mine.start_us.tolist() == pytest.approx(expected.start_us.tolist(), abs=2_000_000)  # logs have whole seconds


def test_what_the_log_does_not_tell_of_tasks_is_as_the_settings_have_it(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(
        "; MaxProcs: 4\n"
        "1 0 -1 100 2 50 2048 2 100 4096 1 1 1 7 -1 -1 -1 -1\n"
        "2 5 -1 100 2 -1 -1 2 100 -1 1 1 1 8 -1 -1 -1 -1\n"
        "3 9 -1 100 2 900 2048 2 100 -1 1 1 1 -1 -1 -1 -1 -1\n"
    )
    tasks = SiteTasks(memory="32MiB", cpu=0.75, kind="comm", programs={"7": "cpu"})
    experiment = Experiment(log=str(path), policies=["normal"], site=settings(tasks=tasks)).checked("")
    found = prepare_workload(experiment, path).tasks
    assert found is not None
    assert (found.memory_bytes / MIB).tolist() == [4, 32, 2]  # asked for, unknown, used
    assert found.cpu_permille.tolist() == [500, 750, 1000]
    assert list(found.kind) == ["cpu", "comm", "comm"]


LARGE = """; MaxProcs: 4
1 0 -1 100 2 -1 -1 2 100 -1 1 1 1 1 -1 -1 -1 -1
2 5 -1 100 2 -1 9000000 2 100 9000000 1 1 1 1 -1 -1 -1 -1
3 9 -1 100 4 -1 300000 4 100 300000 1 1 1 1 -1 -1 -1 -1
4 9 -1 100 1 -1 -1 1 100 -1 1 1 1 1 -1 -1 -1 -1
"""


def test_jobs_that_fit_no_nodes_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(LARGE)  # job 2 wants 9 GB on one node, job 3 one such node more than there are
    site = settings(
        nodes=3, cpus=2, owners=SiteOwners(), contract=SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1)
    )
    experiment = Experiment(log=str(path), policies=["normal", "easy"], site=site).checked("")
    load = prepare_workload(experiment, path)
    assert load.job_id.tolist() == [1, 4]
    assert load.skipped == {"fits_no_nodes": 2}
    assert run(experiment, "easy", load).start_us.tolist() == [0, 9_000_000]
    with pytest.raises(BadInput, match=r"log.swf: job 2: one task needs more memory than any node has"):
        prepare_workload(structs.replace(experiment, strict=True), path)


def test_what_one_policy_could_never_start_is_left_out_for_all() -> None:
    load = workload(8, [J(0, 4, 60), J(1, 5, 60)])
    load = replace(load, tasks=Tasks(np.array([1, 1]), np.array([1000, 1000]), ("cpu", "cpu")))
    site = Site([Node(name, 4, 100, 1) for name in "ab"])
    policies = [resolve(name) for name in ("normal", "uniform-hard")]
    assert len(fitting(load, policies[:1], site)) == 2
    both = fitting(load, policies, site)  # five of a kind on two nodes of level four
    assert (both.procs.tolist(), both.skipped) == ([4], {"fits_no_nodes": 1})


def test_a_mode_of_which_no_costs_were_measured_is_refused(tmp_path: Path) -> None:
    known = msgspec.to_builtins(coefficients.read())
    del known["costs"]["dcs"]
    path = tmp_path / "costs.json"
    path.write_bytes(msgspec.json.encode(known))
    with pytest.raises(BadInput, match="no costs were measured of 'dcs'"):
        site_of(settings(coscheduling=Mode.DCS, costs=str(path)), workload(8, []), seed=1)
    alone = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1)
    assert site_of(settings(coscheduling=Mode.DCS, contract=alone, costs=str(path)), workload(8, []), seed=1).nodes


def test_tasks_that_share_a_node_are_drawn_each_in_a_lane_of_its_row() -> None:
    """Two jobs of two tasks on one node of two CPUs: one row, with a lane for each task."""
    wanted = settings(nodes=1, owners=SiteOwners(), contract=SocialContract(mpl=2))
    load = workload(2, [J(0, 2, 100), J(0, 2, 100)])
    done = simulate(load, resolve("normal"), site=site_of(wanted, load, 1))
    assert done.start_us.tolist() == [0, 0]
    axes = Figure().subplots()
    gantt(axes, done, "normal")
    assert axes.get_ylim() == (1, 0)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["node1"]
    assert sum(len(each.get_paths()) for each in axes.collections) == 4
