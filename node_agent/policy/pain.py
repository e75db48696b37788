"""The owner in pain: his processes wait for CPU or memory though the contract is kept, so the contract is tightened.

While he is there, each :data:`STEP_US` of pressure beyond what is bearable halves what parallel work may use, down to
an eighth; each :data:`CALM_US` without gives one step back. Nobody is hurt by what nobody feels: an empty desk is never
in pain, and starts anew when its owner comes.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

#: Shares of the time in which somebody may wait, by the beginning of the source's name.
BEARABLE: Final = {"cpu": 0.25, "memory": 0.05}
STEP_US: Final = 2_000_000
CALM_US: Final = 20_000_000
LAST_STEP: Final = 3


class Pain(NamedTuple):
    """How often the contract is halved, since when (us) that is so, and what hurt last."""

    step: int = 0
    since_us: int = 0
    why: str = ""

    @property
    def ratio(self) -> float:
        """What is left of the contract's CPU, at most 1."""
        return 1.0 / (1 << self.step)


def felt(before: Pain, present: bool, shares: Mapping[str, float], now_us: int) -> Pain:
    """What the owner feels now. ``shares``: for which share of the time something was waited for (0 to 1), by what."""
    if not present:
        return Pain(since_us=now_us)
    hurting = [f"{name} {share:.0%}" for name, share in shares.items() if share > _bearable(name)]
    if hurting:
        if before.step < LAST_STEP and (before.step == 0 or now_us - before.since_us >= STEP_US):
            return Pain(before.step + 1, now_us, ", ".join(hurting))
        return before._replace(since_us=now_us) if before.step == LAST_STEP else before
    if before.step and now_us - before.since_us >= CALM_US:
        return Pain(before.step - 1, now_us, before.why)
    return before


def _bearable(name: str) -> float:
    return BEARABLE.get(name.partition(" ")[0], 1.0)
