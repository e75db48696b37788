"""What the scheduler tells nodes of their jobs' neighbours: turns, fair shares, and who has none."""

from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.config.cluster import ClusterConfig, CoschedulingSettings, load_cluster
from cosched.errors import BadInput
from cosched.model.allocation import Allocation, Share
from cosched.model.contract import SocialContract
from cosched.model.coscheduling import Mode, rows
from cosched.model.job import Job, JobState
from cosched.model.node import Node, Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import SharePlan, Turn
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.api.submissions import checked
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.attempt import Attempts, LaunchAttempt
from space_scheduler.service.launch.coscheduling import Coscheduling
from space_scheduler.service.launch.gang import Gang
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.launch.orders import Orders
from space_scheduler.service.launch.owners import Clocks
from space_scheduler.service.launch.values import Outbox

BOTH = {"a": 1, "b": 1}


def test_jobs_that_meet_take_turns_and_no_two_have_the_same() -> None:
    tasks = {1: BOTH, 2: {"a": 1}, 3: {"b": 1}, 4: {"c": 1}}
    assert rows(tasks, {"a", "b"}, {1}, {"a", "b", "c"}) == {1: (0, 2), 2: (1, 2), 3: (1, 2)}


def test_a_chain_of_jobs_counts_the_same_rows_everywhere() -> None:
    tasks = {1: {"a": 1, "b": 1}, 2: {"b": 1, "c": 1}, 3: {"c": 1}, 4: {"c": 1}}
    found = rows(tasks, {"b", "c"}, {4}, {"a", "b", "c"})
    assert found == {1: (0, 3), 2: (1, 3), 3: (0, 3), 4: (2, 3)}


def test_no_turns_where_nobody_wants_them_a_node_keeps_no_time_or_nobody_meets() -> None:
    tasks = {1: BOTH, 2: {"a": 1}}
    assert rows(tasks, {"a"}, set(), {"a", "b"}) == {}
    assert rows(tasks, {"a"}, {1}, {"a"}) == {}, "b could not keep time"
    assert rows(tasks, set(), {1}, {"a", "b"}) == {}
    crowd = {job: {"a": 1} for job in range(1, 10)}
    assert rows(crowd, {"a"}, {1}, {"a"}) == {}, "nine turns are too long a wait"


class PutThere:
    """A policy that starts each job where the test has it."""

    order = staticmethod(fcfs)
    memory_type = None
    shares = True

    def __init__(self) -> None:
        self.there: dict[int, Allocation] = {}

    def plan(self, snapshot: Snapshot) -> Plan:
        return Plan([PlannedStart(job, Reason(Why.FITS), self.there[job.id]) for job in snapshot.queue])


class Cluster:
    """Two nodes of one CPU with what they have said last, the jobs on them, and the core that decides about turns."""

    def __init__(self, mode: Mode = Mode.CCS) -> None:
        self.config = ClusterConfig(name="c", nodes=["a", "b"], coscheduling=CoschedulingSettings(mode=mode))
        self.book = NodeBook(self.config.nodes, lambda: 5.0)
        orders = Orders(self.config, wire.Fence("c", 1, "i"), Ed25519PrivateKey.generate())
        self.shared = Attempts(self.config, self.book, orders, Outbox())
        self.attempts: dict[int, LaunchAttempt] = {}
        self.told = Coscheduling(self.config, self.book, self.attempts)
        self.clocks = Clocks(self.config)
        self.policy = PutThere()
        self.core = SchedulerState(self.policy, MachineRules(coscheduling=mode))
        self.plans: list[SharePlan] = []
        for node in ("a", "b"):
            self.happens(ev.NodeJoined(Node(node, 9, 1 << 30, 1)))
            self.says(node)

    def happens(self, event: ev.Event) -> None:
        instructions = self.core.handle(event, 0)
        self.plans += [each for each in instructions if isinstance(each, SharePlan)]
        for each in instructions:
            if isinstance(each, SharePlan):
                self.told.follow(each.turns)
        self.core.validate()

    def says(
        self, node: str, receives: dict[int, str] | None = None, bound_us: int = 100, cpus: float | None = None
    ) -> None:
        entry = self.book.entry(node)
        entry.hello = wire.Hello(1, node, "boot", 1, 1 << 30, "127.0.0.1", 1, "test")
        entry.connected = entry.known = True
        signs = tuple(wire.JobSigns(job, 1, how, 3, ("tcp",)) for job, how in (receives or {}).items())
        entry.beat = wire.Heartbeat(
            Usage(), Presence.AWAY, limited_cpus=cpus, asked_us=77, clock_bound_us=bound_us, jobs=signs
        )
        for _ in range(3):  # a clock is believed when it stays so
            if clock := self.clocks.event(entry, entry.beat):
                self.happens(clock)
        for job_id, how in (receives or {}).items():
            if (launch := self.attempts.get(job_id)) and (seen := launch.receives_seen(node, how)):
                self.happens(seen)

    def runs(self, job_id: int, *nodes: str, mode: str | None = None) -> None:
        job = Job(job_id, len(nodes), 1_000_000, 0, coscheduling=mode or "")
        submission = Submission(script="#!/bin/sh\n", directory="/", coscheduling=mode)
        allocation = Allocation(len(nodes), nodes=tuple(Share(node, 1) for node in nodes))
        record = JobRecord(
            job=job, user="u", submission=submission, state=JobState.RUNNING, submit_us=0, attempt=1,
            allocation=allocation,
        )  # fmt: skip
        self.attempts[job_id] = LaunchAttempt(self.shared, record, allocation, None, Gang(nodes))
        self.policy.there[job_id] = allocation
        for event in (ev.JobSubmitted(job), ev.Boundary(), ev.JobLaunched(job_id)):
            self.happens(event)

    def ends(self, job_id: int) -> None:
        del self.attempts[job_id]
        self.happens(ev.JobEnded(job_id))

    def hears(self, node: str) -> dict[int, tuple[str, float, int, int]]:
        entry = self.book.entry(node)
        assert entry.beat is not None
        self.told._until_s = 0.0  # half a heartbeat later
        turns = self.told.answer(entry, entry.beat)
        assert (turns.asked_us, turns.now_us) == (77, 5_000_000)
        return {turn.job_id: (turn.mode, round(turn.share, 6), turn.row, turn.rows) for turn in turns.jobs}


