"""``cosched wait``: wait for the end of jobs."""

import click

from cosched.apps.cli.shared.following import to_end
from cosched.apps.cli.shared.verb import asks, echo_json, job_arguments, json_option
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
    jobs = []
    for job_id in job_ids:
        jobs.append(to_end(client, job_id))
        if not as_json:
            click.echo(f"job {job_id} {outcome(jobs[-1])}")
    if as_json:
        echo_json({"jobs": jobs})
    return next((status for status in map(exit_status, jobs) if status), 0)
