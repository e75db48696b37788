"""A program of ``cosched.programs.malleable`` in which map k must be in force at step k · EVERY.

    scheduled.py EVERY LAST PROGRAM …

It waits at that point for as long as it takes, so that a run's resizes come at the same steps however busy the machine.
"""

import sys
from collections.abc import Iterator

from cosched.adaptive import Array, Job
from cosched.programs import malleable

EVERY, LAST = int(sys.argv[1]), int(sys.argv[2])


def scheduled(self: Job, count: int, *arrays: Array) -> Iterator[int]:
    step = 0
    while step < count:
        step = self.point(*arrays, step=step)
        while self.number < min(step // EVERY, LAST):
            step = self.point(*arrays, step=step)
        yield step
        step += 1


if __name__ == "__main__":
    Job.range = scheduled  # type: ignore[method-assign]
    sys.exit(malleable.main(sys.argv[3:]))