def test_a_poller_of_ccs_gets_turns_and_a_blocker_none() -> None:
    cluster = Cluster()
    cluster.runs(1, "a", "b")
    cluster.runs(2, "a")
    assert cluster.hears("a") == {1: ("ccs", 0.5, 0, 0), 2: ("ccs", 0.5, 0, 0)}
    cluster.says("a", {1: "polls", 2: "nothing"})
    assert cluster.hears("a") == {1: ("ccs", 0.5, 0, 2), 2: ("ccs", 0.5, 1, 2)}
    cluster.says("a", {1: "polls", 2: "nothing"})
    assert [str(plan.reason.why.name) for plan in cluster.plans] == ["TAKE_TURNS"], "told once"
    assert cluster.plans[0].turns == (Turn(1, 0, 2), Turn(2, 1, 2))
    assert cluster.hears("b") == {1: ("ccs", 0.5, 0, 2)}
    cluster.says("a", {1: "blocks", 2: "nothing"})
    assert cluster.hears("a")[1] == ("ccs", 0.5, 0, 0)


def test_a_job_says_what_it_wants_and_gang_wants_turns_however_it_receives() -> None:
    cluster = Cluster(Mode.NONE)
    cluster.runs(1, "a", "b", mode="gang")
    cluster.runs(2, "b", mode="dcs")
    assert cluster.hears("b") == {1: ("gang", 0.5, 0, 2), 2: ("dcs", 0.5, 1, 2)}
    cluster.says("a", bound_us=6_000)  # more than a tenth of 50 ms
    assert cluster.hears("b") == {1: ("gang", 0.5, 0, 0), 2: ("dcs", 0.5, 0, 0)}
    cluster.says("a", bound_us=-1)
    assert cluster.hears("b")[1] == ("gang", 0.5, 0, 0)


def test_turns_end_with_the_jobs_that_took_them_and_with_a_node_that_is_lost() -> None:
    cluster = Cluster(Mode.GANG)
    cluster.runs(1, "a", "b")
    cluster.runs(2, "a")
    cluster.runs(3, "b")
    assert cluster.hears("a") == {1: ("gang", 0.5, 0, 2), 2: ("gang", 0.5, 1, 2)}
    cluster.ends(2)
    assert cluster.hears("a") == {1: ("gang", 0.5, 0, 2)}
    cluster.ends(3)
    assert cluster.hears("a") == {1: ("gang", 1.0, 0, 0)}
    assert [plan.reason.why for plan in cluster.plans][-1] is Why.NO_TURNS
    cluster.runs(4, "a")
    assert cluster.hears("a")[4][2:] == (1, 2)
    cluster.happens(ev.NodeLost("b"))
    assert cluster.hears("a")[4][2:] == (0, 0), "nobody knows what time it is there"


