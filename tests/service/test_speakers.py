"""Which node may say what of a job: each message that names an attempt, from every node, in every phase of a launch.

The job, in its second attempt, is on n1 (its script's node) and n2; n3 belongs to the cluster and has nothing of it. A
message counts only from a node that it concerns: the end of the script from the script's node, everything else of a
node's own part from that node. By reflection: a message that is added, and names an attempt, has to be put here.
"""

from collections.abc import Callable, Iterator
from typing import get_args

import pytest
from kit.changing import Rules
from msgspec import inspect, structs

from cosched.model.allocation import Allocation, Share
from cosched.model.effort import Effort
from cosched.model.job import JobState
from cosched.model.node import Presence, Usage
from cosched.model.stall import Stall
from cosched.model.width import Range
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.service.launch.gang import Gang, Phase
from space_scheduler.service.launch.values import Connected, Heard, OwnerSaid

Key = tuple[int, int]
KEY: Key = (1, 2)
OTHER_ATTEMPTS: tuple[Key, ...] = ((1, 1), (1, 3))
STRANGER = "n3"
#: A number that is higher than those of all orders here.
LATER = 1 << 40


def has_attempt(kind: inspect.Type) -> bool:
    """Whether a message of that type says which attempt at a job it is about."""
    match kind:
        case inspect.IntType():
            return kind.le == 10**18 - 1  # quantities.JobId
        case inspect.StructType():
            return any(has_attempt(field.type) for field in kind.fields)
        case inspect.UnionType():
            return any(map(has_attempt, kind.types))
        case inspect.VarTupleType():
            return has_attempt(kind.item_type)
        case inspect.TupleType():
            return any(map(has_attempt, kind.item_types))
    return False


def signs(key: Key) -> wire.Heartbeat:
    stall = Stall("ann", 2)
    sign = wire.JobSigns(*key, "blocks", 1, effort=Effort(10**9, 10**9), ran_us=10**9, stall=stall)
    return wire.Heartbeat(Usage(), Presence.AWAY, jobs=(sign,))


def hello(key: Key) -> wire.Hello:
    ended = wire.GroupReport(*key, "ended", 2, wire.Exit(0))
    mine = () if key == KEY else (wire.GroupReport(*KEY, "running", 2),)
    return wire.Hello(wire.VERSION, "", "b", 4, 1 << 30, "10.0.0.9", 1, "t", groups=(*mine, ended), session=b"s" * 8)


#: What a node says of an attempt; ``order`` is one that it was given for it.
SAYS: dict[type[wire.FromAgent], Callable[[Key, wire.OrderId], wire.FromAgent]] = {
    wire.Hello: lambda key, order: hello(key),
    wire.Heartbeat: lambda key, order: signs(key),
    wire.JobsHeld: lambda key, order: wire.JobsHeld((wire.JobHeld(*key, LATER, tasks=1, cpus=1),)),
    wire.OwnersWord: lambda key, order: wire.OwnersWord(ended=(key,)),
    wire.Prepared: lambda key, order: wire.Prepared(order),
    wire.Started: lambda key, order: wire.Started(order, 7),
    wire.Resized: lambda key, order: wire.Resized(order),
    wire.Offered: lambda key, order: wire.Offered(order, joined=True),
    wire.Refused: lambda key, order: wire.Refused(order, "memory", "it has none"),
    wire.Adapted: lambda key, order: wire.Adapted(*key, 0),
    wire.Asked: lambda key, order: wire.Asked(*key, 1),
    wire.ProgramEnded: lambda key, order: wire.ProgramEnded(*key, wire.Exit(0), b"tail"),
    wire.GroupEnded: lambda key, order: wire.GroupEnded(*key, 5, 5),
}
#: The script's node alone.
OF_THE_FIRST = (wire.Started, wire.ProgramEnded)
#: Any node of the job: the one where its leading rank is, which only its agents know.
OF_ANY = (wire.Adapted, wire.Asked)


def _sorted(value: object) -> str:
    return repr(sorted(map(repr, value.items())) if isinstance(value, dict) else value)


