"""What a job's processes were seen to do, and what that says of it: does it mostly compute, or communicate?

Measured by agents from outside, so one figure has to do for all ways to receive: the part of its time that a thread
spends in the kernel or, if messages come for it, asleep. A polling rank is in the kernel for each look at its sockets
and each message, a blocking one sleeps until one comes; neither depends much on who else is on the node. (On the lab's
programs: docs/design/sharing.md.)
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from cosched.model.quantities import MOST, Bytes, Count, Micros

#: From this part on a job counts as communicating.
LEAST_COMMUNICATION: Final = 0.09
#: Less CPU time than this says nothing, in microseconds.
LEAST_RAN_US: Final = 2_000_000


class Effort(msgspec.Struct, frozen=True, omit_defaults=True):
    """Totals of a job's working threads while they were watched, on a node or all together; microseconds and bytes.

    ``ran_us`` on a CPU, of it ``kernel_us`` in the kernel; ``asleep_us``: while messages were awaited. ``arrivals``
    counts data that came over TCP.
    """

    ran_us: Micros = 0
    kernel_us: Micros = 0
    asleep_us: Micros = 0
    arrivals: Count = 0
    received_bytes: Bytes = 0

    def plus(self, other: "Effort") -> "Effort":
        """Both together, each as large as one can be at most."""
        sums = (getattr(self, name) + getattr(other, name) for name in self.__struct_fields__)
        return Effort(*(min(MOST, each) for each in sums))

    @property
    def communication(self) -> float:
        """The part of the time that was communication, 0 to 1."""
        total_us = self.ran_us + self.asleep_us
        return min(1.0, (self.kernel_us + self.asleep_us) / total_us) if total_us > 0 else 0.0

    @property
    def orientation(self) -> str:
        """The kind of job this is of: "comm", "cpu", or "" where too little was seen."""
        if self.ran_us < LEAST_RAN_US:
            return ""
        return "comm" if self.communication >= LEAST_COMMUNICATION else "cpu"

    @property
    def cpu_permille(self) -> int:
        """Which part of a CPU each thread used while it was not kept from one, in thousandths, by steps of 50.

        What it slept counts only where messages were awaited; on shared nodes it may have slept longer than it would
        alone, since its peers were slower.
        """
        total_us = self.ran_us + self.asleep_us
        return min(1000, max(50, 50 * round(20 * self.ran_us / total_us))) if total_us > 0 else 1000


def total(efforts: Mapping[str, Effort] | None) -> Effort:
    """What was seen of a job on all of its nodes."""
    found = Effort()
    for effort in (efforts or {}).values():
        found = found.plus(effort)
    return found
