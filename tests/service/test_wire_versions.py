"""Agents of versions before: frames that their code wrote (``tests/kept/wire-N.json``), decoded and answered today.

They are decoded here as their own code did: with its fields alone, and none that it did not know.
"""

from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from kit.kept_frames import frames, kept, known

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput
from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job, JobState
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from cosched.wire.grant import Grant, signed, verified
from cosched.wire.version_4 import files_of, watched_in
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.guard_model import GuardModel
from node_agent.core.played import PlayedAgent, Player
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill, Resize
from space_scheduler.machine.turns import SavedTurns
from space_scheduler.reasons import CANCELLED, Reason, Why
from space_scheduler.service.core.worker import Post
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.orders import Orders
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import Connected, Effect, Heard, InJournal, Send, Started
from space_scheduler.service.link.joining import checked_hello

KEPT = kept(1)
FROM_AGENT, TO_AGENT = frames(1, "from_agent"), frames(1, "to_agent")
#: Fields that came after version 2, which are sent on links of later versions alone.
LATER = {"Prepare": {"uid", "files", "watched"}, "Resize": {"files"}, "Survey": {"uids"}}
CLUSTER = "c" * 32
#: By version and kind of message: what its decoder knew (it refused anything else).
FIELDS = {number: known(number) for number in (1, 2, 3, 4)}
FIELDS[1]["Prepare"] |= {"umask"}
FIELDS[1]["Turns"] |= {"contended", "jobs"}


def plain(frame: bytes) -> Any:
    """A frame's map, whatever the width of its header: msgspec chooses that by the fields that there may be."""
    return msgspec.msgpack.decode(frame)


@pytest.mark.parametrize("side", ["from_agent", "to_agent"])
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_what_agents_and_schedulers_of_before_said_is_understood_and_said_alike(version: int, side: str) -> None:
    """What has come since version 2 is a message of its own, or a field that is sent on later links alone."""
    said = frames(version, side)
    assert said
    for name, frame in said.items():
        message: wire.FromAgent | wire.ToAgent = getattr(wire, side)(frame)
        assert plain(wire.encode(message)) == plain(frame), name
        if side == "from_agent" and version > 1:
            assert wire.encode(message) == frame, name
        if version == 2:
            fields = set(type(message).__struct_fields__) | {"type"}
            assert fields - LATER.get(name, set()) == FIELDS[2][name], name


def test_a_grant_that_was_not_renewed_is_as_it_was() -> None:
    """Also of a scheduler of today, for nodes whose agents know no serial number."""
    prepare = wire.to_agent(TO_AGENT["prepare"])
    assert isinstance(prepare, wire.Prepare)
    grant = verified(prepare.grant, Ed25519PublicKey.from_public_bytes(bytes.fromhex(KEPT["grant_pub"])))
    assert grant == Grant(CLUSTER, 7, 5, 1, "ann", ("n1", "n2"))
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    assert signed(grant, key) == prepare.grant
    renewed = msgspec.structs.replace(grant, serial=1)
    assert verified(signed(renewed, key), key.public_key()) == renewed
    assert renewed.age > grant.age
    assert msgspec.structs.replace(grant, epoch=8).age > renewed.age


class Service:
    """A scheduler of today with a job on n1 and n2, by its journal; agents are frames of the version before."""

    def __init__(
        self,
        state: JobState = JobState.RUNNING,
        resizing: dict[int, Allocation] | None = None,
        policy: str = "easy",
        held: Allocation | None = None,
    ) -> None:
        times: dict[str, Any] = {"heartbeat": "1s", "lease": "5s", "launch_timeout": "60s"}
        config = ClusterConfig(name="c", nodes=["n1", "n2"], policy=policy, **times)
        self.fence = wire.Fence(CLUSTER, 8, "scheduler 8")
        self.core = ServiceCore(
            config, config.nodes, self.fence, Orders(config, self.fence, Ed25519PrivateKey.generate())
        )
        self.held = held or Allocation(3, nodes=(Share("n1", 2), Share("n2", 1)))
        record = JobRecord(
            job=Job(5, 3, 60_000_000, 0, 1007), user="ann", state=state, submit_us=0, attempt=1,
            submission=Submission(script="#!/bin/sh\n", directory="/", tasks=3), allocation=self.held,
        )  # fmt: skip
        self.feed(Started((record,), (), {}, SavedTurns(), resizing or {}))

    def feed(self, given: Any) -> list[Effect]:
        effects = self.core.handle(given, 100.0)
        for effect in effects:
            if isinstance(effect, Send) and (fields := FIELDS.get(self.core.book.entry(effect.node).version)):
                plain = msgspec.msgpack.decode(wire.encode(effect.message))
                assert set(plain) <= fields[plain["type"]], "that version would not have understood it"
        return effects

    def comes(self, name: str, frame: bytes) -> list[Effect]:
        """An agent calls with this hello, and says something after the welcome."""
        hello = checked_hello(wire.from_agent(frame), name, self.fence)
        welcomed = self.feed(Connected(name, hello, b"t" * 8))
        (welcome,) = [each.message for each in welcomed if isinstance(each, Send)]
        assert isinstance(welcome, wire.Welcome)
        assert welcome.version == hello.version
        return self.says(name, "heartbeat")

    def says(self, name: str, frame: str) -> list[Effect]:
        return self.feed(Heard(name, wire.from_agent(FROM_AGENT[frame])))


