"""Nodes whose owners take parallel work at certain hours: promises count on them from when they open again."""

import msgspec
import pytest
from kit.drive import Drive, policy_named, said

from space_scheduler.machine import events as ev
from space_scheduler.machine.explain import without_place
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.machine.state import SchedulerState


def closed(drive: Drive, name: str, opens_in_s: float | None) -> list[str]:
    opens_in_us = None if opens_in_s is None else round(opens_in_s * 1_000_000)
    return said(drive.handle(ev.NodeDrained(name, "closed", opens_in_us)))


def half_closed(policy: str) -> Drive:
    """Two nodes, of which n2 opens at 600 s."""
    drive = Drive(policy, nodes={"n1": (2,), "n2": (2,)})
    closed(drive, "n2", 600)
    return drive


def tells(drive: Drive) -> list[str]:
    """The promises of a pass, without their reasons."""
    return [line.partition(":")[0] for line in drive.decide() if line.startswith("tell ")]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_job_that_needs_a_closed_node_is_promised_its_opening(policy: str) -> None:
    drive = half_closed(policy)
    drive.submit(1, procs=4, estimate_s=60)
    assert tells(drive) == ["tell 1 600 s"]
    why = "NODES_CLOSED, procs 4, procs_in_service 2, machine_procs 4, opens 600 s, promised 600 s"
    assert drive.why(1) == why
    drive.submit(2, procs=2, estimate_s=60)
    assert any(line.startswith("start 2 on n1×2") for line in drive.decide()), "it ends long before"


@pytest.mark.parametrize("policy", ["easy", "backfill(2)", "conservative"])
@pytest.mark.parametrize("later", [None, 700])
def test_promise_moves_later_because_of_the_nodes_where_one_does_not_open_in_time(
    policy: str, later: float | None
) -> None:
    """Promises of the opening are given up, or are of the next end there, and the cause is the capacity."""
    drive = Drive(policy, nodes={"n1": (2,), "n2": (2,)})
    if later is not None:
        drive.submit(1, procs=2, estimate_s=later)
        drive.decide_and_launch()
    closed(drive, "n2", 600)
    drive.submit(2, procs=4 if later is None else 2, estimate_s=60)
    assert tells(drive) == ["tell 2 600 s"]
    drive.at(600).submit(3, procs=2, estimate_s=600)
    told = [line for line in drive.decide() if line.startswith("tell 2 ")]
    at = "nothing promised" if later is None else "700 s"
    assert [line.partition(",")[0] for line in told] == [f"tell 2 {at}: CAPACITY_CHANGED"]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_reservation_at_an_opening_keeps_its_nodes(policy: str) -> None:
    drive = half_closed(policy)
    drive.submit(1, procs=4, estimate_s=60)
    drive.decide()
    drive.submit(2, procs=2, estimate_s=1000)
    assert not any(line.startswith("start 2") for line in drive.decide()), "it would hold n1 at the opening"
    drive.at(599).resume_node("n2")
    assert any(line.startswith("start 1 on n1×2 n2×2") for line in drive.decide())


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_node_that_does_not_open_in_time_breaks_the_promise_and_no_pass(policy: str) -> None:
    drive = half_closed(policy)
    drive.submit(1, procs=4, estimate_s=60)
    drive.decide()
    drive.at(600).timer()
    assert tells(drive) == ["tell 1 nothing promised"]
    assert drive.why(1) == "NODES_AWAY, procs 4, procs_in_service 2, machine_procs 4"
    closed(drive.at(610), "n2", 100)
    assert tells(drive) == ["tell 1 710 s"]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_drain_for_another_reason_takes_the_promise_back(policy: str) -> None:
    drive = half_closed(policy)
    drive.submit(1, procs=4, estimate_s=60)
    drive.decide()
    closed(drive.at(5), "n2", None)
    assert tells(drive) == ["tell 1 nothing promised"]
    assert drive.why(1).startswith("NODES_AWAY")


