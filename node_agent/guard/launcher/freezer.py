"""Jobs' processes stand still, or go on again: each group by itself, and one that does not is seen to again."""

import errno
from collections.abc import Iterable
from typing import Final

from cosched.linux.process import US_PER_S, boottime_us
from node_agent.guard.launcher.endings import Endings
from node_agent.guard.launcher.groups import Key, Shared

_FIRST_AGAIN_US: Final = US_PER_S // 50
_LAST_AGAIN_US: Final = US_PER_S
#: A group that has not settled when it is seen to again for the sixth time, after 1.3 s, is let go, stopped anew and
#: complained of; and then once a minute.
_LATE: Final = 6
_A_MINUTE: Final = 60


class Freezer:
    """Stops attempts and lets them go on; complains of those for which the kernel refuses it."""

    def __init__(self, shared: Shared, endings: Endings) -> None:
        """``endings`` know whether all jobs are held."""
        self._shared = shared
        self._endings = endings
        self._left: set[Key] = set()  # groups that may not be in the state that is wanted
        self._seen_again = 0  # how often, since a group was added there
        self.due_us: int | None = None  # when :meth:`tick` is wanted; None: it is not

    def see_to_all(self) -> None:
        """Stop all groups that have a CPU, or let them go on."""
        self.see_to(key for key, group in self._shared.groups.items() if group.stopped_us is None)

    def see_to(self, keys: Iterable[Key]) -> None:
        """Have groups stand still in a pause and where they have no CPU, and go on elsewhere: until it is so."""
        self._seen_again = 0
        self._left.update(keys)
        self._try()

    def obey(self, key: Key) -> None:
        """The same for one group. Raises OSError if the kernel refuses it; trying again is the caller's then."""
        if self._settled(key, anew=False):
            self._left.discard(key)
        else:
            self.see_to([key])

    def tick(self, now_us: int) -> None:
        """See again to those that the kernel has refused, and those of which a process has not stopped yet."""
        if self.due_us is not None and now_us >= self.due_us:
            self._seen_again += 1
            self._try()

    def _try(self) -> None:
        late = self._seen_again % _A_MINUTE == _LATE
        self._left = {key for key in self._left if not self._done(key, late=late)}
        again_us = min(_FIRST_AGAIN_US << min(self._seen_again, _LATE), _LAST_AGAIN_US)
        self.due_us = boottime_us() + again_us if self._left else None

    def _done(self, key: Key, *, late: bool) -> bool:
        """Whether a group is as it is to be."""
        try:
            if self._settled(key, anew=late):
                return True
            if late:
                raise OSError(
                    errno.EBUSY, "a process stays in a system call and does not stop", self._shared.groups[key].name
                )
        except OSError as error:
            self._shared.loop.complain("stopping a job, or letting it go on,", error)
        return False

    def _settled(self, key: Key, *, anew: bool) -> bool:
        group = self._shared.groups.get(key)
        if group is None or (group.ending and group.kill_at_us is None):
            return True  # what is being killed must run to die
        return self._shared.cgroups.freeze(
            group.name, frozen=self._endings.held_since_us is not None or group.stopped_us is not None, anew=anew
        )
