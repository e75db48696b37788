"""The world of a simulation on named nodes: owners come and go, and jobs that share nodes take as long as their rates
have it (``space_scheduler.progress``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop
from typing import NamedTuple

from cosched.model.node import Node, Owner
from cosched.model.time import FOREVER_US
from cosched.workload.rules import Workload
from space_scheduler.forecast import Going
from space_scheduler.machine.events import Event, JobEnded, NodeJoined, OwnerCame, OwnerLeft
from space_scheduler.machine.instructions import Instruction, Pace, Start
from space_scheduler.progress import ALONE_PPM, Sharing
from space_scheduler.simulator.run import Run


class Site(NamedTuple):
    """Named nodes: what each has, who comes and goes (time, node, who or None), and how jobs share them."""

    nodes: Sequence[Node]
    owners: Sequence[tuple[int, str, Owner | None]] = ()
    sharing: Sharing = Sharing()
    max_nodes_per_job: int | None = None


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
        self._going: dict[int, Going] = {}
        self._end_entry: dict[int, int] = {}  # of a job's end in the agenda; others of its are not its end any more
        for at_us, name, owner in site.owners:
            self.enter(at_us, OwnerLeft(name) if owner is None else OwnerCame(name, owner))

    def joining(self) -> Iterable[Event]:
        """Its nodes."""
        return [NodeJoined(node) for node in self._site.nodes]

    def happenings(self) -> Iterator[tuple[int, Event]]:
        """As on any machine; jobs end when they do."""
        self._pass_over()
        for now_us, event in super().happenings():
            yield now_us, event
            self._pass_over()

    def carry_out(self, instructions: list[Instruction], now_us: int) -> list[Event]:
        """Start jobs, and have them go at the pace they are told."""
        launched = super().carry_out(instructions, now_us)
        for instruction in instructions:
            if isinstance(instruction, Pace):
                self._go_on(instruction.job_id, instruction.rate_ppm, now_us)
        return launched

    def start(self, start: Start, now_us: int) -> None:
        """A job is launched; alone it would end then."""
        super().start(start, now_us)
        job_id = start.job.id
        row = self.rows[job_id]
        self.placed[row] = tuple((share.node, share.tasks) for share in start.allocation.nodes)
        up_us, work = now_us + self.launch_delay_us, self.run_us[row] * ALONE_PPM
        self._going[job_id] = Going(start.job, start.allocation, work, up_us, ALONE_PPM)
        self._end_entry[job_id] = self.entries

    def _go_on(self, job_id: int, rate_ppm: int, now_us: int) -> None:
        """A job ends at another time than was entered."""
        going = self._going[job_id]
        since_us = max(now_us, going.as_of_us)  # not before it is up
        going = going._replace(left=going.left_at(since_us), as_of_us=since_us, rate_ppm=rate_ppm)
        self._going[job_id] = going
        self.ends_us[self.rows[job_id]] = going.end_us
        self.enter(going.end_us, self.end_of(job_id))
        self._end_entry[job_id] = self.entries

    def _pass_over(self) -> None:
        """Take ends off the agenda that are not their jobs' any more, or never come."""
        agenda = self.agenda
        while agenda and isinstance(event := agenda[0][2], JobEnded):
            if self._end_entry[event.job_id] == agenda[0][1] and agenda[0][0] < FOREVER_US:
                return
            heappop(agenda)
