"""``cosched cancel``, ``hold`` and ``release``."""

from collections.abc import Callable

import click

from cosched.apps.cli.shared.service import because, echo_json, job_arguments, json_option, service
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.errors import BadInput, Failed, NoAnswer
from cosched.model.job import JobState
from cosched.wire.api import JobDoc


@click.command("cancel")
@job_arguments
@service
@json_option
def cancel_command(job_ids: tuple[int, ...], as_json: bool, server: str | None, lab: str | None) -> int:
    """Cancel jobs: what waits leaves the queue; what runs is told to end, and killed after a grace.

    \b
    Example: cosched cancel 12 13
    """
    return _each(job_ids, Client.cancel, as_json, server, lab)


@click.command("hold")
@job_arguments
@service
@json_option
def hold_command(job_ids: tuple[int, ...], as_json: bool, server: str | None, lab: str | None) -> int:
    """Hold jobs that wait: they are not started before 'cosched release'.

    \b
    Example: cosched hold 12
    """
    return _each(job_ids, Client.hold, as_json, server, lab)


@click.command("release")
@job_arguments
@service
@json_option
def release_command(job_ids: tuple[int, ...], as_json: bool, server: str | None, lab: str | None) -> int:
    """Release held jobs.

    \b
    Example: cosched release 12
    """
    return _each(job_ids, Client.release, as_json, server, lab)


def _each(
    job_ids: tuple[int, ...],
    does: Callable[[Client, int], JobDoc],
    as_json: bool,
    server: str | None,
    lab: str | None,
) -> int:
    """Do it to every job: one that refuses does not keep the others from it. The worst exit status."""
    jobs, status = [], 0
    with connect(server, lab) as client:
        for job_id in job_ids:
            try:
                job = does(client, job_id)
            except NoAnswer:
                raise
            except (BadInput, Failed) as error:
                click.echo(f"cosched: {error}", err=True)
                status = max(status, error.status)
                continue
            jobs.append(job)
            if not as_json:
                why = f": {because(job.reason)}" if job.state == JobState.WAITING else ""
                click.echo(f"job {job.job_id} {job.state}{why}")
    if as_json:
        echo_json({"jobs": jobs})
    return status
