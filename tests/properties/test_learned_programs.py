"""A core that has to learn what programs do: the world stays the same, the next job is known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from kit.loads import J, workload
from properties.test_whatever_is_shared import shared_loads, sites

from cosched.model.coscheduling import Mode
from cosched.model.job import Job
from cosched.model.node import Node
from cosched.workload.rules import Tasks, Workload
from space_scheduler.machine import programs
from space_scheduler.machine.events import Event, JobProgress, JobSubmitted, ProgramMeasured
from space_scheduler.machine.instructions import Instruction, Start
from space_scheduler.machine.programs import Orientation, Programs
from space_scheduler.machine.record import Infeasible
from space_scheduler.plugins import resolve
from space_scheduler.progress import Sharing
from space_scheduler.simulator.host import Outcome, Site, simulate
from space_scheduler.simulator.world import Stuck


def of_programs(load: Workload, numbers: list[int]) -> Workload:
    assert load.tasks is not None
    return replace(load, tasks=Tasks(load.tasks.memory_bytes, load.tasks.cpu_permille, load.tasks.kind, numbers))


def ran(load: Workload, site: Site, policy: str) -> Outcome | None:
    try:
        return simulate(load, resolve(policy), site=site, validate=True)
    except Stuck:
        return None
    except Infeasible:
        reject()


@given(load=shared_loads(), site=sites(), data=st.data())
def test_what_the_core_knows_of_programs_changes_nothing_where_nobody_asks_for_it(
    load: Workload, site: Site, data: st.DataObject
) -> None:
    """First come first served, on the first nodes that fit, looks at no prediction."""
    count = len(load)
    load = of_programs(load, data.draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count)))
    told, learned = ran(load, site, "fcfs"), ran(load, site._replace(learns=True), "fcfs")
    assert (told is None) == (learned is None)
    if told is not None and learned is not None:
        np.testing.assert_array_equal(told.start_us, learned.start_us)
        np.testing.assert_array_equal(told.end_us, learned.end_us)


def test_programs_measured_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 2)
    known, comm = Programs(), Orientation("comm")
    for program in ("old", "again", "old", "new"):
        known.learn(program, comm)
    jobs = [Job(1, 1, 1, 0, program=program) for program in ("old", "again", "new")]
    assert [known.known(job).kind for job in jobs] == ["comm", "", "comm"]


def test_a_program_is_placed_by_what_was_measured_of_its_last_job() -> None:
    minute = 60
    jobs = [J(0, 2, 10 * minute, 10 * minute), J(3600, 1, 600, 600), J(3610, 2, 10 * minute, 10 * minute)]
    load = workload(8, jobs)
    tasks = Tasks(np.zeros(3, np.int64), np.array([400, 1000, 400]), ("comm", "cpu", "comm"), (7, 8, 7))
    site = Site(
        [Node(f"n{at}", 2, 1 << 30, 1) for at in range(3)],
        sharing=Sharing(Mode.NONE, {"comm": {"comm": 700, "cpu": 400}, "cpu": {"comm": 30, "cpu": 100}}),
        learns=True,
    )
    seen: list[tuple[Event, list[Instruction]]] = []
    simulate(
        replace(load, tasks=tasks), resolve("normal"), site=site,
        observer=lambda _, event, instructions: seen.append((event, instructions)),
    )  # fmt: skip
    submitted = [event.job for event, _ in seen if isinstance(event, JobSubmitted)]
    started = [each.job for _, found in seen for each in found if isinstance(each, Start)]
    assert [(job.kind, job.cpu_permille) for job in submitted] == [("", 1000)] * 3
    assert [(job.kind, job.cpu_permille) for job in started] == [("", 1000), ("", 1000), ("comm", 400)]
    learned = [event for event, _ in seen if isinstance(event, ProgramMeasured)]
    assert learned[0] == ProgramMeasured("-1:7", "comm", 400)


def test_the_core_hears_of_jobs_that_are_slower_than_it_predicts() -> None:
    """Two jobs that communicate share each of their CPUs; unknown to the core, that costs them much."""
    jobs = [J(0, 2, 1000, 1000), J(0, 2, 1000, 1000)]
    tasks = Tasks(np.zeros(2, np.int64), np.array([1000, 1000]), ("comm", "comm"), (7, 8))
    site = Site(
        [Node(f"n{at}", 2, 1 << 30, 1) for at in range(2)],
        sharing=Sharing(Mode.NONE, {"comm": {"comm": 1000}}),
        learns=True,
    )
    told: list[tuple[int, int]] = []
    found = simulate(
        replace(workload(4, jobs), tasks=tasks), resolve("fcfs"), site=site,
        observer=lambda at, event, _: told.append((at, event.done_us)) if isinstance(event, JobProgress) else None,
    )  # fmt: skip
    assert found.end_us.tolist() == [4000_000_000, 4000_000_000], "half the CPU, at twice the cost"
    assert told, "the core predicts half the rate alone"
    for at_us, done_us in told:
        assert abs(done_us - at_us / 4) <= 1, "a quarter of the time that has passed"
    # a prediction is off by 10 s of the work by its rate and a hundredth, 10 s each, before it is set right
    assert 2 * 70 <= len(told) <= 2 * 101
