"""Jobs of an experiment: submitted through a cluster's client, waited for, ended whatever happens."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from cosched.client.client import Client
from cosched.errors import BadInput, Failed
from cosched.model.job import TERMINAL, JobState
from cosched.wire.api import JobDoc, Submission

ENDED: Final = frozenset(state.value for state in TERMINAL)
POLL_S: Final = 0.05
BEGIN_S: Final = 60.0
LONGEST_S: Final = 300.0
#: The company's jobs outlast any run.
_LIMIT_S: Final = 1800.0
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
_PIECE_BYTES: Final = 1 << 20


class Cannot(Failed):
    """A cell cannot be run here; the message says why."""


class Jobs:
    """Those of a client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def submit(
        self,
        script: str,
        mode: str,
        tasks: int,
        *,
        polls: bool = False,
        kind: str | None = None,
        memory_bytes: int | None = None,
        time_limit_s: float = _LIMIT_S,
        components: tuple[int, ...] | None = None,
    ) -> int:
        """Submit a script with this Python's environment; ``polls``: its MPI does not yield while it waits."""
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment["PATH"] = os.path.dirname(sys.executable) + ":" + environment.get("PATH", "/usr/bin:/bin")
        environment["OMPI_MCA_mpi_yield_when_idle"] = "0" if polls else "1"
        submission = Submission(
            script=script,
            tasks=tasks,
            directory="/",
            environment=environment,
            time_limit_s=time_limit_s,
            memory_bytes=memory_bytes,
            kind=kind,
            coscheduling=mode,
            components=components,
        )
        return self._client.submit(submission).job_id

    @contextmanager
    def running(self) -> Iterator[list[int]]:
        """Jobs that are ended when the block is left, and have ended when this comes back."""
        started: list[int] = []
        try:
            yield started
        finally:
            for job_id in started:
                with suppress(Failed):
                    self._client.cancel(job_id)
            for job_id in started:
                self.until(job_id, lambda job: job.state in ENDED, BEGIN_S, "to end")

    def played(self, due: Iterable[tuple[float, Callable[[], int]]], longest_s: float) -> list[JobDoc]:
        """Submit each at its moment, in seconds from now, and wait for the ends of all, which must be good ones."""
        with self.running() as started:
            begin_s = time.monotonic()
            for at_s, submit in due:
                time.sleep(max(0.0, begin_s + at_s - time.monotonic()))
                started.append(submit())
            end_s = time.monotonic() + longest_s
            ended = []
            for job_id in started:
                while (found := self._client.wait(job_id, 20.0)).state not in ENDED:
                    if time.monotonic() > end_s:
                        raise Cannot(f"job {job_id} had not ended after {longest_s:g} s: {found.state}")
                ended.append(_well(found))
        return ended

    def finish(self, job_id: int) -> JobDoc:
        """Wait for a job's end, which must be a good one."""
        return _well(self.until(job_id, lambda found: found.state in ENDED, LONGEST_S, "to end"))

    def until(self, job_id: int, holds: Callable[[JobDoc], bool], within_s: float, what: str) -> JobDoc:
        """Wait until a job is so; it is cancelled where it takes too long."""
        deadline_s = time.monotonic() + within_s
        while not holds(job := self._client.job(job_id)):
            if time.monotonic() > deadline_s:
                self._client.cancel(job_id)
                raise Cannot(f"job {job_id} was waited for {what} for {within_s:g} s")
            time.sleep(POLL_S)
        return job

    def now(self, job_id: int) -> JobDoc:
        """A job as it is."""
        return self._client.job(job_id)

    def output(self, job_id: int) -> str:
        """What a job has written so far."""
        data = b""
        while True:
            try:
                piece = self._client.output(job_id, "stdout", len(data), _PIECE_BYTES)
            except (Failed, BadInput):
                return data.decode(errors="replace")  # it has not started yet
            data += piece.data
            if not piece.data or len(data) >= piece.size:
                return data.decode(errors="replace")


def _well(job: JobDoc) -> JobDoc:
    if job.state != JobState.COMPLETED:
        raise Cannot(why(job))
    return job


def program(name: str, size: str, *how: str) -> str:
    """The command that runs one of the lab's programs on all tasks of a job."""
    argv = [sys.executable, "-P", "-m", "cosched.programs", name, "--class", size, *how]
    return f"mpirun {shlex.join(argv)} </dev/null"


def moment_s(moment: str | None) -> float:
    """A moment that a service tells (ISO 8601), in seconds."""
    assert moment is not None
    return datetime.fromisoformat(moment).timestamp()


def why(job: JobDoc) -> str:
    """How a job has ended, with the last lines of its output."""
    told = [job.failure.message, *job.failure.tail[-3:]] if job.failure else []
    return f"job {job.job_id} is {job.state}: {' / '.join(told)}"
