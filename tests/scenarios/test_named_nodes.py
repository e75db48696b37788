"""Nodes with names: where jobs go, what keeps them waiting, and nodes that are drained, lost and come back."""

import pytest
from kit.drive import Drive, Size
from kit.dump import dump
from kit.mutants import FITS, Told

from cosched.model.allocation import Share
from cosched.model.job import Job, JobState
from cosched.model.node import Node
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.machine.nodes import UnknownNode
from space_scheduler.machine.record import IllegalTransition, Infeasible
from space_scheduler.machine.rules import BadPlan, MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Plan, PlannedRequeue, PlannedStart, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.reasons import Reason, Why

#: Four workstations of two processors and 8 (GB, say) of memory.
LAB = {"n1": (2, 8), "n2": (2, 8), "n3": (2, 8), "n4": (2, 8)}

# --- where jobs go ----------------------------------------------------------------------------------------------------


def test_tasks_fill_one_node_after_the_other() -> None:
    drive = Drive("fcfs", nodes=LAB)
    drive.submit(1, procs=3, estimate_s=60, memory=2)
    drive.submit(2, procs=2, estimate_s=60)
    assert drive.decide_and_launch() == [
        "start 1 on n1×2 n2 (limit 60 s): FITS, free_procs 8",
        "start 2 on n2 n3 (limit 60 s): FITS, free_procs 5",
    ]
    assert drive.used() == {"n1": ("up", 2, 4), "n2": ("up", 2, 2), "n3": ("up", 1, 0), "n4": ("up", 0, 0)}
    assert [status.tasks for status in drive.state.nodes()] == [{1: 2}, {1: 1, 2: 1}, {2: 1}, {}]


def test_or_are_spread_one_to_each() -> None:
    drive = Drive("fcfs", nodes=LAB, rules=MachineRules(place="spread")).with_jobs(4, 3)
    assert drive.decide() == [
        "start 1 on n1 n2 n3 n4 (limit 60 s): FITS, free_procs 8",
        "start 2 on n1 n2 n3 (limit 60 s): FITS, free_procs 4",
    ]


def test_nodes_stand_in_the_order_of_the_numbers_in_their_names() -> None:
    drive = Drive("fcfs", nodes={"n10": (1,), "n9": (1,), "a": (1,)}).with_jobs(3)
    assert drive.decide() == ["start 1 on a n9 n10 (limit 60 s): FITS, free_procs 3"]


def test_a_policy_that_only_counts_has_its_jobs_placed() -> None:
    class Counts:
        order = staticmethod(fcfs)

        def plan(self, snapshot: Snapshot) -> Plan:
            return Plan([PlannedStart(job, Reason(Why.FITS)) for job in snapshot.changes.submitted])

    drive = Drive(Counts(), nodes=LAB)
    drive.submit(1, procs=3, estimate_s=60, memory=8)
    drive.submit(2, procs=1, estimate_s=60)
    assert drive.decide() == ["start 1 on n1 n2 n3 (limit 60 s): FITS", "start 2 on n1 (limit 60 s): FITS"]
    drive.submit(3, procs=2, estimate_s=60, memory=5)
    with pytest.raises(BadPlan, match=r"job 3 has no place on the nodes: enough processors are free, but not the mem"):
        drive.decide()
    assert drive.used()["n4"] == ("up", 0, 0)


def test_start_without_a_place_is_placed_on_what_its_plan_gives_back() -> None:
    policy = Told(Plan())
    drive = Drive(policy, nodes={"n1": (2,)})
    first, second = (Job(number, 2, 60_000_000, 0) for number in (1, 2))
    drive.say(ev.JobSubmitted(first))
    policy.answer = Plan([PlannedStart(first, FITS)])
    drive.decide_and_launch()
    drive.say(ev.JobSubmitted(second))
    policy.answer = Plan([PlannedStart(second, FITS), PlannedRequeue(Job(9, 2, 1, 0), Reason(Why.ABORTED))])
    with pytest.raises(BadPlan, match="job 2 has no place on the nodes"):
        drive.decide()
    policy.answer = Plan([PlannedStart(second, FITS), PlannedRequeue(first, Reason(Why.ABORTED))])
    assert drive.decide() == ["kill 1: ABORTED", "tell 2 0 s: AWAITS_PROCESSORS"]
    assert drive.ended(1, JobState.CANCELLED) == ["start 2 on n1×2 (limit 60 s): FITS"]


