"""May this job start now? The one feasibility function: it plans, checks the plan at its application, and explains.

A dedicated machine has one resource, processors, and at most one promise that a newcomer can break: the reservation of
the job at the head, described by its *shadow time* and the *extra* processors left over then (Feitelson & Weil 1998,
section 2.2, Fig. 5, step 2b). Without a reservation the shadow time is :data:`~cosched.model.time.FOREVER_US`.
"""

from cosched.model.time import FOREVER_US
from space_scheduler.reasons import Why


def obstacle(
    procs: int, estimate_us: int, now_us: int, free_procs: int, shadow_us: int = FOREVER_US, extra_procs: int = 0
) -> Why | None:
    """What keeps a job of this shape from starting at ``now_us``, or None.

    Intervals are half-open: a job that ends at the shadow time does not delay the reservation.
    """
    if procs > free_procs:
        return Why.NOT_ENOUGH_FREE
    if procs > extra_procs and now_us + estimate_us > shadow_us:
        return Why.WOULD_DELAY_RESERVATION
    return None
