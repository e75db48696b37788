"""The real run time of a job that changed its shape, as the simulator is to have it."""

import pytest

from cosched.apps.play.prediction import time_as_asked_s
from cosched.apps.play.results import PlayedJob


def ran(*held: tuple[float, int, int], tasks: int = 2, starts: int = 1) -> PlayedJob:
    """A job that ran from 10 to 30 and held this: from when on, processes, CPUs."""
    times, processes, cpus = zip(*held, strict=True)
    return PlayedJob(
        job_id=1,
        program="x",
        job_class="",
        tasks=tasks,
        work=1,
        planned_run_s=20.0,
        limit_s=60.0,
        due_s=0.0,
        start_s=10.0,
        end_s=30.0,
        run_s=20.0,
        state="completed",
        starts=starts,
        held_s=list(times),
        held_processes=list(processes),
        held_cpus=list(cpus),
    )


@pytest.mark.parametrize(
    ("job", "seconds"),
    [
        (ran((9.9, 2, 2)), 20),
        (ran((9.9, 2, 2), (14, 2, 1), (24, 2, 2)), 4 + 10 / 2 + 6),  # folded for ten seconds
        (ran((9.9, 2, 2), (14, 2, 0), (24, 2, 2)), 4 + 6),  # suspended for ten
        (ran((9.9, 3, 3), (20, 3, 2), tasks=3), 10 + 10 / 2),  # the most loaded CPU has two of the three
        (ran((9.9, 1, 1)), 10),  # started with half of its tasks
        (ran((9.9, 4, 4), (20, 2, 2), tasks=4), 10 + 5),  # shrunk
        (ran((9.9, 2, 2), (9.95, 2, 1)), 10),  # folded before it ran
        (ran((9.9, 2, 2), (14, 2, 1), starts=2), 20),  # what it held before its last start says nothing of that
    ],
)
def test_it_is_as_with_all_tasks_on_cpus_of_their_own(job: PlayedJob, seconds: float) -> None:
    assert time_as_asked_s(job) == pytest.approx(seconds)
