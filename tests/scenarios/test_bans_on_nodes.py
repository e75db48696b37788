"""What a node's owner says of parallel work there: users whose jobs are not taken, and jobs that are ended."""

import msgspec
import pytest
from kit.drive import Drive, policy_named, said

from cosched.model.job import Job, JobState
from cosched.model.node import Node, Owner
from cosched.model.time import US_PER_S
from space_scheduler.machine import events as ev
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.machine.state import SchedulerState
from space_scheduler.on_nodes import Limit
from space_scheduler.policy.interface import Plan, PlannedRequeue, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.policy.presets import PRESETS
from space_scheduler.reasons import Reason, Why

ANN, BOB = 1001, 1002
EASY = policy_named("easy")
EVERYWHERE = ("fcfs", "easy", "sjbf", "conservative", "fpfs", "bestfit", "backfill(3)")
PLACING = tuple(name for name, preset in PRESETS.items() if preset.place)


def job(job_id: int, user: int, procs: int = 2, **fields: object) -> ev.JobSubmitted:
    known = Job(job_id, procs, 60 * US_PER_S, 0, user)
    return ev.JobSubmitted(msgspec.structs.replace(known, **fields))


def desks(policy: str, *bans: tuple[int, ...]) -> Drive:
    """Nodes of two processors, each with the users that its owner does not take."""
    drive = Drive(policy, nodes={})
    for number, banned in enumerate(bans, 1):
        drive.say(ev.NodeJoined(Node(f"n{number}", 2, 100, 2, bans=banned)))
    drive.decide()
    return drive


def starts(lines: list[str]) -> list[str]:
    return [line.split(" (")[0] for line in lines if line.startswith("start")]


@pytest.mark.parametrize("policy", [*EVERYWHERE, *PLACING])
def test_a_banned_users_jobs_go_elsewhere_and_all_others_do_not_care(policy: str) -> None:
    drive = desks(policy, (BOB,), ())
    drive.say(job(1, BOB, kind="cpu", cpu_permille=500))
    drive.say(job(2, ANN, kind="cpu", cpu_permille=500))
    assert sorted(starts(drive.decide())) == ["start 1 on n2×2", "start 2 on n1×2"]


@pytest.mark.parametrize("policy", EVERYWHERE)
def test_a_job_of_the_same_shape_is_not_taken_for_alike(policy: str) -> None:
    """Of the two the first has no place, and the second does."""
    drive = desks(policy, (BOB,))
    for job_id, user in ((1, BOB), (2, ANN)):
        drive.say(job(job_id, user))
    assert starts(drive.decide()) == (["start 2 on n1×2"] if policy not in ("fcfs",) else [])
    assert drive.why(1).startswith("NOT_TAKEN, node n1, procs 2, fitting_procs 0")


def test_it_waits_until_it_is_taken_and_says_why() -> None:
    drive = desks("easy", (), (BOB,))
    drive.say(job(1, BOB, procs=4))
    drive.decide()
    assert drive.why(1) == "NOT_TAKEN, node n2, procs 4, fitting_procs 2"
    assert [(each.node, each.tasks, each.limit) for each in drive.state.explain_nodes(1)] == [
        ("n1", 2, None), ("n2", 0, Limit.BANNED),
    ]  # fmt: skip
    drive.at(5).say(ev.NodeJoined(Node("n2", 2, 100, 2)))
    assert starts(drive.decide()) == ["start 1 on n1×2 n2×2"]


def test_what_runs_there_goes_on_and_what_is_lost_besides_is_told_as_that() -> None:
    drive = desks("easy", (), ())
    drive.say(job(1, BOB, procs=4))
    drive.decide_and_launch()
    drive.at(5).say(ev.NodeJoined(Node("n1", 2, 100, 2, bans=(BOB,))))
    assert drive.decide() == []
    assert drive.job_state(1) is JobState.RUNNING
    drive.say(job(2, BOB, procs=4))
    drive.lose_node("n2")
    assert drive.why(2).startswith("NODES_AWAY")


def test_no_ban_makes_a_job_that_could_ever_start_impossible() -> None:
    drive = desks("easy", (BOB,))
    assert drive.say(job(1, BOB)) == []


@pytest.mark.parametrize("policy", ["easy", "conservative", "normal", "uniform-hard"])
def test_a_machine_that_is_restored_knows_the_bans(policy: str) -> None:
    drive = desks(policy, (BOB,), (BOB,))
    for job_id, user in ((1, ANN), (2, ANN), (3, BOB)):
        drive.say(job(job_id, user))
    saved = msgspec.json.decode(msgspec.json.encode(drive.state.snapshot()), type=SavedState)
    again = SchedulerState.restore(policy_named(policy), drive.state.rules, saved)
    told = said(again.handle(ev.Boundary(), 0))
    again.validate()
    assert told == drive.decide()
    assert starts(told)


