"""What is made of real trials: tables, verdicts, and nothing where there are none."""

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest

from cosched.apps.cli.main import main
from cosched.apps.experiments import cisne_pairs, contract
from cosched.apps.experiments.cisne_real import ARMS, drift
from cosched.apps.experiments.cisne_results import report
from cosched.apps.experiments.cisne_trial import RealJob, Trial
from cosched.apps.experiments.run_log import RunLog
from cosched.apps.experiments.trials import RUNS, plan
from cosched.apps.experiments.trials import judged as judged_by
from cosched.apps.replicate import result as results
from cosched.apps.replicate.cisne import claims
from cosched.apps.replicate.cisne.setup import POLICIES, WORKLOADS
from cosched.apps.replicate.claims import Claim, Verdict

judged = partial(judged_by, "cisne", report=partial(report, waits_ms={}))
RATES = {"CG 2": (10.0, 1.5), "BT 2": (0.3, 1.5)}


def trial(
    policy: str, mode: str, workload: str, seed: int, run_s: float, experiment: str = "coscheduling", ratio: float = 0
) -> Trial:
    """Two jobs, the second of which waits for the first."""
    first = RealJob("CG", "comm", 2, 5.0, 0.0, 1.0, 1.0 + run_s, ["node1", "node2"])
    second = RealJob("BT", "cpu", 2, 5.0, 2.0, 1.0 + run_s, 1.0 + 2 * run_s, ["node1", "node2"])
    ratio = ratio or WORKLOADS[workload]
    taken = {"steal": 0.001, "others": 0.01}
    return Trial(experiment, policy, mode, workload, seed, RATES, [first, second], 60.0, ratio=ratio, **taken)


def test_a_trials_measures_are_means_over_its_jobs() -> None:
    found = trial("basic", "ccs", "SIT", 1, 10.0).measured
    assert (found.wait_s, found.execution_s, found.turnaround_s, found.makespan_s) == (5.0, 10.0, 15.0, 21.0)


def test_ccs_is_held_against_plain_linux_seed_by_seed() -> None:
    trials = [
        trial("3dbf-light(any-owners)", mode, "SIT", seed, seconds * (1 + seed / 10))
        for seed in (1, 2, 3)
        for mode, seconds in (("none", 10.0), ("ccs", 8.0))
    ]
    found = {claim.id: claim for claim in judged(trials, [{}], {"a": "b"}).claims}
    assert found[claims.CCS_SIT.id].verdict is Verdict.HOLDS
    assert found[claims.CCS_SIT.id].ours == pytest.approx(-0.2)
    assert found[claims.CCS_DIT.id].verdict is Verdict.UNDECIDED
    assert found[claims.MPL_TURNAROUND.id].verdict is Verdict.UNDECIDED
    assert len(found) == len(claims.COMPARED) + len(claims.REAL_ALONE) + 1


def test_claims_on_a_load_that_is_not_the_papers_are_not_comparable() -> None:
    """Trials of before have no ratio, and a DIT of 1, a load of 29 %."""

    def made(ratio: float) -> dict[str, Claim]:
        trials = [
            trial("normal", mode, "DIT", seed, seconds + seed, ratio=ratio)
            for seed in (1, 2, 3)
            for mode, seconds in (("none", 20.0), ("ccs", 16.0))
        ]
        trials += [
            trial(policy, "ccs", load, seed, seconds + seed, "policies", ratio if load == "DIT" else 0)
            for policy, seconds in (("uniform-hard", 10.0), ("normal", 20.0))
            for load in WORKLOADS
            for seed in (1, 2, 3)
        ]
        if ratio == 1:
            trials = [msgspec.structs.replace(each, ratio=None) for each in trials]
        return {claim.id: claim for claim in judged(trials, [{}], {}).claims}

    before, now = made(1.0), made(WORKLOADS["DIT"])
    for claim in (claims.CCS_DIT, claims.MAKESPAN_HARD, claims.HARD_DIT):
        assert before[claim.id].verdict is Verdict.NOT_COMPARABLE, claim.id
        assert "DIT: time between arrivals over execution time: 1, not exactly 0.4" in before[claim.id].note
        assert now[claim.id].verdict is not Verdict.NOT_COMPARABLE, claim.id
    assert before[claims.HARD_SIT.id] == now[claims.HARD_SIT.id]
    size = now[claims.CCS_DIT_SIZE.id]
    assert size.verdict is Verdict.NOT_COMPARABLE
    assert size.note.startswith("nodes: 2, not exactly 16; load: 2.5, not between 0.656 and 0.802")


def test_trials_of_another_load_are_made_anew_and_left_out_of_verdicts() -> None:
    policies = {"policies": ARMS["policies"]}
    made = [trial(each.arm[0], each.arm[1], each.arm[2], 1, 10.0, "policies") for each in plan(policies, 1, [])]
    old = [msgspec.structs.replace(each, ratio=None) for each in made]
    assert [each.arm[2] for each in plan(policies, 0, old)] == ["DIT"] * len(POLICIES)
    both = judged([*old, *made], [{}], {})
    assert all(claim.verdict is not Verdict.NOT_COMPARABLE for claim in both.claims)
    assert len(both.tables["jobs"].rows) == 2 * len(made) * 2  # the raw data has all