# --- what keeps them waiting ------------------------------------------------------------------------------------------


def test_memory_keeps_a_job_waiting_while_processors_are_free() -> None:
    drive = Drive("fcfs", nodes={"n1": (4, 8)})
    drive.submit(1, procs=2, estimate_s=60, memory=3)
    drive.submit(2, procs=2, estimate_s=60, memory=2)
    assert drive.decide_and_launch() == ["start 1 on n1×2 (limit 60 s): FITS, free_procs 4"]
    assert drive.why(2) == ("NOT_ENOUGH_MEMORY, procs 2, fitting_procs 1, task_memory_bytes 2, free_memory_bytes 2")
    drive.at(30).ended(1)
    assert drive.decide() == ["start 2 on n1×2 (limit 60 s): FITS, free_procs 4"]


def test_memory_that_is_free_in_pieces_is_of_no_use() -> None:
    """5 of 8 taken on both nodes: 6 are free together, one task of 5 fits nowhere."""
    drive = Drive("fcfs", nodes={"n1": (2, 8), "n2": (2, 8)})
    drive.submit(1, procs=2, estimate_s=60, memory=5)
    drive.submit(2, procs=1, estimate_s=60, memory=5)
    assert drive.decide() == ["start 1 on n1 n2 (limit 60 s): FITS, free_procs 4"]
    assert drive.why(2) == "FRAGMENTED, procs 1, fitting_procs 0, task_memory_bytes 5, free_memory_bytes 6"


def test_a_job_of_one_node_waits_while_what_is_free_lies_on_two() -> None:
    drive = Drive("easy", nodes={"n1": (2,), "n2": (2,)}, rules=MachineRules(max_nodes_per_job=1, place="spread"))
    drive.submit(1, procs=1, estimate_s=60)
    drive.submit(2, procs=1, estimate_s=90)
    drive.submit(3, procs=2, estimate_s=60)
    assert drive.decide_and_launch() == [
        "start 1 on n1 (limit 60 s): FITS, free_procs 4",
        "start 2 on n2 (limit 90 s): FITS, free_procs 3",
        "tell 3 60 s: RESERVED",
    ]
    assert drive.why(3) == "SPREAD_OUT, procs 2, fitting_procs 1, max_nodes 1, promised 60 s"
    drive.at(10).ended(2)
    assert drive.decide() == ["start 3 on n2×2 (limit 60 s): FITS, free_procs 3"]


@pytest.mark.parametrize(
    ("rules", "procs", "memory", "refused"),
    [
        (MachineRules(), 9, 0, "WIDER_THAN_MACHINE: procs=9, machine_procs=8"),
        (MachineRules(), 1, 9, "TASK_TOO_LARGE: task_memory_bytes=9, largest_node_bytes=8"),
        (MachineRules(), 5, 5, "MORE_MEMORY_THAN_MACHINE: procs=5, fitting_procs=4, task_memory_bytes=5"),
        (MachineRules(max_nodes_per_job=1), 3, 0, "SPANS_NODES: procs=3, fitting_procs=2, max_nodes=1"),
        (MachineRules(max_nodes_per_job=2), 3, 5, "SPANS_NODES: procs=3, fitting_procs=2, max_nodes=2"),
    ],
)
def test_what_could_never_start_is_refused_with_the_limit(
    rules: MachineRules, procs: int, memory: int, refused: str
) -> None:
    """Lost and drained nodes count: they can come back."""
    drive = Drive("easy", nodes=LAB, rules=rules)
    drive.lose_node("n4")
    drive.drain_node("n3")
    before = dump(drive.state)
    with pytest.raises(Infeasible) as told:
        drive.submit(1, procs, 60, memory)
    numbers = ", ".join(f"{name}={value}" for name, value in told.value.reason.numbers.items())
    assert f"{told.value.reason.why.name}: {numbers}" == refused
    assert str(told.value).endswith(f"({numbers})")
    assert dump(drive.state) == before
    assert drive.state.refusal(Job(2, 1, 1, 0, memory_bytes=8)) is None


