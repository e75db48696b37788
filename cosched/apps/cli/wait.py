"""``cosched wait``: wait for the end of jobs."""

import click

from cosched.apps.cli.shared.following import to_end
from cosched.apps.cli.shared.service import echo_json, exit_status, job_arguments, json_option, outcome, service
from cosched.client.find import connect


@click.command("wait")
@job_arguments
@service
@json_option
def command(job_ids: tuple[int, ...], as_json: bool, server: str | None, lab: str | None) -> int:
    """Wait until jobs have ended, and say how.

    The exit status is that of the first job, in the order given, that did not complete: its own, or 128 + signal, 124
    for its time limit, 125 for a lost node, 126 when it could not be launched, 130 when it was cancelled.

    \b
    Example: cosched wait 12 13 && echo both completed
    """
    jobs = []
    with connect(server, lab) as client:
        for job_id in job_ids:
            client.job(job_id)  # a number that no job has is told before the first wait
        for job_id in job_ids:
            job = to_end(client, job_id)
            jobs.append(job)
            if not as_json:
                click.echo(f"job {job_id} {outcome(job)}")
    if as_json:
        echo_json({"jobs": jobs})
    return next((status for status in map(exit_status, jobs) if status), 0)
