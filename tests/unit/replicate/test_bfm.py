"""The replication of Utrera et al. 2005: its setting as the paper has it, what is measured, claims that can fail."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from kit.replications import drawn, quiet

from cosched.apps.replicate import result as results
from cosched.apps.replicate.bfm import claims, folded, judging, measures, replication, setup
from cosched.apps.replicate.bfm.judging import Found
from cosched.apps.replicate.bfm.measures import Measured, OfClass
from cosched.apps.replicate.bfm.setup import BFA, BFM, FIFO, FJT4, FJT4_BFA, MAIN, POLICIES, Run, Scale, run_of
from cosched.apps.replicate.claims import Claim, Verdict
from cosched.apps.replicate.papers import Request
from cosched.apps.replicate.result import Result

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bfm")]  # one result for all

SMALL = Scale(seeds=2, reading_seeds=1, long_seeds=1, jobs=40, long_jobs=60, rigid=(0.0, 0.5))
CLAIM_KEYS = {"id", "text", "verdict", "ours", "paper", "interval", "predicate", "note", "readings"}


@pytest.fixture(scope="module")
def result() -> Result:
    return replication.replicate_at(SMALL, Request(paper="bfm", workers=1), quiet)


# --- the setting --------------------------------------------------------------------------------------------------


def test_the_workload_is_tables_1_and_2s() -> None:
    load = setup.workload(1.0, 3)
    assert len(load) == 120
    assert load.procs_total == 60
    largest = {2441: 49, 4385: 32, 177: 32, 50: 60}
    work_s = {True: 0.0, False: 0.0}
    for shaped, procs in zip(load.shapes, load.procs.tolist(), strict=True):
        assert shaped is not None
        linear_s = shaped.work_us / 1e6
        assert largest[round(linear_s)] == procs
        assert linear_s == pytest.approx(round(linear_s), abs=1e-4)
        assert shaped.long == (linear_s > 1000)
        assert shaped.estimate_work_us == shaped.work_us
        work_s[shaped.long] += linear_s
    assert work_s[True] / sum(work_s.values()) == pytest.approx(0.8, abs=0.01)


def test_every_load_has_its_mix() -> None:
    for load, of_long in zip(setup.LOADS, (0.8, 0.75, 2 / 3, 0.5), strict=True):
        made = setup.workload(load, 1, jobs=10_000)
        work = np.array([shaped.work_us for shaped in made.shapes if shaped is not None], np.float64)
        is_long = np.array([shaped.long for shaped in made.shapes if shaped is not None])
        assert work[is_long].sum() / work.sum() == pytest.approx(of_long, abs=0.005)
        assert is_long.mean() < 0.3
        assert work.sum() / made.submit_us[-1] / 60 == pytest.approx(load, rel=0.05)


def test_policies_meet_the_same_jobs_and_seeds_differ() -> None:
    one, again, other = (setup.simulated(run_of(MAIN, each, 1.0, 1)) for each in (BFM, BFM, FIFO))
    assert (one.end_us == again.end_us).all()
    assert (one.workload.submit_us == other.workload.submit_us).all()
    assert (one.start_us != other.start_us).any()
    assert (setup.workload(1.0, 1).submit_us != setup.workload(1.0, 2).submit_us).any()


def test_estimates_that_are_wrong_end_nobody() -> None:
    run = run_of(setup.WRONG_ESTIMATES, BFM, 1.0, 1)
    load = setup.workload(1.0, 1, estimates=run.estimates)
    parts = load.estimate_us / load.run_us
    assert 0.5 <= parts.min() < 0.6
    assert 1.4 < parts.max() <= 1.5
    found = setup.simulated(run)
    assert not found.workload.timed_out.any()
    work_s = sum(shaped.work_us for shaped in found.workload.shapes if shaped is not None) / 1e6
    assert float(measures.held(found).procs_us.sum()) / 1e6 == pytest.approx(work_s, rel=1e-3)


def test_readings_differ_from_the_main_one_and_each_other() -> None:
    names = [each.name for each in setup.READINGS]
    assert len({*names}) == len(names)
    runs = {tuple(run_of(each, preset, each.loads[0], 1) for preset in POLICIES) for each in setup.READINGS}
    assert len(runs) == len(names)
    for each in setup.READINGS:
        assert run_of(each, FIFO, 0.8, 1).fjt == "largest"  # asked for once, whatever FJT does


# --- what is measured ---------------------------------------------------------------------------------------------


def test_what_jobs_held_is_all_of_their_work() -> None:
    """Linear speed-up: processor-seconds held by a job that was never folded are its work, whatever its size."""
    found = setup.simulated(run_of(MAIN, BFA, 1.0, 1))
    held = measures.held(found)
    work_us = np.array([shaped.work_us for shaped in found.workload.shapes if shaped is not None], np.float64)
    assert held.procs_us == pytest.approx(work_us, rel=1e-3)
    assert not held.shrunk_us.any()
    assert not held.lost_us.any()


def test_aborted_attempts_are_lost_and_folded_ones_are_not() -> None:
    reading = msgspec.structs.replace(MAIN, mix={"rigid": 0.5, "rigid_procs": 32})
    aborting, folding = (measures.measured(run_of(reading, each, 1.0, 1), False) for each in (BFA, BFM))
    assert aborting.aborts > 0
    assert aborting.lost_s > 0
    assert aborting.lost == pytest.approx(aborting.lost_s / _work_s(reading), rel=1e-3)
    assert folding.aborts == folding.lost_s == 0
    assert folding.folds > 0
    assert folding.classes["short"].shrunk + folding.classes["long"].shrunk > 0


def _work_s(reading: setup.Reading) -> float:
    load = setup.workload(1.0, 1, mix=reading.mix)
    return sum(shaped.work_us for shaped in load.shapes if shaped is not None) / 1e6


def test_means_are_those_of_a_class() -> None:
    run = run_of(MAIN, FJT4, 0.8, 2)
    found, outcome = measures.measured(run, False), setup.simulated(run)
    is_long = np.array([shaped is not None and shaped.long for shaped in outcome.workload.shapes])
    waits = (outcome.start_us - outcome.workload.submit_us)[is_long] / 1e6
    of_long = found.classes["long"]
    assert of_long.wait_s == pytest.approx(waits.mean())
    assert of_long.deviation_s == pytest.approx(waits.std())
    assert of_long.response_s == pytest.approx(of_long.wait_s + of_long.execution_s)
    steady = measures.measured(run, True)
    assert steady.classes["all"].response_s != found.classes["all"].response_s  # without the first tenth


# --- claims can hold, and can fail --------------------------------------------------------------------------------


def planted(
    response: dict[str, float], *, execution: float = 10.0, aborts: int = 0, spread: float = 0.02
) -> tuple[Found, list[Claim]]:
    """Every claim on measures made up: each policy's response at every load, the rest of it alike."""
    rng = np.random.default_rng(1)
    noise = {seed: 1 + spread * rng.standard_normal() for seed in range(1, 21)}
    runs: dict[Run, Measured] = {}
    for policy, mean in response.items():
        for load in MAIN.loads:
            for seed, factor in noise.items():
                kind = OfClass(
                    response_s=mean * factor,
                    execution_s=execution,
                    wait_s=(mean - execution) * factor,
                    deviation_s=(0.5 if policy == BFM else 30.0 * load) * factor,
                    procs=(4.0 if policy == BFM else 20.0) * factor,
                    shrunk=0.99 if policy in (FJT4, FJT4_BFA) else 0.0,
                )
                runs[run_of(MAIN, policy, load, seed)] = Measured(
                    classes=dict.fromkeys(("all", "long", "short"), kind), backfilled=0, folds=1, aborts=aborts,
                    lost_s=float(aborts), lost=0.0, thirds=(0.1, 0.1, 0.1),
                )  # fmt: skip
    found = Found(MAIN, len(noise), runs)
    return found, judging.judged(found)