def test_rules_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="no way of placing is called 'best'; there are first-fit, spread"):
        MachineRules(place="best")
    with pytest.raises(ValueError, match="a job cannot lie on 0 nodes"):
        MachineRules(max_nodes_per_job=0)
    for fold_ppm, resize_us in ((-1, 0), (1_000_000, 0), (0, -1)):
        with pytest.raises(ValueError, match=f"no fold costs {fold_ppm} millionths, and no resize {resize_us} µs"):
            MachineRules(fold_cost_ppm=fold_ppm, resize_cost_us=resize_us)


# --- reservations -----------------------------------------------------------------------------------------------------


def test_the_heads_reservation_is_for_the_memory_too() -> None:
    """Job 1 holds the memory of both nodes until 60; job 2 needs all of one. Processors alone would let 3 delay it."""
    drive = Drive("easy", nodes={"n1": (2, 8), "n2": (2, 8)})
    drive.submit(1, procs=2, estimate_s=60, memory=6)
    drive.submit(2, procs=2, estimate_s=60, memory=8)
    drive.submit(3, procs=1, estimate_s=90, memory=1)
    drive.submit(4, procs=1, estimate_s=60, memory=1)
    drive.submit(5, procs=1, estimate_s=90)
    assert drive.decide_and_launch() == [
        "start 1 on n1 n2 (limit 60 s): FITS, free_procs 4",
        "start 4 on n1 (limit 60 s): BACKFILLED_BEFORE_SHADOW, shadow 60 s",
        "start 5 on n2 (limit 90 s): BACKFILLED_BESIDE, shadow 60 s",
        "tell 2 60 s: RESERVED",
    ]
    assert drive.why(2) == ("NOT_ENOUGH_FREE, procs 2, free_procs 0, promised 60 s")
    drive.at(20).ended(4)
    drive.decide()
    assert drive.why(3) == "WOULD_DELAY_RESERVATION, head 2, promised 60 s"
    drive.at(60).ended(1)
    assert drive.decide() == ["start 2 on n1 n2 (limit 60 s): FITS, free_procs 3", "tell 3 120 s: RESERVED"]


def test_a_reservation_gives_way_where_it_finds_other_nodes_at_its_time() -> None:
    """Job 3 needs two of three nodes; at 60 all are free. It is laid on n1 and n2; job 4 may take n1 all the same."""
    drive = Drive("easy", nodes={"n1": (1,), "n2": (1,), "n3": (1,)}).with_jobs((1, 5), 2).planned()
    drive.at(5).ended(1)
    drive.submit(3, procs=2, estimate_s=10)
    drive.submit(4, procs=1, estimate_s=900)
    drive.submit(5, procs=1, estimate_s=900)
    assert drive.decide() == [
        "start 4 on n1 (limit 900 s): BACKFILLED_BESIDE, shadow 60 s",
        "tell 3 60 s: RESERVED",
    ]
    drive.at(60).ended(2)
    assert drive.decide()[0] == "start 3 on n2 n3 (limit 10 s): FITS, free_procs 2"


def test_conservative_reserves_nodes_for_everybody() -> None:
    drive = Drive("conservative", nodes={"n1": (1, 4), "n2": (1, 8)})
    drive.submit(1, procs=1, estimate_s=60, memory=8)
    drive.submit(2, procs=2, estimate_s=60)
    drive.submit(3, procs=1, estimate_s=60, memory=8)
    drive.submit(4, procs=1, estimate_s=60, memory=4)
    assert drive.decide_and_launch() == [
        "start 1 on n2 (limit 60 s): RESERVATION_DUE, promised 0 s",
        "start 4 on n1 (limit 60 s): RESERVATION_DUE, promised 0 s",
        "tell 2 60 s: RESERVED",
        "tell 3 120 s: RESERVED",
        "timer 60 s: WAKE",
    ]
    assert drive.why(2) == "NOT_ENOUGH_FREE, procs 2, free_procs 0, promised 60 s"
    drive.at(20).ended(1)
    assert drive.decide() == []
    drive.at(30).ended(4)
    assert drive.decide_and_launch() == [
        "start 2 on n1 n2 (limit 60 s): RESERVATION_DUE, promised 60 s",
        "tell 3 90 s: MOVED_EARLIER, before 120 s",
        "timer 90 s: WAKE",
    ]


