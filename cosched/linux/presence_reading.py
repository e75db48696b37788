"""What a source of presence tells."""

from typing import NamedTuple


class Reading(NamedTuple):
    """One source's answer: for how long it has seen nobody, in seconds.

    ``idle_s`` is None where there is nothing that this source could watch, or where ``error`` says why it failed.
    """

    source: str
    idle_s: float | None
    error: str = ""
