"""Nodes that jobs and owners share: limits, paces, and reservations on predicted states, step by step."""

import pytest
from kit.drive import Drive, Size

from cosched.model.coscheduling import Mode
from cosched.model.job import Job, JobState
from cosched.model.node import Node, Owner
from space_scheduler.machine import events as ev
from space_scheduler.machine.explain import OnNode
from space_scheduler.machine.instructions import RateChanged, Tell
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.on_nodes import Limit
from space_scheduler.policy.future import SharedFuture, shared
from space_scheduler.policy.interface import Plan, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.policy.presets import compose
from space_scheduler.progress import Sharing
from space_scheduler.reasons import Reason, Why

MIB = 1 << 20
XWINDOWS = Owner(150, 179 * MIB)  # 15 % of a CPU, 35 % of 512 MiB
INTERNET = Owner(200, 307 * MIB)
TWO: dict[str, Size] = {"a": (2, 0, 1), "b": (2, 0, 1)}  # a CPU each, two tasks on it
THREE: dict[str, Size] = {**TWO, "c": (1, 0, 1)}


def lab(policy: str, *owners: Owner | None) -> Drive:
    """Workstations of the paper's: 512 MiB, half of everything for parallel work beside an owner, level 4."""
    drive = Drive(policy, nodes={})
    for number, owner in enumerate(owners, 1):
        drive.say(ev.NodeJoined(Node(f"n{number}", 4, 512 * MIB, 1, 500, 256 * MIB, 512 * MIB)))
        if owner is not None:
            drive.say(ev.OwnerCame(f"n{number}", owner))
    drive.decide()
    return drive


def test_two_is_tasks_share_an_idle_node() -> None:
    drive = lab("normal", None)
    for job_id in (1, 2):
        drive.submit(job_id, 1, 60, memory=250 * MIB, kind="comm", cpu_permille=690)
    assert drive.decide() == [
        "start 1 on n1 (limit 60 s): FITS, free_procs 4",
        "start 2 on n1 (limit 60 s): FITS, free_procs 3",
        "pace 1 0.725",
        "pace 2 0.725",
    ]


def test_a_bt_task_is_admitted_beside_an_xwindows_user_and_a_large_is_task_is_not() -> None:
    drive = lab("normal", XWINDOWS)
    drive.submit(1, 1, 60, memory=60 * MIB, kind="cpu", cpu_permille=930)
    drive.submit(2, 1, 60, memory=200 * MIB, kind="comm", cpu_permille=690)
    assert drive.decide() == ["start 1 on n1 (limit 60 s): FITS, free_procs 4", "pace 1 0.457"]
    assert drive.why(2).startswith("NOT_ENOUGH_MEMORY")  # 196 MiB are left of the contract's half


def test_an_owner_who_uses_more_leaves_less_than_the_contract() -> None:
    drive = lab("normal", INTERNET)
    drive.submit(1, 1, 60, memory=206 * MIB)
    assert drive.decide() == []
    drive.owner_left("n1")
    assert drive.decide() == ["start 1 on n1 (limit 60 s): FITS, free_procs 4"]


def test_an_owner_slows_a_job_down_and_gives_back_what_he_took() -> None:
    drive = Drive("normal", nodes=TWO).with_jobs(2).planned()
    drive.at(20).owner("a")
    assert drive.decide() == ["pace 1 0.425"]  # half a CPU, for the 85 % of the time that the owner does not compute
    assert drive.state.records[1].end_us == 114_117_648  # 40 s of work at that pace
    drive.at(40).owner_left("a")
    assert drive.decide() == ["pace 1 1"]
    assert drive.state.records[1].end_us == 71_500_000
    drive.at(40).owner_left("a")  # told twice
    assert drive.decide() == []


def test_an_owner_of_a_node_that_never_joined_is_an_error() -> None:
    drive = Drive("normal", nodes=TWO)
    with pytest.raises(KeyError, match="node x never joined"):
        drive.owner("x")
    with pytest.raises(ValueError, match="less than nothing"):
        drive.owner("a", cpu_permille=-1)


def test_a_candidate_that_slows_down_what_the_head_waits_for_does_not_start() -> None:
    drive = Drive("3dbf-light", nodes=THREE)
    drive.submit(1, 2, 60, kind="cpu")
    drive.decide_and_launch()
    drive.submit(2, 5, 60, kind="cpu")
    assert drive.decide() == ["tell 2 60 s: RESERVED"]
    drive.submit(3, 1, 10, kind="cpu")  # on the free CPU: nobody is slower for it
    drive.submit(4, 1, 10, kind="cpu")  # beside job 1, which would end at 70 s then
    assert drive.decide_and_launch() == ["start 3 on c (limit 10 s): BACKFILLED_BEFORE_SHADOW, shadow 60 s"]
    drive.at(10).ended(3)
    assert drive.decide_and_launch() == ["start 4 on c (limit 10 s): BACKFILLED_BEFORE_SHADOW, shadow 60 s"]


