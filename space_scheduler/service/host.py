"""The live host of the core: it runs in one worker thread, beside the event loop that talks to the world.

Accepting and deciding are apart (design, section 4). An event is *accepted* when the core has taken it in and it is in
the journal; then its poster is answered. Passes are coalesced, at least ``pass_interval_us`` apart; what a pass decided
is handed on only when it is in the journal too. The state in memory is always the journal's: where a write fails, what
was not written is taken back.
"""

from collections.abc import Callable
from pathlib import Path

from cosched.errors import Failed
from cosched.model.job import Job
from cosched.wire.api import Submission
from space_scheduler.machine.events import Event
from space_scheduler.machine.state import MachineRules
from space_scheduler.policy.interface import Policy
from space_scheduler.service.clock import Clock, Sources
from space_scheduler.service.records import Committed, Explained, Facts, JobRecord, Launch, View


class NotAccepting(Failed):
    """The journal cannot be written: nothing new is accepted, what runs goes on (the API's 503)."""


class CoreHost:
    """The core, its journal and its clock. All coroutines are called on the event loop that called ``start``."""

    cluster_id: str
    epoch: int
    instance: str
    clock: Clock

    def __init__(
        self,
        path: Path,
        policy: Policy,
        *,
        policy_name: str,
        order_name: str | None = None,
        rules: MachineRules | None = None,
        pass_interval_us: int = 50_000,
        compact: bool = True,
        on_committed: Callable[[Committed], None] = lambda committed: None,
        on_problem: Callable[[str], None] = lambda problem: None,
        sources: Sources | None = None,
    ) -> None:
        """A host on the journal at ``path``.

        ``on_committed`` is called on the event loop for every event with its instructions and the jobs' steps, in the
        journal's order, after the commit; ``on_problem`` when something goes wrong or ("") is well again.
        """
        raise NotImplementedError

    async def start(self) -> "Recovered":  # noqa: F821
        """Open the journal, recover, and begin to work. Raises ``JournalRefused`` (a ``Failed``)."""
        raise NotImplementedError

    async def close(self) -> None:
        """Take in what was posted, write a snapshot, close the journal."""
        raise NotImplementedError

    async def submit(self, job: Job, submission: Submission, user: str, *, hold: bool = False) -> int:
        """Accept a job and give its number; the job's own ``id`` and ``submit_us`` are the host's to fill in.

        Raises ``Infeasible`` (could never start here, with the reason) and :class:`NotAccepting`.
        """
        raise NotImplementedError

    async def post(self, event: Event, *, note: str = "", facts: Facts | None = None) -> Committed:
        """Accept an event; answered when it is in the journal.

        ``facts`` are of the job that the event names. Raises ``UnknownJob``, ``IllegalTransition`` or ValueError where
        the event does not fit (the state is then as before). While the journal cannot be written, users' wishes (hold,
        release, cancel) raise :class:`NotAccepting`; what nodes report waits until it can be written.
        """
        raise NotImplementedError

    async def annotate(self, job_id: int, facts: Facts) -> None:
        """Journal facts of a job, alive or ended. Raises ``UnknownJob``."""
        raise NotImplementedError

    async def record_launch(self, launch: Launch) -> None:
        """Journal how far a launch has come (replaces what was known of that attempt; dropped when the job ends)."""
        raise NotImplementedError

    def view(self) -> View:
        """The last published state. Never blocks."""
        raise NotImplementedError

    async def explain(self, job_id: int) -> Explained:
        """Why a job, alive or ended, is in its state. Raises ``UnknownJob``."""
        raise NotImplementedError

    async def job(self, job_id: int) -> JobRecord:
        """A job, alive or ended. Raises ``UnknownJob``."""
        raise NotImplementedError

    async def history(self, *, limit: int = 100, user: str | None = None, before: int | None = None) -> list[JobRecord]:
        """Ended jobs, the last to end first; ``before``: only those that ended before that job."""
        raise NotImplementedError
