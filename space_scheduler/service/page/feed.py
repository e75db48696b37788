"""What changes on the page, as numbered frames that all who look on share: one look at the view makes one frame.

A frame is the bytes of one server-sent event. Who says which frame it had last gets those after it; who had none, one
of another start of the service, or one that is not kept any more, gets the whole.
"""

import secrets
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from space_scheduler.service.page.rows import ClusterRow, JobRow, NodeRow

#: Frames that are kept for those who come back: so many at most, of so many bytes together.
MOST_FRAMES: Final = 64
MOST_BYTES: Final = 4 << 20
#: Ended jobs that are shown, the last.
MOST_ENDED: Final = 500
_json: Final = msgspec.json.Encoder()


class Seen(NamedTuple):
    """What there is to see at one moment: jobs by number, those that wait in their order, nodes by name."""

    now_ms: int
    cluster: ClusterRow
    jobs: dict[int, JobRow]
    queue: list[int]
    nodes: dict[str, NodeRow]


class _Frame(msgspec.Struct, frozen=True):
    """A frame's document. Of what has not changed there is nothing; ``gone`` jobs are not shown any more."""

    now_ms: int
    cluster: ClusterRow | None
    queue: list[int] | None
    jobs: list[JobRow]
    gone: list[int]
    nodes: list[NodeRow]
    gone_nodes: list[str]


class Feed:
    """The frames of one service. ``number`` is the newest's."""

    def __init__(self) -> None:
        self._instance = secrets.token_hex(4)
        self.number = 0
        self._frames: deque[bytes] = deque()  # the last one's number is ``number``
        self._bytes = 0
        self._ended: dict[int, JobRow] = {}
        self._seen: Seen | None = None
        self._whole: tuple[int, bytes] = (-1, b"")

    def end(self, rows: Iterable[JobRow]) -> None:
        """Those have ended, the first one first."""
        for row in rows:
            self._ended[row.id] = row
        while len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def look(self, seen: Seen) -> bool:
        """Take in what there is to see now; whether that makes a new frame."""
        seen = seen._replace(jobs={**self._ended, **seen.jobs})
        before, self._seen = self._seen, seen
        frame = _change(before, seen) if before is not None else _all(seen)
        if frame is None:
            return False
        self.number += 1
        if before is not None:
            self._keep(self._event("some", frame))
        return True

    def since(self, position: str) -> tuple[int, list[bytes]]:
        """The number of the newest frame, and the events after a position (empty: none was had)."""
        instance, _, number = position.partition("-")
        if instance == self._instance and number.isascii() and number.isdecimal() and len(number) < 18:
            behind = self.number - int(number)
            if 0 <= behind <= len(self._frames):
                return self.number, list(self._frames)[len(self._frames) - behind :]
        return self.number, [self._everything()]

    def position(self, number: int) -> str:
        """A frame's number as events carry it."""
        return f"{self._instance}-{number}"

    def _everything(self) -> bytes:
        if self._whole[0] != self.number and self._seen is not None:
            self._whole = self.number, self._event("all", _all(self._seen))
        return self._whole[1]

    def _event(self, kind: str, frame: _Frame) -> bytes:
        return b"event: %b\nid: %b\ndata: %b\n\n" % (
            kind.encode(), self.position(self.number).encode(), _json.encode(frame),
        )  # fmt: skip

    def _keep(self, event: bytes) -> None:
        self._frames.append(event)
        self._bytes += len(event)
        while len(self._frames) > MOST_FRAMES or self._bytes > MOST_BYTES:
            self._bytes -= len(self._frames.popleft())


def _all(seen: Seen) -> _Frame:
    return _Frame(seen.now_ms, seen.cluster, seen.queue, [*seen.jobs.values()], [], [*seen.nodes.values()], [])


def _change(before: Seen, seen: Seen) -> _Frame | None:
    """What is another than before; None: nothing is."""
    was, had = before.jobs, before.nodes
    frame = _Frame(
        seen.now_ms,
        seen.cluster if seen.cluster != before.cluster else None,
        seen.queue if seen.queue != before.queue else None,
        [row for job_id, row in seen.jobs.items() if (old := was.get(job_id)) is not row and old != row],
        [job_id for job_id in was if job_id not in seen.jobs],
        [row for name, row in seen.nodes.items() if had.get(name) != row],
        [name for name in had if name not in seen.nodes],
    )
    changed = frame.cluster or frame.queue is not None or frame.jobs or frame.gone or frame.nodes or frame.gone_nodes
    return frame if changed else None