def posted(effects: list[Effect]) -> list[tuple[ev.Event, str]]:
    return [(each.event, each.note) for each in effects if isinstance(each, Post)]


def sent(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(each.node, type(each.message).__name__) for each in effects if isinstance(each, Send)]


BARE = FROM_AGENT["hello, nothing there"]
BARE_N2 = wire.encode(msgspec.structs.replace(wire.from_agent(BARE), node="n2"))


def test_a_job_that_keeps_its_shape_is_started_there_also_under_a_policy_that_changes_shapes() -> None:
    service = Service(JobState.STARTING, policy="fjt1+bfm")
    service.comes("n1", BARE)
    assert ("n2", "Prepare") in sent(service.comes("n2", BARE_N2))


def test_a_job_that_starts_folded_is_not_sent_where_nobody_would_confine_it() -> None:
    folded = Allocation(2, (Share("n1", 2, 1), Share("n2", 1)), 3)
    service = Service(JobState.STARTING, policy="fjt1+bfm", held=folded)
    service.comes("n1", BARE)
    told = service.comes("n2", BARE_N2)
    assert "Prepare" not in [kind for _, kind in sent(told)]
    assert ("n1", "Kill") in sent(told)
    assert service.core.launches.attempts[5].gang.phase == "ending"


def test_a_job_that_ran_under_the_version_before_goes_on_and_ends() -> None:
    """The scheduler was upgraded first: its agents call as they did, and their jobs are adopted."""
    service = Service()
    assert ("n1", "Kill") not in sent(service.comes("n1", FROM_AGENT["hello, a job runs"]))
    service.comes("n2", FROM_AGENT["hello, a job is prepared"])
    ended = service.says("n1", "program ended")
    assert [pair for pair in sent(ended) if pair[1] == "Kill"] == [("n1", "Kill"), ("n2", "Kill")]
    (kill, _) = [each.message for each in ended if isinstance(each, Send) and isinstance(each.message, wire.Kill)]
    assert kill.order.n > 2, "higher than what the scheduler before has ordered"
    service.says("n1", "group ended")
    over = service.says("n2", "group ended")
    assert [event for event, _ in posted(over)] == [ev.JobEnded(5, JobState.FAILED)]


def test_a_job_that_was_starting_is_prepared_and_run_in_messages_that_it_knew() -> None:
    service = Service(JobState.STARTING)
    service.comes("n1", FROM_AGENT["hello, nothing there"])
    hello = msgspec.msgpack.decode(FROM_AGENT["hello, nothing there"])
    both = service.comes("n2", msgspec.msgpack.encode({**hello, "node": "n2", "address": "10.0.0.2"}))
    assert {("n1", "Prepare"), ("n2", "Prepare")} <= set(sent(both))
    for name in ("n1", "n2"):
        answers = service.says(name, "prepared")
    assert sent(answers) == [("n1", "Run")]
    launched = service.says("n1", "started")
    assert [event for event, _ in posted(launched)] == [ev.JobLaunched(5)]


@pytest.mark.parametrize("restarted", [False, True])
def test_no_job_there_changes_its_shape_and_the_reason_names_both_versions(restarted: bool) -> None:
    new = Allocation(2, (Share("n1", 1), Share("n2", 1)))
    service = Service(resizing={5: new} if restarted else None)
    effects = service.comes("n1", FROM_AGENT["hello, a job runs"])
    if not restarted:
        service.comes("n2", FROM_AGENT["hello, a job is prepared"])
        reason = Reason(Why.SHRUNK)
        effects = service.feed(InJournal(ev.Boundary(), (Resize(5, service.held, new, ev.Boundary(), reason),)))
    if restarted:
        effects += service.comes("n2", FROM_AGENT["hello, a job is prepared"])
    (failed,) = posted([each for each in effects if isinstance(each, Post) and isinstance(each.event, ev.ResizeFailed)])
    words = "n1's agent speaks version 1 of the link, which resizes no job; version 2 does"
    assert isinstance(failed[0], ev.ResizeFailed)
    assert failed[0].why in (words, f"n1 refused: {words}")
    assert ("n1", "Resize") not in sent(effects)
    killed = service.feed(InJournal(ev.JobCancelled(5), (Kill(5, ev.JobCancelled(5), CANCELLED),)))
    assert [pair for pair in sent(killed) if pair[1] == "Kill"] == [("n1", "Kill"), ("n2", "Kill")]


