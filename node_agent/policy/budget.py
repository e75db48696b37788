"""A job's budget: what it may use while it is raised, so that the others keep their fair share over seconds.

A bucket of CPU time that fills at the job's fair rate and is emptied by whatever the job uses, raised or not. It may be
raised while there is something in it. So over any length of time T, a job that was raised has used at most its share of
T, what the bucket held, and the one shortest hold in which it ran empty: longer ones are asked for as it lasts.
"""

from typing import Final

#: How much of its share a job can save up: what it got less of while it waited, in a burst. With two seconds, a job
#: that had just begun beside a competitor left it 0.30 to 0.44 of the CPU for the next seconds; with 0.3 s, 0.44 to
#: 0.46 over four seconds, and with this 0.45 to 0.48, at the same efficiency.
KEPT_US: Final = 100_000
#: How deep it can get into debt.
_DEBT_US: Final = 500_000
#: In CPUs: a job that may use all that it can use empties no bucket.
_LEAST_DRAIN: Final = 0.001


class Budget:
    """One job's on one node. ``cpus`` is its fair share; time and CPU time are in microseconds."""

    def __init__(self, now_us: int, cpu_us: int) -> None:
        self._at_us = now_us
        self._cpu_us = cpu_us
        self.left_us = 0.0

    def account(self, cpus: float, now_us: int, cpu_us: int) -> None:
        """Take in what the job has used since the last time; ``cpu_us`` counts from its beginning."""
        self.left_us += cpus * max(0, now_us - self._at_us) - max(0, cpu_us - self._cpu_us)
        self.left_us = max(-_DEBT_US * cpus, min(self.left_us, KEPT_US * cpus))
        self._at_us, self._cpu_us = max(now_us, self._at_us), max(cpu_us, self._cpu_us)

    @property
    def open(self) -> bool:
        """Whether the job may be raised."""
        return self.left_us > 0

    def lasts_us(self, share: float, cpus: float) -> int:
        """How long its tasks can have so many CPUs until nothing is left, with what comes in meanwhile."""
        return int(self.left_us / max(cpus - share, _LEAST_DRAIN))
