"""``cosched explain``: why a job is in the state it is in, from the decision's own record."""

import click

from cosched.cli.service import echo_json, job_argument, json_option, local, service
from cosched.client.find import connect


@click.command("explain")
@job_argument
@service
@json_option
def command(job_id: int, as_json: bool, server: str | None, lab: str | None) -> None:
    """Explain why a job waits, runs or has ended: the reason of the decision with its numbers, what led to it.

    \b
    Example: cosched explain 12
    """
    with connect(server, lab) as client:
        found = client.explain(job_id)
    if as_json:
        echo_json(found)
        return
    click.echo(f"job {found.job_id} is {found.state}: {found.reason.text}")
    click.echo(f"  decided {local(found.decided)}" + (f", because of: {found.cause}" if found.cause else ""))
    if found.promised_start:
        click.echo(f"  promised to start by {local(found.promised_start)}")
