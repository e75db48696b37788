"""The service's rules by themselves: inputs at times of a test's own, and what is to be done about each."""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.config.cluster import ClusterConfig, SetAside
from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job, JobState
from cosched.model.node import Node, Presence, Usage
from cosched.model.stall import Stall, StalledProcess
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill, SharePlan, Start, Turn
from space_scheduler.machine.turns import SavedTurns
from space_scheduler.reasons import CANCELLED, Reason, Why
from space_scheduler.service.core.worker import Post
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.gang import SLOW_USERS
from space_scheduler.service.launch.orders import OrderKind, Orders
from space_scheduler.service.launch.owners import PAUSED, STALLED
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import (
    AnyInput,
    CertificateExpired,
    Connected,
    Cut,
    Disconnected,
    Effect,
    Heard,
    InJournal,
    Removed,
    RevocationsChanged,
    Send,
    Started,
    Ticked,
)


class Rules:
    """A service with one node and a job that runs there, by its journal; told what happens second by second."""

    def __init__(
        self, state: JobState = JobState.RUNNING, *nodes: str, others: tuple[str, ...] = (), **settings: Any
    ) -> None:
        names = nodes or ("n1",)
        given = {"heartbeat": "1s", "lease": "5s", "launch_timeout": "60s"} | settings
        config = ClusterConfig(name="c", nodes=[*names, *others], **given)
        fence = wire.Fence("c", 2, "i")
        self.core = ServiceCore(config, config.nodes, fence, Orders(config, fence, Ed25519PrivateKey.generate()))
        self.now_s = 100.0
        allocation = Allocation(len(names), nodes=tuple(Share(name, 1) for name in names))
        job = JobRecord(
            job=Job(1, len(names), 60_000_000, 0), user="ann", state=state, submit_us=0, attempt=1,
            submission=Submission(script="#!/bin/sh\n", directory="/", tasks=len(names)), allocation=allocation,
            limit_us=60_000_000,
        )  # fmt: skip
        self.feed(Started((job,), (), {}, SavedTurns()))

    def feed(self, happened: AnyInput) -> list[Effect]:
        return self.core.handle(happened, self.now_s)

    def comes(self, name: str, *groups: wire.GroupReport, cluster: str = "") -> list[Effect]:
        """A node's agent calls, and takes the welcome."""
        hello = wire.Hello(
            wire.VERSION, name, "boot", 2, 1 << 30, "127.0.0.1", 1, "test", groups=groups, session=b"s" * 8,
            cluster=cluster,
        )  # fmt: skip
        self.feed(Connected(name, hello, b"t" * 8))
        return self.feed(Heard(name, wire.GroupEnded(99, 1)))

    def order(self, name: str, kind: OrderKind) -> wire.OrderId:
        """The order of that kind that the node was given for the job last."""
        return self.core.launches.orders.of(name, (1, 1), kind)

    def silence(self) -> list[Effect]:
        """Nobody is heard for a lease."""
        found: list[Any] = []
        for _ in range(7):
            self.now_s += 1
            found += self.feed(Ticked())
        return found

    def journalled(self, effects: list[Effect]) -> list[Effect]:
        """All that follows when what was posted is in the journal, and what follows from that."""
        events: list[Any] = [each.event for each in effects if isinstance(each, Post)]
        return [*effects, *(more for event in events for more in self.journalled(self.feed(InJournal(event))))]

    def passes(self, seconds: int, *heard: str) -> list[Effect]:
        """Seconds in each of which these nodes are heard, and what was posted is journalled."""
        found: list[Effect] = []
        for _ in range(seconds):
            self.now_s += 1
            inputs: list[AnyInput] = [Heard(name, wire.Heartbeat(Usage(), Presence.AWAY)) for name in heard]
            for happened in [*inputs, Ticked()]:
                found += self.journalled(self.feed(happened))
        return found


def sent(effects: list[Effect], kind: type[wire.Order]) -> list[tuple[str, int]]:
    return [
        (each.node, each.message.order.job_id)
        for each in effects
        if isinstance(each, Send) and isinstance(each.message, kind)
    ]


