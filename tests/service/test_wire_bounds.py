"""Numbers on the wire are finite and bounded by their types, in every field of every message, both ways.

By reflection: a field that is added without bounds fails here. What is within its bounds is served like anything else.
"""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
import pytest
from kit.service import Agent, Cluster, Running, running
from msgspec import inspect

from cosched.errors import BadInput
from cosched.model.contract import SocialContract
from cosched.model.desk import ContractReason, DeskReport, Wakeups
from cosched.model.effort import Effort
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.grant import Grant
from node_agent.service.rsh_proxy import Call

DECODERS: dict[type, Callable[[bytes], object]] = {
    **dict.fromkeys(get_args(wire.FromAgent), wire.from_agent),
    **dict.fromkeys(get_args(wire.ToAgent), wire.to_agent),
    Grant: lambda data: msgspec.msgpack.decode(data, type=Grant),
    Call: lambda data: msgspec.msgpack.decode(data, type=Call),
}
#: Texts of the fields with a pattern, all of them of one field each.
_TEXTS = ("02:00:00:00:00:01", "10.0.0.255", "0" * 32, "x", "{x}")
#: Numbers that no field takes: the first that 64 bits with a sign do not hold, and what is no number or no end.
_IMPOSSIBLE = (2**63, 2**64 - 1, -(2**63), math.nan, math.inf, -math.inf, 1e308, -1e308)


class Leaf(NamedTuple):
    """A number in a message: where it is in the plain message, and its least and its greatest value."""

    path: tuple[str | int, ...]
    kind: inspect.IntType | inspect.FloatType

    @property
    def least(self) -> float | None:
        return _inner(self.kind, self.kind.ge, self.kind.gt, 1)

    @property
    def most(self) -> float | None:
        return _inner(self.kind, self.kind.le, self.kind.lt, -1)


def _inner(
    kind: inspect.IntType | inspect.FloatType, within: float | None, beside: float | None, step: int
) -> float | None:
    """The last value within an inclusive or exclusive bound."""
    if within is not None or beside is None:
        return within
    return beside + step if isinstance(kind, inspect.IntType) else math.nextafter(beside, math.inf * step)


def plain(kind: inspect.Type, path: tuple[str | int, ...], leaves: list[Leaf]) -> Any:
    """A value of that type with everything in it that can be there, as MessagePack has it; its numbers are noted."""
    found: Any
    match kind:
        case inspect.IntType() | inspect.FloatType():
            leaves.append(leaf := Leaf(path, kind))
            assert leaf.least is not None, f"{path} has no least value"
            assert leaf.most is not None, f"{path} has no greatest value"
            found = max(leaf.least, min(1, leaf.most))
        case inspect.UnionType():
            (whole,) = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
            found = plain(whole, path, leaves)
        case inspect.StructType():
            found = _plain_struct(kind, path, leaves)
        case inspect.VarTupleType():
            found = [plain(kind.item_type, (*path, 0), leaves)]
        case inspect.TupleType():
            found = [plain(each, (*path, at), leaves) for at, each in enumerate(kind.item_types)]
        case inspect.DictType():
            found = {"x": plain(kind.value_type, (*path, "x"), leaves)}
        case inspect.StrType():
            found = next(text for text in _TEXTS if _is_decoded(text, kind))
        case inspect.EnumType():
            found = next(iter(kind.cls)).value
        case inspect.BytesType() | inspect.BoolType():
            found = b"" if isinstance(kind, inspect.BytesType) else True
        case _:
            raise AssertionError(f"{path}: a {kind} travels, which this test does not know")
    return found


def _plain_struct(kind: inspect.StructType, path: tuple[str | int, ...], leaves: list[Leaf]) -> Any:
    if kind.cls is SocialContract:  # checked by ``impossible``, as in settings
        return {"cpu_ratio": 1.0, "memory_ratio": 1.0, "mpl": 1}
    fields = {
        each.encode_name: plain(each.type, (*path, at if kind.array_like else each.encode_name), leaves)
        for at, each in enumerate(kind.fields)
    }
    return list(fields.values()) if kind.array_like else fields | ({"type": kind.tag} if kind.tag else {})


def _is_decoded(text: str, kind: inspect.StrType) -> bool:
    meta = msgspec.Meta(pattern=kind.pattern, min_length=kind.min_length, max_length=kind.max_length)
    try:
        msgspec.convert(text, type=Annotated[str, meta])
    except msgspec.ValidationError:
        return False
    return True


def with_value(message: Any, path: tuple[str | int, ...], value: float) -> Any:
    changed = copy.deepcopy(message)
    at = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return changed


def is_taken(kind: type, message: Any) -> bool:
    try:
        found = DECODERS[kind](msgspec.msgpack.encode(message))
    except (BadInput, msgspec.ValidationError):
        return False
    assert isinstance(found, kind)
    return True