#: As the paper has it: BFM a quarter below BFA, FIFO worst.
AS_THE_PAPER = {FIFO: 200.0, FJT4: 100.0, FJT4_BFA: 99.0, BFA: 100.0, BFM: 75.0}
AGAINST_IT = {FIFO: 80.0, FJT4: 100.0, FJT4_BFA: 70.0, BFA: 100.0, BFM: 130.0}


def verdicts(made: list[Claim]) -> dict[str, Verdict]:
    return {claim.id: claim.verdict for claim in made}


def test_claims_hold_on_what_the_paper_reports() -> None:
    found = verdicts(planted(AS_THE_PAPER)[1])
    for claim in (
        *("bfm-response-long", "bfm-response-long-size", "bfm-response-short", "bfm-about-25", "bfm-wait"),
        *("bfm-execution", "fjt4-little-gain", "bfm-long-partition-smallest", "all-beat-fifo", "bfm-best"),
        *("bfm-deviation-near-zero", "others-deviation-grows", "fjt4-shrunk", "bfm-nobody-aborted"),
        "bfm-no-work-lost",
    ):
        assert found[claim] is Verdict.HOLDS, claim
    assert found["bfm-response-short-size"] is Verdict.FAILS  # a quarter is more than 5 to 10 %
    for equal in ("bfm-short-execution", "bfm-short-penalty-grows", "fjt4-long-execution"):
        assert found[equal] is Verdict.FAILS, equal  # all execute alike here, and alike is not longer


