"""``cosched show``: everything about one job, a failure's story above all."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import click

from cosched.apps.cli.shared.checks import grouped
from cosched.apps.cli.shared.verb import Answer, asks, job_argument, says
from cosched.apps.cli.shared.words import (
    because,
    ended,
    held,
    in_components,
    lasting,
    limits,
    local,
    outcome,
    pauses,
    places,
    sizes,
    stalls,
    with_present_reason,
)
from cosched.client.client import Client
from cosched.config.units import memory_text
from cosched.model.job import JobState
from cosched.wire.api import ASKED, Failure, JobDoc, ShapeDoc, Unit

#: A unit -> a value of it for people.
_PEOPLE: Final[dict[Unit, Callable[[Any], str]]] = {"time": lasting, "size": memory_text}
_KINDS = {"cpu": "computes", "comm": "communicates"}


@click.command("show")
@job_argument
@asks
@says
def command(client: Client, job_id: int) -> Answer:
    """Show a job: where it is or how it ended and why, its times, its output, the steps of its life.

    --json prints the document of the API: job_id, state, reason, nodes, history and more (docs/guide/api.md).

    \b
    Example: cosched show 12
    """
    job = with_present_reason(client, client.job(job_id))
    return Answer(job, _story(client, job))


def _story(client: Client, job: JobDoc) -> Iterator[str]:
    """Lines for people; the clusters of a job of components are asked for."""
    divided = bool(job.nodes and in_components(job.shape))
    clusters = {node.name: node.cluster for node in client.nodes()} if divided else {}
    name = f" ({job.name})" if job.name else ""
    yield f"job {job.job_id}{name} of {job.user}: {outcome(job)}"
    if job.failure:
        yield from _failure(job.failure)
    facts = [
        ("why", because(job.reason)),
        ("paused", "; ".join(each.removeprefix("paused ") for each in pauses(job.paused))),
        ("slowed", "; ".join(limits(job.limited)) or ("a node of it is limited" if job.slowed else "")),
        ("stalled", "; ".join(stalls(job.stalled))),
        ("promised", f"starts by {local(job.promised_start)}" if job.promised_start else ""),
        ("asked for", _asked(job)),
        ("shape", _shape(job.shape)),
        ("runs as", held(job) if job.state == JobState.RUNNING else ""),
        ("nodes", _places(job, clusters)),
        ("submitted", local(job.submit_time)),
        ("started", f"{local(job.start_time)}, waited {lasting(job.wait_s)}" if job.start_time else ""),
        ("waited", lasting(job.wait_s) if not job.start_time else ""),
        ("ended", _ended(job)),
        ("running for", lasting(job.run_s) if job.start_time and not ended(job) else ""),
        ("measured", _measured(job)),
        ("note", "; ".join(job.notes)),
        ("directory", job.directory),
        ("output", _output(job.output, job, "")),
        ("error output", _output(job.error, job, " --stderr")),
    ]
    yield from (f"  {label:<13} {text}" for label, text in facts if text)
    if job.history:
        yield "  history"
    steps = [(each.time, each.state, [because(each.reason), each.note]) for each in job.history]
    steps += [(each.time, "changed", [because(each.reason)]) for each in job.changes]
    for at, what, texts in sorted(steps, key=lambda step: datetime.fromisoformat(step[0])):
        yield f"    {local(at)}  {what:<13} {'; '.join(filter(None, texts))}".rstrip()


def _failure(failure: Failure) -> Iterator[str]:
    rank = f"rank {failure.rank}" if failure.rank is not None else ""
    where = " on ".join(filter(None, (rank, failure.node)))
    yield f"  {'failure':<13} {f'{where}: ' if where else ''}{failure.message}"
    if failure.tail:
        yield "  last lines of its error output:"
        yield from (f"    | {line}" for line in failure.tail)


def _asked(job: JobDoc) -> str:
    parts = [
        f"{job.tasks} task{'s' if job.tasks > 1 else ''}{_of_sizes(job.shape)}",
        in_components(job.shape),
        *(
            each.shown.format(_PEOPLE.get(each.unit, str)(getattr(job, name)))
            for name, each in ASKED
            if each.shown and getattr(job, name)
        ),
    ]
    if job.kind:
        how = " (measured when it ran before)" if job.kind_from == "measured" else ""
        parts.append(f"mostly {_KINDS.get(job.kind, job.kind)}{how}")
    return ", ".join(filter(None, parts))


def _of_sizes(shape: ShapeDoc | None) -> str:
    """What else a job could have."""
    asks = f", and may ask for {shape.evolve} more or fewer" if shape is not None and shape.evolve else ""
    if shape is None or not (others := sizes(shape)):
        return asks
    return f" of {others}{' at any time' if shape.malleable else ' when it starts'}{asks}"


def _places(job: JobDoc, clusters: Mapping[str, str]) -> str:
    """Its nodes, by cluster where it has components."""
    found = grouped((clusters.get(share.name, ""), share) for share in job.nodes)
    return "; ".join(f"{cluster}: {places(shares)}" if cluster else places(shares) for cluster, shares in found.items())


def _shape(shape: ShapeDoc | None) -> str:
    """What it says of folding, and what the service makes of its shape."""
    if shape is None:
        return ""
    folds = {None: "", True: "may be folded", False: "may not be folded"}
    said = f"of the class {shape.job_class}" if shape.job_class else ""
    return "; ".join(filter(None, (", ".join(filter(None, (said, folds[shape.fold]))), shape.note)))


def _measured(job: JobDoc) -> str:
    """What agents saw of its processes."""
    effort = job.effort
    if effort is None or not effort.orientation:
        return ""
    told = f"{_KINDS[effort.orientation]}: {effort.communication:.0%} of its time was communication"
    if not effort.arrivals_per_s:
        return told
    came = memory_text(round(effort.received_bytes_per_s))
    return f"{told}, {effort.arrivals_per_s:.0f} TCP segments with {came} came in a second"


def _ended(job: JobDoc) -> str:
    if not job.end_time:
        return ""
    ran = f"ran {lasting(job.run_s)}" if job.start_time else ""
    used = f"used {lasting(job.cpu_s)} of CPU" if job.cpu_s is not None else ""
    after = f"{lasting(job.turnaround_s)} after its submission" if job.turnaround_s is not None else ""
    return ", ".join(filter(None, (local(job.end_time), ran, used, after)))


def _output(path: str | None, job: JobDoc, option: str) -> str:
    if path:
        return f"{path} on {job.nodes[0].name}" if job.nodes else path
    return (
        f"cosched logs{option} {job.job_id}"
        if job.start_time or job.state not in (JobState.QUEUED, JobState.WAITING)
        else ""
    )