class Launch:
    """The job in one phase, with the last order that each of its nodes was given."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        shape = Range(1, 4, malleable=True, resident=True, ask_more=2)
        held = Allocation(4, (Share("n1", 2, 2), Share("n2", 2, 2)), 4)
        small = Allocation(2, (Share("n1", 2, 2), Share("n2", 2, 0)), 4)
        launching = phase in ("preparing", "launching")
        held, small = (small, held) if phase == "growing" else (held, small)
        state = JobState.STARTING if launching else JobState.RUNNING
        self.rules = rules = Rules(
            shape=shape, held=held, policy="equipartition", state=state, attempt=2, come=not launching
        )
        self.given = {"n1": wire.OrderId(*KEY, 1), "n2": wire.OrderId(*KEY, 1), STRANGER: wire.OrderId(*KEY, 1)}
        if launching:
            for name in ("n1", "n2", STRANGER):
                rules.come(name)
            asked = self._orders()
            for name, order in asked.items() if phase == "launching" else ():
                rules.answers(name, order)
        elif phase in ("shrinking", "growing"):
            rules.resize(small)
        elif phase == "ending":
            rules.cancel()
        self._orders()
        rules.posted.clear()

    def _orders(self) -> dict[str, wire.Order]:
        found = self.rules.orders()
        self.given |= {name: each.order for name, each in found.items()}
        return found

    @property
    def gang(self) -> Gang:
        return self.rules.core.launches.attempts[1].gang

    def looks(self) -> dict[str, str]:
        """All that is known of the launch."""
        launch = self.rules.core.launches.attempts.get(1)
        if launch is None:
            return {}
        return {
            f"{type(part).__name__}.{name}": _sorted(value)
            for part in (launch, launch.gang, launch.resizing)
            if part is not None
            for name, value in vars(part).items()
        }

    def says(self, node: str, kind: type[wire.FromAgent], key: Key = KEY) -> None:
        order = structs.replace(self.given[node], job_id=key[0], attempt=key[1])
        message = SAYS[kind](key, order)
        if isinstance(message, wire.Hello):
            self.rules.feed(Connected(node, structs.replace(message, node=node), b"t" * 8))
            message = wire.GroupEnded(99, 1)  # it takes the welcome
        if isinstance(message, wire.Adapted):
            launch = self.rules.core.launches.attempts[1]
            message = structs.replace(message, number=launch.map_number)
        if isinstance(message, wire.JobsHeld) and key != KEY and self.phase != "ending":
            mine = wire.JobHeld(*KEY, LATER)  # what is not named is not there
            message = wire.JobsHeld((*message.jobs, mine))
        if isinstance(message, wire.OwnersWord):
            self.rules.feed(OwnerSaid(node, message, ()))
        else:
            self.rules.feed(Heard(node, message))

    def ordered(self) -> list[tuple[str, str]]:
        """Orders about this attempt since it was asked last, with their nodes."""
        return [(name, type(each).__name__) for name, each in self.rules.all_orders() if each.order.attempt == KEY[1]]


PHASES = ("preparing", "launching", "running", "shrinking", "growing", "ending")
everywhere = pytest.mark.parametrize("phase", PHASES)
every_message = pytest.mark.parametrize("kind", SAYS, ids=lambda kind: kind.__name__)


def test_every_message_that_names_an_attempt_is_here() -> None:
    named = {kind for kind in get_args(wire.FromAgent) if has_attempt(inspect.type_info(kind))}
    assert named == set(SAYS)


@everywhere
def test_phases_are_what_they_are_called(phase: str) -> None:
    launch = Launch(phase)
    resizing = phase in ("shrinking", "growing")
    assert launch.gang.phase == ("running" if resizing else phase)
    assert (launch.rules.core.launches.attempts[1].resizing is not None) == resizing


@everywhere
@every_message
def test_node_without_part_in_a_job_changes_nothing_of_it(phase: str, kind: type[wire.FromAgent]) -> None:
    launch = Launch(phase)
    before = launch.looks()
    launch.says(STRANGER, kind)
    assert launch.looks() == before
    assert launch.rules.posted == []
    assert {name for name, _ in launch.ordered()} <= {STRANGER}, "it may be told to end and to forget what it claims"


@everywhere
@every_message
@pytest.mark.parametrize("key", OTHER_ATTEMPTS, ids=["stale", "future"])
@pytest.mark.parametrize("node", ["n1", "n2"])
def test_word_of_another_attempt_changes_nothing(phase: str, kind: type[wire.FromAgent], key: Key, node: str) -> None:
    if kind is wire.Hello and phase in ("preparing", "launching", "ending"):
        pytest.skip("it says as well that the attempt runs there, which counts")
    launch = Launch(phase)
    before = launch.looks()
    launch.says(node, kind, key)
    assert launch.looks() == before
    assert launch.rules.posted == []
    again = {"Resize", "Adapt"} if kind is wire.Hello else set()  # who calls is asked again what it has not answered
    assert {what for _, what in launch.ordered()} <= again


@everywhere
@pytest.mark.parametrize("kind", OF_THE_FIRST)
def test_script_is_spoken_for_by_its_own_node_alone(phase: str, kind: type[wire.FromAgent]) -> None:
    launch = Launch(phase)
    before = launch.looks()
    launch.says("n2", kind)
    assert launch.looks() == before
    assert (launch.rules.posted, launch.ordered()) == ([], [])


@everywhere
def test_hello_of_another_node_of_the_job_does_not_end_the_script(phase: str) -> None:
    launch = Launch(phase)
    launch.says("n2", wire.Hello)
    assert launch.gang._exit is None
    assert launch.rules.posted == []


@everywhere
@every_message
def test_node_speaks_for_its_own_part_of_a_job(phase: str, kind: type[wire.FromAgent]) -> None:
    launch = Launch(phase)
    attempt = launch.rules.core.launches.attempts[1]
    before = launch.gang.phase, launch.gang.node_phases["n1"], attempt.efforts.get("n1")
    launch.says("n2", kind)
    if (phase, kind) in ENDS_THE_JOB:
        assert launch.gang.phase is Phase.ENDING
    else:
        assert before == (launch.gang.phase, launch.gang.node_phases["n1"], attempt.efforts.get("n1"))


#: What a node refuses, and what its owner has ended there, is the end of the whole: it is whole or not at all.
ENDS_THE_JOB = {
    ("preparing", wire.Refused),
    *((phase, wire.OwnersWord) for phase in PHASES),
}


def effects() -> Iterator[tuple[str, str, type[wire.FromAgent]]]:
    """(phase, node, message) that do change something: else nothing above would be worth anything."""
    for node in ("n1", "n2"):
        yield "preparing", node, wire.Prepared
        yield "preparing", node, wire.Refused
        yield "running", node, wire.Heartbeat
        yield "running", node, wire.JobsHeld
        yield "running", node, wire.Asked
        yield "running", node, wire.OwnersWord
        yield "shrinking", node, wire.Offered
        yield "shrinking", node, wire.Adapted
        yield "ending", node, wire.GroupEnded
    yield "growing", "n2", wire.Resized
    yield "launching", "n1", wire.Started
    yield "running", "n1", wire.ProgramEnded
    yield "running", "n1", wire.Hello


@pytest.mark.parametrize(("phase", "node", "kind"), list(effects()))
def test_message_of_the_right_node_counts(phase: str, node: str, kind: type[wire.FromAgent]) -> None:
    launch = Launch(phase)
    before = launch.looks()
    launch.says(node, kind)
    assert launch.looks() != before


def test_every_message_counts_somewhere() -> None:
    assert {kind for _, _, kind in effects()} == set(SAYS)


def test_end_of_a_script_ends_the_job_when_all_nodes_are_empty() -> None:
    launch = Launch("running")
    launch.says("n1", wire.ProgramEnded)
    assert launch.ordered() == [("n1", "Kill"), ("n2", "Kill")]
    for node in ("n1", "n2"):
        launch.says(node, wire.GroupEnded)
    assert launch.rules.posted == [ev.JobEnded(1, JobState.COMPLETED)]