def test_claims_fail_on_the_contrary() -> None:
    found = verdicts(planted(AGAINST_IT, aborts=1)[1])
    for claim in (
        *("bfm-response-long", "bfm-response-long-size", "bfm-response-short", "bfm-about-25", "bfm-wait"),
        *("bfm-wait-dramatically", "fjt4-little-gain", "all-beat-fifo", "bfm-best", "bfm-nobody-aborted"),
        "bfm-no-work-lost",
    ):
        assert found[claim] is Verdict.FAILS, claim


def test_claims_on_windows_are_not_comparable_where_none_expired() -> None:
    found, _ = planted({**AS_THE_PAPER, BFM: AS_THE_PAPER[BFA]})
    unused = {run: msgspec.structs.replace(each, folds=0) for run, each in found.runs.items()}
    made = {claim.id: claim for claim in judging.judged(Found(MAIN, found.seeds, unused))}
    apart = {name for name, claim in made.items() if claim.verdict is Verdict.NOT_COMPARABLE}
    assert apart == {
        *("bfm-response-long", "bfm-response-long-size", "bfm-response-short", "bfm-response-short-size"),
        *("bfm-about-25", "bfm-wait", "bfm-execution", "bfm-short-execution"),
        *("bfm-short-penalty-grows", "bfm-nobody-aborted", "bfm-no-work-lost"),
    }
    assert made["bfm-response-long"].note.startswith("windows that expired (folds and aborts in all runs): 0, not at")
    assert made["bfm-best"].verdict is not Verdict.NOT_COMPARABLE  # three of its four cases are of other policies
    used = {claim.id: claim for claim in judging.judged(found)}
    assert used["bfm-response-long"].verdict is Verdict.FAILS
    assert used["bfm-no-work-lost"].note == "80 folds in 80 runs"


def test_noise_is_not_decided() -> None:
    """Every seed's own noise for each policy, far above the difference that is planted."""
    found, _ = planted(AS_THE_PAPER)
    rng = np.random.default_rng(7)
    noisy = {}
    for run, each in found.runs.items():
        kind = msgspec.structs.replace(each.classes["all"], response_s=float(100 + 400 * rng.random()))
        noisy[run] = msgspec.structs.replace(each, classes=dict.fromkeys(each.classes, kind))
    made = verdicts(judging.judged(Found(MAIN, found.seeds, noisy)))
    assert made["bfm-response-long"] is Verdict.UNDECIDED
    assert made["bfm-about-25"] is Verdict.UNDECIDED


def test_a_growing_queue_is_not_judged() -> None:
    found, _ = planted(AS_THE_PAPER)
    steady = msgspec.structs.replace(MAIN, steady=True)
    assert verdicts(judging.judged(Found(steady, found.seeds, found.runs)))["bfm-response-long"] is Verdict.HOLDS
    growing = {
        run: msgspec.structs.replace(each, thirds=(0.1, 0.2, 0.4)) if run.policy == BFA else each
        for run, each in found.runs.items()
    }
    made = {claim.id: claim for claim in judging.judged(Found(steady, found.seeds, growing))}
    assert made["bfm-response-long"].verdict is Verdict.NOT_COMPARABLE
    assert "grows" in made["bfm-response-long"].note
    assert made["bfm-best"].verdict is Verdict.HOLDS
    assert "8 cases left out" in made["bfm-best"].note


# --- the whole ----------------------------------------------------------------------------------------------------


