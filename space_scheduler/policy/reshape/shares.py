"""How many processors each malleable job gets: the two strategies of equipartition, in whole numbers.

Kalé, Kumar & DeSouza, "A malleable-job system for timeshared parallel machines", CCGrid 2002, section 2.
"""

from collections.abc import Sequence


def equal(bounds: Sequence[tuple[int, int]], procs: int) -> list[int]:
    """Each job its minimum, then what is left in equal steps of one up to each maximum, in the order of the bounds.

    ``bounds``: (minimum, maximum) of each job; the minima fit in ``procs``. Odd processors go to the first.
    """
    shares = [least for least, _ in bounds]
    left = procs - sum(shares)
    below = [at for at, (least, most) in enumerate(bounds) if least < most]
    while below and left >= len(below):
        step = min(left // len(below), *(bounds[at][1] - shares[at] for at in below))
        for at in below:
            shares[at] += step
        left -= step * len(below)
        below = [at for at in below if shares[at] < bounds[at][1]]
    for at in below[:left]:
        shares[at] += 1
    return shares


def waterfill(bounds: Sequence[tuple[int, int]], procs: int) -> list[int]:
    """Equal totals as far as minima and maxima let them: whoever has least is given the next processor.

    Arguments as for :func:`equal`; of those who have as much, the first has it.
    """
    shares = [least for least, _ in bounds]
    left = procs - sum(shares)
    while left > 0:
        below = [at for at, (_, most) in enumerate(bounds) if shares[at] < most]
        if not below:
            break
        level = min(shares[at] for at in below)
        lowest = [at for at in below if shares[at] == level]
        if left < len(lowest):
            for at in lowest[:left]:
                shares[at] += 1
            break
        higher = [shares[at] for at in below if shares[at] > level]
        step = min(left // len(lowest), *(bounds[at][1] - level for at in lowest), *(each - level for each in higher))
        for at in lowest:
            shares[at] += step
        left -= step * len(lowest)
    return shares
