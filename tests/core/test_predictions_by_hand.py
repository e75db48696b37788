"""Run times that the simulated scheduler predicts (Tsafrir et al. 2007), on workloads that are worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from kit.checks import processors_are_not_over_committed, run
from kit.loads import SECOND, J, workload

from cosched.config.experiment import Experiment
from cosched.errors import BadInput
from cosched.model.job import Job
from cosched.workload.rules import Workload
from space_scheduler.machine.instructions import Tell
from space_scheduler.simulator.predicting import History


def of_one_user(jobs: list[J]) -> Workload:
    load = workload(4, jobs)
    return replace(load, user=np.ones(len(load), np.int64))


def job(submit_s: int, *, user: int = 1, estimate_s: int = 100) -> Job:
    return Job(id=9, procs=1, estimate_us=estimate_s * SECOND, submit_us=submit_s * SECOND, user=user)


def ended(*jobs: tuple[int, int, int]) -> History:
    """User 1's jobs: row, run time and end in seconds."""
    history = History()
    for row, run_s, end_s in jobs:
        history.started(1, row, run_s * SECOND, end_s * SECOND)
    return history


def test_prediction_is_the_mean_of_the_last_two_submitted_jobs_that_have_ended() -> None:
    history = ended((0, 50, 60), (1, 10, 80), (2, 30, 70), (3, 90, 200))
    assert history.prediction(job(199)) == 20 * SECOND
    assert history.prediction(job(200)) == 60 * SECOND


@pytest.mark.parametrize(
    ("asked", "predicted_s"),
    [(job(65), 100), (job(100, user=2), 100), (job(100, user=-1), 100), (job(100, estimate_s=15), 15)],
    ids=["one job has ended", "no job of the user", "unknown user", "above the estimate"],
)
def test_prediction_falls_back_to_the_estimate(asked: Job, predicted_s: int) -> None:
    assert ended((0, 10, 60), (1, 30, 70)).prediction(asked) == predicted_s * SECOND


BEFORE = [J(0, 2, 100, 10), J(0, 2, 100, 10)]


def test_job_is_backfilled_by_its_prediction() -> None:
    """At 20 job 2 starts, job 3 needs all processors, and job 4 asks for 200 s: longer than job 2's 100 s."""
    load = of_one_user([*BEFORE, J(20, 2, 100, 10), J(20, 4, 100, 10), J(20, 2, 200, 10)])
    assert (run(load, "easy").outcome.start_us / SECOND).tolist() == [0, 0, 20, 30, 40]
    done = run(load, "easy", predicted=True)
    assert (done.outcome.start_us / SECOND).tolist() == [0, 0, 20, 30, 20]
    processors_are_not_over_committed(done.outcome)


def test_outrun_prediction_is_lengthened_step_by_step_and_ends_no_job() -> None:
    """Job 2 is predicted to take 10 s and takes 200 of its 300: job 3 is promised 30, then 1 and 5 minutes more."""
    done = run(of_one_user([*BEFORE, J(20, 2, 300, 200), J(20, 4, 100, 10)]), "easy", predicted=True)
    promises = [
        each.promised_us // SECOND
        for _, _, instructions in done.seen
        for each in instructions
        if isinstance(each, Tell) and each.job_id == 3
    ]
    assert promises == [30, 90, 390]
    assert (done.outcome.start_us / SECOND).tolist() == [0, 0, 20, 220]
    assert (done.outcome.end_us / SECOND).tolist() == [10, 10, 220, 230]


def test_shortest_prediction_is_backfilled_first() -> None:
    """Two users' jobs fit beside job 4 until 120: the one whose user's jobs are short goes first."""
    jobs = [J(0, 1, 100, 40), J(0, 1, 100, 40), J(0, 1, 100, 10), J(0, 1, 100, 10)]
    load = workload(4, [*jobs, J(50, 3, 100, 100), J(50, 4, 100, 10), J(50, 1, 90, 40), J(50, 1, 90, 10)])
    load = replace(load, user=np.array([1, 1, 2, 2, 3, 3, 1, 2]))
    assert (run(load, "easy", predicted=True).outcome.start_us / SECOND).tolist()[6:] == [50, 90]
    assert (run(load, "sjbf", predicted=True).outcome.start_us / SECOND).tolist()[6:] == [60, 50]


@pytest.mark.parametrize("beside", [{"clusters": [2, 2]}, {"shapes": "shapes.csv"}, {"speed_up": "amdahl:0.1"}])
def test_predictions_beside_clusters_and_shapes_are_refused(beside: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="one machine of counted processors"):
        Experiment(estimates="predicted", **beside).checked("")  # type: ignore[arg-type]
