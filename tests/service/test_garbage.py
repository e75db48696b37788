"""When the service looks for garbage in cycles."""

import asyncio
import gc
import weakref

from kit.waiting import BOUND_S

from cosched.garbage import not_looked_for
from space_scheduler.service.garbage import looked_for_seldom


class Cycle:
    def __init__(self) -> None:
        self.me = self


async def test_what_has_grown_old_is_looked_through_by_the_clock_alone() -> None:
    before = gc.get_threshold()
    async with looked_for_seldom(every_s=0.05):
        cycle = Cycle()
        gone = weakref.ref(cycle)
        gc.collect(1)  # the cycle is of the oldest generation now
        looks = gc.get_stats()[2]["collections"]
        del cycle
        for _ in range(100_000):
            list[int]((1,)).append(2)
        assert gone() is not None
        assert gc.get_stats()[2]["collections"] == looks
        async with asyncio.timeout(BOUND_S):
            while gone() is not None:
                await asyncio.sleep(0.01)
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_nothing_is_looked_for_while_much_is_made() -> None:
    with not_looked_for():
        assert not gc.isenabled()
    assert gc.isenabled()
