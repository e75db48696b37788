"""``cosched explain``: why a job is in the state it is in, from the decision's own record."""

from collections.abc import Iterator

import click

from cosched.apps.cli.shared.verb import Answer, asks, job_argument, says
from cosched.apps.cli.shared.words import in_components, lasting, limits, local, pauses, stalls
from cosched.client.client import Client
from cosched.config.units import memory_text
from cosched.model.time import US_PER_S, humanised
from cosched.wire.api import CoschedulingDoc, Explanation, OnNodeDoc

_RECEIVES = {
    "polls": "polls",
    "yields": "polls, and yields the CPU to its own tasks",
    "blocks": "blocks",
    "nothing": "no messages",
    "unknown": "not known yet",
}


@click.command("explain")
@job_argument
@asks
@says
def command(client: Client, job_id: int) -> Answer:
    """Explain why a job waits, runs or has ended: the reason of the decision with its numbers, what led to it.

    \b
    Example: cosched explain 12
    """
    found = client.explain(job_id)
    return Answer(found, _lines(found))


def _lines(found: Explanation) -> Iterator[str]:
    yield f"job {found.job_id} is {found.state}: {found.reason.text}"
    yield f"  decided {local(found.decided)}" + (f", because of: {found.cause}" if found.cause else "")
    promised = f"promised to start by {local(found.promised_start)}" if found.promised_start else ""
    told = [promised, in_components(found.shape), found.shape.note if found.shape else ""]
    told += [*pauses(found.paused), *limits(found.limited), *stalls(found.stalled), *map(_on_node, found.nodes)]
    told += _coscheduling(found.coscheduling) if found.coscheduling else []
    yield from (f"  {line}" for line in told if line)


def _on_node(found: OnNodeDoc) -> str:
    """What a node is for a job that waits."""
    used = f"{memory_text(found.used_memory_bytes)}, {found.used_tasks} tasks, {found.used_cpus:.2g} CPUs in use"
    if found.limit:
        return f"{found.name} takes none: {found.limit} ({used})"
    return f"{found.name} takes {found.tasks}, rank {found.rank} ({used})"


def _coscheduling(found: CoschedulingDoc) -> Iterator[str]:
    """How it runs beside others, and what is seen of how it receives."""
    yield f"coscheduling {found.mode}: each task's due is {found.share:.0%} of a CPU, raised {found.raises} times"
    if found.rows:
        length = humanised(round(found.slot_s * US_PER_S))
        yield f"  takes turn {found.row + 1} of {found.rows} with its neighbours, {length} each"
    if found.done_s is not None:
        most = "at most " if found.done_estimated else ""
        yield f"  has done {most}{lasting(found.done_s)} of work, which its time limit counts"
    if found.receives:
        yield "  receives: " + ", ".join(f"{_RECEIVES.get(how, how)} on {node}" for node, how in found.receives.items())
    if found.transports or found.unseen:
        yield f"  messages seen waiting: {', '.join(found.transports) or 'none'}"
    yield from (f"  not seen: {each}" for each in found.unseen)
