"""How a vacated rank waits: asleep in the kernel, never in MPI, which would spin.

It wakes when its agent says something, or after a tick, and then looks whether the leader has written by MPI; only
that counts. A map that enables this rank is a hint that the leader will write soon: then it looks more often, the less
so the longer it has waited in vain, so that it costs next to nothing even if the leader's step takes an hour.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cosched.adaptive.channel import Channel
from cosched.adaptive.words import Release, WakeUp

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

WORD_TAG = 3
#: How often it looks without a hint.
TICK_S = 0.25
#: With one: so often at first, and then each time it has waited longer by this part.
_SOONEST_S = 0.002
_PATIENCE = 0.02
#: MPI makes progress only while it is called: a connection that is being made takes a few calls.
_LOOKS = 3


def sleep_until_told(world: "Intracomm", channel: Channel, is_hinted: Callable[[], bool]) -> WakeUp | Release:
    """Sleep until the leader has this rank do something."""
    since_s: float | None = None
    while True:
        for _ in range(_LOOKS):
            if world.iprobe(tag=WORD_TAG):
                word: WakeUp | Release = world.recv(tag=WORD_TAG)
                return word
        channel.poll()
        wait_s = TICK_S
        if is_hinted():
            now_s = time.monotonic()
            since_s = since_s or now_s
            wait_s = min(TICK_S, _SOONEST_S + _PATIENCE * (now_s - since_s))
        else:
            since_s = None
        channel.wait(wait_s)
