"""What people may say at the desk's sockets, checked: whatever else comes in is refused with what was expected.

``{do, ...}``: ``status``, ``resume``; ``pause`` ``{seconds}``; ``end`` ``{job}`` (null: all); ``ban`` ``{user,
seconds}``; ``allow`` ``{user}``; ``hours`` ``{windows}`` (null: any time, else as ``guard.hours``); ``share``
``{cpu_ratio}`` (null: the contract's); ``probe`` and ``wake`` ``{on}``. ``seconds`` null: until it is taken back.
``inhibited`` ``{seconds}``: a program of the one who says so, on this machine's own screen, keeps the desktop from
being idle, and will be heard of again within that time.
"""

import json
from typing import Any, Final, NamedTuple

from node_agent.guard.hours import Window, windows_of
from node_agent.guard.owners_word import LONGEST_NAME
from node_agent.guard.pause import LONGEST_PAUSE_S
from node_agent.guard.requests import Refusal

WORDS: Final = ("status", "pause", "resume", "end", "ban", "allow", "hours", "share", "probe", "wake", "inhibited")
_MOST_JOB: Final = 10**18


class Ban(NamedTuple):
    """A user, and whether that user's jobs are not to be taken from now on."""

    user: str
    banned: bool


class Ask(NamedTuple):
    """What was asked. ``job`` None: all; ``windows`` none: any time; ``ratio`` None: the contract's share.

    ``on``: whether the wake-up probe may run, or the machine may be woken for jobs.
    """

    do: str
    seconds: float | None = None
    job: int | None = None
    ban: Ban | None = None
    windows: tuple[Window, ...] = ()
    ratio: float | None = None
    on: bool = True


def asked(packet: bytes) -> Ask:
    """What a packet asks. Raises :class:`Refusal`."""
    try:
        found = json.loads(packet)
    except (ValueError, RecursionError):
        raise Refusal("unknown", "not JSON") from None
    do = found.get("do") if isinstance(found, dict) else None
    if not isinstance(do, str) or do not in WORDS:
        raise Refusal("unknown", f"do: expected {', '.join(WORDS[:-1])} or {WORDS[-1]}")
    ask = Ask(do, _seconds(found.get("seconds")))
    if do == "end":
        return ask._replace(job=_job(found.get("job")))
    if do in {"ban", "allow"}:
        return ask._replace(ban=Ban(_name(found.get("user")), do == "ban"))
    if do == "hours" and found.get("windows") is not None:
        try:
            return ask._replace(windows=windows_of(found["windows"]))
        except ValueError as error:
            raise Refusal("unknown", f"windows: {error}") from None
    if do in {"probe", "wake"}:
        return ask._replace(on=_on(found.get("on")))
    return ask._replace(ratio=_ratio(found.get("cpu_ratio"))) if do == "share" else ask


def _seconds(value: object) -> float | None:
    """For how long, in seconds; None: until it is taken back."""
    if value is None or (_number(value) and 0 < value <= LONGEST_PAUSE_S):  # type: ignore[operator]
        return value  # type: ignore[return-value]
    raise _unexpected("seconds", value, f"a number above 0, up to {LONGEST_PAUSE_S}")


def _ratio(value: object) -> float | None:
    """A share of the CPU; None: what the contract says."""
    if value is None:
        return None
    if _number(value) and 0.001 <= value <= 1:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise _unexpected("cpu_ratio", value, "a share from 0.001 to 1")


def _on(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _unexpected("on", value, "true or false")


def _job(value: object) -> int | None:
    if value is None or (type(value) is int and 0 <= value < _MOST_JOB):
        return value
    raise _unexpected("job", value, "a job's number, or null for all")


def _name(value: object) -> str:
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable() and not set("/: ") & {*value}:
        return value
    raise _unexpected("user", value, f"a user's name of at most {LONGEST_NAME} characters")


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _unexpected(key: str, value: Any, expected: str) -> Refusal:
    found = repr(value)[:80] if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
    return Refusal("unknown", f"{key}: found {found}; expected {expected}")