def test_compression_in_schedule_order_is_done_one_by_one_where_it_would_move_a_start_later() -> None:
    """In that order job 4 would go to n1 at once, and job 2, which needs it, from 50 s to 55 s."""
    drive = Drive("conservative(schedule)", nodes={"n1": (2, 4), "n2": (2, 4), "n3": (1, 4)})
    for job_id, procs, estimate_s, memory in ((1, 4, 50, 2), (2, 4, 10, 2), (3, 1, 10, 4), (4, 1, 50, 4)):
        drive.submit(job_id, procs, estimate_s, memory)
    drive.decide_and_launch()
    assert [drive.promise_s(job_id) for job_id in (2, 4)] == [50, 10]
    drive.at(5).ended(1)
    assert drive.decide() == ["start 2 on n1×2 n2×2 (limit 10 s): RESERVATION_DUE, promised 50 s"]
    assert drive.promise_s(4) == 10


# --- drained ----------------------------------------------------------------------------------------------------------


def test_a_drained_node_gets_nothing_new_and_its_jobs_go_on() -> None:
    drive = Drive("fcfs", nodes={"n1": (2,), "n2": (2,)}).with_jobs(1).planned()
    assert drive.at(5).drain_node("n1", "new disk") == []
    drive.submit(2, procs=2, estimate_s=60)
    drive.submit(3, procs=1, estimate_s=60)
    assert drive.decide_and_launch() == ["start 2 on n2×2 (limit 60 s): FITS, free_procs 2"]
    assert drive.job_state(1) is JobState.RUNNING
    assert drive.used() == {"n1": ("draining", 1, 0), "n2": ("up", 2, 0)}
    assert drive.state.nodes()[0].reason == "new disk"
    drive.at(10).ended(1)
    assert drive.decide() == []
    assert drive.used()["n1"] == ("drained", 0, 0)
    assert drive.why(3) == "NOT_ENOUGH_FREE, procs 1, free_procs 0"
    assert drive.at(20).resume_node("n1") == []
    assert drive.decide() == ["start 3 on n1 (limit 60 s): FITS, free_procs 2"]
    assert drive.state.nodes()[0].reason == ""


def test_a_promise_that_a_drained_node_breaks_is_taken_back_and_made_again() -> None:
    for policy in ("easy", "conservative"):
        drive = Drive(policy, nodes={"n1": (2,), "n2": (2,)}).with_jobs(2, 4).planned()
        drive.at(5).drain_node("n2")
        (told,) = drive.decide()
        assert told.startswith("tell 2 nothing promised: CAPACITY_CHANGED")
        assert drive.why(2) == "NODES_AWAY, procs 4, procs_in_service 2, machine_procs 4"
        drive.at(20).resume_node("n2")
        assert drive.decide()[0].startswith("tell 2 60 s: ")


# --- lost, and back ---------------------------------------------------------------------------------------------------


def test_a_lost_node_takes_the_gang_with_it_and_frees_nothing_before_the_gang_has_ended() -> None:
    drive = Drive("fcfs", nodes={"n1": (2,), "n2": (2,)}).with_jobs(3).planned()
    drive.submit(2, procs=2, estimate_s=60)
    drive.decide()
    assert drive.at(5).lose_node("n2") == ["kill 1: NODE_LOST, node n2"]
    assert drive.job_state(1) is JobState.ENDING
    assert drive.why(1) == "NODE_LOST, node n2"
    assert drive.decide() == []  # n1 is not free: job 1 may still have a process there
    assert drive.used() == {"n1": ("up", 2, 0), "n2": ("lost", 1, 0)}
    drive.at(6).ended(1, JobState.NODE_LOST)
    assert drive.decide() == ["start 2 on n1×2 (limit 60 s): FITS, free_procs 2"]