@pytest.mark.parametrize(("looks", "starts"), [(shared.LOOKS, ["start 4 on a"]), (0, [])])
def test_scan_looks_ahead_for_a_bounded_number_of_candidates(
    monkeypatch: pytest.MonkeyPatch, looks: int, starts: list[str]
) -> None:
    """Job 4 slows job 1 down, which ends long before job 2 all the same: at that end the head has its place."""
    monkeypatch.setattr(shared, "LOOKS", looks)
    drive = Drive("3dbf-light", nodes=TWO)
    drive.submit(1, 1, 10, kind="cpu")
    drive.submit(2, 1, 100, kind="cpu")
    drive.decide_and_launch()
    drive.submit(3, 4, 60, kind="cpu")
    drive.submit(4, 1, 10, kind="cpu")
    assert [line.split(" (")[0] for line in drive.decide() if line.startswith("start")] == starts


def test_start_without_a_place_is_an_error_of_its_policy() -> None:
    class Starts:
        order, place, mpl, shares = staticmethod(fcfs), "normal", 1, True

        def plan(self, snapshot: Snapshot) -> Plan:
            future = SharedFuture(snapshot)
            return Plan([future.start(job, Reason(Why.FITS)) for job in snapshot.queue])

    drive = Drive(Starts(), nodes=TWO).with_jobs(2, 1)
    with pytest.raises(ValueError, match="job 2 has no place: "):
        drive.decide()


def test_where_ends_are_not_predicted_by_paces_it_starts() -> None:
    drive = Drive("easy", rules=MachineRules(place="spread"), nodes=THREE)
    drive.submit(1, 2, 60, kind="cpu")
    drive.decide_and_launch()
    drive.submit(2, 5, 60, kind="cpu")
    drive.submit(3, 1, 10, kind="cpu")
    drive.submit(4, 1, 10, kind="cpu")
    lines = [line.split(" (")[0] for line in drive.decide()]
    assert lines == ["start 3 on a", "start 4 on b", "tell 2 60 s: RESERVED"]


@pytest.mark.parametrize(
    ("policy", "starts"),
    [("basic", ["1 2", "", "3", "4 5"]), ("2dbf", ["1 2 5", "", "3", "4"]), ("3dbf-light", ["1 2 5", "", "3", "4"])],
)
def test_figure_5_the_fifth_job_starts_before_the_first_one_ends(policy: str, starts: list[str]) -> None:
    """In order the fifth waits until the third has ended, before whose start it could be done: the paper's Figure 5."""
    drive = Drive(policy, nodes=dict.fromkeys("abcd", (1, 0, 1)))
    for job_id, tasks, estimate_s in ((1, 2, 40), (2, 1, 20), (3, 4, 30), (4, 3, 30), (5, 1, 40)):
        drive.submit(job_id, tasks, estimate_s, kind="cpu")
    found = [_started(drive)]
    for now_s, ended in ((20, (2,)), (40, (1, 5)), (70, (3,))):
        drive.at(now_s)
        for job_id in ended:
            if drive.job_state(job_id) is JobState.RUNNING:
                drive.ended(job_id)
        found.append(_started(drive))
    assert found == starts


def _started(drive: Drive) -> str:
    """Whom a pass starts."""
    return " ".join(line.split()[1] for line in drive.decide_and_launch() if line.startswith("start"))


def test_light_takes_it_now_and_hard_waits_for_a_uniform_set() -> None:
    """The paper's Figure 6: a job now, in Normal's way, or later, in Uniform's."""
    found = {}
    for policy in ("3dbf-light", "3dbf-hard"):
        drive = Drive(policy, nodes=TWO)
        drive.submit(1, 1, 30, kind="cpu")
        drive.submit(2, 2, 60, kind="cpu")
        found[policy] = [line.split(" (")[0] for line in drive.decide()]
    assert found["3dbf-light"] == ["start 1 on a", "start 2 on a b", "pace 1 0.5", "pace 2 0.5"]
    assert found["3dbf-hard"] == ["start 1 on a", "tell 2 30 s: RESERVED"]


@pytest.mark.parametrize(("estimate_s", "starts"), [(30, True), (31, False)])
def test_behind_a_head_that_waits_for_a_uniform_set_starts_who_leaves_it_one(estimate_s: float, starts: bool) -> None:
    drive = Drive("3dbf-hard", nodes=TWO)
    drive.submit(1, 1, 30, kind="cpu")
    drive.submit(2, 2, 60, kind="cpu")
    drive.decide_and_launch()
    drive.submit(3, 1, estimate_s, kind="cpu")  # on the idle node b; the head wants both idle at 30 s
    line = f"start 3 on b (limit {estimate_s} s): BACKFILLED_BEFORE_SHADOW, shadow 30 s"
    assert drive.decide() == ([line] if starts else [])