def test_every_policy_class_and_load_is_in_the_figures(result: Result) -> None:
    for name in ("figure3", "figure4", "figure5", "figure6-deviation", "figure6-partition"):
        rows = [(row["jobs"], row["load"], row["policy"]) for row in result.tables[name].as_dicts()]
        assert rows == [(kind, load, policy) for kind in claims.CLASSES for load in setup.LOADS for policy in POLICIES]
        assert {f"{name}-long", f"{name}-short"} <= set(result.plots)
        assert len(result.tables[f"{name}-60-jobs"].rows) == len(rows)
    responses, waits, executions = (result.tables[f"figure{n}"].as_dicts() for n in (3, 5, 4))
    for response, wait, execution in zip(responses, waits, executions, strict=True):
        assert response["mean"] == pytest.approx(wait["mean"] + execution["mean"])
    assert [row["expired"] for row in result.tables["expired"].as_dicts()][:4] == ["abort", "fold", "remain", "suspend"]
    assert {row["at most"] for row in result.tables["rigid"].as_dicts()} == {60, 32}


def test_every_claim_has_its_verdict_in_each_reading(result: Result) -> None:
    names = [each.name for each in setup.READINGS]
    alone = {predicate.id for predicate in claims.REAL_RUNS}
    not_run = {predicate.id for predicate in claims.REAL}
    real = not_run | alone | {claims.REAL_FOLD.id}
    for claim in result.claims:
        assert list(claim.readings) == ([] if claim.id in real else names), claim.id
        if claim.id in alone | not_run:
            assert claim.note.startswith("decided by real runs alone" if claim.id in alone else "real: not run yet")
        elif claim.id in real:
            assert (claim.verdict, claim.ours) == (Verdict.HOLDS, pytest.approx(4 / 3.84))
        else:
            assert claim.readings["main"] is claim.verdict
            assert ("the same in all" in claim.note) == (len({*claim.readings.values()}) == 1)
    assert len(result.tables["readings"].rows) == len(result.claims) - len(real)
    nobody = next(claim for claim in result.claims if claim.id == "bfm-nobody-aborted")
    assert set(nobody.readings.values()) == {Verdict.HOLDS, Verdict.NOT_COMPARABLE}


def test_rate_of_folded_jobs_is_judged_by_the_table_of_what_was_measured() -> None:
    """Each row that is shipped stands in the page, and the claim is that of ranks that sleep or yield."""
    page = (Path(__file__).parents[3] / "docs/measured/folding.md").read_text(encoding="utf-8")
    found = folded.read()
    for row in found.rows:
        median, low, high = row.slower
        shown = f"{median:g} [{low:g} … {high:g}]"
        assert f"| {row.ranks} | {row.cpus} | {row.receive} | {shown} |" in page
    rows = [msgspec.structs.replace(each, receive="yield") for each in found.rows if each.receive == "poll"]
    assert folded.judged(msgspec.structs.replace(found, rows=rows)).verdict is Verdict.FAILS, "2 on 1 that poll"


def test_class_means_are_estimates_of_the_work_by_class_alone() -> None:
    load = setup.workload(1.0, 3, class_means=True)
    work = [(shaped.long, shaped.work_us, shaped.estimate_work_us) for shaped in load.shapes if shaped is not None]
    for kind in (True, False):
        told = [estimate for is_long, _, estimate in work if is_long is kind]
        true = [each for is_long, each, _ in work if is_long is kind]
        assert np.ptp(told) / np.mean(told) < 1e-5  # rounded to microseconds in the largest size
        assert np.mean(told) == pytest.approx(np.mean(true), rel=1e-5)
        assert np.ptp(true) > 0


def test_where_any_size_will_do_nobody_is_backfilled(result: Result) -> None:
    """Each of the paper's programs can run on one processor: the head waits only while nothing is free."""
    row = next(row for row in result.tables["gains"].as_dicts() if row["reading"] == "fjt=largest")
    assert row["long"] == row["short"] == row["folded"] == row["aborted"] == 0
    reading = next(each for each in setup.READINGS if each.name == "fjt=largest")
    assert measures.measured(run_of(reading, BFA, 1.0, 1), False).backfilled == 0


def test_figures_can_be_drawn(result: Result) -> None:
    for name, axes in drawn(result):
        assert axes.get_ylabel(), name
        assert axes.get_legend_handles_labels()[1], name


def test_the_result_as_json_and_as_files(result: Result, tmp_path: Path) -> None:
    manifest = results.write(replace(result, plots={"gains": result.plots["gains"]}), tmp_path / "out")
    assert {"claims.json", "readings.csv", "gains.png"} <= {each.name for each in manifest.outputs}
    told = json.loads(results.as_json(results.document(result)))
    assert all(set(claim) == CLAIM_KEYS for claim in told["claims"])
    assert told["configuration"]["scale"]["seeds"] == 2
