"""How a job receives, told by what its busiest thread does (docs/design/linux.md).

A thread that *blocks* gives the CPU up of its own accord whenever it waits. One that *yields* is switched off against
its will far more often, for the CPU it gets, than any timer could: each ``sched_yield`` that lets another thread run
counts. One that *polls* does neither. So both counts are held against the CPU time used, never against the wall clock:
a yielder that is left with thousandths of a CPU is still seen as one. (Where every job has a cgroup of its own, a yield
lets nobody run but the job's own threads, and a lone yielding rank is seen as what it then is: a poller.)

A thread that gets no messages receives nothing, whatever it does.
"""

from typing import Final, NamedTuple

from cosched.model.coscheduling import Receives
from node_agent.policy.cases import first_true

#: No timer preempts more often than this for each second of CPU time (HZ is at most 1000).
YIELDS_PER_CPU_S: Final = 1500.0
#: A blocking receiver gives up the CPU at least so often for each second of CPU time: grains of 50 ms and less.
BLOCKS_PER_CPU_S: Final = 20.0
#: Fewer events than this say nothing, nor does less CPU time without any.
LEAST_EVENTS: Final = 4
LEAST_CPU_US: Final = 20_000


class Counts(NamedTuple):
    """What the kernel has counted of one thread so far."""

    cpu_us: int
    voluntary: int
    involuntary: int


def received(before: Counts, now: Counts, *, messages: bool) -> Receives:
    """How the thread received between two looks; ``messages``: whether any came meanwhile."""
    cpu_us = max(1, now.cpu_us - before.cpu_us)
    slept, pushed = now.voluntary - before.voluntary, now.involuntary - before.involuntary
    ways = [
        (Receives.UNKNOWN, slept < 0 or pushed < 0 or now.cpu_us < before.cpu_us),  # another thread has the number now
        (Receives.NOTHING, not messages),
        (Receives.YIELDS, pushed >= max(LEAST_EVENTS, slept) and pushed * 1e6 / cpu_us >= YIELDS_PER_CPU_S),
        (Receives.BLOCKS, slept >= LEAST_EVENTS and slept * 1e6 / cpu_us >= BLOCKS_PER_CPU_S),
        (Receives.POLLS, cpu_us >= LEAST_CPU_US),
    ]
    return first_true(ways, Receives.UNKNOWN)


def settled(before: Receives, seen: Receives) -> Receives:
    """What to believe after one more look. One that says nothing changes nothing.

    A pause in the traffic is no new way to receive: who was seen to receive stays known for it.
    """
    if seen is Receives.UNKNOWN or (seen is Receives.NOTHING and before is not Receives.UNKNOWN):
        return before
    return seen