def beyond(leaf: Leaf) -> Iterator[float]:
    """Numbers that the field does not take."""
    assert leaf.least is not None
    assert leaf.most is not None
    yield from _IMPOSSIBLE
    if isinstance(leaf.kind, inspect.IntType):
        yield from (leaf.least - 1, leaf.most + 1)
    else:
        yield from (math.nextafter(leaf.least, -math.inf), math.nextafter(leaf.most, math.inf))


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.__name__)
def test_every_number_of_a_message_is_bounded_and_refused_beyond(kind: type) -> None:
    leaves: list[Leaf] = []
    message = plain(inspect.type_info(kind), (), leaves)
    assert is_taken(kind, message), message
    for leaf in leaves:
        assert max(abs(leaf.least or 0), abs(leaf.most or 0)) <= 1 << 60, leaf
        for value in (leaf.least, leaf.most):
            assert value is not None
            assert is_taken(kind, with_value(message, leaf.path, value)), (leaf, value)
        for value in beyond(leaf):
            assert not is_taken(kind, with_value(message, leaf.path, value)), (leaf.path, value)


def test_messages_have_the_numbers_that_the_search_is_to_find() -> None:
    found: dict[type, list[Leaf]] = {}
    for kind in DECODERS:
        plain(inspect.type_info(kind), (), found.setdefault(kind, []))
    assert {leaf.path for leaf in found[wire.Heartbeat]} >= {
        ("usage", "cpu_local"), ("usage", "memory_local_bytes"), ("limited_cpus",), ("jobs", 0, "effort", "ran_us"),
    }  # fmt: skip
    assert ("report", "wakeable", "spans", 0, 1) in {leaf.path for leaf in found[wire.DeskReported]}
    assert ("peers", 0, "port") in {leaf.path for leaf in found[wire.Prepare]}
    assert sum(map(len, found.values())) > 100


@pytest.mark.parametrize("key", ["cpu_ratio", "memory_ratio", "mpl"])
@pytest.mark.parametrize("value", [*_IMPOSSIBLE, 0, -1])
def test_contract_with_a_number_beyond_its_bounds_is_impossible(key: str, value: float) -> None:
    contract = msgspec.structs.replace(SocialContract(), **{key: value})
    assert contract.impossible() is not None


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e300, -5.0])
async def test_heartbeat_with_an_impossible_use_is_refused_and_the_next_one_heard(
    service: Running, value: float
) -> None:
    async with service.agent() as agent:
        await agent.beat(Presence.PRESENT)
        await service.beaten("n1", Presence.PRESENT)
        await agent.say(wire.Heartbeat(Usage(cpu_local=value), Presence.UNKNOWN))
        await agent.say(wire.Heartbeat(Usage(memory_local_bytes=2**63), Presence.UNKNOWN))
        await service.logged("message refused: undecodable", "n1")
        await agent.beat(Presence.AWAY)
        await service.beaten("n1", Presence.AWAY)
    assert "was not carried out" not in service.log.getvalue()
    assert '"fault"' not in service.log.getvalue()


@pytest.mark.parametrize("owner", [SocialContract(cpu_ratio=math.nan), SocialContract(mpl=1 << 40)])
async def test_hello_with_an_impossible_contract_is_rejected(service: Running, owner: SocialContract) -> None:
    async with service.dial("node", "n1") as connection:
        agent = Agent(connection, "n1", answers=True)
        await agent.say(agent.hello(owner=owner))
        assert (await agent.heard(wire.Rejected)).reason.startswith("hello: owner: ")
        agent.close()


#: A machine with the most of everything that a message can say, and numbers of years of work.
LARGE = Usage(1 << 20, 1 << 20, 1 << 20, 1 << 53, 1 << 53, 1 << 53, 1 << 53, 1 << 24)
EFFORT = Effort(*[1 << 60] * 5)


async def test_service_works_on_with_the_largest_numbers_that_it_takes(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(operators=[], nodes=["n1", "n2"])
    largest: dict[str, Any] = {"procs": 1 << 24, "memory_bytes": 1 << 53, "owner": SocialContract(mpl=1024)}
    async with (
        running(cluster) as service,
        service.agent("n1", **largest) as first,
        service.agent("n2", **largest) as n2,
    ):
        job_id = await service.submit(tasks=2)
        await service.job_in(job_id, "running", "queued")
        for agent in (first, n2):
            signs = wire.JobSigns(job_id, 1, "polls", 1 << 60, (), EFFORT, 1 << 60, 1 << 60)
            for _ in range(3):  # a use that changed is told after two
                await agent.say(
                    wire.Heartbeat(
                        LARGE, Presence.PRESENT, "tty", float(1 << 20), True, asked_us=1 << 60,
                        clock_bound_us=1 << 60, raises=1 << 60, jobs=(signs,),
                    )
                )  # fmt: skip
            wakeups = Wakeups((1 << 60,) * 3, 1 << 60)
            await agent.say(wire.DeskReported(DeskReport(ContractReason.PRESENT, 1.0, 1 << 60, wakeups=wakeups)))
            await agent.heard(wire.Turns)
        await first.say(wire.GroupEnded(job_id, 1, 1 << 60, 1 << 53))
        await looked_at(service)
        assert "was not carried out" not in service.log.getvalue()
        assert "fault" not in service.log.getvalue()
    async with running(cluster) as service:
        await looked_at(service)


async def looked_at(service: Running) -> None:
    """All that shows numbers of nodes is asked for."""
    for path in ("/v1/nodes", "/v1/jobs", "/v1/history", "/v1/cluster"):
        await service.get(path)
    await service.text("/metrics")
