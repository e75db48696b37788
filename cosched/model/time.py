"""Time in the core is an integer number of microseconds: no float ties, the same bytes on every machine."""

from typing import Final

US_PER_S: Final = 1_000_000

#: Later than any event; a reservation that cannot be promised lies here.
FOREVER_US: Final = 1 << 62


def us(seconds: float) -> int:
    """Microseconds of a duration or instant in seconds, rounded to the nearest."""
    return round(seconds * US_PER_S)


def seconds(time_us: int) -> float:
    """Seconds of a duration or instant in microseconds."""
    return time_us / US_PER_S


def plain_seconds(time_us: int) -> str:
    """Seconds as the shortest exact decimal: ``90000000`` is ``90``, ``1500000`` is ``1.5``."""
    whole, rest = divmod(abs(time_us), US_PER_S)
    sign = "-" if time_us < 0 else ""
    return f"{sign}{whole}" if rest == 0 else f"{sign}{whole}.{rest:06d}".rstrip("0")


def humanised(duration_us: int) -> str:
    """A duration for people, two units at most: ``1 d 3 h``, ``12 min 5 s``, ``0.25 s``."""
    if duration_us < 0:
        return "-" + humanised(-duration_us)
    whole_s = duration_us // US_PER_S
    if whole_s < 60:
        return f"{duration_us / US_PER_S:.3g} s"
    days, rest = divmod(whole_s, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, secs = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (secs, "s")]
    first = next(i for i, (n, _) in enumerate(parts) if n)
    return " ".join(f"{n} {unit}" for n, unit in parts[first : first + 2] if n)
