"""How a vacated rank waits: asleep in the kernel, never in MPI, which would spin.

It wakes when its agent says something, or after a while, and then looks whether the leader has written by MPI; only
that counts. It looks often at first, since its own last words may still be under way and MPI makes progress only while
it is called, and the less often the longer it has waited. A map that enables this rank is a hint that the leader will
write soon: then it begins anew, so that it wakes soon after the leader's next step, however long that takes.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cosched.adaptive.channel import Channel
from cosched.adaptive.words import Release, WakeUp

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

WORD_TAG = 3
#: How often it looks: so often at first, and then each time it has waited longer by this part, up to a tick.
_SOONEST_S, _PATIENCE, TICK_S = 0.002, 0.02, 0.25
#: A connection that is being made takes a few calls.
_LOOKS = 3


def sleep_until_told(world: "Intracomm", channel: Channel, is_hinted: Callable[[], bool]) -> WakeUp | Release:
    """Sleep until the leader has this rank do something."""
    since_s, was_hinted = time.monotonic(), False
    while True:
        for _ in range(_LOOKS):
            if world.iprobe(tag=WORD_TAG):
                word: WakeUp | Release = world.recv(tag=WORD_TAG)
                return word
        channel.poll()
        if is_hinted() and not was_hinted:
            since_s, was_hinted = time.monotonic(), True
        channel.wait(min(TICK_S, _SOONEST_S + _PATIENCE * (time.monotonic() - since_s)))
