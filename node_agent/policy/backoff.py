"""Back-off from pressure: the owner's processes wait for CPU or memory (PSI) though the contract is kept: tighten it.

While the owner is there, the first look with pressure beyond what is bearable halves what parallel work may use, and
so does each :data:`STEP_US` of pressure after it, down to an eighth; each :data:`CALM_US` without gives one step back.
At an empty desk there is no back-off: it starts anew when the owner comes.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

#: Shares of the time in which somebody may wait, by the beginning of the source's name.
BEARABLE: Final = {"cpu": 0.25, "memory": 0.05}
STEP_US: Final = 2_000_000
CALM_US: Final = 20_000_000
LAST_STEP: Final = 3


class Backoff(NamedTuple):
    """How often the contract is halved, since when (us) that is so, and what was waited for last."""

    step: int = 0
    since_us: int = 0
    why: str = ""

    @property
    def ratio(self) -> float:
        """What is left of the contract's CPU, at most 1."""
        return 1.0 / (1 << self.step)


def backed_off(before: Backoff, present: bool, shares: Mapping[str, float], now_us: int) -> Backoff:
    """The back-off after a look. ``shares``: for which share of the time something was waited for (0 to 1), by what."""
    if not present:
        return Backoff(since_us=now_us)
    pressing = [
        f"{name} {share:.0%}"
        for name, share in shares.items()
        if share > BEARABLE.get(name.partition(" ")[0], 1.0)  # by the beginning of its name; of others, anything
    ]
    if pressing:
        if before.step < LAST_STEP and (before.step == 0 or now_us - before.since_us >= STEP_US):
            return Backoff(before.step + 1, now_us, ", ".join(pressing))
        return before._replace(since_us=now_us) if before.step == LAST_STEP else before
    if before.step and now_us - before.since_us >= CALM_US:
        return Backoff(before.step - 1, now_us, before.why)
    return before
