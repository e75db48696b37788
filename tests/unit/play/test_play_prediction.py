"""What the simulator is told of a play: run times of jobs that changed their shape, and in which order jobs came."""

import msgspec
import pytest

from cosched.apps.play.prediction import predicted, time_as_asked_s
from cosched.apps.play.results import PlayedJob
from cosched.apps.play.submissions import PlannedJob
from cosched.wire.api import NodeDoc, Submission


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


def test_jobs_come_in_the_order_in_which_the_service_had_them() -> None:
    """A play that was killed and goes on finds one that it had submitted, and counts its time from then on.

    (Found in CI: the simulator said that time went back.)
    """
    played = [
        msgspec.structs.replace(
            ran((9.9, 2, 2)),
            job_id=number,
            submit_s=of_the_play_s,
            submit_time=f"2026-11-26T12:00:{of_the_day_s:02}+00:00",
            wait_s=1.0,
            response_s=21.0,
        )
        for number, of_the_play_s, of_the_day_s in ((1, 0.0, 0), (2, 6.0, 3), (3, 5.0, 16))
    ]
    asked = Submission(script="true", tasks=2, time_limit_s=60.0, directory="/")
    plan = [PlannedJob(each.job_id, 0, "x", 2, 20_000_000, 1, None, asked) for each in played]
    node = NodeDoc(name="a", state="up", procs=4, memory_bytes=1 << 30)
    told = predicted(plan, played, [node], "easy", bound_s=10.0)
    assert told is not None
    assert (told.jobs, told.unfit) == (3, 0)
