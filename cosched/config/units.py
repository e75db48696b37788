"""Durations, sizes and rates as people write them, with their unit."""

import re
from typing import Final

from cosched.errors import BadInput, nearest
from cosched.model.quantities import MOST
from cosched.model.time import US_PER_S

_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
#: Written for a unit of time as other batch systems and people do.
_MEANT: Final = {"m": "min", "minutes": "min", "hours": "h", "days": "d", "seconds": "s"}
#: K, M, G and T alone are powers of 1024, as Linux and batch systems mean them.
_UNITS_BYTES: Final = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    name: 1 << shift
    for shift, names in ((10, "k K KiB"), (20, "M MiB"), (30, "G GiB"), (40, "T TiB"))
    for name in names.split()
}
_UNITS_BIT_S: Final = {"kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_MOST_DIGITS: Final = 19
_NUMBER_AND_UNIT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]+)\s*", re.ASCII)


def is_whole(text: str) -> bool:
    """Whether a text is a whole number of at most 19 digits: Python refuses to convert very long ones."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def duration_us(text: str, where: str) -> int:
    """A duration such as ``90 s``, ``1.5h`` or ``250ms`` in microseconds. Raises :class:`BadInput`."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        raise BadInput(where, f"{text[:80]!r}", "a duration with its unit, such as 90s, 15min or 2h")
    if match[2] not in _UNITS_S:
        close = _MEANT.get(match[2].lower()) or nearest(match[2], _UNITS_S)
        raise BadInput(where, f"unknown unit {match[2]!r} in {text!r}", "one of " + ", ".join(_UNITS_S), nearest=close)
    return _whole(text, float(match[1]) * _UNITS_S[match[2]] * US_PER_S, where)


def size_bytes(text: str, where: str) -> int:
    """A size such as ``512MB``, ``2GiB`` or ``1.5G`` in bytes. Raises :class:`BadInput`."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        raise BadInput(where, f"{text[:80]!r}", "a size with its unit, such as 512MB or 2GiB")
    if match[2] not in _UNITS_BYTES:
        folded = {unit.casefold(): unit for unit in _UNITS_BYTES}
        close = folded.get(match[2].casefold()) or folded.get(nearest(match[2], folded), "")
        known = ", ".join(_UNITS_BYTES)
        raise BadInput(where, f"unknown unit {match[2]!r} in {text!r}", f"one of {known}", nearest=close)
    return _whole(text, float(match[1]) * _UNITS_BYTES[match[2]], where)


def rate_bit_s(text: str, where: str) -> int:
    """A network's rate such as ``100Mbit`` or ``1.5Gbit``, in bits per second. Raises :class:`BadInput`."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    units = {unit.casefold(): factor for unit, factor in _UNITS_BIT_S.items()}
    if match is None or match[2].casefold() not in units:
        known = ", ".join(_UNITS_BIT_S)
        raise BadInput(where, f"{text[:80]!r}", f"a rate with its unit ({known}, for each second), such as 100Mbit")
    return _whole(text, float(match[1]) * units[match[2].casefold()], where)


def rate_text(bit_s: int) -> str:
    """A network's rate for people: ``100 Mbit/s``."""
    for unit, factor in reversed(_UNITS_BIT_S.items()):
        if bit_s >= factor:
            return f"{bit_s / factor:.4g} {unit}/s"
    return f"{bit_s} bit/s"


def _whole(text: str, value: float, where: str) -> int:
    if not value <= MOST:
        raise BadInput(where, f"{text[:40]!r}", "a number of a size that can be")
    return round(value)


def memory_text(size: int) -> str:
    """A size for people, in powers of 1024: ``512 MiB``, ``1.5 GiB``."""
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.3g} {unit}"
    return f"{size} B"