def test_policies_are_compared_on_what_both_ran() -> None:
    trials = [
        trial(policy, "ccs", "SIT", seed, 10.0 + at + seed, "policies")
        for at, policy in enumerate(("3dbf-light", "basic"))
        for seed in ((1, 2, 3, 4) if policy == "basic" else (1, 2, 3))
    ]
    result = judged(trials, [{}], {})
    found = {claim.id: claim for claim in result.claims}
    assert found[claims.BEST_SIT.id].verdict is Verdict.HOLDS
    assert len(result.tables["jobs"].rows) == 2 * 7
    assert "starts" not in result.notes[0]
    assert result.notes[-1].startswith("policies: 7 trials in 7 min")
    assert "1.5 s of the 5.0 s" in result.notes[-1]
    assert "50% of the jobs are a start and a single iteration" in result.notes[-1]


def test_how_much_faster_the_machine_has_become_is_told() -> None:
    assert drift({"a": (12.0, 1.0), "b": (11.0, 9.0), "c": (5.0, 1.0)}, {"a": (10.0, 1.0), "b": (10.0, 1.0)}) == 0.15


def loaded(policy: str, seed: int, *, longer: float) -> Trial:
    """Thirty jobs of two tasks that come at once and take 20 s alone; each ended so many times later than submitted."""
    jobs = [RealJob("BT", "cpu", 2, 20.0, float(at), float(at), at + 20 * longer + seed, []) for at in range(30)]
    return Trial("policies", policy, "ccs", "SIT", seed, RATES, jobs, 60.0)


def test_pairs_of_policies_have_the_simulators_sign_or_the_other() -> None:
    """Sixteen nodes take eight computing jobs at a time under basic; under normal they share, and all take longer."""
    one = cisne_pairs.simulated(loaded("basic", 1, longer=1.0))
    many = cisne_pairs.simulated(loaded("normal", 1, longer=1.0))
    assert one.wait_s > 3 * many.wait_s
    assert many.execution_s > 2 * one.execution_s >= 2 * 20
    assert many.turnaround_s > one.turnaround_s

    def says(basic: float, normal: float) -> dict[str, str]:
        made = [loaded("basic", seed, longer=basic) for seed in (1, 2, 3)]
        made += [loaded("normal", seed, longer=normal) for seed in (1, 2, 3)]
        return {row["measure"]: row["says"] for row in cisne_pairs.compare(made)[0].as_dicts()}

    assert set(says(2.0, 3.0).values()) == {cisne_pairs.SAME}
    assert set(says(3.0, 2.0).values()) == {cisne_pairs.OTHER}
    assert set(says(2.0, 2.0).values()) == {cisne_pairs.OPEN}


def test_one_seed_decides_no_pair_and_draws_no_interval(tmp_path: Path) -> None:
    result = judged([loaded("basic", 1, longer=2.0), loaded("normal", 1, longer=3.0)], [{}], {})
    assert {row["says"] for row in result.tables["pairs"].as_dicts()} == {cisne_pairs.OPEN}
    assert sum("of 0 whose real difference" in note and "1 are not decided" in note for note in result.notes) == 3
    assert result.tables["figure8"].notes == ["SIT: 1 seeds that all of its 2 policies here have run"]
    results.write(result, tmp_path)
    assert {"figure8.png", "pairs.parquet", "jobs.parquet"} <= {path.name for path in tmp_path.iterdir()}


def test_where_the_simulator_sees_no_difference_it_has_no_sign() -> None:
    """Of jobs of one size none can be put before another."""
    made = [
        loaded(policy, seed, longer=2.0 + 0.5 * (policy == "2dbf"))
        for policy in ("basic", "2dbf")
        for seed in (1, 2, 3)
    ]
    simulated = [cisne_pairs.simulated(each).makespan_s for each in made[::3]]
    assert simulated[0] == simulated[1]
    says = {row["measure"]: row["says"] for row in cisne_pairs.compare(made)[0].as_dicts()}
    assert says["makespan"] == cisne_pairs.NONE


def test_trials_that_are_there_are_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = RunLog(tmp_path, RUNS, Trial)
    kept.begin({}, add=False)
    for mode in ("none", "ccs"):
        kept.keep(trial("basic", mode, "SIT", 1, 10.0))
    arguments = ["replicate", "cisne", "--real", "--seeds", "0", "--add", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code
    assert "undecided" in capsys.readouterr().out
    assert (tmp_path / "jobs.parquet").exists()


def test_what_owners_wait_is_judged_from_the_contracts_runs_beside_the_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = RunLog(tmp_path, RUNS, Trial)
    kept.begin({}, add=False)
    kept.keep(trial("basic", "ccs", "SIT", 1, 10.0))
    felt = RunLog(tmp_path, contract.RUNS, contract.Measured)
    felt.begin({}, add=False)
    for condition, wait_s in (("ccs", 0.5), (contract.UNPROTECTED, 0.01), ("none", 0.001)):
        for more_s in (0.0, 0.001, 0.002):
            waits = dict.fromkeys(contract.CALLS, wait_s + more_s)
            felt.keep(contract.Measured(4, condition, contract.Felt(waits, waits, waits, 0.5)))
    with pytest.raises(SystemExit):
        main(["replicate", "cisne", "--real", "--seeds", "0", "--add", "--out", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    (claim,) = (each for each in found["claims"] if each["id"] == claims.LATENCY.id)
    assert claim["verdict"] == "fails"
    assert claim["ours"] == pytest.approx(502.0)
    assert [row["mode"] for row in found["tables"]["figure10"]["rows"]] == ["ccs", "none"]
    assert (tmp_path / "figure10.png").exists()
