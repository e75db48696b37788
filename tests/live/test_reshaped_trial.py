"""Workloads of jobs that change shape on a lab, as "cosched replicate adaptive --real" runs them, with few jobs."""

import pytest

from cosched.apps.experiments import reshaped_real as real
from cosched.apps.experiments import reshaped_results as results
from cosched.apps.experiments import reshaped_trial as trial
from cosched.apps.experiments.jobs import Cannot

pytestmark = pytest.mark.xdist_group("live")


@pytest.mark.long
@pytest.mark.parametrize("paper", sorted(real.EXPERIMENTS))
def test_jobs_are_run_to_their_ends_and_their_answers_are_right(paper: str) -> None:
    experiment = real.EXPERIMENTS[paper]._replace(jobs=5, scale=0.02)
    said: list[str] = []
    try:
        alone = trial.rates(experiment, said.append)
    except Cannot as error:
        pytest.skip(str(error))
    assert alone.rate > 0
    runs = [trial.run(experiment, arm, 1, alone, said.append) for arm in experiment.arms]
    for arm, found in zip(experiment.arms, runs, strict=True):
        assert [job.state for job in found.jobs] == ["completed"] * 5
        assert found.verified == 5
        assert {job.job_id: job.work for job in found.jobs} == {job.job_id: job.work for job in runs[0].jobs}
        assert results.changes(found) == 0 or arm.shaped
        assert {each.name for each in found.measures} >= {"mean response s", "makespan s"}
    if paper == "adaptive":
        assert runs[0].digests == runs[1].digests
        assert len(runs[0].digests) == 5
