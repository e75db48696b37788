"""What is remembered of programs: whether they compute or communicate, and how much of a CPU their tasks use.

Agents, or a simulated world, measure that of each job; the next job of the program that does not say it itself is taken
to be the same. What is declared at submission always counts more.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from cosched.model.job import Job

#: So many programs are remembered, those measured last.
MOST_PROGRAMS: Final = 10_000
KINDS: Final = ("cpu", "comm")


class Orientation(NamedTuple):
    """A program: "cpu" or "comm", and the part of a CPU that each task uses alone, in thousandths."""

    kind: str
    cpu_permille: int = 1000

    def trouble(self) -> str:
        """What is wrong with it, in words; empty where nothing is."""
        if self.kind not in KINDS:
            return f"of the kind {self.kind!r}: there are {' and '.join(KINDS)}"
        return "" if 1 <= self.cpu_permille <= 1000 else f"a user of {self.cpu_permille} thousandths of a CPU"


class Programs:
    """What is known of programs, by name; the one that was measured last stands last."""

    def __init__(self) -> None:
        self._known: dict[str, Orientation] = {}

    def learn(self, program: str, orientation: Orientation) -> None:
        """A job of that program has been measured; of a job without one nothing is remembered."""
        if program:
            self._known.pop(program, None)
            self._known[program] = orientation
            if len(self._known) > MOST_PROGRAMS:
                del self._known[next(iter(self._known))]

    def known(self, job: Job) -> Job:
        """The job as its program was measured, where it does not say its kind itself."""
        if job.kind or (found := self._known.get(job.program)) is None:
            return job
        return msgspec.structs.replace(job, kind=found.kind, cpu_permille=found.cpu_permille)

    def saved(self) -> tuple[tuple[str, str, int], ...]:
        """For a snapshot."""
        return tuple((program, *found) for program, found in self._known.items())

    def restore(self, saved: Iterable[tuple[str, str, int]]) -> None:
        """As it was."""
        self._known = {program: Orientation(kind, permille) for program, kind, permille in saved}
