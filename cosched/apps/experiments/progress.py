"""How far programs say they are, in lines of JSON among their output, and where they were between two words."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec


class Word(msgspec.Struct, frozen=True):
    """What a program tells of itself: when (wall clock), how much is done, and its ranks' mean seconds so far.

    ``done`` counts what the program counts: iterations, or seconds of computing. It may say no more than that.
    """

    time_s: float
    done: float
    program: str = ""
    cpu_s: float = 0.0
    comm_s: float = 0.0


def words_in(text: str) -> list[Word]:
    """The words in a program's output. A line that is being written is left out."""
    words = []
    for line in text.splitlines():
        with suppress(msgspec.DecodeError):
            words.append(msgspec.json.decode(line, type=Word))
    return words


def at(words: Sequence[Word], time_s: float) -> Word:
    """Where a program was then: on a straight line between two words; outside of them, where the nearest says."""
    before = words[0]
    for word in words:
        if word.time_s >= time_s:
            span_s = word.time_s - before.time_s
            part = max(0.0, (time_s - before.time_s) / span_s) if span_s > 0 else 1.0
            return Word(
                time_s,
                before.done + part * (word.done - before.done),
                word.program,
                before.cpu_s + part * (word.cpu_s - before.cpu_s),
                before.comm_s + part * (word.comm_s - before.comm_s),
            )
        before = word
    return before