def test_its_nodes_are_told_apart() -> None:
    service = Service()
    service.comes("n1", FROM_AGENT["hello, a job runs"])
    assert [service.core.book.entry(name).version for name in ("n1", "n2")] == [1, 0]


def test_an_upgraded_agent_is_served_in_full_from_its_next_hello_on() -> None:
    service = Service()
    service.comes("n1", FROM_AGENT["hello, a job runs"])
    service.comes("n2", FROM_AGENT["hello, a job is prepared"])
    for name, frame in (("n1", "hello, a job runs"), ("n2", "hello, a job is prepared")):
        hello = msgspec.msgpack.decode(FROM_AGENT[frame])
        service.comes(name, msgspec.msgpack.encode({**hello, "version": 2}))
    new = Allocation(2, (Share("n1", 1), Share("n2", 1)))
    reason = Reason(Why.SHRUNK)
    effects = service.feed(InJournal(ev.Boundary(), (Resize(5, service.held, new, ev.Boundary(), reason),)))
    assert sent(effects) == [("n1", "Resize"), ("n2", "Resize")]


@pytest.mark.parametrize(("version", "uid"), [(1, None), (2, None), (3, None), (4, 1007)])
def test_submitters_uid_is_sent_to_agents_that_know_it_alone(version: int, uid: int | None) -> None:
    service = Service(JobState.STARTING)
    for name in ("n1", "n2"):
        hello = msgspec.msgpack.decode(FROM_AGENT["hello, nothing there"])
        told = service.comes(name, msgspec.msgpack.encode({**hello, "node": name, "version": version}))
    orders = [each.message for each in told if isinstance(each, Send) and isinstance(each.message, wire.Prepare)]
    assert [order.uid for order in orders] == [uid, uid]


@pytest.mark.parametrize("version", [4, 5])
def test_launchers_files_are_sent_to_agents_that_write_them_alone(version: int) -> None:
    service = Service(JobState.STARTING)
    for name in ("n1", "n2"):
        hello = msgspec.msgpack.decode(FROM_AGENT["hello, nothing there"])
        told = service.comes(name, msgspec.msgpack.encode({**hello, "node": name, "version": version}))
    orders = [each.message for each in told if isinstance(each, Send) and isinstance(each.message, wire.Prepare)]
    assert len(orders) == 2
    for name, order in zip(("n1", "n2"), orders, strict=True):
        assert (order.files is not msgspec.UNSET, bool(order.watched)) == (version == 5, version == 5)
        before = msgspec.structs.replace(order, files=msgspec.UNSET, watched=())
        assert set(files_of(order, name)) >= set(files_of(before, name)), "an agent of today writes them for both"
        assert set(watched_in(order)) >= set(watched_in(before))
        assert order.environment["PVMHOSTFILE"] == "{pvm_hosts}"


def test_a_later_version_is_refused_in_words_that_name_both() -> None:
    hello = msgspec.msgpack.decode(FROM_AGENT["hello, nothing there"])
    later = wire.from_agent(msgspec.msgpack.encode({**hello, "version": wire.VERSION + 1}))
    with pytest.raises(BadInput) as refused:
        checked_hello(later, "n1", wire.Fence(CLUSTER, 8, "i"))
    assert str(refused.value) == (
        "hello: version: version 6 of the link's messages; expected one from 1 to 5, which this scheduler speaks"
    )


def test_an_agent_of_today_obeys_the_orders_of_the_version_before() -> None:
    """The agent was upgraded first."""
    guard, told = GuardModel(), list[Any]()
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(KEPT["grant_pub"]))
    agent = PlayedAgent(
        AgentCore("n1", "boot"),
        guard,
        Player(),
        lambda blob: verified(blob, key),
        lambda fence: None,
        lambda after_us, call: None,
        lambda: 0,
    )
    agent.tell = told.append
    welcome = wire.to_agent(TO_AGENT["welcome"])
    assert isinstance(welcome, wire.Welcome)
    agent.hand_in(happened.Welcomed(welcome.fence, welcome.lease_us))
    agent.hand_in(happened.Joined())
    for name in ("prepare", "run", "kill", "forget", "discard"):
        order = wire.to_agent(TO_AGENT[name])
        assert isinstance(order, wire.Order)
        agent.hand_in(happened.Ordered(order))
    said = [type(each).__name__ for each in told]
    assert said == ["Prepared", "Started", "ProgramEnded", "GroupEnded"]
    assert list(agent.core.attempts) == []
    assert guard.groups == {}