def test_a_node_forgets_nothing_before_the_end_is_in_the_journal() -> None:
    """Else a scheduler that is killed in between finds a job that no node knows. (Found by simulated faults.)"""
    rules = Rules()
    ended = [each for each in rules.silence() if isinstance(each, Post) and isinstance(each.event, ev.JobEnded)]
    assert [post.event for post in ended] == [ev.JobEnded(1, JobState.NODE_LOST)]
    back = rules.comes("n1", wire.GroupReport(1, 1, "ended", 2))
    assert (1 in {job for _, job in sent(back, wire.Forget)}) is False
    assert sent(rules.feed(InJournal(ev.JobEnded(1, JobState.NODE_LOST))), wire.Forget) == [("n1", 1)]


def test_a_scheduler_that_stood_still_waits_a_lease_for_who_called_since_and_no_longer() -> None:
    """What it missed was added to the time of a node's last word, also where that came later. (Found by faults.)"""
    rules = Rules()
    rules.comes("n1", wire.GroupReport(1, 1, "running", 1))
    rules.feed(Ticked())
    rules.now_s += 30
    rules.feed(Heard("n1", wire.GroupEnded(99, 1)))
    rules.feed(Ticked())
    lost = [each for each in rules.silence() if isinstance(each, Post) and isinstance(each.event, ev.JobEnded)]
    assert [post.event for post in lost] == [ev.JobEnded(1, JobState.NODE_LOST)]


def test_strays_of_one_node_are_bounded() -> None:
    rules = Rules()
    rules.comes("n1", wire.GroupReport(1, 1, "running", 1))
    killed = 0
    for job_id in range(1000, 12_000):
        killed += len(sent(rules.feed(Heard("n1", wire.ProgramEnded(job_id, 1, wire.Exit(0)))), wire.Kill))
    assert len(rules.core.book.entry("n1").stale) == killed == 10_000


def test_a_node_that_is_still_making_ready_is_not_ready() -> None:
    """Its agent lost its link before the guard had answered. (Found by simulated faults.)"""
    rules = Rules(JobState.STARTING, "n1", "n2")
    first = rules.comes("n1", wire.GroupReport(1, 1, "prepared", 1))
    assert sent(first, wire.Run) == []
    found = rules.comes("n2", wire.GroupReport(1, 1, "found", 0))
    assert sent(found, wire.Run) == []
    assert sent(found, wire.Prepare) == [("n2", 1)]
    order = wire.OrderId(1, 1, 1)
    assert sent(rules.feed(Heard("n2", wire.Prepared(order))), wire.Run) == [("n1", 1)]


def messages(effects: list[Effect], kind: type[wire.ToAgent]) -> dict[str, Any]:
    return {each.node: each.message for each in effects if isinstance(each, Send) and isinstance(each.message, kind)}


def test_removed_node_is_told_so_and_cut_off_and_all_others_hear_which_certificates_count_no_more() -> None:
    rules = three()
    told = rules.feed(Removed("n3", ("77",)))
    assert messages(told, wire.Revoked) == dict.fromkeys(("n1", "n2"), wire.Revoked(("77",)))
    assert messages(told, wire.Rejected).keys() == {"n3"}
    assert [each.node for each in told if isinstance(each, Cut)] == ["n3"]
    assert posted(told, ev.NodeLost) == [ev.NodeLost("n3")]
    again = rules.feed(RevocationsChanged(("77", "78")))
    assert messages(again, wire.Revoked) == dict.fromkeys(("n1", "n2"), wire.Revoked(("77", "78")))


def test_what_an_agent_said_before_its_connection_ended_is_not_heard_after() -> None:
    rules = three()
    rules.feed(Disconnected("n1"))
    heard_s = rules.core.book.entry("n1").heard_s
    rules.now_s += 1
    assert rules.feed(Heard("n1", wire.Heartbeat(Usage(), Presence.AWAY, asked_us=77))) == []
    assert rules.core.book.entry("n1").heard_s == heard_s


def test_node_with_an_expired_certificate_is_drained_at_its_next_heartbeat() -> None:
    rules = three()
    assert rules.feed(CertificateExpired("n1", "2026-11-01")) == []
    beat = rules.feed(Heard("n1", wire.Heartbeat(Usage(), Presence.AWAY)))
    assert posted(beat, ev.NodeDrained) == [ev.NodeDrained("n1", f"{wire.EXPIRED}expired on 2026-11-01")]


