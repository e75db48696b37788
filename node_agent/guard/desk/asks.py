"""What people may say at the desk's sockets, checked: whatever else comes in is refused with what was expected.

``{do, ...}``: ``status``, ``resume``; ``pause`` ``{seconds}``; ``end`` ``{job}`` (null: all); ``ban`` ``{user,
seconds}``; ``allow`` ``{user}``; ``hours`` ``{windows}`` (null: any time, else as ``guard.desk.hours``); ``share``
``{cpu_ratio}`` (null: the contract's); ``probe`` and ``wake`` ``{on}``. ``seconds`` null: until it is taken back.
``inhibited`` ``{seconds}``: a program of the one who says so, on this machine's own screen, keeps the desktop from
being idle, and will be heard of again within that time.
"""

import json
from typing import Final, NamedTuple

from node_agent.guard.base.requests import Refusal, is_user, where
from node_agent.guard.desk.hours import Window, windows_of
from node_agent.guard.desk.owners_word import LONGEST_NAME
from node_agent.guard.desk.pause import LONGEST_PAUSE_S

WORDS: Final = ("status", "pause", "resume", "end", "ban", "allow", "hours", "share", "probe", "wake", "inhibited")
_MOST_JOB: Final = 10**18


class Ask(NamedTuple):
    """What was asked. ``job`` None: all; ``windows`` none: any time; ``cpu_ratio`` None: the contract's share.

    ``on``: whether the wake-up probe may run, or the machine may be woken for jobs.
    """

    do: str
    seconds: float | None = None
    job: int | None = None
    user: str = ""
    windows: tuple[Window, ...] = ()
    cpu_ratio: float | None = None
    on: bool = True


_SECONDS: Final = where(
    lambda value: value is None or (type(value) in {int, float} and 0 < value <= LONGEST_PAUSE_S),
    f"a number above 0, up to {LONGEST_PAUSE_S}",
)
_USER: Final = where(
    lambda value: is_user(value) and len(value) <= LONGEST_NAME, f"a user's name of at most {LONGEST_NAME} characters"
)
_ON: Final = where(lambda value: isinstance(value, bool), "true or false")
_JOB: Final = where(
    lambda value: value is None or (type(value) is int and 0 <= value < _MOST_JOB), "a job's number, or null for all"
)
_CPU_RATIO: Final = where(
    lambda value: value is None or (type(value) in {int, float} and 0.001 <= value <= 1), "a share from 0.001 to 1"
)
#: What a word takes beside seconds.
_FIELDS: Final = {
    "end": [("job", _JOB)],
    "ban": [("user", _USER)],
    "allow": [("user", _USER)],
    "probe": [("on", _ON)],
    "wake": [("on", _ON)],
    "share": [("cpu_ratio", _CPU_RATIO)],
}


def asked(packet: bytes) -> Ask:
    """What a packet asks. Raises :class:`Refusal`."""
    try:
        found = json.loads(packet)
    except (ValueError, RecursionError):
        raise Refusal("unknown", "not JSON") from None
    do = found.get("do") if isinstance(found, dict) else None
    if not isinstance(do, str) or do not in WORDS:
        raise Refusal("unknown", f"do: expected {', '.join(WORDS[:-1])} or {WORDS[-1]}")
    values = {}
    for key, check in [("seconds", _SECONDS), *_FIELDS.get(do, [])]:
        value = found.get(key)
        try:
            values[key] = check(value)
        except ValueError as error:
            shown = repr(value)[:80] if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
            raise Refusal("unknown", f"{key}: found {shown}; {error}") from None
    if do == "hours" and found.get("windows") is not None:
        try:
            values["windows"] = windows_of(found["windows"])
        except ValueError as error:
            raise Refusal("unknown", f"windows: {error}") from None
    return Ask(do, **values)
