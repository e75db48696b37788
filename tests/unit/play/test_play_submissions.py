"""Which jobs are submitted when: a log on a time scale, with its shapes and its programs."""

import random
from pathlib import Path
from typing import Any

from kit.command import JOBS
from kit.snapshots import Snapshot, refusals

from cosched.apps.play.play_log import job_name, number_in
from cosched.apps.play.program_map import ProgramMap
from cosched.apps.play.submissions import Base, Plan, PlaySettings, planned
from cosched.workload.shapes import Work

MAP = """\
programs:
  two: {run: exec two, rate: [[1, 3], [2, 5], [4, 8]], memory: 1MiB, kind: comm, requeue: true, coscheduling: ccs}
jobs: [{program: two}]
"""
BASE = Base("/tmp", {"PATH": "/bin"}, 0o22)


def plan(tmp_path: Path, shapes: str = "", procs: int = 4, log: str = JOBS, **settings: Any) -> Plan:
    (tmp_path / "map.yaml").write_text(MAP)
    (tmp_path / "log.swf").write_text(log)
    (tmp_path / "shapes.csv").write_text(shapes)
    lines = tmp_path / "shapes.csv" if shapes else None
    programs = ProgramMap(tmp_path / "map.yaml")
    return planned(tmp_path / "log.swf", programs, lines, PlaySettings(**settings), procs, BASE)


def test_the_scale_is_of_times_and_of_work_alike(tmp_path: Path) -> None:
    jobs = plan(tmp_path, scale=0.1).jobs
    assert [job.number for job in jobs] == [1, 2, 3, 4, 5]
    assert [job.at_us / 1e6 for job in jobs] == [0, 1, 2, 3, 4]
    assert [job.run_us / 1e6 for job in jobs] == [10, 10, 5, 6, 6]
    assert [job.tasks for job in jobs] == [2, 2, 4, 1, 1]
    assert [job.work for job in jobs] == [50, 50, 40, 18, 18]
    assert [job.submission.time_limit_s for job in jobs] == [30, 20, 16, 17, 40]  # ten seconds above the request
    assert [job.work for job in plan(tmp_path, scale=1.0).jobs] == [500, 500, 400, 180, 180]


def test_the_service_is_told_all_that_the_map_says(tmp_path: Path) -> None:
    told = plan(tmp_path, margin_us=0, scale=0.5).jobs[0].submission
    seed = told.environment.pop("PLAY_SEED")
    assert told.environment == {
        "PATH": "/bin",
        "PLAY_JOB": "1",
        "PLAY_WORK": "250",
        "PLAY_SECONDS": "50.000000",
        "PLAY_TASKS": "2",
    }
    assert 0 < int(seed) < 1 << 31
    assert (told.script, told.tasks, told.memory_bytes, told.kind) == ("#!/bin/sh\nexec two\n", 2, 1 << 20, "comm")
    assert (told.coscheduling, told.requeue, told.directory, told.umask) == ("ccs", True, "/tmp", 0o22)
    assert told.time_limit_s == 100


def test_all_of_a_programs_jobs_are_alike_for_the_service_but_for_their_variables(tmp_path: Path) -> None:
    assert len({(job.submission.script, job.submission.arguments) for job in plan(tmp_path).jobs}) == 1


def test_the_first_ones_alone(tmp_path: Path) -> None:
    whole = plan(tmp_path).jobs
    assert plan(tmp_path, limit=2).jobs == whole[:2]


def test_the_same_seed_gives_the_same_plan(tmp_path: Path) -> None:
    random.seed(1)
    first = plan(tmp_path, estimates="factor:4", seed=7)
    assert plan(tmp_path, estimates="factor:4", seed=7) == first
    other = plan(tmp_path, estimates="factor:4", seed=8)
    limits = [[job.submission.time_limit_s for job in each.jobs] for each in (first, other)]
    assert limits[0] != limits[1]
    assert all(
        job.run_us / 1e6 + 10 <= (job.submission.time_limit_s or 0) <= 4 * job.run_us / 1e6 + 10 for job in first.jobs
    )


def test_shapes_become_what_submit_takes(tmp_path: Path) -> None:
    shapes = "job_id,class,sizes,min,max,fold\n1,long,1-4,,,no\n2,short,,1,3,yes\n3,long,,,,\n"
    jobs = plan(tmp_path, shapes).jobs
    told = [job.submission for job in jobs]
    assert [(each.sizes, each.min_tasks, each.max_tasks, each.tasks) for each in told] == [
        ("1-4", None, None, 1),
        (None, 1, 3, 1),
        (None, None, None, 4),
        (None, None, None, 1),
        (None, None, None, 1),
    ]
    assert [each.job_class for each in told] == ["long", "short", "long", None, None]
    assert [each.fold for each in told] == [False, True, True, None, None]


def test_a_job_of_several_sizes_is_counted_on_at_its_largest_there(tmp_path: Path) -> None:
    """200 processor-seconds are 50 s on 4 processors, 8 units a second there."""
    job = plan(tmp_path, "job_id,sizes\n1,pow2\n").jobs[0]
    assert (job.tasks, job.run_us, job.work) == (4, 50_000_000, 400)
    job = plan(tmp_path, "job_id,sizes\n1,pow2\n", procs=3).jobs[0]
    assert (job.tasks, job.run_us, job.work) == (2, 100_000_000, 500)


def test_linear_work_is_the_time_on_one_processor(tmp_path: Path) -> None:
    assert [job.run_us / 1e6 for job in plan(tmp_path, work=Work.LINEAR).jobs] == [50, 50, 12.5, 60, 60]


def test_what_is_wider_than_the_cluster_is_submitted_all_the_same(tmp_path: Path) -> None:
    """The service refuses it, and that is a result like others."""
    assert [job.tasks for job in plan(tmp_path, procs=1).jobs] == [2, 2, 4, 1, 1]
    assert [job.tasks for job in plan(tmp_path, "job_id,sizes\n3,4\n4,1\n", procs=1).jobs] == [2, 2, 4, 1, 1]


def test_what_cannot_be_planned_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    """Settings by their option, logs, evolving jobs, and numbers that come twice."""
    scales = ({"scale": each} for each in (0.0, -1.0, float("nan"), float("inf")))
    logs = ({"log": "; MaxProcs: 4\n"}, {"log": "this is no log\n"})
    shapes = (
        {"shapes": "job_id,min,max,evolve\n1,1,2,50%:+1\n"},
        {"shapes": "job_id,sizes\n1,1-2\n", "log": JOBS + JOBS},
    )
    others = ({"estimates": "exakt"}, {"speed_up": "amdal:1"})
    snapshot(refusals(lambda settings: plan(tmp_path, **settings), *scales, *others, *logs, *shapes))


def test_what_was_skipped_of_the_log_is_counted(tmp_path: Path) -> None:
    made = plan(tmp_path, log=JOBS + " 6 -5 -1 60 1 -1 -1 1 300 -1 1 3 1 -1 -1 -1 -1 -1\n")
    assert len(made.jobs) == 5
    assert made.skipped == {"negative_time": 1}


def test_a_jobs_name_tells_the_play_and_the_number() -> None:
    name = job_name("cg", "play-0a1b2c3d", 17)
    assert name == "cg play-0a1b2c3d.17"
    assert number_in(name, "play-0a1b2c3d") == 17
    assert number_in(name, "play-ffffffff") is None
    assert number_in("cg", "play-0a1b2c3d") is None
    assert number_in("cg play-0a1b2c3d.x", "play-0a1b2c3d") is None
