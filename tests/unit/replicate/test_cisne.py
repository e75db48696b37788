"""The replication of the CISNE paper, at a small scale: its setting as the paper has it, its result's forms."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from kit.replications import drawn, outline, quiet
from kit.snapshots import Snapshot

from cosched.apps.replicate.cisne import replication, setup
from cosched.apps.replicate.cisne.setup import Scale
from cosched.apps.replicate.papers import Request
from cosched.apps.replicate.result import Result
from cosched.model.coscheduling import Mode
from space_scheduler.progress import Sharing

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cisne")]  # of whom all share one result

SMALL = Scale(2, (0.1, 0.2), 2)


@pytest.fixture(scope="module")
def result() -> Iterator[Result]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "workload", partial(setup.workload, jobs=16))
        yield replication.replicate_at(SMALL, Request(paper="cisne", workers=1), quiet)


def test_the_cluster_is_the_papers() -> None:
    site = setup.site(1, Sharing(Mode.CCS))
    assert len(site.nodes) == 16
    assert {node.memory_bytes for node in site.nodes} == {512 << 20}
    assert len({name for _, name, _ in site.owners}) == 4
    for seed in range(1, 20):
        for _, name, owner in setup.site(seed, Sharing()).owners:
            assert owner is not None
            node = next(each for each in site.nodes if each.name == name)
            left = {150: 256 << 20, 200: (512 << 20) - round(0.6 * (512 << 20))}[owner.cpu_permille]
            assert node.memory_beside(owner) == left


def test_the_workload_is_table_1s() -> None:
    load = setup.workload(0.2, 3)
    assert len(load) == 90
    assert load.tasks is not None
    bounds = {"comm": (580, 750), "cpu": (820, 930)}
    for kind, share in zip(load.tasks.kind, load.tasks.cpu_permille, strict=True):
        low, high = bounds[kind]
        assert low <= share <= high
    assert set(load.procs.tolist()) == {2, 4, 8}
    assert load.tasks.memory_bytes.max() <= 260 << 20
    assert (load.estimate_us == load.run_us).all()
    assert (setup.workload(0.2, 3, estimate="factor:3").estimate_us > load.run_us).any()


def test_dit_is_the_double_of_sit() -> None:
    """SIT and DIT are simple and double inter-arrival time: the same jobs, twice as far apart."""
    sit, dit = (setup.workload(setup.WORKLOADS[name], 5) for name in ("SIT", "DIT"))
    assert dit.submit_us == pytest.approx(2 * sit.submit_us, abs=2)
    assert (sit.run_us == dit.run_us).all()
    assert [round(setup.load(setup.WORKLOADS[name]), 2) for name in ("SIT", "DIT")] == [1.46, 0.73]


def test_owners_in_sessions_are_at_a_quarter_of_the_desks_on_average() -> None:
    there, node_us = dict[str, int](), 0
    owners = setup.site(1, Sharing(), owners="sessions").owners
    assert [at_us for at_us, _, _ in owners] == sorted(at_us for at_us, _, _ in owners)
    for at_us, name, owner in owners:
        if owner is not None:
            assert name not in there
            there[name] = at_us
        else:
            node_us += at_us - there.pop(name)
    last_us = owners[-1][0]
    node_us += sum(last_us - since_us for since_us in there.values())
    assert node_us / last_us == pytest.approx(setup.OWNED_NODES, rel=0.35)
    assert len({name for _, name, _ in owners}) == setup.NODES
    stay, sessions = (setup.simulated("basic", 0.4, 1, Sharing(), owners=each) for each in ("stay", "sessions"))
    assert (stay.workload.submit_us == sessions.workload.submit_us).all()
    assert (stay.end_us != sessions.end_us).any()


def test_seeds_differ_and_policies_meet_the_same_jobs() -> None:
    assert (setup.workload(0.2, 1).submit_us != setup.workload(0.2, 2).submit_us).any()
    one, again = (setup.simulated("normal", 0.2, 1, Sharing(Mode.CCS)) for _ in range(2))
    other = setup.simulated("3dbf-hard", 0.2, 1, Sharing(Mode.CCS))
    assert (one.start_us == again.start_us).all()
    assert (one.workload.submit_us == other.workload.submit_us).all()
    assert (one.start_us != other.start_us).any()


def test_every_table_figure_and_claim_is_there(snapshot: Snapshot, result: Result) -> None:
    snapshot(outline(result))
    for row in result.tables["figure8"].as_dicts():
        assert row["turnaround"] == pytest.approx(row["wait"] + row["execution"])
    assert sum(row["best turnaround"] for row in result.tables["sweep"].as_dicts()) == 2


def test_what_the_costs_decide_is_shown(result: Result) -> None:
    rows = result.tables["costless"].as_dicts()
    assert len(rows) == 12
    assert any(abs(row["turnaround"] - row["turnaround, costless"]) > 0.01 for row in rows)


def test_what_was_put_in_is_no_finding(result: Result) -> None:
    assert "input: calibration" in result.tables["figure7"].caption
    undecided = {claim.id for claim in result.claims if claim.note == "decided by real runs alone"}
    assert undecided == {
        "ccs-execution-sit",
        "ccs-execution-sit-size",
        "ccs-execution-dit",
        "ccs-execution-dit-size",
        "ccs-execution-mpl1",
        "ccs-latency",
    }
    assert any("Costs of sharing" in note for note in result.notes)


def test_claims_are_judged_by_all_their_cases(result: Result) -> None:
    claims = {claim.id: claim for claim in result.claims}
    assert len(claims) == len(result.claims) == 17
    assert "(of 20:" in claims["mpl-turnaround"].note  # five policies, two bases, two workloads
    assert "(of 6:" in claims["backfilling-harmless"].note
    assert claims["3dbf-light-makespan-sit"].paper == -0.35


def test_figures_can_be_drawn(result: Result) -> None:
    for name, axes in drawn(result):
        assert axes.get_ylabel(), name
        assert axes.patches or axes.lines, name


def test_what_is_measured_is_the_papers(result: Result) -> None:
    found = setup.simulated("basic", 1.0, 1, Sharing())
    measured = setup.measured("basic", 1.0, 1, Sharing())
    waits = (found.start_us - found.workload.submit_us) / 1e6
    assert measured.wait_s == pytest.approx(float(np.mean(waits)))
    assert measured.makespan_s == pytest.approx(float(found.end_us.max() - found.workload.submit_us[0]) / 1e6)
