"""The lab's programs at the same time, one task of each on every node, each measured while all others are there.

Each runs without end and tells how far it is (``cosched.programs --tell``). What is measured is a stretch of time that
begins when the last of them is under way: however late one begins, none is measured without its company. They are
ended afterwards.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from cosched.apps.experiments.jobs import ENDED, Cannot, Jobs, program, why
from cosched.apps.experiments.progress import Word, at, words_in

#: What Linux does with all of them in one group of processes: one job's script starts them.
PLAIN: Final = "plain"
#: Between the last one's first word and what is measured: agents look how jobs receive, and tell each other.
SETTLE_S: Final = 2.5
_TELL_S: Final = 0.5
_POLL_S: Final = 0.25
#: How long the last one may take to begin: beside an owner plain Linux leaves some without a CPU for long.
_BEGIN_S: Final = 120.0
#: How long after the end of what is measured all must have told of it.
_PATIENCE_S: Final = 60.0


class Rate(msgspec.Struct, frozen=True):
    """What a program did for each second, and which part of it its ranks had a CPU, and were in the message library."""

    program: str
    iterations_per_s: float
    cpu_ratio: float
    comm_ratio: float


class CoRun:
    """Programs of a mix, (name, class) each, on every one of a cluster's nodes, in ``components`` if there are any."""

    def __init__(
        self,
        jobs: Jobs,
        programs: Sequence[tuple[str, str]],
        nodes: int,
        components: tuple[int, ...] | None = None,
    ) -> None:
        self._jobs = jobs
        self._components = components
        self._programs = programs
        self._nodes = nodes

    def rates(self, mode: str, seconds: float, *, polls: bool = False) -> list[Rate]:
        """What each did in a stretch of so many seconds under a mode, or :data:`PLAIN` (programs all different).

        ``polls``: their message library does not yield while it waits. Raises :class:`Cannot` where a program ends by
        itself, as it does with a wrong answer, where one does not begin, or tells nothing any more.
        """
        with self._jobs.running() as started:
            for script in self._scripts(mode):
                how = "none" if mode == PLAIN else mode
                job_id = self._jobs.submit(script, how, self._nodes, polls=polls, components=self._components)
                started.append(job_id)
            first = self._told(started, all, _BEGIN_S)
            begin_s = max(words[0].time_s for words in first) + SETTLE_S
            end_s = begin_s + seconds
            patience_s = SETTLE_S + seconds + _PATIENCE_S
            whole = self._told(started, lambda told: all(words[-1].time_s >= end_s for words in told), patience_s)
        return [_rate(words, begin_s, end_s) for words in whole]

    def _scripts(self, mode: str) -> list[str]:
        launches = [program(*each, "--tell", f"{_TELL_S:g}") for each in self._programs]
        if mode != PLAIN:
            return [f"#!/bin/sh\nexec {launch}\n" for launch in launches]
        lines = [f"({launch}; kill $$) &" for launch in launches]
        return ["\n".join(["#!/bin/sh", *lines, "wait", ""])]

    def _told(
        self, started: Sequence[int], enough: Callable[[list[list[Word]]], bool], patience_s: float
    ) -> list[list[Word]]:
        """What each program has told, when that is enough."""
        deadline_s = time.monotonic() + patience_s
        while not enough(told := self._words(started)):
            for job_id in started:
                if (job := self._jobs.now(job_id)).state in ENDED:
                    raise Cannot(why(job))
            if time.monotonic() > deadline_s:
                silent = [f"{name}: {len(words)} words" for (name, _), words in zip(self._programs, told, strict=True)]
                raise Cannot(f"waited {patience_s:g} s for programs to tell how far they are; {', '.join(silent)}")
            time.sleep(_POLL_S)
        return told

    def _words(self, started: Sequence[int]) -> list[list[Word]]:
        outputs = [words_in(self._jobs.output(job_id)) for job_id in started]
        if len(outputs) == len(self._programs):
            return outputs
        return [[word for word in outputs[0] if word.program == name] for name, _ in self._programs]


def _rate(words: Sequence[Word], begin_s: float, end_s: float) -> Rate:
    first, last = at(words, begin_s), at(words, end_s)
    seconds = end_s - begin_s
    done, cpu_s, comm_s = last.done - first.done, last.cpu_s - first.cpu_s, last.comm_s - first.comm_s
    return Rate(first.program, done / seconds, cpu_s / seconds, comm_s / seconds)