def test_a_lost_node_that_is_back_still_has_the_tasks_of_before() -> None:
    drive = Drive("fcfs", nodes={"n1": (2,)}).with_jobs(1, 2).planned()
    drive.at(5).lose_node("n1")
    assert drive.why(2) == "NODES_AWAY, procs 2, procs_in_service 0, machine_procs 2"
    drive.at(6).node("n1", 2)
    assert drive.decide() == []
    assert drive.used() == {"n1": ("up", 1, 0)}
    drive.at(7).ended(1, JobState.NODE_LOST)
    assert drive.decide() == ["start 2 on n1×2 (limit 60 s): FITS, free_procs 2"]


def test_whoever_was_drained_is_still_drained_when_it_is_back() -> None:
    drive = Drive("fcfs", nodes={"n1": (2,)})
    drive.drain_node("n1")
    drive.lose_node("n1")
    assert drive.used()["n1"][0] == "lost"
    drive.node("n1", 2)
    assert drive.used()["n1"][0] == "drained"


def test_jobs_that_start_or_are_being_killed_are_lost_as_well_and_may_end_in_any_way() -> None:
    drive = Drive("fcfs", nodes={"n1": (4,)}).with_jobs(1, 1, 1)
    drive.decide()
    drive.launched(1)
    drive.cancel(2)
    assert drive.lose_node("n1") == ["kill 1: NODE_LOST, node n1", "kill 3: NODE_LOST, node n1"]
    assert drive.why(2) == "CANCELLED"
    assert drive.launched(3) == []  # said before it was lost
    with pytest.raises(IllegalTransition):
        drive.cancel(1)
    drive.ended(1, JobState.COMPLETED)  # it had ended before its node was lost
    drive.ended(2, JobState.CANCELLED)
    drive.ended(3, JobState.LAUNCH_FAILED)
    assert drive.used() == {"n1": ("lost", 0, 0)}


def test_a_node_that_comes_back_smaller_keeps_what_it_has_and_gets_no_more() -> None:
    drive = Drive("easy", nodes={"n1": (4, 8), "n2": (1, 8)})
    drive.submit(1, procs=3, estimate_s=60, memory=2)
    drive.decide_and_launch()
    drive.submit(2, procs=2, estimate_s=60)
    drive.at(5).node("n1", 2, 4)
    assert drive.decide() == ["tell 2 60 s: CAPACITY_CHANGED"]
    assert drive.used()["n1"] == ("up", 3, 6)
    drive.at(10).ended(1)
    assert drive.decide() == ["start 2 on n1×2 (limit 60 s): FITS, free_procs 3"]
    assert drive.state.refusal(Job(9, 4, 1, 0)) == Reason(Why.WIDER_THAN_MACHINE, {"procs": 4, "machine_procs": 3})


def test_held_processors_get_nothing_new_and_no_job_is_refused_for_them() -> None:
    drive = Drive("fcfs", nodes={"n1": (2, 8), "n2": (1, 8)}).with_jobs(1).planned()
    held = Node("n1", 2, 8, owned_cpu_permille=500, held_procs=1, held_memory_bytes=6)
    drive.handle(ev.NodeJoined(held))
    drive.submit(2, procs=2, estimate_s=60)
    assert drive.decide() == []
    assert drive.why(2) == "NOT_ENOUGH_FREE, procs 2, free_procs 1"
    assert drive.state.refusal(Job(9, 3, 1, 0, memory_bytes=4)) is None, "what is held comes back"
    drive.at(60).ended(1)
    assert drive.decide_and_launch() == ["start 2 on n1 n2 (limit 60 s): FITS, free_procs 2"]
    drive.node("n1", 2, 8)
    drive.submit(3, procs=1, estimate_s=60, memory=8)
    assert drive.decide() == ["start 3 on n1 (limit 60 s): FITS, free_procs 1"]