def test_node_is_told_the_turns_of_its_jobs_that_the_core_has_decided_on() -> None:
    rules = Rules()
    rules.comes("n1", wire.GroupReport(1, 1, "running", 1))
    plan = SharePlan((Turn(1, 1, 2),), ev.Boundary(), Reason(Why.FITS))
    rules.feed(InJournal(ev.Boundary(), (plan,)))
    beat = rules.feed(Heard("n1", wire.Heartbeat(Usage(), Presence.AWAY, asked_us=77)))
    assert [(turn.row, turn.rows) for turn in messages(beat, wire.Turns)["n1"].jobs] == [(1, 2)]


def test_stray_that_its_node_does_not_know_any_more_keeps_it_out_of_service_no_longer() -> None:
    rules = Rules()
    back = rules.comes("n1", wire.GroupReport(1, 1, "running", 1), wire.GroupReport(7, 1, "running", 1))
    assert sent(back, wire.Kill) == [("n1", 7)]
    order = rules.core.launches.orders.of("n1", (7, 1), OrderKind.KILL)
    assert posted(rules.feed(Heard("n1", wire.Refused(order, "busy", "no"))), ev.NodeJoined) == []
    gone = rules.feed(Heard("n1", wire.Refused(order, "unknown", "no such job")))
    assert [event.node.name for event in posted(gone, ev.NodeJoined)] == ["n1"]


@pytest.mark.parametrize(
    ("status", "output", "message"),
    [
        (0, "4-daemon.txt", "mpirun lost its daemon on node3, and the ranks there"),
        (1, "4-exit.txt", "rank 2 on node2 exited with status 3"),
    ],
)
def test_job_fails_by_its_launchers_own_words(status: int, output: str, message: str) -> None:
    rules = Rules()
    rules.comes("n1", wire.GroupReport(1, 1, "running", 1))
    rules.core.launches.attempts[1].peers = tuple(
        wire.Peer(f"node{n}", f"10.77.0.{n}", 1, 1 + (n == 2)) for n in (1, 2, 3)
    )
    tail = (Path(__file__).parents[1] / "launch" / "outputs" / output).read_bytes()
    rules.feed(Heard("n1", wire.ProgramEnded(1, 1, wire.Exit(status), tail)))
    (end,) = [each for each in rules.feed(Heard("n1", wire.GroupEnded(1, 1))) if isinstance(each, Post)]
    assert end.event == ev.JobEnded(1, JobState.FAILED)
    assert end.facts is not None
    assert end.facts.failure is not None
    assert end.facts.failure.message == message


def test_what_could_not_be_forgotten_is_not_asked_again_of_a_job_that_has_its_number_now() -> None:
    """After a take-over another journal's job may have had it."""
    rules = Rules()
    rules.comes("n1", wire.GroupReport(1, 1, "running", 2), wire.GroupReport(7, 1, "ended", 2))
    for job_id in (1, 7):
        order = rules.core.launches.orders.of("n1", (job_id, 1), OrderKind.FORGET)
        rules.feed(Heard("n1", wire.Refused(order, "failed", "its guard is away")))
    beat = rules.feed(Heard("n1", wire.Heartbeat(Usage(), Presence.AWAY)))
    assert sent(beat, wire.Forget) == [("n1", 7)]


def test_what_a_lost_node_could_not_forget_is_asked_again_when_the_jobs_end_is_in_the_journal() -> None:
    """It was passed over while the job was still ending elsewhere, and stayed there. (Found by simulated faults.)"""
    rules = Rules(JobState.RUNNING, "n1", "n2")
    for name in ("n1", "n2"):
        rules.comes(name, wire.GroupReport(1, 1, "running", 1))
    for _ in range(7):
        rules.now_s += 1
        rules.feed(Heard("n2", wire.Heartbeat(Usage(), Presence.AWAY)))
        rules.feed(Ticked())
    assert sent(rules.comes("n1", wire.GroupReport(1, 1, "running", 1)), wire.Kill)[:1] == [("n1", 1)]
    assert sent(rules.feed(Heard("n1", wire.GroupEnded(1, 1))), wire.Forget) == [("n1", 1)]
    order = rules.core.launches.orders.of("n1", (1, 1), OrderKind.FORGET)
    rules.feed(Heard("n1", wire.Refused(order, "failed", "its guard is away")))
    assert sent(rules.feed(Heard("n1", wire.Heartbeat(Usage(), Presence.AWAY))), wire.Forget) == []
    rules.feed(Heard("n2", wire.GroupEnded(1, 1)))
    told = sent(rules.feed(InJournal(ev.JobEnded(1, JobState.NODE_LOST))), wire.Forget)
    assert sorted(told) == [("n1", 1), ("n2", 1)]


