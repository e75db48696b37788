"""Following a job to its end, over restarts of the service."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import click

from cosched.apps.cli.shared.verb import say
from cosched.apps.cli.shared.words import because, ended, local
from cosched.client.client import Client, NotNow
from cosched.errors import NoAnswer
from cosched.wire.api import JobDoc, Step

#: So long a service may be away (restarted, upgraded) before a command that waits gives up.
_PATIENCE_S: Final = 120.0
_SHORTEST_PAUSE_S: Final = 0.2
_SHORTEST_POLL_S: Final = 0.25
_TELLING_POLL_S: Final = 2.0
_LONGEST_POLL_S: Final = 20.0
#: Of a reason: the pass leaves the job out.
_SET_ASIDE: Final = "set_aside"

Answer = TypeVar("Answer")


def patient(ask: Callable[[], Answer]) -> Answer:
    """What ``ask`` gives, which is called again while the service does not answer, for two minutes at most.

    That is said once. Raises :class:`NoAnswer` or :class:`NotNow` when patience is at its end.
    """
    end_s, pause_s = time.monotonic() + _PATIENCE_S, _SHORTEST_PAUSE_S
    while True:
        try:
            return ask()
        except (NoAnswer, NotNow) as error:
            if time.monotonic() > end_s:
                raise
            if pause_s == _SHORTEST_PAUSE_S:
                say(f"cosched: {error}; asking again for {_PATIENCE_S:.0f} s")
        time.sleep(pause_s)
        pause_s = min(5.0, pause_s * 1.5)


def to_end(client: Client, job_id: int, each: Callable[[Step], None] | None = None) -> JobDoc:
    """Wait until a job has ended; ``each`` gets every step of its life after the first.

    It is said on standard error when the pass has set the job aside.
    Raises :class:`NoAnswer` when the service stays away.
    """
    was_aside = tell_aside(patient(partial(client.job, job_id)))
    told, poll_s = 1, _SHORTEST_POLL_S if each else _LONGEST_POLL_S
    while True:
        job = patient(partial(client.wait, job_id, poll_s))
        was_aside = tell_aside(job, known=was_aside)
        if each:
            for step in job.history[told:]:
                each(step)
            poll_s = _SHORTEST_POLL_S if told < len(job.history) else min(_TELLING_POLL_S, poll_s * 1.5)
        told = max(told, len(job.history))
        if ended(job):
            return job


def tell_aside(job: JobDoc, *, known: bool = False) -> bool:
    """Say on standard error that the pass has set a job aside, unless that is known; whether it has."""
    aside = job.reason is not None and job.reason.why == _SET_ASIDE
    if aside and not known:
        click.echo(f"cosched: job {job.job_id} is {job.state}: {because(job.reason)}", err=True)
    return aside


def tell(job_id: int, step: Step) -> None:
    """Say a step of a job's life on standard error."""
    why = because(step.reason) or step.note
    say(f"{local(step.time)}  job {job_id} {step.state}{f': {why}' if why else ''}")
