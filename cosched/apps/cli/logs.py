"""``cosched logs``: what a job has written."""

import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

import click

from cosched.apps.cli.shared.following import patient
from cosched.apps.cli.shared.verb import asks, echo_json, job_argument, say
from cosched.apps.cli.shared.words import ended
from cosched.client.client import Client, Piece, Stream
from cosched.errors import BadInput, Failed
from cosched.wire.api import JobDoc

_SHORTEST_POLL_S: Final = 0.1
_LONGEST_POLL_S: Final = 1.0


@click.command("logs")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended; before its start, wait for it.")
@click.option("--stderr", "error_output", is_flag=True, help="Its error output instead.")
@asks
@click.option("--json", "as_json", is_flag=True, help="Print JSON: job_id, stream, text, size_bytes, final.")
@job_argument
def command(client: Client, job_id: int, follow: bool, error_output: bool, as_json: bool) -> None:
    """Print what a job has written, as it is kept on its first node.

    \b
    Example: cosched logs -f 12
    """
    if as_json and follow:
        raise BadInput("--follow", "together with --json", "one of the two")
    stream: Stream = "stderr" if error_output else "stdout"
    job = client.job(job_id)
    if path := job.error if error_output else job.output:
        where = f" on {job.nodes[0].name}" if job.nodes else ""
        raise Failed(f"job {job_id} writes to {path}{where}: nothing of it is kept here")
    if as_json:
        pieces = [*_pieces(client, job_id, stream)]
        data, final = b"".join(piece.data for piece in pieces), pieces[-1].final
        text = data.decode(errors="replace")
        echo_json({"job_id": job_id, "stream": stream, "text": text, "size_bytes": len(data), "final": final})
    elif not job.start_time and not follow:
        say(f"cosched: job {job_id} is {job.state}: nothing written yet")
    else:
        _copy(client, job, stream, follow=follow)


def _copy(client: Client, job: JobDoc, stream: Stream, *, follow: bool) -> None:
    """Write to standard output what there is, or until the end."""
    while follow and not job.start_time and not ended(job):
        job = patient(partial(client.wait, job.job_id, _LONGEST_POLL_S))
    if not job.start_time:
        say(f"cosched: job {job.job_id} is {job.state}: it wrote nothing")
        return
    for piece in _pieces(client, job.job_id, stream, follow=follow):
        sys.stdout.buffer.write(piece.data)
        sys.stdout.buffer.flush()


def _pieces(client: Client, job_id: int, stream: Stream, *, follow: bool = False) -> Iterator[Piece]:
    """What there is, piece by piece, or all until the job has ended; an empty piece is where nothing came."""
    offset, pause_s = 0, _SHORTEST_POLL_S
    while True:
        piece = patient(partial(client.output, job_id, stream, offset))
        yield piece
        offset += len(piece.data)
        if piece.data and offset < piece.size:
            continue
        if piece.final or not follow:
            return
        pause_s = _SHORTEST_POLL_S if piece.data else min(_LONGEST_POLL_S, pause_s * 1.5)
        time.sleep(pause_s)
