"""For which share of a trial the contract was in force, by looks at the ceilings in the kernel while it lasts."""

import threading
from collections.abc import Sequence
from typing import Final, Self

from cosched.apps.experiments.site import PARALLEL
from cosched.apps.lab import cgroups
from cosched.apps.lab.lab import Lab, standing
from cosched.apps.lab.state import UP

_EVERY_S: Final = 0.25


def desks(lab: str) -> list[str]:
    """The jobs' groups of a lab's desks at which a user sits, of all where none does; none where no such lab is up."""
    if standing(lab) != UP:
        return []
    nodes = Lab(lab).state["nodes"]
    seated = [node for node in nodes if node["user"]] or nodes
    return [cgroups.path(lab, node["name"], PARALLEL) for node in seated]


class ContractLooks:
    """Looks at these groups while the block lasts. ``share``: of the looks, in how many there was a ceiling."""

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups
        self._held = self._looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def share(self) -> float | None:
        """0 to 1; None where there was nothing to look at."""
        return round(self._held / self._looks, 4) if self._looks else None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            for group in self._groups:
                try:
                    self._held += cgroups.ceiling_cpus(group) is not None
                except OSError:  # a lab without control groups, or one that has ended
                    continue
                self._looks += 1
            if self._over.wait(_EVERY_S):
                return
