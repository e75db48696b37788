"""``cosched cancel``, ``hold`` and ``release``."""

from collections.abc import Callable

import click

from cosched.apps.cli.shared.verb import asks, echo_json, job_arguments, json_option, say
from cosched.apps.cli.shared.words import because
from cosched.client.client import Client
from cosched.errors import BadInput, Failed, NoAnswer
from cosched.model.job import JobState
from cosched.wire.api import JobDoc


@click.command("cancel")
@job_arguments
@asks
@json_option
def cancel_command(client: Client, job_ids: tuple[int, ...], as_json: bool) -> int:
    """Cancel jobs: what waits leaves the queue; what runs is told to end, and killed after a grace.

    \b
    Example: cosched cancel 12 13
    """
    return _each(job_ids, client.cancel, as_json)


@click.command("hold")
@job_arguments
@asks
@json_option
def hold_command(client: Client, job_ids: tuple[int, ...], as_json: bool) -> int:
    """Hold jobs that wait: they are not started before 'cosched release'.

    \b
    Example: cosched hold 12
    """
    return _each(job_ids, client.hold, as_json)


@click.command("release")
@job_arguments
@asks
@json_option
def release_command(client: Client, job_ids: tuple[int, ...], as_json: bool) -> int:
    """Release held jobs.

    \b
    Example: cosched release 12
    """
    return _each(job_ids, client.release, as_json)


def _each(job_ids: tuple[int, ...], does: Callable[[int], JobDoc], as_json: bool) -> int:
    """Do it to every job: one that refuses does not keep the others from it. The worst exit status."""
    jobs, status = [], 0
    for job_id in job_ids:
        try:
            job = does(job_id)
        except NoAnswer:
            raise
        except (BadInput, Failed) as error:
            say(f"cosched: {error}")
            status = max(status, error.status)
            continue
        jobs.append(job)
        if not as_json:
            why = f": {because(job.reason)}" if job.state == JobState.WAITING else ""
            click.echo(f"job {job.job_id} {job.state}{why}")
    if as_json:
        echo_json({"jobs": jobs})
    return status