def test_opening_that_is_enough_is_the_one_that_is_named() -> None:
    drive = Drive("fcfs", nodes={"n1": (2,), "n2": (2,), "n3": (2,)})
    closed(drive, "n1", 100)
    closed(drive, "n2", 300)
    closed(drive, "n3", 200)
    drive.submit(1, procs=2, estimate_s=60)
    drive.submit(2, procs=4, estimate_s=60)
    drive.submit(3, procs=6, estimate_s=60)
    drive.decide()
    assert [drive.why(job).partition("opens ")[2] for job in (1, 2, 3)] == ["100 s", "200 s", "300 s"]


def test_infeasible_jobs_reason_is_cached_until_nodes_change() -> None:
    drive = Drive("fcfs", nodes={"n1": (2, 100), "n2": (2, 100)})
    for job_id, procs in ((1, 1), (2, 4), (3, 2), (4, 4)):
        drive.submit(job_id, procs=procs, estimate_s=60, memory=10)
    drive.decide()

    def told(most: int = 9) -> dict[int, str]:
        found = without_place(drive.state.machine, drive.state.now_us, most)
        assert all(drive.state.explain(job_id) == reason for job_id, reason in found.items())
        return {job_id: reason.why.name for job_id, reason in found.items()}

    assert told() == {}, "job 2 waits for job 1"
    closed(drive, "n2", 600)
    assert told() == {2: "NODES_CLOSED", 4: "NODES_CLOSED"}
    assert told(most=1) == {2: "NODES_CLOSED"}
    drive.owner("n1", memory=99)
    assert told() == {2: "NODES_AWAY", 3: "OWNERS_THERE", 4: "NODES_AWAY"}
    drive.owner_left("n1")
    assert told() == {2: "NODES_CLOSED", 4: "NODES_CLOSED"}
    drive.resume_node("n2")
    assert told() == {}


def test_lost_node_opens_at_no_time() -> None:
    drive = Drive("easy", nodes={"n1": (2,), "n2": (2,)})
    closed(drive, "n2", 600)
    drive.lose_node("n2")
    drive.submit(1, procs=4, estimate_s=60)
    assert drive.decide() == []
    assert drive.why(1).startswith("NODES_AWAY")


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_job_that_stands_still_on_a_closed_node_has_its_rest_to_do_after_it(policy: str) -> None:
    drive = Drive(policy, nodes={"n1": (2,), "n2": (2,), "n3": (2,)}).with_jobs(2, (2, 100)).planned()
    closed(drive.at(20), "n1", 600)
    drive.submit(3, procs=6, estimate_s=60)
    drive.submit(4, procs=4, estimate_s=60)
    assert tells(drive)[0] == "tell 3 660 s"
    if policy == "conservative":
        assert drive.promise_s(4) == 100, "n2 and n3, which are open"


def test_shared_nodes_have_no_promise_by_hours_and_say_when_they_open() -> None:
    """Where tasks share a CPU the future is a walk over predicted ends, which has no nodes that open."""
    drive = Drive("3dbf-light", nodes={"n1": (2, 0, 1), "n2": (2, 0, 1)})
    closed(drive, "n2", 600)
    drive.submit(1, procs=4, estimate_s=60)
    assert tells(drive) == []
    assert drive.why(1).startswith("NODES_CLOSED")
    assert drive.why(1).endswith("opens 600 s")
    drive.at(600).resume_node("n2")
    assert drive.decide()[0].startswith("start 1 on n1×2 n2×2")


@pytest.mark.parametrize("policy", ["easy", "conservative", "fcfs"])
def test_restored_machine_knows_when_its_nodes_open(policy: str) -> None:
    drive = half_closed(policy)
    drive.submit(1, procs=4, estimate_s=60)
    drive.decide()
    status = drive.state.nodes()[1]
    assert (status.drained, status.opens_us) == (True, 600_000_000)
    saved = msgspec.json.decode(msgspec.json.encode(drive.state.snapshot()), type=SavedState)
    drive.state = SchedulerState.restore(policy_named(policy), drive.state.rules, saved)
    assert drive.state.nodes()[1] == status
    assert drive.why(1).startswith("NODES_CLOSED")


def test_opening_in_the_past_is_refused() -> None:
    drive = Drive("fcfs", nodes={"n1": (2,)})
    with pytest.raises(ValueError, match="opens in the future"):
        closed(drive, "n1", -1)
    assert drive.used() == {"n1": ("up", 0, 0)}
