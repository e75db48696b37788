"""A chain in simulated faults: each job follows the one before it, and faults happen as long as the chain runs."""

from functools import partial
from typing import Any

import msgspec

from cosched.model.job import After
from faults import depending
from faults.history import TAIL_US, History
from faults.scheduler import Scheduler
from faults.world import MS, S

#: A client that has no answer submits the same job again after so long.
_AGAIN_US = 5 * S


class Chain(History):
    """A history of a chain of ``length`` jobs, submitted one by one, each with the number of the one before it."""

    script_us = S

    def __init__(self, seed: int, *, length: int = 1000, **how: Any) -> None:
        self.busy_us = length * 2 * S
        self.tail_us = self.busy_us + TAIL_US
        self.length = length
        self.links: list[int] = []
        super().__init__(seed, **how)

    def _rules(self) -> list[str]:
        return depending.RULES[self.seed % len(depending.RULES)]

    def _arrivals(self) -> list[int]:
        return [0]

    def _cancel(self) -> None:
        """No link is cancelled."""

    def _settled(self) -> bool:
        return len(self.links) == self.length and super()._settled()

    def _submit(self) -> None:
        if (number := len(self.links)) == self.length:
            return
        job = self._job()
        if self.links:
            job = msgspec.structs.replace(job, after=After(self.links[-1], self.world.random.choice((0, 100 * MS))))

        def acknowledged(scheduler: Scheduler, job_id: int) -> None:
            self._acknowledge(job, scheduler, job_id)
            if scheduler is self.schedulers.now and len(self.links) == number:
                self.links.append(job_id)
                self._submit()

        self._send(job, acknowledged)
        self.world.after(_AGAIN_US, partial(self._submit_again, number))

    def _submit_again(self, number: int) -> None:
        if len(self.links) == number:
            self._submit()
