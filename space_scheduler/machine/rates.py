"""How far running jobs are, and how fast they go: what a machine keeps where jobs share named nodes (``progress``).

Work is counted in microseconds alone on idle nodes, times a million: whole numbers, so that the same events give the
same ends everywhere.
"""

from collections.abc import Mapping

from cosched.model.allocation import Allocation
from cosched.model.components import Between
from space_scheduler.machine.nodes import Member
from space_scheduler.machine.record import Record
from space_scheduler.progress import NodeCpu, Occupancy, Sharing


class Rates:
    """The rates of a machine's jobs. ``occupancy`` is who is where, for whoever wants to look ahead."""

    def __init__(self, sharing: Sharing, fold_cost_ppm: int, between: Between | None, *, exact: bool) -> None:
        """As for ``progress.Occupancy``."""
        self.occupancy = Occupancy(sharing, fold_cost_ppm, between, exact=exact)
        self._touched: set[str] = set()

    def see(self, member: Member) -> None:
        """A node is new, or not as it was."""
        node, owner = member.node, member.owner
        cpus = node.cpus or node.procs
        asked = member.used_memory_bytes + (owner.memory_bytes if owner else 0)
        total = node.total_memory_bytes or node.memory_bytes
        lacking = 0 if asked <= total else 1000 * (asked - total) // max(1, total)
        usable = cpus * node.owned_cpu_permille / 1000 if owner else float(cpus)
        bursts = min(1000, owner.cpu_permille // max(1, cpus)) if owner else 0
        node_cpu = NodeCpu(usable, cpus, owner is not None, lacking, bursts, node.cluster)
        if self.occupancy.nodes.get(node.name) != node_cpu:
            self.occupancy.nodes[node.name] = node_cpu
            self._touched.add(node.name)

    def begin(self, record: Record, now_us: int) -> None:
        """A job has been given its nodes; it goes as it would alone in its width until rates are asked for."""
        record.begin_work(record.job.alone_us, now_us)
        self.occupancy.enter(record.job, record.allocation)
        self._touched.update(share.node for share in record.allocation.nodes)

    def move(self, record: Record, old: Allocation) -> None:
        """A job holds other nodes than the old, another part of them, or nodes of another cluster."""
        now = record.holding.told
        self.occupancy.leave(record.job.id)
        self.occupancy.enter(record.job, now)
        self._touched.update(share.node for share in (*old.nodes, *now.nodes))

    def answered(self, record: Record) -> None:
        """A job waits for an answer from now on, or no more; it goes with what it went with."""
        self._touched.update(share.node for share in record.holding.told.nodes)

    def end(self, record: Record) -> None:
        """A job holds nothing any more."""
        self.occupancy.leave(record.job.id)
        self._touched.update(share.node for share in record.allocation.nodes)

    def again(self, record: Record, now_us: int) -> None:
        """A job is as it was before the machine was restored; one of a machine that kept no rates has what is left."""
        allocation = record.holding.told
        if not record.left:
            record.begin_work(max(1, record.end_us - now_us), now_us)
        self.occupancy.enter(record.job, allocation)
        self._touched.update(share.node for share in allocation.nodes)

    def changed(self, records: Mapping[int, Record], now_us: int) -> list[Record]:
        """Those who go at another rate from now on, in order of their numbers."""
        if not self._touched:
            return []
        rates = self.occupancy.rates_ppm(self._touched)
        self._touched.clear()
        found = []
        for job_id, rate_ppm in rates.items():
            record = records[job_id]
            if record.waits:
                rate_ppm = 0  # noqa: PLW2901
            if record.rate_ppm != rate_ppm:
                record.settle(now_us)
                record.rate_ppm = rate_ppm
                found.append(record)
        return found
