"""What plots share: colours, and the unit of an axis of time."""

from typing import Final

from cosched.model.time import US_PER_S

MINUTE_US: Final = 60 * US_PER_S
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US

#: One colour per policy or series, distinguishable without colour vision (Okabe & Ito 2008).
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def span_unit(span_us: int) -> tuple[int, str]:
    """The largest unit of which a stretch of time has at least three, in microseconds, and its name."""
    for unit_us, name in ((DAY_US, "days"), (HOUR_US, "hours"), (MINUTE_US, "minutes")):
        if span_us >= 3 * unit_us:
            return unit_us, name
    return US_PER_S, "seconds"