def stalled(*keys: tuple[int, int], user: str = "ann", own: bool = False) -> wire.Heartbeat:
    """A heartbeat that says that these attempts cannot be ended, each on one of the node's two processors."""
    process = StalledProcess(7, "cat", "nfs_wait", "/mnt/x", "/mnt", "0:42", own)
    signs = tuple(wire.JobSigns(*key, "unknown", 0, stall=Stall(user, 1, 1 << 20, 9, (process,))) for key in keys)
    return wire.Heartbeat(Usage(), Presence.AWAY, jobs=signs)


def posted(effects: list[Effect], kind: type[ev.Event]) -> list[Any]:
    return [each.event for each in effects if isinstance(each, Post) and isinstance(each.event, kind)]


def held_procs(effects: list[Effect]) -> list[int]:
    return [event.node.held_procs for event in posted(effects, ev.NodeJoined) if isinstance(event, ev.NodeJoined)]


def test_launch_that_stalls_leaves_its_processors_to_the_node_and_is_tried_elsewhere() -> None:
    rules = Rules(JobState.STARTING)
    joined = posted(rules.comes("n1", wire.GroupReport(1, 1, "prepared", 1)), ev.NodeJoined)
    rules.feed(InJournal(joined[0]))
    rules.feed(Heard("n1", wire.Prepared(rules.order("n1", OrderKind.PREPARE))))
    refusal = wire.Refused(rules.order("n1", OrderKind.RUN), "unrun", "/mnt/x on /mnt does not answer")
    assert sent(rules.feed(Heard("n1", refusal)), wire.Kill) == [("n1", 1)]
    told = rules.feed(Heard("n1", stalled((1, 1))))
    assert (held_procs(told), posted(told, ev.LaunchFailed)) == ([1], []), "first the core knows what is held"
    rules.feed(InJournal(posted(told, ev.NodeJoined)[0]))
    assert posted(rules.feed(Heard("n1", stalled((1, 1)))), ev.LaunchFailed) == [ev.LaunchFailed(1, ("n1",))]
    rules.feed(InJournal(ev.LaunchFailed(1, ("n1",))))
    assert sent(rules.feed(Heard("n1", wire.GroupEnded(1, 1))), wire.Forget) == [("n1", 1)]
    assert held_procs(rules.feed(Heard("n1", stalled()))) == [0]


def test_job_that_cannot_be_ended_is_ending_and_keeps_its_processors() -> None:
    rules = Rules()
    rules.comes("n1", wire.GroupReport(1, 1, "running", 1))
    told = rules.feed(Heard("n1", stalled((1, 1))))
    assert (sent(told, wire.Kill), posted(told, ev.JobCannotEnd)) == ([("n1", 1)], [ev.JobCannotEnd(1, "n1")])
    entry = rules.core.book.entry("n1")
    assert (list(entry.stalls), entry.left) == ([(1, 1)], {})
    assert posted(rules.feed(Heard("n1", stalled((1, 1)))), ev.JobCannotEnd) == []
    rules.feed(Heard("n1", wire.ProgramEnded(1, 1, wire.Exit(signal=9, cause="limit"))))
    ended = rules.feed(Heard("n1", wire.GroupEnded(1, 1)))
    assert posted(ended, ev.JobEnded) == [ev.JobEnded(1, JobState.TIMED_OUT)]


