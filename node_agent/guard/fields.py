"""The fields of requests to the guard: a type for whoever makes a request, and with it the check of what comes in.

``Annotated[int, check]`` is an int to the agent's code; the guard calls the check with what it has read. A check gives
the value as the request has it, or raises ValueError with what was expected.
"""

import os
from collections.abc import Callable
from typing import Annotated, Any, Final

from node_agent.guard.protocol import MAX_PACKET_BYTES, MAX_PERCENT, MAX_ROWS, MAX_SLOT_US, MAX_SUBMITTERS, MIN_SLOT_US

MAX_NUMBER: Final = 2**53  # what JSON carries exactly everywhere
_MAX_GRACE_US: Final = 3_600_000_000
_MAX_TEXT: Final = 4096
_MAX_ARGUMENTS: Final = 4096
_LAST_SIGNAL: Final = 64
_STREAM_DIGITS: Final = 32
_HEX: Final = frozenset("0123456789abcdef")

Check = Callable[[object], Any]


def _whole(least: int, most: int = MAX_NUMBER) -> Check:
    def check(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"expected a whole number from {least} to {most}")
        return value

    return check


def _ratio(value: object) -> float:
    if type(value) not in {int, float} or not 0 < value <= 1:  # type: ignore[operator]
        raise ValueError("expected a share above 0, up to 1")
    return float(value)  # type: ignore[arg-type]


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _text(value: object, most: int = _MAX_TEXT) -> str:
    """A text that the kernel takes: no NUL, encodable."""
    if not isinstance(value, str) or len(value) > most or "\0" in value:
        raise ValueError(f"expected a text of at most {most} characters without NUL")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ValueError("characters that no path can have") from None
    return value


def _name(value: object) -> str:
    name = _text(value, 256)
    if not name or not name.isprintable() or any(character in name for character in "/: "):
        raise ValueError("expected a user's name")
    return name


def is_user(name: str) -> bool:
    """Whether it is taken for a user's name."""
    try:
        return bool(_name(name))
    except ValueError:
        return False


def _absolute(value: object) -> str:
    path = _text(value)
    if not path.startswith("/"):
        raise ValueError("expected an absolute path")
    return path


def _path(value: object) -> str:
    path = _text(value)
    if not path:
        raise ValueError("expected a path")
    return path


def _stream(value: object) -> str:
    if not isinstance(value, str) or len(value) != _STREAM_DIGITS or set(value) - _HEX:
        raise ValueError(f"expected {_STREAM_DIGITS} hexadecimal digits")
    return value


def _arguments(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_ARGUMENTS:
        raise ValueError(f"expected 1 to {_MAX_ARGUMENTS} arguments")
    arguments = tuple(_text(item, MAX_PACKET_BYTES) for item in value)
    if not arguments[0]:
        raise ValueError("expected a command")
    return arguments


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("expected names and values")
    found = {}
    for name, setting in value.items():
        if not _text(name) or "=" in name:
            raise ValueError(f"{name[:80]!r} is no variable's name")
        found[name] = _text(setting, MAX_PACKET_BYTES)
    return found


def _submitters(value: object) -> dict[str, int | None]:
    """Users' names, each with its uid as the scheduler's host has it."""
    if not isinstance(value, dict) or len(value) > MAX_SUBMITTERS:
        raise ValueError(f"expected at most {MAX_SUBMITTERS} names, each with a uid or null")
    return {_name(name): _uid(uid) for name, uid in value.items()}


def _rows(value: object) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Rows of attempts, each attempt in one of them alone."""
    if not isinstance(value, list) or len(value) > MAX_ROWS or not all(isinstance(row, list) for row in value):
        raise ValueError(f"expected at most {MAX_ROWS} rows, each a list of [job, attempt]")
    rows = tuple(tuple(_attempt(each) for each in row) for row in value)
    named = [each for row in rows for each in row]
    if len(set(named)) < len(named):
        raise ValueError("an attempt is named twice")
    return rows


def _attempt(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("expected rows of [job, attempt]")
    return _job(value[0]), _number(value[1])


_job, _number = _whole(0, 10**18 - 1), _whole(0, 10**9 - 1)
Job = Annotated[int, _job]
Attempt = Annotated[int, _number]
Number = Annotated[int, _whole(0, 2**31)]
Pid = Annotated[int, _whole(1, 2**31 - 1)]
Signal = Annotated[int, _whole(1, _LAST_SIGNAL)]
Tasks = Annotated[int, _whole(1, 10**6)]
Mpl = Annotated[int, _whole(1, 10**6)]
Cpus = Annotated[int | None, _optional(_whole(0, 10**6))]
Order = Annotated[int, _whole(0)]
_uid = _optional(_whole(-1, 2**32 - 2))
Uid = Annotated[int | None, _uid]
Epoch = Annotated[int, _whole(0)]
Umask = Annotated[int, _whole(0, 0o777)]
Percent = Annotated[int, _whole(1, MAX_PERCENT)]
Bytes = Annotated[int | None, _optional(_whole(1))]
Limit = Annotated[int | None, _optional(_whole(1))]
Grace = Annotated[int, _whole(0, _MAX_GRACE_US)]
Until = Annotated[int, _whole(0)]
Begin = Annotated[int, _whole(-MAX_NUMBER)]
Slot = Annotated[int, _whole(MIN_SLOT_US, MAX_SLOT_US)]
Rows = Annotated[tuple[tuple[tuple[int, int], ...], ...], _rows]
Ratio = Annotated[float, _ratio]
Flag = Annotated[bool, _flag]
User = Annotated[str, _name]
Directory = Annotated[str, _absolute]
Output = Annotated[str | None, _optional(_path)]
Stream = Annotated[str | None, _optional(_stream)]
Arguments = Annotated[tuple[str, ...], _arguments]
Environment = Annotated[dict[str, str], _environment]
Submitters = Annotated[dict[str, int | None], _submitters]