def test_node_all_of_whose_processors_are_held_keeps_the_job_it_has() -> None:
    drive = Drive("fcfs", nodes={"n1": (1, 8)})
    drive.submit(1, procs=1, estimate_s=60, memory=8)
    drive.decide_and_launch()
    drive.handle(ev.NodeJoined(Node("n1", 1, 8, held_procs=1, held_memory_bytes=8)))
    assert drive.used() == {"n1": ("up", 1, 8)}
    drive.at(60).ended(1)
    assert drive.state.machine.capacity.free_procs == 0
    drive.submit(2, procs=1, estimate_s=60)
    assert drive.decide() == []
    assert drive.why(2) == "PROCS_HELD, procs 1, procs_in_service 0, machine_procs 1, held_procs 1"


def test_saying_it_again_disturbs_nobody() -> None:
    drive = Drive("easy", nodes=LAB)
    passes = drive.state.passes
    drive.node("n1", 2, 8)
    drive.resume_node("n1")
    assert drive.decide() == []
    assert drive.state.passes == passes
    drive.drain_node("n1")
    drive.decide()
    drive.drain_node("n1", "said again")
    drive.lose_node("n2")
    drive.decide()
    passes = drive.state.passes
    drive.lose_node("n2")
    assert drive.decide() == []
    assert drive.state.passes == passes
    assert drive.state.nodes()[0].reason == "said again"


@pytest.mark.parametrize("node", [Node("n5", -1, 8), Node("n5", 2, -1)])
def test_node_of_less_than_nothing_is_refused(node: Node) -> None:
    drive = Drive("fcfs", nodes=LAB)
    with pytest.raises(ValueError, match="a node cannot have less than nothing"):
        drive.handle(ev.NodeJoined(node))
    assert "n5" not in drive.used()


@pytest.mark.parametrize("event", [ev.NodeDrained("nX"), ev.NodeResumed("nX"), ev.NodeLost("nX")])
def test_a_node_that_never_joined_is_unknown(event: ev.Event) -> None:
    for drive in (Drive("fcfs", nodes=LAB), Drive("fcfs", nodes={})):
        before = dump(drive.state)
        with pytest.raises(UnknownNode, match="node nX never joined"):
            drive.handle(event)
        assert dump(drive.state) == before


def test_a_machine_has_counted_processors_or_named_nodes() -> None:
    named, counted = Drive("fcfs", nodes=LAB), Drive("fcfs", procs=4)
    for drive, event in (
        (named, ev.NodesJoined(1)),
        (named, ev.NodesLost(1)),
        (counted, ev.NodeJoined(Node("n1", 1, 0))),
        (counted, ev.NodeLost("n1")),
    ):
        before = dump(drive.state)
        with pytest.raises(ValueError, match="this machine has"):
            drive.handle(event)
        assert dump(drive.state) == before


# --- the record of decisions ------------------------------------------------------------------------------------------


def test_a_record_keeps_the_last_decision_its_time_and_what_led_to_it() -> None:
    drive = Drive("easy", nodes={"n1": (2,)})
    drive.at(1).submit(1, procs=2, estimate_s=60)
    record = drive.state.records[1]
    assert (record.reason.why, record.decided_us, record.cause) == (
        Why.ACCEPTED,
        1_000_000,
        ev.JobSubmitted(record.job),
    )
    drive.at(2).decide_and_launch()
    assert (record.reason.why, record.decided_us, record.cause) == (Why.FITS, 2_000_000, ev.JobSubmitted(record.job))
    drive.at(3).submit(2, procs=1, estimate_s=60)
    drive.at(4).decide()
    waiting = drive.state.records[2]
    assert (waiting.reason.why, waiting.decided_us) == (Why.RESERVED, 4_000_000)
    drive.at(5).hold(2)
    assert (waiting.reason.why, waiting.decided_us, waiting.cause) == (Why.HELD, 5_000_000, ev.JobHeld(2))
    drive.at(6).release(2)
    assert waiting.reason.why is Why.RELEASED
    drive.at(7).ended(1)
    drive.decide()
    assert (waiting.reason.why, waiting.cause) == (Why.FITS, ev.JobEnded(1))
    drive.at(8).cancel(2)
    assert (waiting.reason.why, waiting.decided_us, waiting.cause) == (Why.CANCELLED, 8_000_000, ev.JobCancelled(2))
    assert drive.why(2) == "CANCELLED"


