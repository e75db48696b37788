"""Whatever comes as a frame is a message of the link or bad input: the messages of all versions, damaged and mixed."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.kept_frames import frames

from cosched.errors import BadInput
from cosched.model.desk import ContractReason, DeskReport
from cosched.wire import messages as wire

ORDER = wire.OrderId(5, 1, 7 << 20)
RESIZE = wire.Resize(wire.Fence("c", 7, "i"), ORDER, 2, 1, (wire.Peer("n1", "10.0.0.1", 7421, 2),), b"grant")
REPORTED = wire.DeskReported(DeskReport(ContractReason.PRESENT, 1.0, 3))
HELD = wire.JobsHeld((wire.JobHeld(5, 1, 7 << 20, 2, 1, True, wire.JobMap(7, {"n1": 2})), wire.JobHeld(6, 1, 0)))
SAID: tuple[wire.FromAgent, ...] = (wire.Resized(ORDER, (0, 1)), REPORTED, HELD)
FROM_AGENT = [
    *(frame for version in (1, 2, 3) for frame in frames(version, "from_agent").values()),
    *map(wire.encode, SAID),
]
TO_AGENT = [*(frame for version in (1, 2, 3) for frame in frames(version, "to_agent").values()), wire.encode(RESIZE)]

changed_bytes = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def taken(frame: bytes) -> list[object]:
    """What each side makes of a frame; anything but a message or bad input is a fault."""
    found: list[object] = []
    for decode in (wire.from_agent, wire.to_agent):
        with suppress(BadInput):
            found.append(decode(frame))
    return found


@given(st.sampled_from(FROM_AGENT + TO_AGENT), changed_bytes)
def test_bytes_that_were_changed(frame: bytes, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(frame)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    for message in taken(bytes(damaged)):
        assert wire.encode(message)  # type: ignore[arg-type]


@given(st.sampled_from(FROM_AGENT + TO_AGENT), st.integers(0, 400))
def test_a_frame_that_was_cut(frame: bytes, length: int) -> None:
    cut = frame[: length % len(frame)]
    assert taken(cut) == []


@given(st.sampled_from(FROM_AGENT + TO_AGENT), st.data(), plain)
def test_a_field_that_is_something_else(frame: bytes, data: st.DataObject, value: Any) -> None:
    fields = msgspec.msgpack.decode(frame)
    name = data.draw(st.sampled_from(sorted(fields)))
    try:
        changed = msgspec.msgpack.encode({**fields, name: value})
    except OverflowError:
        return  # no MessagePack has it
    for message in taken(changed):
        again = msgspec.to_builtins(message)
        assert again["type"] == (value if name == "type" else fields["type"])


@pytest.mark.parametrize("message", [RESIZE, wire.Resized(ORDER, (0, 1)), wire.Resized(ORDER)])
def test_the_new_messages_travel_and_those_who_do_not_know_a_field_refuse_it(message: Any) -> None:
    decode = wire.to_agent if isinstance(message, wire.Order) else wire.from_agent
    assert decode(wire.encode(message)) == message
    fields = msgspec.msgpack.decode(wire.encode(message))
    with pytest.raises(BadInput, match="unknown field `more`"):
        decode(msgspec.msgpack.encode({**fields, "more": 1}))
    with pytest.raises(BadInput, match="missing required field `order`"):
        decode(msgspec.msgpack.encode({name: value for name, value in fields.items() if name != "order"}))
