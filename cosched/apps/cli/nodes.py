"""``cosched nodes`` and ``cosched node add|remove|drain|resume``."""

from collections.abc import Iterator

import click

from cosched.apps.cli.enrol import add_command, remove_command, renew_command
from cosched.apps.cli.node_identity import accept_command, admit_command, request_command, sign_command
from cosched.apps.cli.render import render_command
from cosched.apps.cli.shared.checks import expiry
from cosched.apps.cli.shared.verb import Answer, asks, says, wide_option
from cosched.apps.cli.shared.words import ago, stalls
from cosched.client.client import Client
from cosched.config.units import memory_text
from cosched.model.node import Presence
from cosched.report.table import Table
from cosched.wire.api import NodeDoc
from cosched.wire.messages import RIGID_VERSION


@click.command("nodes")
@wide_option
@asks
@says
def command(client: Client, wide: bool) -> Answer:
    """List the nodes, a line each: whether they are up, free or limited, what is used, which jobs run.

    Operators see who is at the desk.

    \b
    Example: cosched nodes --json
    """
    nodes = client.nodes()
    nothing = ["no nodes: the list 'nodes' in cluster.yaml is empty"]
    return Answer({"nodes": nodes}, _listed(nodes, wide) if nodes else nothing)


def _listed(nodes: list[NodeDoc], wide: bool) -> Iterator[Table]:
    columns = ["node", "cluster", "state", "desk", "tasks", "memory", "CPU", "others", "limit", "jobs", "heard"]
    rows = [_row(node) for node in nodes]
    if len({node.cluster for node in nodes}) == 1:
        columns.remove("cluster")
        rows = [[name, *rest] for name, _, *rest in rows]
    notes = [
        *(
            f"{node.name} is {node.state}: {node.reason.removeprefix(f'{node.state}: ')}"
            for node in nodes
            if node.reason
        ),
        *(
            f"{node.name} is lost with jobs {' '.join(map(str, node.jobs))}: what runs wholly on a cluster that is cut "
            "off is waited for"
            for node in nodes
            if node.state == "lost" and node.jobs
        ),
        *(f"{node.name}'s agent may not join: {node.refused}" for node in nodes if node.refused),
        *(
            f"{node.name}'s agent speaks version {node.version} of the link: no job there changes its shape "
            "(upgrade it)"
            for node in nodes
            if node.version == RIGID_VERSION
        ),
        *(f"{node.name}: {words}" for node in nodes if (words := expiry(node))),
        *(
            f"job {each.job_id} of {each.user}, which holds {each.procs} of {node.name}'s processors, {words}"
            for node in nodes
            for each, words in zip(node.stalled, stalls(node.stalled), strict=True)
        ),
        *(f"{node.name} does not see everything: {'; '.join(node.blind)}" for node in nodes if node.blind),
    ]
    if any(node.presence is Presence.UNKNOWN and node.state == "up" for node in nodes):
        notes.append("a desk of which nothing is known counts as occupied: the owner comes first")
    yield Table("Nodes", columns, [*rows], notes, cut=("node", "jobs", "desk", "memory"), wide=wide)


def _row(node: NodeDoc) -> list[object]:
    usage = node.usage
    others = usage.cpu_local + max(0.0, usage.cpu_system) if usage and usage.cpu_local >= 0 else None
    source = f" ({node.presence_source})" if node.presence is Presence.PRESENT and node.presence_source else ""
    joined = node.state != "unknown"
    return [
        node.name,
        node.cluster,
        node.state,
        node.desk + source if joined else "",
        f"{node.used_procs}/{node.procs}" if joined else "",
        f"{memory_text(node.used_memory_bytes)}/{memory_text(node.memory_bytes)}" if joined else "",
        round(usage.cpu_parallel, 2) if usage and usage.cpu_parallel >= 0 else None,
        round(others, 2) if others is not None else None,
        f"{node.limited_cpus:g} CPU" if node.limited_cpus is not None else ("none" if joined else ""),
        " ".join(map(str, node.jobs)),
        ago(node.last_heard),
    ]


@click.group("node")
def node_command() -> None:
    """Add, remove, drain and resume nodes (operators); what is installed on them.

    \b
    Example: cosched node drain lab3 --reason "new disk"
    """


for _command in (
    add_command,
    renew_command,
    remove_command,
    render_command,
    request_command,
    sign_command,
    accept_command,
    admit_command,
):
    node_command.add_command(_command)


@node_command.command("drain")
@click.argument("name")
@click.option("--reason", default="", help="Shown by 'cosched nodes'.")
@asks
@says
def drain_command(client: Client, name: str, reason: str) -> Answer:
    """Start nothing more on a node; what runs there runs to its end.

    \b
    Example: cosched node drain lab3 --reason "new disk"
    """
    node = client.drain(name, reason)
    waiting = f", until {_jobs(node.jobs)} ended" if node.jobs else ""
    return Answer(node, [f"{node.name} {node.state}{waiting}"])


@node_command.command("resume")
@click.argument("name")
@asks
@says
def resume_command(client: Client, name: str) -> Answer:
    """Let jobs start on a node again.

    \b
    Example: cosched node resume lab3
    """
    node = client.resume(name)
    return Answer(node, [f"{node.name} {node.state}"])


def _jobs(jobs: list[int]) -> str:
    return f"job {jobs[0]} has" if len(jobs) == 1 else f"jobs {', '.join(map(str, jobs))} have"
