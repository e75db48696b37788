"""What is made of real runs of jobs that change shape: an order of trials, tables, verdicts."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from cosched.apps.cli.main import main
from cosched.apps.experiments import reshaped_results as results
from cosched.apps.experiments.reshaped_real import ADAPTIVE, EXPERIMENTS
from cosched.apps.experiments.reshaped_trial import Alone, Trial, _plan
from cosched.apps.experiments.trials import Trials
from cosched.apps.experiments.trials import judged as judged_by
from cosched.apps.play.results import PlayedJob
from cosched.apps.play.submissions import Base
from cosched.apps.replicate.adaptive import claims as adaptive
from cosched.apps.replicate.bfm import claims as bfm
from cosched.apps.replicate.bfm.setup import BFA, BFM, FIFO
from cosched.apps.replicate.claims import Claim, Verdict
from cosched.errors import Failed
from space_scheduler.plugins import resolve

ALONE = Alone(40.0, 0.5)


def job(number: int, response_s: float, *, kind: str = "", starts: int = 1) -> PlayedJob:
    """It came at 10 s times its number, waited for a second, and had two processors, then one for its last second."""
    at_s = 10.0 * number
    return PlayedJob(
        job_id=number, number=number, program="adaptive", job_class=kind, tasks=2, work=10, planned_run_s=5.0,
        limit_s=100.0, part=1, due_s=at_s, late_s=0.0, submit_s=at_s, start_s=at_s + 1, end_s=at_s + response_s,
        state="completed", starts=starts, wait_s=1.0, run_s=response_s - 1, response_s=response_s,
        held_s=[at_s + 1, at_s + response_s - 1], held_processes=[2, 2], held_cpus=[2, 1],
        held_why=["fits", "folded"],
    )  # fmt: skip


def trial(paper: str, arm: str, seed: int, response_s: float, *, aborts: int = 0, digest: str = "a") -> Trial:
    classes = ("long", "short") if paper == "bfm" else ("", "")
    jobs = [job(number, response_s, kind=kind) for number, kind in enumerate(classes)]
    return Trial(
        paper=paper, arm=arm, seed=seed, procs=4, alone=ALONE, jobs=jobs, verified=2, digests={"0": digest},
        measures=[], aborts=aborts, took_s=60.0,
    )  # fmt: skip


said = partial(judged_by, report=results.report)


def judged(paper: str, runs: list[Trial], cores: int = 4) -> dict[str, Claim]:
    hows = [{"machine": f"Linux 6.1, {cores} x Some(R) CPU"}]
    return {claim.id: claim for claim in said(paper, runs, hows, {}).claims}


def test_measures_of_a_trial() -> None:
    one = trial("adaptive", results.TRADITIONAL, 1, 6.0)
    assert (results.wait_s(one), results.run_s(one), results.response_s(one)) == (1.0, 5.0, 6.0)
    assert results.makespan_s(one) == 16.0
    assert results.allocated(one) == pytest.approx(2 * (2 * 4 + 1 * 1) / (4 * 16))
    assert results.asked(one) == pytest.approx(2 * 5 * 2 / (4 * 20))
    assert (results.changes(one), results.changes(one, "folded"), results.restarts(one)) == (2, 2, 0)


def test_adaptive_is_held_against_traditional_seed_by_seed() -> None:
    trials = [
        trial("adaptive", arm, seed, seconds + seed)
        for seed in (1, 2, 3)
        for arm, seconds in (("traditional", 20.0), ("equipartition", 10.0))
    ]
    found = judged("adaptive", trials)
    assert found[adaptive.REAL_RESPONSE.id].verdict is Verdict.HOLDS
    assert found[adaptive.REAL_RESPONSE.id].ours == pytest.approx(12 / 22 - 1)
    one = judged("adaptive", trials[:2])[adaptive.REAL_RESPONSE.id]
    assert one.verdict is Verdict.UNDECIDED
    assert "too few replications" in one.note
    assert judged("adaptive", trials[:1])[adaptive.REAL_RESPONSE.id].note == "no seed has both"


def test_response_is_not_comparable_where_processors_share_cores() -> None:
    arms = (("traditional", 10.0), ("equipartition", 20.0))
    trials = [trial("adaptive", arm, seed, seconds + seed) for seed in (1, 2, 3) for arm, seconds in arms]
    assert judged("adaptive", trials)[adaptive.REAL_RESPONSE.id].verdict is Verdict.FAILS
    shared = judged("adaptive", trials, cores=2)
    claim = shared[adaptive.REAL_RESPONSE.id]
    assert (claim.verdict, claim.note) == (Verdict.NOT_COMPARABLE, "processors for each core: 2, not at most 1")
    assert shared[adaptive.REAL_UTILISATION.id].verdict is not Verdict.NOT_COMPARABLE  # of allocations
    assert said("adaptive", trials, [{}], {}).claims[0].verdict is Verdict.FAILS  # a machine that says nothing


def test_a_size_rests_on_processors_and_the_papers_load() -> None:
    def runs(*responses: float) -> list[Trial]:
        bases = [trial("bfm", BFA, seed, 20.0) for seed in range(len(responses))]
        made = bases + [trial("bfm", BFM, seed, each) for seed, each in enumerate(responses)]
        return [
            msgspec.structs.replace(each, jobs=[msgspec.structs.replace(job, planned_run_s=20.0) for job in each.jobs])
            for each in made
        ]

    sharp, wide = judged("bfm", runs(15.0, 15.02, 14.98)), judged("bfm", runs(11.0, 19.0, 15.0))
    low = [trial("bfm", arm, seed, 20.0) for arm in (BFA, BFM) for seed in (1, 2, 3)]
    assert judged("bfm", low)[bfm.REAL_BFM_LONG.id].note.startswith("load asked: 0.25, not between 0.9 and 1.1")
    assert judged("bfm", runs(15.0, 15.0, 15.0), cores=2)[bfm.REAL_BFM_LONG.id].verdict is Verdict.NOT_COMPARABLE
    assert sharp[bfm.REAL_BFM_LONG.id].verdict is Verdict.HOLDS
    assert sharp[bfm.REAL_BFM_SHORT.id].verdict is Verdict.FAILS
    assert sharp[bfm.REAL_BFM.id].verdict is Verdict.HOLDS
    assert wide[bfm.REAL_BFM_LONG.id].verdict is Verdict.UNDECIDED
    assert wide[bfm.REAL_BFM_LONG.id].ours == pytest.approx(-0.25)
    assert wide[bfm.REAL_BFM.id].verdict is Verdict.UNDECIDED
    assert sharp[bfm.REAL_FIFO.id].verdict is Verdict.UNDECIDED


def test_that_nobody_is_aborted_says_nothing_where_nobody_is_folded() -> None:
    folded = trial("bfm", BFM, 1, 10.0)
    unfolded = msgspec.structs.replace(
        folded, jobs=[msgspec.structs.replace(each, held_why=["fits", "unfolded"]) for each in folded.jobs]
    )
    assert judged("bfm", [folded])[bfm.REAL_NO_JOB_ABORTED.id].verdict is Verdict.HOLDS
    assert judged("bfm", [unfolded])[bfm.REAL_NO_JOB_ABORTED.id].verdict is Verdict.UNDECIDED
    aborted = msgspec.structs.replace(folded, aborts=1)
    assert judged("bfm", [aborted])[bfm.REAL_NO_JOB_ABORTED.id].verdict is Verdict.FAILS


def test_answers_of_other_bits_are_told() -> None:
    same = said("adaptive", [trial("adaptive", arm, 1, 9.0) for arm in ("traditional", "equipartition")], [{}], {})
    assert "answers: 1 of 1 jobs have the same bits in all runs of their seed" in same.notes
    other = [trial("adaptive", "traditional", 1, 9.0), trial("adaptive", "equipartition", 1, 9.0, digest="b")]
    notes = said("adaptive", other, [{}], {"x": "no control groups"}).notes
    assert "answers: 0 of 1 jobs have the same bits in all runs of their seed" in notes
    assert "not run: x: no control groups" in notes


def test_how_much_faster_a_processor_is_than_its_part_is_told() -> None:
    one = trial("adaptive", "traditional", 1, 6.0)
    alone = [msgspec.structs.replace(each, work=100, held_cpus=[1, 1]) for each in one.jobs]
    single = msgspec.structs.replace(one, jobs=alone)
    assert results.faster([one]) is None
    assert results.faster([one, single]) == pytest.approx((100 / 5) / (40 / 4))
    assert any("ran 2.0 times as fast" in note for note in said("adaptive", [single], [{}], {}).notes)


def test_policies_are_those_of_the_papers() -> None:
    for experiment in EXPERIMENTS.values():
        for arm in experiment.arms:
            assert resolve(arm.policy)


def test_jobs_have_the_same_work_in_both_arms(tmp_path: Path) -> None:
    base = Base("/", {"PATH": "/bin"}, 0o022)
    fixed, shaped = (_plan(ADAPTIVE, arm, 3, ALONE, tmp_path, base) for arm in ADAPTIVE.arms)
    assert len(fixed) == len(shaped) == 50
    for rigid, wide in zip(fixed, shaped, strict=True):
        assert rigid.work == wide.work
        assert rigid.at_us == wide.at_us
        assert wide.submission.min_tasks == rigid.submission.tasks == rigid.tasks
        assert (wide.submission.max_tasks, rigid.submission.max_tasks) == (4, None)
        assert rigid.submission.environment["PLAY_WORK"] == wide.submission.environment["PLAY_WORK"] == str(wide.work)
        assert rigid.run_us == pytest.approx(1e6 * (0.5 + wide.work / (10 * rigid.tasks)), abs=1)


def test_trials_that_are_there_are_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = Trials(tmp_path, Trial, print)
    kept.log.begin(ADAPTIVE.told(), add=False)
    for arm in ("traditional", "equipartition"):
        kept.log.keep(trial("adaptive", arm, 1, 9.0))
    with pytest.raises(SystemExit) as ended:
        main(["replicate", "adaptive", "--real", "--seeds", "0", "--add", "--out", str(tmp_path)])
    assert not ended.value.code
    assert "undecided" in capsys.readouterr().out
    assert (tmp_path / "runs.csv").exists()
    assert len(Trials(tmp_path, Trial, print).made) == 2


def test_without_a_job_that_ran_there_is_nothing_to_judge() -> None:
    none = msgspec.structs.replace(trial("bfm", FIFO, 1, 9.0), jobs=[])
    with pytest.raises(Failed, match="no job ran in the trial of fifo"):
        said("bfm", [none], [{}], {})
