"""Errors that tell the story: what was asked, what was found, what to do.

``BadInput`` ends a command with exit status 2 and one message; it is raised at the edges, where input is validated.
``Failed`` ends it with status 1: the input was good, and still it could not be done. Where trying again is of no use
before something is mended by hand, it is :class:`NeedsRepair`, with status 4.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar, Final


class BadInput(ValueError):
    """Input that cannot be used. ``where`` is a file and line, or the path of a key."""

    #: With which status a command ends on it; a subclass for what is not the user's mistake has 1.
    status: ClassVar[int] = 2

    def __init__(self, where: str, found: str, expected: str = "", *, nearest: str = "") -> None:
        """Compose ``where: found; expected …; did you mean …?``, leaving out what is empty."""
        message = f"{where}: {found}" if where else found
        if expected:
            message += f"; expected {expected}"
        if nearest:
            message += f"; did you mean {nearest!r}?"
        super().__init__(message)
        self.where = where
        self.found = found
        self.expected = expected
        self.nearest = nearest

    def __reduce__(self) -> tuple[object, tuple[type["BadInput"], str, str, str, str]]:
        """How it travels back from a worker process: by its parts, not by its message."""
        return _remade, (type(self), self.where, self.found, self.expected, self.nearest)


def _remade(kind: type[BadInput], where: str, found: str, expected: str, near: str) -> BadInput:
    return kind(where, found, expected, nearest=near)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word closest to ``word``, or an empty string when nothing is close."""
    close = get_close_matches(word.casefold(), list(known), n=1, cutoff=0.5)
    return close[0] if close else ""


class Failed(RuntimeError):
    """What was asked for could not be done, and the message says why."""

    #: With which status a command ends on it.
    status: ClassVar[int] = 1


class NoAnswer(Failed):
    """The service does not answer, and the message says where it was looked for."""

    status: ClassVar[int] = 3


class NeedsRepair(Failed):
    """What was asked for cannot be done until what the message names is mended: it is damaged, foreign or missing."""

    status: ClassVar[int] = 4


#: With these statuses a service ends whose next start would end the same way: it is not started again by itself.
FINAL_STATUSES: Final = (BadInput.status, NeedsRepair.status)
