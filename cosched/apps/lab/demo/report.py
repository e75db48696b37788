"""The demo's closing account, as tables."""

from statistics import mean
from typing import Any

from cosched.apps.lab.demo.account import Account
from cosched.model.time import humanised, us
from cosched.report.table import Table
from cosched.wire.api import JobDoc


def seconds_for_people(value: float | None) -> str:
    """A duration as a person reads it; nothing for None."""
    return "" if value is None else humanised(us(round(value, 1)))


def jobs(documents: list[JobDoc]) -> Table:
    """Every job: when it came, what it waited, ran and took in all, where, and how it ended."""
    table = Table("Jobs", ["job", "name", "kind", "ranks", "wait", "execution", "turnaround", "nodes", "end"])
    for job in sorted(documents, key=lambda job: job.job_id):
        table.add(
            str(job.job_id),
            job.name,
            job.kind or "",
            job.tasks,
            seconds_for_people(job.wait_s),
            seconds_for_people(job.run_s),
            seconds_for_people(job.turnaround_s),
            " ".join(share.name for share in job.nodes),
            job.state,
        )
    return table


def kinds(documents: list[JobDoc]) -> Table:
    """Means by orientation, over the jobs that completed."""
    table = Table("By orientation (means of completed jobs)", ["kind", "jobs", "wait", "execution", "turnaround"])
    done = [job for job in documents if job.state == "completed"]
    for kind in sorted({job.kind or "" for job in done}):
        same = [job for job in done if (job.kind or "") == kind]
        table.add(
            {"cpu": "computation", "comm": "communication"}.get(kind, kind),
            len(same),
            *(
                seconds_for_people(mean(getattr(job, name) or 0.0 for job in same))
                for name in ("wait_s", "run_s", "turnaround_s")
            ),
        )
    return table


def desks(account: Account) -> Table:
    """What the social contract did at each desk: parallel CPU while somebody was there and while nobody was."""
    table = Table(
        "The social contract, desk by desk",
        ["node", "present", "parallel CPU then", "away", "parallel CPU then ", "ceiling held", "lowest ceiling"],
    )
    for name, desk in sorted(account.desks.items()):
        table.add(
            name,
            seconds_for_people(desk.present_s),
            _rate(desk.parallel_cpu_present_s, desk.present_s),
            seconds_for_people(desk.away_s),
            _rate(desk.parallel_cpu_away_s, desk.away_s),
            seconds_for_people(desk.limited_s),
            "" if desk.lowest_ceiling_cpus is None else f"{desk.lowest_ceiling_cpus:.2f} CPU",
        )
    return table


def user(summary: dict[str, Any], node: str) -> list[str]:
    """What the person at the desk felt, from the synthetic user's own measurement."""
    delays = summary.get("calls", {}).get("key")
    if not delays:
        return []
    p50, p95, p99, longest = (delays[f"{name}_s"] * 1000 for name in ("p50", "p95", "p99", "max"))
    return [
        f"The user at {node} ({summary['profile']}) pressed {delays['count']} keys; from key to echo (ms): "
        f"median {p50:.2f}, 95 % {p95:.2f}, 99 % {p99:.2f}, longest {longest:.2f}"
    ]


def _rate(cpu_s: float, past_s: float) -> str:
    return f"{cpu_s / past_s:.2f} CPU" if past_s > 0 else ""


def unexpected(documents: list[JobDoc]) -> list[str]:
    """What did not end as the story has it: everything completes, but the job that breaks, which fails."""
    return [
        f"job {job.job_id} {job.name} {job.state}" + (f": {job.failure.message}" if job.failure else "")
        for job in documents
        if job.state != ("failed" if job.name == "broken" else "completed")
    ]
