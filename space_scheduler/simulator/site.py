"""The world of a simulation on named nodes: owners come and go, and jobs that share nodes take as long as their rates
have it (``space_scheduler.progress``).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cosched.model.components import Between
from cosched.model.node import Node, Owner
from cosched.workload.rules import Workload
from space_scheduler.machine.events import Event, NodeJoined, OwnerCame, OwnerLeft
from space_scheduler.machine.instructions import Start
from space_scheduler.progress import Sharing
from space_scheduler.simulator.truth import LearningRun
from space_scheduler.simulator.world import Run


class Site(NamedTuple):
    """Named nodes: what each has, who comes and goes (time, node, who or None), and how jobs share them (None: not).

    ``learns``: the core is told of a job's kind and of its use of CPUs only what was measured of the last one of its
    program, as in the live service where users do not say it; else it is told what is true. ``between``: what
    communication costs a job that lies on nodes of several clusters (None: nothing).
    """

    nodes: Sequence[Node]
    owners: Sequence[tuple[int, str, Owner | None]] = ()
    sharing: Sharing | None = Sharing()
    max_nodes_per_job: int | None = None
    learns: bool = False
    between: Between | None = None


class SiteRun(Run):
    """A workload on a site."""

    def __init__(
        self,
        workload: Workload,
        sequential: bool,
        launch_delay_us: int,
        progress: Callable[[int], None] | None,
        site: Site,
    ) -> None:
        super().__init__(workload, sequential, launch_delay_us, progress)
        self._site = site
        for at_us, name, owner in site.owners:
            self.enter(at_us, OwnerLeft(name) if owner is None else OwnerCame(name, owner))

    def joining(self) -> Iterable[Event]:
        """Its nodes."""
        return [NodeJoined(node) for node in self._site.nodes]

    def start(self, start: Start, now_us: int) -> None:
        """A job is launched; alone it would end then."""
        super().start(start, now_us)
        if isinstance(self.truth, LearningRun):
            self.truth.start(start.job.id, start.allocation, now_us + self.launch_delay_us)
        row = self.rows[start.job.id]
        shares = start.allocation.nodes
        if start.job.resident:
            self.placed[row] = tuple((share.node, share.procs) for share in shares if share.procs)
        else:
            self.placed[row] = tuple((share.node, share.tasks) for share in shares)