def test_a_clock_that_is_off_for_a_moment_ends_no_turns() -> None:
    cluster = Cluster()
    entry = cluster.book.entry("a")
    assert entry.beat is not None
    for bound_us in (6_000, 6_000, 100, 6_000, 6_000):
        entry.beat = msgspec.structs.replace(entry.beat, clock_bound_us=bound_us)
        assert cluster.clocks.event(entry, entry.beat) is None
    assert cluster.clocks.event(entry, entry.beat) == ev.ClockSeen("a", False)
    assert cluster.clocks.event(entry, entry.beat) is None


def test_who_takes_turns_is_the_same_after_a_restart_and_in_a_replay() -> None:
    cluster = Cluster()
    cluster.runs(1, "a", "b")
    cluster.runs(2, "a")
    cluster.says("a", {1: "polls"})
    saved = msgspec.json.decode(msgspec.json.encode(cluster.core.snapshot()), type=SavedState)
    again = SchedulerState.restore(cluster.policy, cluster.core.rules, saved)
    assert again.snapshot() == cluster.core.snapshot()
    for event in (ev.ReceivesSeen(2, ()), ev.ClockSeen("a", True), ev.JobEnded(2)):
        assert again.handle(event, 0) == cluster.core.handle(event, 0)
    other = SchedulerState.restore(cluster.policy, MachineRules(coscheduling=Mode.NONE), saved)
    (ended,) = other.handle(ev.ClockSeen("a", True), 0)
    assert isinstance(ended, SharePlan), "rules of now have no turns for who polls"
    assert ended.turns == ()


def test_an_owner_at_one_desk_frees_the_jobs_share_at_the_other() -> None:
    cluster = Cluster()
    cluster.runs(1, "a", "b")
    cluster.runs(2, "a")
    cluster.runs(3, "b")
    cluster.says("b", cpus=0.5)
    assert cluster.hears("a") == {1: ("ccs", 0.25, 0, 0), 2: ("ccs", 0.75, 0, 0)}
    assert cluster.hears("b") == {1: ("ccs", 0.25, 0, 0), 3: ("ccs", 0.25, 0, 0)}


def test_who_is_alone_has_no_turns_and_is_told_that_nobody_competes() -> None:
    cluster = Cluster()
    cluster.runs(1, "a", "b", mode="gang")
    entry = cluster.book.entry("a")
    assert entry.beat is not None
    turns = cluster.told.answer(entry, entry.beat)
    assert not turns.contended
    assert cluster.hears("a") == {1: ("gang", 1.0, 0, 0)}


def test_a_document_tells_what_is_seen_and_what_is_not() -> None:
    cluster = Cluster()
    cluster.runs(1, "a", "b")
    cluster.says("a", {1: "polls"})
    found = cluster.told.document(1)
    assert found is not None
    assert (found.mode, found.receives, found.raises, found.transports) == ("ccs", {"a": "polls"}, 3, ["tcp"])
    assert cluster.told.document(2) is None


def test_a_contract_is_one_thing_and_coscheduling_another() -> None:
    """Whatever is told of shares, no node is told to give parallel work more than its ceiling."""
    cluster = Cluster()
    cluster.runs(1, "a", "b")
    cluster.runs(2, "a")
    cluster.runs(3, "a", "b")
    for cpus in (0.1, 0.5, None):
        cluster.says("a", cpus=cpus)
        total = sum(share for _, share, _, _ in cluster.hears("a").values())
        assert total <= (1.0 if cpus is None else cpus) + 1e-6
    assert cluster.config.contract == SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("coscheduling: {mode: css}", "coscheduling"),
        ("coscheduling: {slot: 1ms}", "coscheduling.slot"),
        ("coscheduling: {slot: 20s}", "coscheduling.slot"),
        ("coscheduling: {slot: soon}", "coscheduling.slot"),
        ("coscheduling: {slots: 20ms}", "slots"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"name: c\n{text}\n")
    with pytest.raises(BadInput, match=words):
        load_cluster(path)


def test_settings_as_they_are_meant(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("name: c\ncoscheduling: {mode: gang, slot: 20ms}\n")
    assert load_cluster(path).coscheduling == CoschedulingSettings(mode=Mode.GANG, slot="20ms")


def test_a_submission_names_a_mode_that_there_is() -> None:
    given = Submission(script="#!/bin/sh\ntrue\n", directory="/", coscheduling="gnag")
    with pytest.raises(BadInput, match="gang") as caught:
        checked(given, ClusterConfig(name="c"))
    assert caught.value.nearest == "gang"
