"""The demo's live picture: nodes, queue and running jobs, drawn anew twice a second on a terminal."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cosched.apps.lab.demo.report import seconds_for_people
from cosched.wire.api import JobDoc, NodeDoc

_BAR = 10


def picture(headline: str, nodes: list[NodeDoc], jobs: list[JobDoc]) -> RenderableType:
    """One frame. ``jobs`` are those alive."""
    running = [job for job in jobs if job.nodes]
    waiting = [job for job in jobs if not job.nodes]
    return Group(Text(headline, style="bold"), _nodes(nodes, running), _running(running), _waiting(waiting))


def _nodes(nodes: list[NodeDoc], running: list[JobDoc]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Nodes", title_justify="left")
    for column in ("node", "desk", "parallel CPU", "ceiling", "jobs"):
        table.add_column(column)
    for node in sorted(nodes, key=lambda node: node.name):
        present = node.occupied
        here = [f"{job.job_id}:{job.name}" for job in running if any(share.name == node.name for share in job.nodes)]
        table.add_row(
            node.name if node.state == "up" else f"{node.name} ({node.state})",
            Text(node.desk, style="yellow" if present else "dim"),
            _bar(node.usage.cpu_parallel if node.usage else 0.0, node.procs),
            "none" if node.limited_cpus is None else f"{node.limited_cpus:.2f} CPU",
            " ".join(here),
        )
    return table


def _bar(cpus: float, of: int) -> str:
    filled = round(max(0.0, min(1.0, cpus / of)) * _BAR)
    return "█" * filled + "░" * (_BAR - filled) + f" {max(0.0, cpus):.2f}"


def _running(jobs: list[JobDoc]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Running", title_justify="left")
    for column in ("job", "name", "kind", "ranks", "nodes", "waited", "running for"):
        table.add_column(column)
    for job in jobs:
        where = " ".join(share.name for share in job.nodes)
        times = (seconds_for_people(job.wait_s), seconds_for_people(job.run_s))
        table.add_row(str(job.job_id), job.name, job.kind or "", str(job.tasks), where, *times)
    return table


def _waiting(jobs: list[JobDoc]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Queue", title_justify="left")
    for column in ("job", "name", "ranks", "why it waits"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for job in jobs:
        table.add_row(str(job.job_id), job.name, str(job.tasks), job.reason.text if job.reason else "")
    return table
