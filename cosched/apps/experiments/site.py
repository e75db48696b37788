"""Whose desk an experiment is about: that of a lab's node, or the one of the machine on which it is run.

Both start the owner's programs on his side, the same programs unprotected beside him, and say what a side has used.
"""

import json
import os
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol, Self

from cosched.apps.lab import cgroups
from cosched.apps.lab.lab import Lab
from cosched.config.node import NodeConfig, load_node
from cosched.errors import Failed
from cosched.linux import process

#: The side of unprotected programs, beside ``desk`` and like it.
PLAIN: Final = "plain"
#: The side that the contract is about.
PARALLEL: Final = "cosched"
#: The owner's.
DESK: Final = "desk"
_ENTER: Final = 'while [ "$1" != -- ]; do echo 0 >"$1"; shift; done; shift; exec "$@"'


class Owners(Protocol):
    """A program of the owner's that was started."""

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit status. Raises TimeoutError."""


class Site(ABC):
    """A desk: ``node`` is its name, ``cpus`` how many it has, ``lab`` the lab it is in, if any.

    ``settings`` are the node's own; ``quiet_s``: how long the owner must be quiet to be away.
    """

    def __init__(self, settings: NodeConfig, lab: str | None = None) -> None:
        """Raises :class:`Failed` on a dedicated node, and in hours in which its owner counts as present."""
        self.node, self.settings, self.cpus, self.lab = settings.name, settings, settings.procs, lab
        self.quiet_s = _quiet_s(settings)

    @abstractmethod
    def start(self, argv: Sequence[str], streams: Sequence[int]) -> AbstractContextManager[Owners]:
        """Start a program of the owner's with three descriptors; at the end it is gone."""

    @abstractmethod
    def unprotected(self, programs: Sequence[Sequence[str]]) -> AbstractContextManager[list[subprocess.Popen[bytes]]]:
        """Programs beside the owner's and like them: what plain Linux does; at the end they are gone."""

    @abstractmethod
    def group(self, side: str) -> str:
        """The control group of a side."""

    def used_s(self, side: str) -> float:
        """Seconds of CPU that a side has used (on plain Linux: since its programs began). Raises OSError."""
        return cgroups.used_s(self.group(side))

    def ceiling_cpus(self) -> float | None:
        """How many CPUs parallel work may use now; None: no ceiling. Raises OSError."""
        return cgroups.ceiling_cpus(self.group(PARALLEL))

    def refaults(self, side: str) -> int:
        """How many pages of files a side has lost and read again. Raises OSError."""
        return cgroups.refaults(self.group(side))


class LabDesk(Site):
    """The first node of a lab of tier 1."""

    def __init__(self, lab: Lab) -> None:
        """Raises :class:`Failed` where nothing can be enforced."""
        if lab.tier != 1:
            raise Failed(f"contracts need control groups, a lab of tier 1: {lab.why}")
        self._made = lab
        super().__init__(load_node(Path(lab.state["nodes"][0]["directory"]) / "node.toml"), lab.name)

    def start(self, argv: Sequence[str], streams: Sequence[int]) -> AbstractContextManager[Owners]:
        """See :class:`Site`."""
        return self._made.start(self.node, argv, streams=streams)

    @contextmanager
    def unprotected(self, programs: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
        """See :class:`Site`."""
        doors = cgroups.add_side(self._made.name, self.node, PLAIN)
        with _running([["sh", "-c", _ENTER, "sh", *doors, "--", *each] for each in programs]) as started:
            yield started

    def group(self, side: str) -> str:
        """See :class:`Site`."""
        return cgroups.path(self._made.name, self.node, side)


class ThisDesk(Site):
    """The machine that this process runs on, as its owner: a node of a cluster, by its ``node.toml``."""

    def __init__(self, config: NodeConfig) -> None:
        """Raises :class:`Failed` where nothing can be read of the node's groups, or nobody comes or goes there now."""
        super().__init__(config)
        self._groups = {PARALLEL: config.cgroup.cosched.strip("/"), DESK: config.cgroup.desk.strip("/")}
        self._unprotected: list[subprocess.Popen[bytes]] = []
        try:
            self.used_s(PARALLEL)
        except OSError as error:
            what = f"{error.filename}: {error.strerror}"
            raise Failed(f"no control group of parallel work on this machine, {config.name}: {what}") from None

    def start(self, argv: Sequence[str], streams: Sequence[int]) -> AbstractContextManager[Owners]:
        """See :class:`Site`."""
        return _Own(argv, streams)

    @contextmanager
    def unprotected(self, programs: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
        """See :class:`Site`."""
        with _running(programs) as started:
            self._unprotected = started
            yield started

    def group(self, side: str) -> str:
        """See :class:`Site`."""
        return self._groups[side]

    def used_s(self, side: str) -> float:
        """See :class:`Site`; unprotected programs have no group of their own."""
        if side != PLAIN:
            return super().used_s(side)
        there = [process.stat_of(each.pid) for each in self._unprotected]
        return sum(stat.cpu_us for stat in there if stat is not None) / process.US_PER_S


def _quiet_s(config: NodeConfig) -> float:
    now = config.presence.habit(datetime.now().astimezone())
    if not now.watched:
        raise Failed(f"{config.name} is dedicated: nobody is ever there, and its contract never in force")
    if now.expected:
        raise Failed(f"on {config.name} somebody counts as present in working hours: measure outside them")
    return now.away_after_s


class _Own:
    """A program of this user's."""

    def __init__(self, argv: Sequence[str], streams: Sequence[int]) -> None:
        source, sink, complaints = streams
        self._process = subprocess.Popen(argv, stdin=source, stdout=sink, stderr=complaints, env=os.environ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit status, or 128 + the signal that killed it. Raises TimeoutError."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(str(error)) from None
        return status if status >= 0 else 128 - status


@contextmanager
def _running(commands: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.extend(subprocess.Popen(each) for each in commands)
        yield started
    finally:
        for each in started:
            each.kill()
            each.wait()


def owners_word(
    site: Site, argv: Sequence[str], patience_s: float, meanwhile: Callable[[], None] | None = None
) -> dict[str, Any]:
    """The last line of what a program of the owner's prints, as JSON; something is done while it runs.

    Raises :class:`Failed` where it fails, or takes longer.
    """
    with tempfile.TemporaryFile() as none, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
        with site.start(argv, (none.fileno(), out.fileno(), complaints.fileno())) as owner:
            if meanwhile is not None:
                meanwhile()
            try:
                status = owner.wait(patience_s)
            except TimeoutError:
                raise Failed(f"the owner's program has not ended after {patience_s:g} s") from None
        out.seek(0)
        complaints.seek(0)
        if status:
            story = complaints.read().decode(errors="replace")[-300:]
            raise Failed(f"the owner's program ended with {status}: {story}")
        told: dict[str, Any] = json.loads(out.read().splitlines()[-1])
        return told
