"""``cosched queue`` and ``cosched history``: the jobs that are alive, and those that have ended."""

from collections.abc import Iterator, Sequence
from typing import Final

import click

from cosched.apps.cli.shared.values import read_by, whole_number
from cosched.apps.cli.shared.verb import Answer, asks, says, wide_option
from cosched.apps.cli.shared.words import (
    because,
    clock,
    lasting,
    limits,
    outcome,
    places,
    sizes,
    stalls,
    this_user,
    with_present_reason,
)
from cosched.client.client import Client
from cosched.model.job import JobState
from cosched.report.table import Table
from cosched.wire.api import JobDoc

#: Of so many jobs at the front of the queue, the list says why they wait.
_EXPLAINED: Final = 25
_NOT_STARTED: Final = (JobState.QUEUED, JobState.WAITING)
_user = click.option(
    "--user",
    metavar="NAME",
    callback=read_by(lambda name, _option: this_user() if name == "me" else name),
    help="Only that user's jobs; 'me' is the caller.",
)


@click.command("queue")
@_user
@click.option("--all", "also_ended", is_flag=True, help="Also those that have ended lately.")
@asks
@wide_option
@says
def queue_command(client: Client, user: str | None, also_ended: bool, wide: bool) -> Answer:
    """List the jobs that run and wait: what runs first, then the queue in its order.

    \b
    Example: cosched queue --user me
    """
    jobs = client.jobs(user)
    explained = [job.job_id for job in jobs if job.state == JobState.QUEUED][:_EXPLAINED]
    jobs = [with_present_reason(client, job) if job.job_id in explained else job for job in jobs]
    if also_ended:
        jobs += client.history(user, 20)
    return Answer({"jobs": jobs}, _alive(jobs, wide) if jobs else ["no jobs"])


def _alive(jobs: list[JobDoc], wide: bool) -> Iterator[Table]:
    columns = ("job", "name", "user", "state", "starts by", "tasks", "waited", "runs", "limit", "where, why")
    waits = any(job.state in _NOT_STARTED for job in jobs)
    notes = ["why a job waits, with numbers: cosched explain ID"] if waits else []
    yield Table("Jobs", columns, [_row(job) for job in jobs], notes, cut=("where, why", "name", "user"), wide=wide)


def _row(job: JobDoc) -> tuple[object, ...]:
    why = places(job.nodes)
    if job.state in _NOT_STARTED or (job.state == JobState.STARTING and not why):
        why = because(job.reason).partition(" (")[0]  # the numbers are for 'explain'
        if job.reason and (blocking := job.reason.numbers.get("blocking_job")):
            why = f"waits for job {blocking}: {why}"
        if job.reason and (overdue := job.reason.numbers.get("overdue_job")):
            why = f"{why}; job {overdue} is overdue"
    elif job.paused:
        why = f"{why}: paused by the owner of {', '.join(each.node for each in job.paused)}"
    elif job.slowed:
        why = f"{why}: {'; '.join(limits(job.limited)) or 'slowed'}"
    here = {share.name for share in job.nodes}
    for words in stalls([each for each in job.stalled if each.node in here])[:1]:  # not of an attempt before
        why = f"{why}: {words}"
    return (
        str(job.job_id),
        job.name,
        job.user,
        outcome(job),
        clock(job.promised_start) if job.state in _NOT_STARTED else "",
        _tasks(job),
        lasting(job.wait_s),
        lasting(job.run_s) if job.start_time else "",
        lasting(job.time_limit_s),
        why,
    )


def _tasks(job: JobDoc) -> str:
    """How many tasks a job has, on how many CPUs where those are fewer, and of which numbers it is one."""
    if job.shape and job.shape.components:
        return f"{job.tasks} ({'+'.join(map(str, job.shape.components))})"
    others = sizes(job.shape) if job.shape else ""
    fewer = job.cpus not in (None, job.tasks) and job.state not in _NOT_STARTED
    on = f" on {job.cpus} CPU{'' if job.cpus == 1 else 's'}" if fewer else ""
    return f"{job.tasks}{on} of {others}" if others else f"{job.tasks}{on}"


@click.command("history")
@click.option("-n", "--last", "limit", metavar="N", default="20", callback=whole_number(1, 100_000), show_default=True)
@_user
@asks
@wide_option
@says
def history_command(client: Client, limit: int, user: str | None, wide: bool) -> Answer:
    """List the jobs that have ended, the newest first.

    \b
    Example: cosched history -n 50 --user me
    """
    jobs = client.history(user, limit)
    return Answer({"jobs": jobs}, _ended(jobs, wide) if jobs else ["no job has ended yet"])


def _ended(jobs: list[JobDoc], wide: bool) -> Iterator[Table]:
    columns = ("job", "name", "user", "end", "tasks", "ended", "waited", "ran", "CPU", "where")
    rows: list[Sequence[object]] = [
        (
            str(job.job_id),
            job.name,
            job.user,
            outcome(job),
            job.tasks,
            clock(job.end_time),
            lasting(job.wait_s),
            lasting(job.run_s) if job.start_time else "",
            lasting(job.cpu_s),
            places(job.nodes),
        )
        for job in jobs
    ]
    completed = all(job.state == JobState.COMPLETED for job in jobs)
    notes = [] if completed else ["why one did not complete: cosched show ID"]
    yield Table("Ended jobs", columns, rows, notes, cut=("where", "name", "user"), wide=wide)
