"""What cannot be ended, as documents: one of each attempt at a job on each node."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from cosched.model.stall import Stall
from cosched.wire.api import StalledDoc, StalledProcessDoc
from space_scheduler.service.launch.nodes import NodeEntry


def stalled_on(
    entries: Iterable[NodeEntry], *, job_id: int | None = None, own: Callable[[str], bool]
) -> list[StalledDoc]:
    """What cannot be ended on these nodes, of one job or of all.

    ``own``: whether the caller may read the paths of that user's files.
    """
    return [
        _document(entry, key, stall, paths=own(stall.user))
        for entry in entries
        for key, stall in entry.stalls.items()
        if job_id in (None, key[0])
    ]


def _document(entry: NodeEntry, key: tuple[int, int], stall: Stall, *, paths: bool) -> StalledDoc:
    processes = [
        StalledProcessDoc(each.pid, each.command, each.channel, each.mount, each.path if paths else "", each.words)
        for each in stall.processes
    ]
    mount = next((each.mount for each in stall.processes if each.mount), "")
    heard = entry.heard_at or datetime.now().astimezone()
    return StalledDoc(
        node=entry.name,
        job_id=key[0],
        attempt=key[1],
        user=stall.user,
        since=(heard - timedelta(microseconds=stall.for_us)).isoformat(timespec="seconds"),
        procs=stall.procs,
        memory_bytes=stall.memory_bytes,
        processes=processes,
        ends_when=f"{mount} answers" if mount else "what it waits for answers",
    )
