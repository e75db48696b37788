"""What conservative backfilling does when a job ends early, and what it tells of promises made and moved."""

from enum import StrEnum

from cosched.model.time import FOREVER_US
from space_scheduler.reasons import Reason, Why


class EarlyEnd(StrEnum):
    """What to do when a job ends before its estimate."""

    NONE = "none"
    ANEW = "anew"
    SCHEDULE = "schedule"
    ARRIVAL = "arrival"


def moves_told(before: dict[int, int], starts_us: dict[int, int], moved: Reason) -> list[tuple[int, int, Reason]]:
    """Every promise made or moved, by job's number; ``moved`` is why one might be later than before."""
    told = []
    earlier = Why.MOVED_EARLIER
    for job_id, start_us in starts_us.items():
        before_us = before.get(job_id)
        if before_us is None:
            told.append((job_id, start_us, Reason(Why.RESERVED)))
        elif before_us == FOREVER_US != start_us:
            told.append((job_id, start_us, moved))
        elif start_us < before_us:
            told.append((job_id, start_us, Reason(earlier, {"before_us": before_us})))
        elif start_us > before_us:
            told.append((job_id, start_us, Reason(moved.why, {**moved.numbers, "before_us": before_us})))
    return told
