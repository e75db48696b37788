"""``cosched explain``: why a job is in the state it is in, from the decision's own record."""

import click

from cosched.apps.cli.shared.service import (
    echo_json,
    in_components,
    job_argument,
    json_option,
    lasting,
    limits,
    local,
    pauses,
    service,
    stalls,
)
from cosched.client.find import connect
from cosched.config.units import memory_text
from cosched.model.time import US_PER_S, humanised
from cosched.wire.api import CoschedulingDoc, OnNodeDoc

_RECEIVES = {
    "polls": "polls",
    "yields": "polls, and yields the CPU to its own tasks",
    "blocks": "blocks",
    "nothing": "no messages",
    "unknown": "not known yet",
}


@click.command("explain")
@job_argument
@service
@json_option
def command(job_id: int, as_json: bool, server: str | None, lab: str | None) -> None:
    """Explain why a job waits, runs or has ended: the reason of the decision with its numbers, what led to it.

    \b
    Example: cosched explain 12
    """
    with connect(server, lab) as client:
        found = client.explain(job_id)
    if as_json:
        echo_json(found)
        return
    click.echo(f"job {found.job_id} is {found.state}: {found.reason.text}")
    click.echo(f"  decided {local(found.decided)}" + (f", because of: {found.cause}" if found.cause else ""))
    if found.promised_start:
        click.echo(f"  promised to start by {local(found.promised_start)}")
    if components := in_components(found.shape):
        click.echo(f"  {components}")
    if found.shape and found.shape.note:
        click.echo(f"  {found.shape.note}")
    for line in [*pauses(found.paused), *limits(found.limited), *stalls(found.stalled)]:
        click.echo(f"  {line}")
    for line in map(_on_node, found.nodes):
        click.echo(f"  {line}")
    if found.coscheduling:
        for line in _coscheduling(found.coscheduling):
            click.echo(f"  {line}")


def _on_node(found: OnNodeDoc) -> str:
    """What a node is for a job that waits."""
    used = f"{memory_text(found.used_memory_bytes)}, {found.used_tasks} tasks, {found.used_cpus:.2g} CPUs in use"
    if found.limit:
        return f"{found.name} takes none: {found.limit} ({used})"
    return f"{found.name} takes {found.tasks}, rank {found.rank} ({used})"


def _coscheduling(found: CoschedulingDoc) -> list[str]:
    """How it runs beside others, and what is seen of how it receives."""
    lines = [f"coscheduling {found.mode}: each task's due is {found.share:.0%} of a CPU, raised {found.raises} times"]
    if found.rows:
        length = humanised(round(found.slot_s * US_PER_S))
        lines.append(f"  takes turn {found.row + 1} of {found.rows} with its neighbours, {length} each")
    if found.done_s is not None:
        most = "at most " if found.done_estimated else ""
        lines.append(f"  has done {most}{lasting(found.done_s)} of work, which its time limit counts")
    if found.receives:
        told = ", ".join(f"{_RECEIVES.get(how, how)} on {node}" for node, how in found.receives.items())
        lines.append(f"  receives: {told}")
    if found.transports or found.unseen:
        lines.append(f"  messages seen waiting: {', '.join(found.transports) or 'none'}")
    lines += [f"  not seen: {each}" for each in found.unseen]
    return lines
