"""One desk of a lab beside parallel work: jobs under the contract, or the same programs in a group like the owner's."""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from cosched.client.client import Client
from cosched.errors import Failed
from cosched.lab import cgroups
from cosched.lab.lab import Lab
from cosched.model.job import TERMINAL
from cosched.wire.api import NodeDoc, Submission

#: The side of unprotected desks, beside ``desk`` and like it.
PLAIN: Final = "plain"
#: The side that the contract is about.
PARALLEL: Final = "cosched"
_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.05
_ENDED: Final = frozenset(state.value for state in TERMINAL)
_ENTER: Final = 'while [ "$1" != -- ]; do echo 0 >"$1"; shift; done; shift; exec "$@"'


class Talking(NamedTuple):
    """A program whose ranks talk to each other, so many of them: one job, by mpirun."""

    program: Sequence[str]
    tasks: int


class Desk:
    """The first node of a lab of tier 1."""

    def __init__(self, lab: Lab, client: Client) -> None:
        self.lab = lab
        self.node = lab.nodes[0]
        self._client = client

    @contextmanager
    def unprotected(self, programs: Sequence[Sequence[str]]) -> Iterator[None]:
        """Programs in a group beside the owner's and like it: what plain Linux does."""
        doors = cgroups.add_side(self.lab.name, self.node, PLAIN)
        started = [subprocess.Popen(["sh", "-c", _ENTER, "sh", *doors, "--", *each]) for each in programs]
        try:
            time.sleep(0.5)
            if ended := [each.args for each in started if each.poll() is not None]:
                raise Failed(f"ended at once: {ended}")
            yield
        finally:
            for each in started:
                each.kill()
                each.wait()

    @contextmanager
    def jobs(
        self, programs: Sequence[Sequence[str] | Talking], mode: str, memory_bytes: int | None = None
    ) -> Iterator[list[int]]:
        """Each program as a job under the contract, of one task or of those that talk; they are gone at the end."""
        started: list[int] = []
        try:
            for program in programs:
                started.append(self._submit(program, mode, memory_bytes))  # noqa: PERF401 (ended if the next is refused)
            self.until(lambda node: set(started) <= set(node.jobs), f"{len(programs)} jobs to be there")
            for job_id in started:
                self._in(job_id, {"running"})
            time.sleep(0.5)
            yield started
        finally:
            for job_id in started:
                with suppress(Failed):
                    self._client.cancel(job_id)
            for job_id in started:
                self._in(job_id, _ENDED)

    @contextmanager
    def waiting(self, program: Sequence[str], mode: str, memory_bytes: int) -> Iterator[None]:
        """One more job, which must still wait at the end. Raises :class:`Failed` if it was let in."""
        job_id = self._submit(program, mode, memory_bytes)
        try:
            yield
            if (state := self._client.job(job_id).state) != "queued":
                raise Failed(f"job {job_id} should have waited for memory, and is {state}")
        finally:
            self._client.cancel(job_id)
            self._in(job_id, _ENDED)

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

    def until(self, holds: Callable[[NodeDoc], bool], what: str) -> None:
        """Wait until the scheduler says so of the node. Raises :class:`Failed` after a minute."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while not holds(next(node for node in self._client.nodes() if node.name == self.node)):
            if time.monotonic() > deadline_s:
                raise Failed(f"waited {_PATIENCE_S:g} s for {what} on {self.node}")
            time.sleep(_POLL_S)

    def _in(self, job_id: int, states: set[str] | frozenset[str]) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while (job := self._client.job(job_id)).state not in states:
            if time.monotonic() > deadline_s or (job.state in _ENDED and states != _ENDED):
                raise Failed(f"job {job_id} is {job.state}: {job.failure.message if job.failure else 'no reason told'}")
            time.sleep(_POLL_S)
