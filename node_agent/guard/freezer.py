"""All jobs' processes stand still, or go on again: each group by itself, and one that will not is tried again."""

from collections.abc import Callable, Mapping
from typing import Final

from cosched.linux.cgroups import Cgroups
from cosched.linux.process import US_PER_S
from node_agent.guard.groups import Group

_AGAIN_US: Final = US_PER_S


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
        self._frozen = False
        self._left: set[tuple[int, int]] = set()  # in which state those are is not known
        self._due_us: int | None = None

    def freeze_all(self, *, frozen: bool, now_us: int) -> None:
        """Stop all groups that have a CPU, or let them go on."""
        self._frozen = frozen
        self._left = {key for key, group in self._groups.items() if group.stopped_us is None}
        self._try(now_us)

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted; None: it is not."""
        return self._due_us

    def tick(self, now_us: int) -> None:
        """Try again what the kernel has refused."""
        if self._due_us is not None and now_us >= self._due_us:
            self._try(now_us)

    def _try(self, now_us: int) -> None:
        self._left = {key for key in self._left if not self._done(key)}
        self._due_us = now_us + _AGAIN_US if self._left else None

    def _done(self, key: tuple[int, int]) -> bool:
        """Whether a group is as it is to be. One that has lost its CPUs meanwhile does not go on with the others."""
        group = self._groups.get(key)
        if group is None or (group.stopped_us is not None and not self._frozen):
            return True
        try:
            self._cgroups.freeze(group.name, frozen=self._frozen)
        except OSError as error:
            self._complain("stopping a job, or letting it go on,", error)
            return False
        return True
