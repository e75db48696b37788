"""One desk beside parallel work: jobs under the contract, or the same programs in a group like the owner's."""

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from cosched.apps.experiments.jobs import ENDED, Jobs
from cosched.apps.experiments.site import Site
from cosched.client.client import Client
from cosched.errors import Failed
from cosched.wire.api import NodeDoc, Submission

_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.05


class Talking(NamedTuple):
    """A program whose ranks talk to each other, so many of them: one job, by mpirun."""

    program: Sequence[str]
    tasks: int


class Desk:
    """A site, and the scheduler that starts jobs there and nowhere else: no other node of its cluster takes any."""

    def __init__(self, site: Site, client: Client) -> None:
        """Raises :class:`Failed` where jobs could start elsewhere, or not here."""
        self.site = site
        self._client = client
        self._jobs = Jobs(client)
        if (there := [node.name for node in client.nodes() if node.state == "up"]) != [site.node]:
            raise Failed(
                f"of the cluster's nodes {site.node} alone must be up, not {', '.join(there) or 'none'}: else jobs "
                "start elsewhere (cosched node drain)"
            )

    @contextmanager
    def unprotected(self, programs: Sequence[Sequence[str]]) -> Iterator[None]:
        """Programs in a group beside the owner's and like it: what plain Linux does."""
        with self.site.unprotected(programs) as started:
            time.sleep(0.5)
            if ended := [each.args for each in started if each.poll() is not None]:
                raise Failed(f"ended at once: {ended}")
            yield

    @contextmanager
    def jobs(
        self, programs: Sequence[Sequence[str] | Talking], mode: str, memory_bytes: int | None = None
    ) -> Iterator[list[int]]:
        """Each program as a job under the contract, of one task or of those that talk; they are gone at the end."""
        with self._jobs.running() as started:
            for program in programs:
                started.append(self._submit(program, mode, memory_bytes))
            self.until(lambda node: set(started) <= set(node.jobs), f"{len(programs)} jobs to be there")
            for job_id in started:
                self._runs(job_id)
            time.sleep(0.5)
            yield started

    @contextmanager
    def waiting(self, program: Sequence[str], mode: str, memory_bytes: int) -> Iterator[None]:
        """One more job, which must still wait at the end. Raises :class:`Failed` if it was let in."""
        with self._jobs.running() as started:
            started.append(self._submit(program, mode, memory_bytes))
            yield
            if (state := self._client.job(started[0]).state) != "queued":
                raise Failed(f"job {started[0]} should have waited for memory, and is {state}")

    def running(self, job_id: int) -> bool:
        """Whether a job has not ended."""
        return self._client.job(job_id).state == "running"

    def _submit(self, program: Sequence[str] | Talking, mode: str, memory_bytes: int | None) -> int:
        if isinstance(program, Talking):
            tasks, command = program.tasks, ["mpirun", *program.program]
        else:
            tasks, command = 1, list(program)
        submission = Submission(
            script=f"#!/bin/sh\nexec {shlex.join(command)} </dev/null\n",
            tasks=tasks,
            directory="/",
            time_limit_s=3600.0,
            coscheduling=mode,
            memory_bytes=memory_bytes,
        )
        return self._client.submit(submission).job_id

    def until(self, holds: Callable[[NodeDoc], bool], what: str, patience_s: float = _PATIENCE_S) -> None:
        """Wait until the scheduler says so of the node. Raises :class:`Failed` when it took too long."""
        deadline_s = time.monotonic() + patience_s
        while not holds(next(node for node in self._client.nodes() if node.name == self.site.node)):
            if time.monotonic() > deadline_s:
                raise Failed(f"waited {patience_s:g} s for {what} on {self.site.node}")
            time.sleep(_POLL_S)

    def away(self) -> None:
        """Wait until nobody is there, for as long as presets wait. Raises :class:`Failed`."""
        self.until(
            lambda node: not node.occupied and node.armed is False,
            "nobody to be there",
            _PATIENCE_S + 2 * self.site.quiet_s,
        )

    def _runs(self, job_id: int) -> None:
        """Wait until a job runs. Raises :class:`Failed`."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while (job := self._client.job(job_id)).state != "running":
            if time.monotonic() > deadline_s or job.state in ENDED:
                raise Failed(f"job {job_id} is {job.state}: {job.failure.message if job.failure else 'no reason told'}")
            time.sleep(_POLL_S)