@pytest.mark.parametrize("said", [{"seen": ("hydra_pmi_proxy",)}, {"hydra": True}])
def test_time_out_of_a_job_seen_with_hydras_proxy_tells_of_mpichs_hang(said: dict[str, Any]) -> None:
    rules = Rules()
    rules.comes("n1", wire.GroupReport(1, 1, "running", 1))
    for seen in (said, {}):  # its processes are being ended by then
        sign = wire.JobSigns(1, 1, "unknown", 0, **seen)
        rules.feed(Heard("n1", wire.Heartbeat(Usage(), Presence.AWAY, jobs=(sign,))))
    rules.feed(Heard("n1", wire.ProgramEnded(1, 1, wire.Exit(signal=9, cause="limit"))))
    (end,) = [each for each in rules.feed(Heard("n1", wire.GroupEnded(1, 1))) if isinstance(each, Post)]
    assert end.facts is not None
    assert end.facts.failure is not None
    assert "it hung in MPI_Finalize" in end.facts.failure.message


def test_what_an_ended_job_has_left_keeps_no_node_out_of_service() -> None:
    """A scheduler that was started anew ends it as a stray; the node was out of service until that was gone."""
    rules = Rules()
    back = rules.comes("n1", wire.GroupReport(1, 1, "running", 1), wire.GroupReport(7, 1, "prepared", 1))
    assert (sent(back, wire.Kill), held_procs(back)) == ([("n1", 7)], [])
    assert held_procs(rules.feed(Heard("n1", stalled((7, 1))))) == [1]


def test_node_on_whose_own_file_system_a_process_stalls_is_drained_until_it_answers() -> None:
    rules = Rules()
    rules.feed(InJournal(posted(rules.comes("n1", wire.GroupReport(1, 1, "running", 1)), ev.NodeJoined)[0]))
    assert posted(rules.feed(Heard("n1", stalled((1, 1)))), ev.NodeDrained) == []
    (drained,) = posted(rules.feed(Heard("n1", stalled((1, 1), own=True))), ev.NodeDrained)
    assert isinstance(drained, ev.NodeDrained)
    assert drained.reason.startswith(STALLED)
    rules.feed(InJournal(drained))
    assert posted(rules.feed(Heard("n1", stalled((1, 1), own=True))), ev.NodeResumed) == []
    assert posted(rules.feed(Heard("n1", stalled())), ev.NodeResumed) == [ev.NodeResumed("n1")]


def test_a_node_that_comes_and_goes_is_set_aside_whatever_its_owner_does_meanwhile() -> None:
    """The end of a pause counted as an operator's trust. (Found by simulated faults, seed 210.)"""
    rules = Rules(JobState.RUNNING, "n1", "n2")

    def flaps() -> list[ev.Event]:
        rules.comes("n2")
        for name in ("n1", "n2"):
            rules.feed(InJournal(ev.NodeJoined(Node(name, 2, 1 << 30)), (), {}))
        rules.comes("n1")
        found: list[Any] = []
        for _ in range(7):
            rules.now_s += 1
            rules.feed(Heard("n2", wire.Heartbeat(Usage(), Presence.AWAY)))
            found += [each.event for each in rules.feed(Ticked()) if isinstance(each, Post)]
        for event in found:
            rules.feed(InJournal(event, (), {}))
        return [event for event in found if isinstance(event, ev.NodeLost | ev.NodeDrained)]

    assert flaps() == flaps() == [ev.NodeLost("n1")]
    rules.feed(InJournal(ev.NodeDrained("n1", f"{PAUSED}ann has paused"), (), {}))
    rules.feed(InJournal(ev.NodeResumed("n1"), (), {}))
    lost, aside = flaps()
    assert lost == ev.NodeLost("n1")
    assert aside == ev.NodeDrained("n1", "set aside: it was lost 3 times within 1 h")
    rules.feed(InJournal(ev.NodeResumed("n1"), (), {}))
    assert flaps() == flaps() == [ev.NodeLost("n1")], "an operator trusts it again"


