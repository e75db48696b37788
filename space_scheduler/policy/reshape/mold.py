"""The size that a moldable job is started with: FJT, "Folding by Job Type" (Utrera et al. 2004, PACT).

The paper that this project has (Utrera et al. 2005, section 4) says of FJT that it decides just before a job starts,
by the job's type, long or short, and by the number and type of the jobs that run and wait; not how. So these are
reconstructions, each a parameter:

- ``largest``: the largest allowed size that is free, for every job;
- ``largest/N``: the same, but a long job's size is at least its largest one divided by N: its partition is not so small
  that its "execution time will be so much degraded";
- ``shared``: a long job gets the largest allowed size within its part of what is free, in equal parts for it and for
  the long jobs that wait; short jobs as ``largest``. Where its part is less than its smallest size it gets that one.

With four processes on a processor at most (``FJT4``, Fig. 1(c)) a long job takes its largest size n with ⌈n/4⌉ free
processors and starts on min(n, free) of them; short jobs are not folded.
"""

import re
from dataclasses import dataclass
from typing import Final

from cosched.errors import BadInput
from cosched.model.allocation import Allocation
from cosched.model.job import Job
from space_scheduler.policy.reshape.free import FreeProcs, sizes_down, smallest

#: How many processes of a folded job share a processor at most (section 4: "folded four times at most").
FOLD: Final = 4


@dataclass(frozen=True)
class Fjt:
    """Which size a job gets. ``fold`` is how many processes of a long job may share a processor at its start.

    ``long_part``: a long job's size is at least its largest one divided by this (0: any). ``shared``: long jobs divide
    what is free. ``all_of_it``: a job's largest size of all, or it waits (FIFO, section 6.1).
    """

    fold: int = 1
    long_part: int = 0
    shared: bool = False
    all_of_it: bool = False

    def place(self, job: Job, free: FreeProcs, most: int, long_waiting: int) -> Allocation | None:
        """A place for a job in the size that it gets, or None where it has to wait.

        ``most``: processors of the machine. ``long_waiting``: long jobs that wait, this one not counted.
        """
        if self.all_of_it:
            size = job.width.largest(most)
            return None if size is None else free.place(job, size)
        if job.long and self.fold > 1 and job.may_be_folded:
            return self._folded(job, free, most)
        least = self.least(job, most)
        if job.long and self.shared:
            part = max(least, free.procs // (1 + long_waiting))
            return free.largest(job, part)
        found = free.largest(job)
        return found if found is not None and found.processes >= least else None

    def least(self, job: Job, most: int) -> int:
        """The smallest size that a job is started with; above ``most`` where the machine is too small for it now."""
        small = smallest(job)
        if not job.long or not self.long_part:
            return small
        wanted = -(-(job.width.largest(most) or small) // self.long_part)
        return min((size for size in sizes_down(job, most) if size >= wanted), default=wanted)

    def _folded(self, job: Job, free: FreeProcs, most: int) -> Allocation | None:
        least = self.least(job, most)
        for size in sizes_down(job, min(most, self.fold * free.procs)):
            if size >= least and (found := free.place_folded(job, size, self.fold)) is not None:
                return found
        return None


#: The size that is the default: the largest that is free.
LARGEST: Final = Fjt()


def parse(text: str, where: str = "--fjt") -> Fjt:
    """The sizes of a text: ``largest``, ``largest/N`` or ``shared``. Raises :class:`BadInput`."""
    if text == "largest":
        return LARGEST
    if text == "shared":
        return Fjt(shared=True)
    if found := re.fullmatch(r"largest/([1-9]\d{0,5})", text):
        return Fjt(long_part=int(found[1]))
    raise BadInput(where, f"{text!r}", "largest, shared, or largest/N with N a number of 1 or more")
