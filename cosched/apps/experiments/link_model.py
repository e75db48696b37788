"""What predicts how much slower a program is across a link: its kind, or how often it waits for the link.

A message takes the link's delay longer than on one cluster. So an iteration across a link of delay d takes its time on
one cluster, something more that does not depend on the delay (copies, the rate), and d as often as its tasks wait for
each other, one after the other: by that a program's cost is ``fixed + per_s * d``, as a part of its time on one
cluster. Both are fitted to what was measured at some delays (least squares of relative errors), and tell the cost at
any other.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cosched.apps.experiments.matrix import Spread
from cosched.model.time import US_PER_S

#: (delay in microseconds, program) -> its slowdown, and of how many runs.
Slowdowns = Mapping[tuple[int, str], tuple[Spread, int]]


class LinkCost(NamedTuple):
    """What the link costs a program, as parts of its time on one cluster: at any delay, and for each second of it."""

    fixed: float
    per_s: float

    def slowdown(self, delay_us: float) -> float:
        """How many times as long it takes across a link of that delay."""
        return 1 + self.fixed + self.per_s * delay_us / US_PER_S


def fitted(found: Slowdowns, program: str, without_us: int | None = None) -> LinkCost | None:
    """What the link costs a program, by its medians at all delays but one; None: fewer than two are left."""
    points = [
        (delay_us / US_PER_S, slowdown.median)
        for (delay_us, name), (slowdown, _) in found.items()
        if name == program and delay_us != without_us
    ]
    if len(points) < 2:
        return None
    delay_s, slowdown = np.array(points).T
    terms = np.stack([np.ones_like(delay_s), delay_s], axis=1) / slowdown[:, None]
    fixed, per_s = np.linalg.lstsq(terms, 1 - 1 / slowdown, rcond=None)[0]
    return LinkCost(float(fixed), float(per_s))


def programs_of(found: Slowdowns) -> list[str]:
    """The programs that were measured, in order."""
    return sorted({program for _, program in found})
