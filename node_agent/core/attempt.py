"""What an agent knows of one attempt at a job on its node: a value, kept in a file by whoever has files."""

from typing import Final

import msgspec

from cosched.wire.messages import (
    Adapted,
    Exit,
    GroupEnded,
    GroupReport,
    JobFile,
    JobHeld,
    JobMap,
    Offered,
    Prepare,
    Prepared,
    ProgramEnded,
    Refused,
    Resized,
    Started,
)

#: An attempt's name among others: the job's number, and the attempt's.
Key = tuple[int, int]
#: What a script writes to, by the names that messages and files have for it.
STREAMS: Final = ("stdout", "stderr")
Answer = Prepared | Started | Resized | Offered | Refused


def key_name(job_id: int, attempt: int) -> str:
    """An attempt's name in paths and logs."""
    return f"{job_id}.{attempt}"


class Attempt(msgspec.Struct, frozen=True):
    """One attempt. ``prepare`` is None for one that was never prepared here, or that only the guard knew of.

    It is as the orders after it have made it: places, peers and grant are the latest, and so is ``asleep``.
    ``answers``: what was answered to each order, by its number, of Resizes to the last alone, whose number is
    ``resize_order``; ``map``: the newest that its ranks are told, ``adapted`` the number of the newest that they have
    adopted, ``claimed`` that of one which they say they have adopted and which has not come here yet;
    ``asked_kill_us``: the grace of a Kill that was obeyed; ``elsewhere``: where the user has the script's output, by
    stream, if not in the spool; ``empty``: the guard's last word that nothing runs; ``ended``: the same after a Kill,
    so nothing will run any more; ``brought``, in records alone: the files and watched names of ``prepare``,
    which an agent of version 4 of the link, that may be put back while jobs run, would not read there.
    """

    job_id: int
    attempt: int
    boot_id: str
    cluster_id: str
    prepare: Prepare | None = None
    last_order: int = 0
    answers: dict[int, Answer] = {}
    resize_order: int = 0
    asleep: bool = False
    map: JobMap | None = None
    adapted: int = 0
    claimed: int = 0
    elsewhere: dict[str, str] = {}
    commands: int = 0
    ran: bool = False
    exit: Exit | None = None
    error_tail: bytes = b""
    asked_kill_us: int | None = None
    empty: GroupEnded | None = None
    ended: GroupEnded | None = None
    forgotten: bool = False
    brought: tuple[tuple[JobFile, ...], tuple[str, ...]] | None = None

    @property
    def key(self) -> str:
        """Its name in paths and logs."""
        return key_name(self.job_id, self.attempt)

    @property
    def id(self) -> Key:
        """Job and attempt."""
        return self.job_id, self.attempt

    @property
    def found(self) -> bool:
        """Whether the guard alone knew of it: an agent was killed while it was being made ready, say."""
        return self.prepare is None and self.asked_kill_us is None and not self.forgotten

    @property
    def open(self) -> bool:
        """Whether commands may be born here."""
        return self.prepare is not None and self.asked_kill_us is None and not self.forgotten

    def report(self, boot_id: str) -> GroupReport:
        """What a scheduler is told when the agent joins, in this boot of the machine."""
        ready = "prepared" if self.prepare is not None else "found"
        state = "ended" if self.ended else "running" if self.ran else ready
        return GroupReport(self.job_id, self.attempt, state, self.last_order, self.exit, self.boot_id != boot_id)

    def held(self) -> JobHeld:
        """What a scheduler is told with each heartbeat."""
        if (told := self.prepare) is None:
            return JobHeld(self.job_id, self.attempt, self.last_order)
        share = told.tasks, told.cpus, self.asleep
        return JobHeld(self.job_id, self.attempt, self.last_order, *share, self.map)

    def events(self) -> list[Adapted | ProgramEnded | GroupEnded]:
        """What has happened and is not acknowledged (by Forget), or may have been told in vain."""
        if self.forgotten:
            return []
        if self.open and self.adapted and self.exit is None:
            return [Adapted(self.job_id, self.attempt, self.adapted)]
        program = [ProgramEnded(self.job_id, self.attempt, self.exit, self.error_tail)] if self.exit else []
        return [*program, *([self.ended] if self.ended else [])]
