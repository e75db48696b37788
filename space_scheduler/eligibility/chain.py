"""The chain of rules before the queue, in order: hold, set aside, then those that are asked."""

from collections.abc import Sequence

import msgspec

from space_scheduler.eligibility.gates import Gate, Gates
from space_scheduler.eligibility.hold import Hold
from space_scheduler.eligibility.rule import Ended, Rule
from space_scheduler.eligibility.set_aside import Aside, SetAside
from space_scheduler.reasons import Reason


class SavedWaiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the rules remember, less what is set aside: jobs that are held, that wait by other rules, that ended."""

    held: tuple[int, ...] = ()
    gates: dict[int, Gate] = {}
    ended: dict[int, Ended] = {}


class Chain:
    """Each rule knows by itself which jobs it keeps back; the first that does gives a job's reason to wait."""

    __slots__ = ("aside", "gates", "hold")

    def __init__(self, rules: Sequence[Rule] | None = None) -> None:
        """``rules`` as for :class:`~space_scheduler.eligibility.gates.Gates`."""
        self.hold = Hold()
        self.aside = Aside()
        self.gates = Gates(rules)

    def reason(self, job_id: int) -> Reason | None:
        """Why a job that holds nothing may not be queued; None: it may."""
        return self.hold.reason(job_id) or self.aside.reason(job_id) or self.gates.reason(job_id)

    def drop(self, job_id: int) -> None:
        """Forget a job."""
        self.hold.drop(job_id)
        self.aside.drop(job_id)
        self.gates.drop(job_id)

    def put_on_hold(self, job_id: int) -> None:
        """A user or an operator holds a job."""
        self.hold.jobs.add(job_id)
        if job_id in self.aside:
            self.aside.hold(job_id)

    def release(self, job_id: int) -> bool:
        """A job is held no more; whether it is set aside, and to be tried again."""
        self.hold.drop(job_id)
        if job_id not in self.aside:
            return False
        self.aside.release(job_id)
        return True

    def saved(self) -> SavedWaiting | None:
        """For a snapshot; None where nothing waits, and in snapshots of version 0.1."""
        if not (self.hold.jobs or self.aside or self.gates.waits or self.gates.ended):
            return None
        return SavedWaiting(
            tuple(sorted(self.hold.jobs)), dict(sorted(self.gates.waits.items())), self.gates.ended.copy()
        )

    def restore(self, saved: SavedWaiting, aside: Sequence[SetAside], aside_changes: int) -> None:
        """As saved."""
        self.hold.jobs.update(saved.held)
        self.aside.restore(aside, aside_changes, saved.held)
        self.gates.restore(saved.gates, saved.ended)
