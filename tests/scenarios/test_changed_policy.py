"""Another policy in mid-run, while jobs are on their way from one shape to another."""

import pytest
from kit.drive import Drive, policy_named
from kit.mutants import FailsFor

from cosched.model.job import Job
from cosched.model.width import Range
from space_scheduler.machine import events as ev
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve

SECOND = 1_000_000


def test_who_starts_later_than_planned_since_another_gives_way_late_moves_what_was_promised() -> None:
    """The start waits for processors that the first job gives up; promises were made on its end as it was planned.

    (Found by the simulator of faults, seed 9952 of that day: more was reserved than there is.)
    """
    drive = Drive(resolve("equipartition"), nodes={"n1": (4,)})
    drive.say(ev.JobSubmitted(Job(1, 4, 100 * SECOND, 0, shape=Range(1, 4, malleable=True))))
    drive.decide_and_launch()
    drive.say(ev.JobSubmitted(Job(2, 2, 50 * SECOND, 0)))
    resized, _, waits = drive.decide()
    assert resized.startswith("resize 1 from n1×4 to n1×2")
    assert waits.startswith("tell 2 0 s: AWAITS_PROCESSORS")
    drive.at(1)
    drive.state = SchedulerState.restore(
        policy_named("conservative"), drive.state.machine.rules, drive.state.snapshot()
    )
    drive.say(ev.RulesChanged("conservative"))
    drive.decide()
    drive.say(ev.JobSubmitted(Job(3, 2, 30 * SECOND, 1 * SECOND)))
    assert drive.decide() == ["tell 3 51 s: RESERVED", "timer 51 s: WAKE"]
    drive.at(6)
    assert [line.split(" (")[0] for line in drive.say(ev.JobResized(1))] == ["start 2 on n1×2"]
    assert drive.decide() == ["tell 3 56 s: LATE_LAUNCH, before 51 s", "timer 56 s: WAKE"]


@pytest.mark.usefixtures("sets_aside")
def test_promises_of_the_former_policy_are_withdrawn_where_the_new_one_sets_a_job_aside() -> None:
    drive = Drive("conservative", procs=2).with_jobs(2, 2, 2).planned()
    fails = FailsFor(policy_named("fcfs"), lambda job: job.id == 3)
    drive.state = SchedulerState.restore(fails, drive.state.rules, drive.state.snapshot())
    told = drive.decide()
    assert told[0].startswith("set aside 3: ")
    assert told[1] == "tell 2 nothing promised: RESTARTED"


def test_equipartition_plans_beside_suspended_job() -> None:
    """Equipartition reserves for job 4 by the predicted ends of all that run; job 3 has no processors, so it has none.

    (Found by the simulator of faults, seed 4930: a division by zero set job 4 aside.)
    """
    drive = Drive(resolve("fjt1+bfm(expired=suspend)"), nodes={"n1": (2,)}).with_jobs((1, 10)).planned()
    drive.submit(2, 2, 50)
    drive.submit(3, 1, 100)
    drive.decide_and_launch()
    drive.at(10).ended(1)
    assert drive.decide()[0].startswith("resize 3 from n1 to n1: SUSPENDED")
    drive.say(ev.JobResized(3))
    drive.launched(2)
    drive.state = SchedulerState.restore(
        resolve("equipartition(easy,waterfill)"), drive.state.machine.rules, drive.state.snapshot()
    )
    drive.say(ev.RulesChanged("equipartition(easy,waterfill)"))
    drive.submit(4, 2, 5)
    assert drive.decide() == ["timer 60 s: WAKE"]
    assert drive.why(4) == "MINIMA_HELD, blocking_job 2, minimum_procs 2, spare_procs 0, procs 2, free_procs 0"
    drive.at(60).ended(2)
    assert drive.decide()[0].startswith("start 4 on n1×2")


def test_equipartition_keeps_share_of_folded_job() -> None:
    """Two processes on one CPU of n1; a second CPU, of n2, is of no use to it, since its processes stay where they are.

    (Found by the simulator of faults, seed 118: the plan was refused, and the job set aside.)
    """
    drive = Drive(resolve("fjt4+bfa"), nodes={"n1": (2,), "n2": (2,)})
    drive.drain_node("n2")
    drive.submit(2, 1, 100)
    drive.say(ev.JobSubmitted(Job(1, 2, 100 * SECOND, 0, long=True, foldable=True, shape=Range(1, 2, malleable=True))))
    started = drive.decide_and_launch()
    assert [line.split(" (")[0] for line in started[:2]] == ["start 2 on n1", "start 1 on n1×2"]
    drive.resume_node("n2")
    drive.state = SchedulerState.restore(resolve("equipartition"), drive.state.machine.rules, drive.state.snapshot())
    drive.say(ev.RulesChanged("equipartition"))
    assert drive.decide() == []
    assert not list(drive.state.machine.jobs.aside)