def launched(rules: Rules, job_id: int, code: str, node: str = "n1") -> list[Effect]:
    """What follows when a node refuses the launch of a job with that code (empty: it runs)."""
    job, held = Job(job_id, 1, 60_000_000, 0), Allocation(1, nodes=(Share(node, 1),))
    record = JobRecord(
        job=job, user="ann", state=JobState.STARTING, submit_us=0, attempt=1, allocation=held,
        submission=Submission(script="#!/bin/sh\n", directory="/", tasks=1),
    )  # fmt: skip
    start = Start(job, held, None, ev.Boundary(), Reason(Why.FITS))
    rules.feed(InJournal(ev.Boundary(), (start,), {job_id: record}))
    order, run = (rules.core.launches.orders.of(node, (job_id, 1), OrderKind(kind)) for kind in ("prepare", "run"))
    refusal: list[wire.FromAgent] = [wire.Refused(order, code, "no"), wire.GroupEnded(job_id, 1)]
    runs: list[wire.FromAgent] = [wire.Prepared(order), wire.Started(run, 1)]
    answers = refusal if code else runs
    return [effect for answer in answers for effect in rules.journalled(rules.feed(Heard(node, answer)))]


def aside(effects: list[Effect]) -> list[str]:
    return [event.name for event in posted(effects, ev.NodeDrained)]


def three(**settings: Any) -> Rules:
    """Three nodes in service."""
    rules = Rules(JobState.RUNNING, "n3", others=("n1", "n2"), **settings)
    for name in ("n1", "n2", "n3"):
        rules.journalled(rules.comes(name))
    return rules


def test_node_is_set_aside_after_three_failures_in_a_row_that_are_its_own() -> None:
    rules = three()
    codes = ["failed", "failed", "", "failed", "user", "directory", "failed", "user", "failed"]
    found = [aside(launched(rules, 10 + number, code)) for number, code in enumerate(codes)]
    assert found == [[]] * 8 + [["n1"]]
    assert rules.core.launches.suspects.counted == {"launches": 1}


def test_never_more_than_half_of_the_nodes_are_set_aside() -> None:
    rules = three(set_aside=SetAside(failed_launches=1))
    found = [aside(launched(rules, 10 + at, "failed", f"n{1 + at % 3}")) for at in range(6)]
    assert found == [["n1"]] + [[]] * 5


def test_cuts_shorter_than_a_lease_are_no_losses() -> None:
    rules = three()
    for _ in range(6):
        told = [*rules.journalled(rules.feed(Disconnected("n1"))), *rules.passes(4, "n2", "n3")]
        assert posted(told, ev.NodeLost) == []
        rules.comes("n1")
    assert not rules.core.book.entry("n1").drained


def test_slow_user_database_counts_neither_against_the_job_nor_the_node() -> None:
    rules = three()
    for job_id in range(10, 14):
        told = launched(rules, job_id, SLOW_USERS)
        assert posted(told, ev.LaunchFailed) == [ev.LaunchFailed(job_id, ("n1",), passing=True)]
        assert aside(told) == []


def test_cancelled_job_does_not_wait_for_a_node_without_guard_which_is_back_when_nothing_is_left_there() -> None:
    rules = Rules(JobState.RUNNING, "n1", "n2", launch_timeout="10s")
    for name in ("n1", "n2"):
        rules.journalled(rules.comes(name, wire.GroupReport(1, 1, "running", 1)))
    why = "the guard has not answered 'status' for 5 s"

    def beat(guard: str = "") -> list[Effect]:
        return rules.journalled(rules.feed(Heard("n2", wire.Heartbeat(Usage(), Presence.AWAY, guard=guard))))

    assert posted(beat(why), ev.NodeDrained) == [ev.NodeDrained("n2", f"guard: {why}")]
    cancelled = ev.JobCancelled(1)
    told = rules.feed(InJournal(cancelled, (Kill(1, cancelled, CANCELLED),)))
    assert sent(told, wire.Kill) == [("n1", 1), ("n2", 1)]
    rules.feed(Heard("n1", wire.GroupEnded(1, 1)))
    ends = []
    for _ in range(11):
        ends.append(posted(beat(why), ev.JobEnded))
        rules.now_s += 1
    assert ends == [[]] * 10 + [[ev.JobEnded(1, JobState.CANCELLED)]]
    assert posted(beat(), ev.NodeResumed) == [], "the guard is back, and something of the job is still there"
    assert sent(rules.feed(Heard("n2", wire.GroupEnded(1, 1))), wire.Forget) == [("n2", 1)]
    assert posted(beat(), ev.NodeResumed) == [ev.NodeResumed("n2")]
