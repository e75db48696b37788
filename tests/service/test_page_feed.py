"""The page's frames: whoever was at any of them, and takes in what follows, sees what there is."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosched.linux.wakeups import BOUNDS_S
from cosched.model.desk import ContractReason, DeskReport, Wakeups
from space_scheduler.service.launch.nodes import NodeEntry
from space_scheduler.service.page import feed as feeds
from space_scheduler.service.page.feed import Feed, Seen
from space_scheduler.service.page.rows import ClusterRow, JobRow, NodeRow, shown, woke_ms


def job(number: int, state: str = "queued", end_ms: int | None = None) -> JobRow:
    return JobRow(number, f"j{number}", "ada", state, 1, 1, 0, None, end_ms, 1000, None, "", [])


def node(name: str, availability: str = "free") -> NodeRow:
    return NodeRow(name, "up", availability, "", 1, 1, 1.0, 1.0, 1, None, None, None)


def seen(jobs: list[JobRow], nodes: list[NodeRow], now_ms: int = 0) -> Seen:
    cluster = ClusterRow("c", "easy", "", "", True, 1, 1, 0, len(jobs), 0, 0)
    return Seen(
        now_ms, cluster, {each.id: each for each in jobs}, [each.id for each in jobs], {n.name: n for n in nodes}
    )


class Reader:
    """What a browser does with frames."""

    def __init__(self) -> None:
        self.jobs: dict[int, Any] = {}
        self.nodes: dict[str, Any] = {}
        self.queue: list[int] = []
        self.cluster: Any = None
        self.wholes = 0

    def take(self, events: list[bytes]) -> None:
        for event in events:
            kind, number, data = event.decode().strip().split("\n")
            assert number.startswith("id: ")
            frame = json.loads(data.removeprefix("data: "))
            if kind == "event: all":
                self.jobs, self.nodes, self.wholes = {}, {}, self.wholes + 1
            self.cluster = frame["cluster"] or self.cluster
            self.queue = frame["queue"] if frame["queue"] is not None else self.queue
            self.jobs |= {row[0]: row for row in frame["jobs"]}
            self.nodes |= {row[0]: row for row in frame["nodes"]}
            for gone in frame["gone"]:
                del self.jobs[gone]
            for name in frame["gone_nodes"]:
                del self.nodes[name]

    def sees(self) -> tuple[Any, ...]:
        return self.jobs, self.nodes, self.queue, self.cluster


_JOBS = st.lists(
    st.builds(job, st.integers(1, 6), st.sampled_from(["queued", "running"])),
    max_size=6,
    unique_by=lambda each: each.id,
)
_NODES = st.lists(
    st.builds(node, st.sampled_from("abc"), st.sampled_from(["free", "limited"])), unique_by=lambda each: each.name
)


@settings(max_examples=settings().max_examples * 2 // 5)
@given(
    st.lists(st.tuples(_JOBS, _NODES, st.lists(st.integers(10, 12), max_size=2)), min_size=1, max_size=12), st.data()
)
def test_all_ways_lead_to_the_same(moments: list[tuple[list[JobRow], list[NodeRow], list[int]]], data: Any) -> None:
    feed, steady = Feed(), Reader()
    readers: list[tuple[Reader, str]] = []
    position = ""
    for jobs, nodes, ended in moments:
        feed.end(job(number, "completed", 5) for number in ended)
        feed.look(seen(jobs, nodes))
        number, events = feed.since(position)
        steady.take(events)
        position = feed.position(number)
        if data.draw(st.booleans()):
            newcomer = Reader()
            newcomer.take(feed.since("")[1])
            readers.append((newcomer, position))
    for reader, at in readers:
        reader.take(feed.since(at)[1])
        assert reader.wholes == 1, "it goes on from where it was"
    fresh = Reader()
    fresh.take(feed.since("")[1])
    for each in (steady, *(reader for reader, _ in readers)):
        assert each.sees() == fresh.sees()


def test_what_has_not_changed_is_no_frame() -> None:
    feed = Feed()
    assert feed.look(seen([job(1)], [node("a")]))
    assert not feed.look(seen([job(1)], [node("a")], now_ms=5))
    assert feed.since(feed.position(feed.number)) == (feed.number, [])


def test_who_was_away_for_too_long_or_at_another_service_gets_the_whole() -> None:
    feed, other = Feed(), Feed()
    feed.look(seen([job(1)], []))
    old = feed.position(feed.number)
    for number in range(2, 2 + feeds.MOST_FRAMES + 1):
        feed.look(seen([job(number)], []))
    other.look(seen([job(1)], []))
    for position in (old, other.position(1), feed.position(feed.number + 1), "x", "-", f"{old}0" * 9, "é-1"):
        _, events = feed.since(position)
        assert [event[:10] for event in events] == [b"event: all"], position


def test_frames_that_are_kept_are_bounded_in_bytes(monkeypatch: Any) -> None:
    monkeypatch.setattr(feeds, "MOST_BYTES", 2000)
    feed = Feed()
    for number in range(1, 40):
        feed.look(seen([job(number)], []))
    assert sum(map(len, feed._frames)) <= 2000
    assert feed._bytes == sum(map(len, feed._frames))


def test_the_last_of_those_that_ended_are_shown() -> None:
    feed = Feed()
    feed.end(job(number, "completed", number) for number in range(1, feeds.MOST_ENDED + 11))
    feed.look(seen([], []))
    reader = Reader()
    reader.take(feed.since("")[1])
    assert sorted(reader.jobs) == list(range(11, feeds.MOST_ENDED + 11))


def test_texts_are_cut_and_made_plain() -> None:
    assert shown("heat <b>") == "heat <b>"
    assert shown("שלום") == "שלום"
    assert shown("a\u202eb\nc\x00") == "a�b�c�"
    assert len(shown("x" * 10_000)) == 200
    assert shown("x" * 10_000).endswith("…")


@pytest.mark.parametrize(
    ("late", "told"),
    [({}, None), ({0: 100}, 0.1), ({0: 99, 3: 1}, 0.1), ({0: 98, 3: 2}, 1.0), ({0: 1, len(BOUNDS_S): 1}, -1000.0)],
)
def test_how_soon_a_desk_wakes(late: dict[int, int], told: float | None) -> None:
    counts = tuple(late.get(at, 0) for at in range(len(BOUNDS_S) + 1))
    entry = NodeEntry("n1")
    assert woke_ms(entry) is None
    for wakeups, expected in ((Wakeups(counts, 0), told), (Wakeups(counts[:3], 0), None), (None, None)):
        entry.report = DeskReport(ContractReason.UNKNOWN, wakeups=wakeups)
        assert woke_ms(entry) == expected
