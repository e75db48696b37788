"""``cosched wait``: wait for the end of jobs."""

import click

from cosched.apps.cli.shared.following import to_end
from cosched.apps.cli.shared.verb import asks, job_arguments, json_option, tell_each
from cosched.apps.cli.shared.words import exit_status, outcome
from cosched.client.client import Client


@click.command("wait")
@job_arguments
@asks
@json_option
def command(client: Client, job_ids: tuple[int, ...], as_json: bool) -> int:
    """Wait until jobs have ended, and say how.

    The exit status is that of the first job, in the order given, that did not complete: its own, or 128 + signal, 124
    for its time limit, 125 for a lost node, 126 when it could not be launched, 130 when it was cancelled.

    \b
    Example: cosched wait 12 13 && echo both completed
    """
    for job_id in job_ids:
        client.job(job_id)  # a number that no job has is told before the first wait
    jobs = tell_each(
        (to_end(client, job_id) for job_id in job_ids),
        lambda jobs: (f"job {job.job_id} {outcome(job)}" for job in jobs),
        lambda jobs: {"jobs": jobs},
        as_json=as_json,
    )
    return next(filter(None, map(exit_status, jobs)), 0)