def test_head_is_looked_at_again_after_each_start_that_may_make_room_for_it() -> None:
    """Job 3 brings the company that the head needs; job 4 of its kind would take the last place on each node."""
    drive = Drive("3dbf-hard", nodes={"a": (3, 0, 1), "b": (3, 0, 1), "c": (1, 0, 1)})
    drive.submit(1, 2, 200, kind="cpu")
    drive.submit(5, 1, 40, kind="cpu")  # at its end the head is looked at, with job 3 there
    drive.submit(2, 2, 20, kind="cpu")
    drive.decide_and_launch()
    drive.submit(3, 2, 200, kind="comm")
    drive.submit(4, 2, 40, kind="comm")
    assert [line.split(" (")[0] for line in drive.decide() if line.startswith("start")] == [
        "start 3 on a b",
        "start 2 on a b",
    ]


def test_beside_an_owner_all_takes_longer() -> None:
    drive = Drive("3dbf-hard", nodes=TWO)
    drive.owner("a", cpu_permille=0)
    drive.owner("b", cpu_permille=0)
    drive.decide()
    drive.submit(1, 1, 15, kind="cpu")
    drive.submit(2, 2, 60, kind="cpu")
    assert drive.decide_and_launch()[1:] == ["tell 2 30 s: RESERVED", "pace 1 0.5"]
    drive.submit(3, 1, 16, kind="cpu")  # 32 s on b
    assert drive.decide() == []
    drive.submit(4, 1, 15, kind="cpu")
    assert drive.decide() == ["start 4 on b (limit 15 s): BACKFILLED_BEFORE_SHADOW, shadow 30 s", "pace 4 0.5"]


def test_the_reservation_is_for_the_state_that_will_be() -> None:
    """The head waits for memory on both nodes, for job 2 at last. Job 1 may take 5 s longer, that one may not."""
    drive = Drive("3dbf-light", nodes={"a": (4, 100, 1), "b": (4, 100, 1)})
    drive.submit(1, 1, 20, memory=60, kind="cpu")
    drive.submit(2, 1, 40, memory=60, kind="cpu")
    drive.submit(3, 2, 60, memory=70, kind="comm")
    for job_id in (4, 5):
        drive.submit(job_id, 1, 5, memory=30, kind="comm")
    assert drive.decide() == [
        "start 1 on a (limit 20 s): FITS, free_procs 8",
        "start 2 on b (limit 40 s): FITS, free_procs 7",
        "start 4 on a (limit 5 s): BACKFILLED_BEFORE_SHADOW, shadow 40 s",
        "tell 3 40 s: RESERVED",
        "pace 1 0.5",
        "pace 4 0.5",
    ]


def test_policies_whose_promises_need_ends_that_stay_are_refused_where_nodes_are_shared() -> None:
    with pytest.raises(ValueError, match="cannot be had there"):
        SchedulerState(compose("fcfs", "conservative"), MachineRules(sharing=Sharing(Mode.CCS)))
    with pytest.raises(ValueError, match="cannot be had there"):
        SchedulerState(compose("fcfs", "backfill(2)"), MachineRules(sharing=Sharing(Mode.CCS)))


def test_a_machine_goes_on_from_paper_at_the_same_paces() -> None:
    drive = lab("3dbf-light", XWINDOWS, None)
    for job_id, kind in ((1, "cpu"), (2, "comm"), (3, "cpu")):
        drive.submit(job_id, 2, 60, memory=10 * MIB, kind=kind, cpu_permille=800)
    drive.decide_and_launch()
    drive.at(30)
    drive.state.machine.now_us = 30_000_000
    again = SchedulerState.restore(drive.state.policy, drive.state.rules, drive.state.snapshot())
    again.validate()
    assert again.snapshot() == drive.state.snapshot()
    for state in (again, drive.state):
        state.handle(ev.JobEnded(1), 40_000_000)
    both = [state.handle(ev.Boundary(), 40_000_000) for state in (again, drive.state)]
    assert both[0] == both[1]
    assert any(isinstance(each, RateChanged) for each in both[0])


