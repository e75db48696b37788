"""A non-dedicated cluster to simulate, as its file describes it: nodes, contract, owners, and what tasks need.

What jobs cost each other there comes from ``cosched calibrate``'s coefficients, by coscheduling mode.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from cosched.config.units import is_whole, size_bytes
from cosched.errors import BadInput
from cosched.model.contract import SocialContract
from cosched.model.coscheduling import Mode
from cosched.model.presets import DAYS, Hours, hours_of

_MOST_NODES: Final = 100_000
_MOST_CPUS: Final = 4096
_KINDS: Final = ("cpu", "comm")
_KNOWN: Final = ("declared", "learned")


class SiteOwners(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who sits at the desks: at which part of them, what he uses of a CPU and of the memory, and when he is there.

    ``hours`` of ``days``, such as 09:00-17:00; empty: always. A log without a start begins on a Monday at midnight.
    """

    desks: float = 0.0
    cpu: float = 0.15
    memory: str = "180MiB"
    hours: str = ""
    days: list[str] = msgspec.field(default_factory=lambda: list(DAYS[:5]))

    @property
    def present(self) -> Hours | None:
        """When he is there; None: always. Raises ValueError where the hours are none."""
        return hours_of(self.hours, self.days) if self.hours else None


class SiteTasks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job's tasks need where the log doesn't tell: each one's memory and part of a CPU, and its orientation.

    ``kind``: ``cpu`` or ``comm``; ``programs``: that of the log's executables, by their numbers. ``known``: whether the
    scheduler is told that of each job (``declared``), or only after one of the same program has run (``learned``).
    """

    memory: str = "64MiB"
    cpu: float = 1.0
    kind: str = "cpu"
    programs: dict[str, str] = {}
    known: str = "declared"


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of ``--site``, or the section ``site`` of an experiment."""

    nodes: int | None = None  # as many as the log's machine has processors
    cpus: int = 1
    memory: str = "2GiB"
    contract: SocialContract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=4)
    coscheduling: Mode = Mode.NONE
    costs: str = ""  # a file that cosched calibrate wrote; empty: the measured ones that come with cosched
    owners: SiteOwners = SiteOwners()
    tasks: SiteTasks = SiteTasks()

    @property
    def memory_bytes(self) -> int:
        """Of a node."""
        return size_bytes(self.memory, "site.memory")

    @property
    def owners_memory_bytes(self) -> int:
        """What an owner uses."""
        return size_bytes(self.owners.memory, "site.owners.memory")

    @property
    def tasks_memory_bytes(self) -> int:
        """What a task uses of which the log does not tell."""
        return size_bytes(self.tasks.memory, "site.tasks.memory")

    def check(self, where: str) -> None:
        """Raises :class:`BadInput`, by the key's path, where the settings make no sense."""
        for key, found, expected in self._problems():
            raise BadInput(f"{where}{key}", f"found {found!r}", expected)
        for key, size in (
            ("memory", self.memory), ("owners.memory", self.owners.memory), ("tasks.memory", self.tasks.memory)
        ):  # fmt: skip
            if size_bytes(size, f"{where}{key}") < 1:
                raise BadInput(f"{where}{key}", f"found {size!r}", "a size above 0")
        try:
            _ = self.owners.present
        except ValueError as error:
            raise BadInput(f"{where}owners.hours", f"found {self.owners.hours!r}", str(error)) from None

    def _problems(self) -> Iterator[tuple[str, object, str]]:
        """What the settings have wrong: key, what was found, what is expected."""
        if self.nodes is not None and not 1 <= self.nodes <= _MOST_NODES:
            yield "nodes", self.nodes, f"1 to {_MOST_NODES} nodes"
        if not 1 <= self.cpus <= _MOST_CPUS:
            yield "cpus", self.cpus, f"1 to {_MOST_CPUS} CPUs in each node"
        if problem := self.contract.impossible():
            key, found, expected = problem
            yield f"contract.{key}", found, expected
        if not 0 <= self.owners.desks <= 1:
            yield "owners.desks", self.owners.desks, "a part of the desks, 0 to 1"
        if not 0 <= self.owners.cpu <= self.cpus:
            yield "owners.cpu", self.owners.cpu, f"CPUs, 0 to the node's {self.cpus}"
        if not 0 < self.tasks.cpu <= 1:
            yield "tasks.cpu", self.tasks.cpu, "a part of a CPU above 0, up to 1"
        for key, kind in (("kind", self.tasks.kind), *((f"programs.{k}", v) for k, v in self.tasks.programs.items())):
            if kind not in _KINDS:
                yield f"tasks.{key}", kind, " or ".join(_KINDS)
        if self.tasks.known not in _KNOWN:
            yield "tasks.known", self.tasks.known, " or ".join(_KNOWN)
        for number in self.tasks.programs:
            if not is_whole(number):
                yield "tasks.programs", number, "an executable's number in the log"
