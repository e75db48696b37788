"""What is made of real trials: tables, verdicts, and nothing where there are none."""

from pathlib import Path

import pytest

from cosched.bench.cisne_real import CLUSTERS, RUNS, judged, plan
from cosched.bench.cisne_trial import RealJob, Trial
from cosched.bench.kept import Kept
from cosched.cli.main import main
from cosched.errors import Failed
from cosched.replicate.cisne import claims
from cosched.replicate.cisne.setup import POLICIES
from cosched.replicate.claims import Verdict

RATES = {"CG 2": (10.0, 1.5)}


def trial(policy: str, mode: str, workload: str, seed: int, run_s: float, experiment: str = "coscheduling") -> Trial:
    """Two jobs, the second of which waits for the first."""
    first = RealJob("CG", "comm", 2, 5.0, 0.0, 1.0, 1.0 + run_s, ["node1", "node2"])
    second = RealJob("BT", "cpu", 2, 5.0, 2.0, 1.0 + run_s, 1.0 + 2 * run_s, ["node1", "node2"])
    return Trial(experiment, policy, mode, workload, seed, RATES, [first, second], 60.0, 0.001, 0.01)


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
    assert "1.5 s of the 5.0 s" in result.notes[-1]


def test_a_plan_has_whole_replications_one_after_the_other() -> None:
    found = plan(list(CLUSTERS), [4, 5])
    assert [each.seed for each in found] == sorted(each.seed for each in found)
    assert len(found) == 2 * (9 + 2 * len(POLICIES))


def test_without_trials_there_is_nothing_to_judge() -> None:
    with pytest.raises(Failed, match="no trial was made; x: no control groups"):
        judged([], [], {"x": "no control groups"})


def test_trials_that_are_there_are_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = Kept(tmp_path, RUNS, Trial)
    kept.begin({}, add=False)
    for mode in ("none", "ccs"):
        kept.keep(trial("basic", mode, "SIT", 1, 10.0))
    arguments = ["replicate", "cisne", "--real", "--seeds", "0", "--add", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code
    assert "undecided" in capsys.readouterr().out
    assert (tmp_path / "jobs.parquet").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--seeds", "0"], "--real"),
        (["--add"], "--real"),
        (["--real", "--quick"], "--seeds and --experiments"),
        (["--real", "--experiments", "cosheduling"], "did you mean 'coscheduling'"),
        (["--real", "--add"], "without --out"),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replicate", "cisne", *options])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