def test_a_promise_on_a_node_that_bans_its_user_is_made_anew() -> None:
    for policy in ("easy", "conservative"):
        drive = desks(policy, (), ())
        drive.say(job(1, ANN, procs=4))
        drive.decide_and_launch()
        drive.say(job(2, BOB, procs=4))
        drive.decide()
        assert drive.promise_s(2) == 60
        drive.at(5).say(ev.NodeJoined(Node("n2", 2, 100, 2, bans=(BOB,))))
        (told,) = drive.decide()
        assert told.startswith("tell 2 nothing promised: CAPACITY_CHANGED")
        assert drive.why(2).startswith("NOT_TAKEN, node n2")


# --- ended by the owner -----------------------------------------------------------------------------------------------


def test_an_ended_job_is_lost_and_says_whose_word_it_was() -> None:
    drive = desks("easy", (), ())
    drive.say(job(1, BOB, procs=4))
    drive.decide_and_launch()
    record = drive.state.records[1]
    assert drive.at(5).say(ev.JobSentAway(1, "n2")) == []
    assert record.state is JobState.NODE_LOST
    assert str(record.reason) == "the owner of a node where it had tasks has ended it (node=n2)"
    assert drive.used() == {"n1": ("up", 0, 0), "n2": ("up", 0, 0)}


def test_one_that_was_to_wait_again_waits_for_other_nodes() -> None:
    drive = desks("easy", (), ())
    drive.say(job(1, BOB, requeue=True))
    assert starts(drive.decide_and_launch()) == ["start 1 on n1×2"]
    drive.at(5).say(ev.JobSentAway(1, "n1"))
    record = drive.state.records[1]
    assert record.reason.why.name == "SENT_AWAY"
    assert record.reason.node == "n1"
    assert starts(drive.decide_and_launch()) == ["start 1 on n2×2"]
    assert drive.at(6).say(ev.JobSentAway(1, "n2")) == []
    assert record.state is JobState.NODE_LOST, "there is no other node where it could ever start"
    assert record.reason.why.name == "ENDED_BY_OWNER"


def test_one_that_is_being_launched_does_not_wait_again() -> None:
    drive = desks("easy", (), ())
    for job_id in (1, 2):
        drive.say(job(job_id, BOB, requeue=True))
    drive.decide()
    drive.say(ev.JobSentAway(1, "n1"))
    assert 1 not in drive.queued()


def test_one_that_is_being_cancelled_waits_again_where_it_is_told_of_the_owner() -> None:
    """As when a node is lost under it: the word came before the end. Journals have such ends and replay to that; who
    reports an end tells of a cancellation instead, where there was one (``service.launch.gang``).
    """
    drive = desks("easy", (), ())
    for job_id in (1, 2):
        drive.say(job(job_id, BOB, requeue=True))
    drive.decide()
    drive.launched(2)
    drive.cancel(2)
    drive.say(ev.JobSentAway(2, "n2"))
    assert drive.queued() == [2]


class Requeues:
    """EASY, but for one pass that ends the first job that runs, to have it wait again."""

    order = staticmethod(fcfs)
    now = False

    def plan(self, snapshot: Snapshot) -> Plan:
        if not self.now:
            return EASY.plan(snapshot)
        self.now = False
        return Plan([PlannedRequeue(next(iter(snapshot.running())).job, Reason(Why.ABORTED))])


@pytest.mark.parametrize("wanted", [False, True], ids=["its plan alone", "its user too"])
def test_one_that_a_plan_has_wait_again_avoids_the_node_too(wanted: bool) -> None:
    policy = Requeues()
    drive = Drive(policy, nodes={"n1": (2, 100), "n2": (2, 100)})
    drive.say(job(1, BOB, requeue=wanted))
    assert starts(drive.decide_and_launch()) == ["start 1 on n1×2"]
    for node, elsewhere in (("n1", ["start 1 on n2×2"]), ("n2", [])):
        policy.now = True
        drive.say(ev.NodeDrained("n1"))
        drive.say(ev.NodeResumed("n1"))
        assert drive.decide() == ["kill 1: ABORTED"]
        record = drive.state.records[1]
        drive.say(ev.JobSentAway(1, node))
        assert starts(drive.decide_and_launch()) == elsewhere
    assert record.state is JobState.NODE_LOST, "there is no other node where it could ever start"
    assert record.reason.why.name == "ENDED_BY_OWNER"
    drive.state.validate()


def test_an_owner_who_is_there_makes_no_difference() -> None:
    drive = desks("normal", (BOB,), ())
    drive.say(ev.OwnerCame("n2", Owner(100, 10)))
    drive.say(job(1, BOB, procs=1, cpu_permille=300))
    assert starts(drive.decide()) == ["start 1 on n2"]