def test_a_machine_that_kept_no_rates_goes_on_with_them() -> None:
    """The service is started again with a policy that looks at who shares nodes, while jobs run."""
    drive = Drive("easy", rules=MachineRules(place="spread"), nodes=TWO).with_jobs(2).planned()
    drive.at(20).submit(2, 4, 30)
    drive.decide()
    rules = MachineRules(sharing=Sharing(Mode.CCS))
    state = SchedulerState.restore(compose("fcfs", "backfill(1)", "uniform-light"), rules, drive.state.snapshot())
    state.validate()
    state.handle(ev.JobSubmitted(Job(3, 1, 10_000_000, 0)), 30_000_000)
    told = [each for each in state.handle(ev.Boundary(), 30_000_000) if isinstance(each, Tell)]
    state.validate()
    assert all(each.promised_us == 60_000_000 for each in told)
    assert state.records[2].promise_us == 60_000_000
    assert state.records[1].progress().end_us == 60_000_000


def test_a_job_that_runs_past_its_estimate_is_predicted_anew() -> None:
    drive = Drive("3dbf-light", rules=MachineRules(kill_at_limit=False), nodes=TWO).with_jobs((2, 10)).planned()
    drive.submit(2, 4, 10)
    assert drive.decide() == ["tell 2 10 s: RESERVED"]
    assert drive.at(10).decide() == ["tell 2 70 s: OVERRUN"]


def test_the_same_job_is_again_as_new_when_it_was_requeued() -> None:
    drive = Drive("normal", nodes=TWO)
    drive.say(ev.JobSubmitted(Job(1, 2, 60_000_000, 0, requeue=True)))
    drive.decide_and_launch()
    drive.at(30).owner("a")
    drive.decide()
    drive.at(40).lose_node("b")
    drive.ended(1, JobState.NODE_LOST)
    drive.node("b", 2, 0, 1)
    drive.owner_left("a")
    assert [line.split(" (")[0] for line in drive.decide_and_launch()] == ["start 1 on a b"]
    assert drive.state.records[1].end_us == 100_000_000


def test_job_that_owners_keep_from_empty_nodes_is_told_so() -> None:
    """No set of three of four desks is uniform with owners at two of them, and no node is lost or drained."""
    drive = lab("uniform-hard", XWINDOWS, XWINDOWS, None, None)
    drive.submit(1, 5, 60, memory=10 * MIB)
    drive.submit(2, 1, 60, memory=300 * MIB)
    assert drive.decide() == []
    assert drive.why(1) == "OWNERS_THERE, procs 5, fitting_procs 16"
    drive.lose_node("n4")
    drive.owner_left("n1")
    drive.decide()
    assert drive.why(1).startswith("OWNERS_THERE")
    drive.lose_node("n3")
    drive.decide()
    assert drive.why(1).startswith("NODES_AWAY")


def test_job_whose_memory_an_owner_holds_is_told_so() -> None:
    drive = lab("normal", INTERNET)
    drive.submit(1, 1, 60, memory=300 * MIB)
    assert drive.decide() == []
    assert drive.why(1).startswith("OWNERS_THERE")
    drive.lose_node("n1")
    drive.decide()
    assert drive.why(1).startswith("NODES_AWAY")


def test_each_node_is_explained_to_a_job_that_waits() -> None:
    drive = Drive("uniform-hard", nodes={"a": (2, 100, 1), "b": (2, 100, 1), "c": (2, 30, 1), "d": (1, 100, 1)})
    drive.submit(1, 1, 60, memory=10, kind="cpu", cpu_permille=900)  # where least is used: the first
    drive.submit(2, 1, 60, memory=20, kind="comm")
    assert [line.split(" (")[0] for line in drive.decide()][:2] == ["start 1 on a", "start 2 on b"]
    drive.submit(3, 3, 60, memory=40, kind="cpu")
    drive.decide()
    assert drive.state.explain_nodes(3) == [
        OnNode("a", 0, Limit.KIND, 0, 10, 1, 900),
        OnNode("b", 1, None, 2, 20, 1, 1000),
        OnNode("c", 0, Limit.MEMORY, 0, 0, 0, 0),
        OnNode("d", 1, None, 1, 0, 0, 0),
    ]
    assert drive.state.explain_nodes(1) == []
    drive.say(ev.NodeJoined(Node("a", 1, 100, 1)))
    assert drive.state.explain_nodes(3)[0].limit is Limit.PLACES


def test_each_node_can_be_explained_as_if_nobody_were_at_a_desk() -> None:
    """What is used, the order of use and what memory is left then say nothing of a person."""
    drive = Drive("normal", nodes={"a": (2, 100, 1), "b": (2, 100, 1)})
    drive.submit(1, 1, 60, memory=10, cpu_permille=900)
    drive.submit(2, 4, 60, memory=30)
    drive.decide()
    before = drive.state.explain_nodes(2, owners=False)
    assert before == drive.state.explain_nodes(2)
    drive.say(ev.OwnerCame("b", Owner(1250, 90)))
    drive.decide()
    assert drive.state.explain_nodes(2, owners=False) == before
    assert drive.state.explain_nodes(2)[1] == OnNode("b", 0, Limit.MEMORY, 0, 90, 0, 1250)
