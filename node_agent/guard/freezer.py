"""Jobs' processes stand still, or go on again: each group by itself, and one that does not is seen to again."""

import errno
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cosched.linux.cgroups import Cgroups
from cosched.linux.process import US_PER_S
from node_agent.guard.groups import Group

_FIRST_AGAIN_US: Final = US_PER_S // 50
_LAST_AGAIN_US: Final = US_PER_S


class Freezer:
    """Watches over ``groups``, which others fill. ``complain`` is told of those that the kernel refuses."""

    def __init__(
        self,
        groups: Mapping[tuple[int, int], Group],
        cgroups: Cgroups,
        complain: Callable[[str, BaseException], None],
    ) -> None:
        self._groups = groups
        self._cgroups = cgroups
        self._complain = complain
        self._paused = False
        self._left: set[tuple[int, int]] = set()  # in which state those are is not known
        self._again_us = _FIRST_AGAIN_US
        self._due_us: int | None = None

    def freeze_all(self, *, frozen: bool, now_us: int) -> None:
        """Stop all groups that have a CPU, or let them go on."""
        self._paused = frozen
        self.see_to((key for key, group in self._groups.items() if group.stopped_us is None), now_us)

    def see_to(self, keys: Iterable[tuple[int, int]], now_us: int) -> None:
        """Have groups stand still in a pause and where they have no CPU, and go on elsewhere: until it is so."""
        self._left.update(keys)
        self._try(_FIRST_AGAIN_US, now_us)

    def obey(self, key: tuple[int, int], now_us: int) -> None:
        """The same for one group. Raises OSError if the kernel refuses it: it is not tried again then."""
        if self._settled(key):
            self._left.discard(key)
        else:
            self._left.add(key)
            self._wait(_FIRST_AGAIN_US, now_us)

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted; None: it is not."""
        return self._due_us

    def tick(self, now_us: int) -> None:
        """See again to those that the kernel has refused, and those of which a process has not stopped yet."""
        if self._due_us is not None and now_us >= self._due_us:
            self._try(min(2 * self._again_us, _LAST_AGAIN_US), now_us)

    def _try(self, again_us: int, now_us: int) -> None:
        self._left = {key for key in self._left if not self._done(key, last=again_us == _LAST_AGAIN_US)}
        self._wait(again_us, now_us)

    def _wait(self, again_us: int, now_us: int) -> None:
        self._again_us = again_us
        self._due_us = now_us + again_us if self._left else None

    def _done(self, key: tuple[int, int], *, last: bool) -> bool:
        """Whether a group is as it is to be. ``last``: it has been waited for as long as it ever is, so complain."""
        try:
            if self._settled(key):
                return True
            if last:
                raise OSError(errno.EBUSY, "a process stays in a system call and does not stop", self._groups[key].name)
        except OSError as error:
            self._complain("stopping a job, or letting it go on,", error)
        return False

    def _settled(self, key: tuple[int, int]) -> bool:
        group = self._groups.get(key)
        if group is None:
            return True
        return self._cgroups.freeze(group.name, frozen=self._paused or group.stopped_us is not None)