def test_before_any_node_has_joined_a_wide_job_waits_instead_of_being_refused() -> None:
    state = SchedulerState(resolve("easy"), MachineRules(awaits_nodes=True))
    state.handle(ev.JobSubmitted(Job(1, 2, 10, 0)), 0)
    assert not [one for one in state.handle(ev.Boundary(), 0) if isinstance(one, Start)]
    assert state.explain(1).why is Why.NODES_AWAY
    state.handle(ev.NodeJoined(Node("a", 1, 0)), 1)
    assert not [one for one in state.handle(ev.Boundary(), 1) if isinstance(one, Start)]
    assert state.explain(1).why is Why.NODES_AWAY
    refused = state.refusal(Job(2, 2, 10, 0))
    assert refused is not None
    assert refused.why is Why.WIDER_THAN_MACHINE
    state.handle(ev.NodeJoined(Node("b", 1, 0)), 2)
    (start,) = (one for one in state.handle(ev.Boundary(), 2) if isinstance(one, Start))
    assert start.allocation.nodes == (Share("a", 1), Share("b", 1))


SHARED: dict[str, Size] = {"a": (4, 0, 1), "b": (4, 0, 1)}  # a CPU each, four tasks on it


def test_under_uniform_hard_a_job_waits_for_company_of_the_other_kind() -> None:
    drive = Drive("uniform-hard", nodes=SHARED)
    drive.submit(1, procs=2, estimate_s=60, kind="cpu")
    drive.submit(2, procs=2, estimate_s=60, kind="cpu")
    drive.submit(3, procs=2, estimate_s=60, kind="comm")
    assert drive.decide_and_launch() == ["start 1 on a b (limit 60 s): FITS, free_procs 8"]
    assert drive.why(2) == "NO_UNIFORM_SET, procs 2, fitting_procs 6"
    assert drive.why(3).startswith("BEHIND_HEAD")
    drive.at(10).ended(1)
    assert drive.decide_and_launch() == [
        "start 2 on a b (limit 60 s): FITS, free_procs 8",
        "start 3 on a b (limit 60 s): FITS, free_procs 6",
        "pace 2 0.5",
        "pace 3 0.5",
    ]


def test_under_uniform_light_it_starts_beside_its_own_kind() -> None:
    drive = Drive("uniform-light", nodes=SHARED)
    for job_id in (1, 2):
        drive.submit(job_id, procs=2, estimate_s=60, kind="cpu")
    assert [line.split(":")[0] for line in drive.decide_and_launch()] == [
        "start 1 on a b (limit 60 s)",
        "start 2 on a b (limit 60 s)",
        "pace 1 0.5",
        "pace 2 0.5",
    ]


def test_what_hard_can_never_start_is_refused_at_submission() -> None:
    drive = Drive("uniform-hard", nodes=SHARED)
    with pytest.raises(Infeasible, match="could have the same company of the other kind on no set of nodes"):
        drive.submit(1, procs=5, estimate_s=60, kind="cpu")  # five of a kind on two nodes of level four
    drive.submit(2, procs=4, estimate_s=60, kind="cpu")
    assert drive.decide() == ["start 2 on a×2 b×2 (limit 60 s): FITS, free_procs 8", "pace 2 0.5"]


def test_the_machine_itself_lays_as_normal_does_where_it_is_told() -> None:
    drive = Drive("easy", rules=MachineRules(place="normal"), nodes={"a": (4, 100, 1), "b": (4, 100, 1)})
    drive.submit(1, procs=1, estimate_s=60, memory=30)
    drive.submit(2, procs=2, estimate_s=60, memory=10)
    assert [line.split(" (")[0] for line in drive.decide()] == ["start 1 on a", "start 2 on b×2"]
    with pytest.raises(ValueError, match="no way of placing is called 'uniform-hard'"):
        MachineRules(place="uniform-hard")
