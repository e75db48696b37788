"""Use the CPU by a counted amount of work: how much of it a CPU second is, is measured on this machine."""

import time
from typing import Final

_UNIT: Final = 200  # rounds of the loop; some microseconds
_CALIBRATION_S: Final = 0.03
_ROUNDS: Final = 3


def work(units: int) -> None:
    """Do so many units."""
    for _ in range(units):
        for _ in range(_UNIT):
            pass


class Worker:
    """Knows how many units of work a CPU second of this machine is, and keeps learning."""

    def __init__(self) -> None:
        self.units_per_s = max(_measured() for _ in range(_ROUNDS))

    def use(self, cpu_s: float) -> float:
        """Use about that many CPU seconds; how many it really took, by this thread's clock."""
        units = round(cpu_s * self.units_per_s)
        if units < 1:
            return 0.0
        began = time.thread_time()
        work(units)
        took = time.thread_time() - began
        if took > 0.01:  # the clock's own grain and the first touch of caches do not mislead
            self.units_per_s += 0.2 * (units / took - self.units_per_s)
        return took


def _measured() -> float:
    units, began = 0, time.thread_time()
    while (took := time.thread_time() - began) < _CALIBRATION_S:
        work(50)
        units += 50
    return units / took
