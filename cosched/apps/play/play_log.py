"""What a play has done so far, line by line beside its results, so that one that was ended in any way can go on.

A file of JSON lines. The first says what is played, by the digests of its files and its settings, and the *tag*: every
job's name ends with it and the job's number in the log, so that a job is found again in the service by its name, also
one whose submission was on its way when the play was killed. Then a line for each *part* (a call of the command), each
job that was submitted or refused, each change of what one holds, and each that has ended.
"""

import secrets
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from cosched.errors import BadInput
from cosched.report.line_log import LineLog
from cosched.wire.api import JobDoc


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """What is played: ``settings`` and ``inputs`` (digests by name) must be the same when it goes on."""

    tag: str
    cluster_id: str
    settings: dict[str, str]
    inputs: dict[str, str]


class Part(msgspec.Struct, frozen=True, tag="part"):
    """A call of the command. ``at_s`` of the schedule is ``began_s`` of the wall clock.

    ``service_s`` is the service's clock less this machine's.
    """

    at_s: float
    began_s: float
    service_s: float
    command: list[str]
    version: str
    policy: str

    def time_s(self, moment: str) -> float:
        """A moment of the service's clock (ISO 8601) as a time of the schedule."""
        return datetime.fromisoformat(moment).timestamp() - self.service_s - self.began_s


class Submitted(msgspec.Struct, frozen=True, tag="submitted"):
    """A job of the log, its number in the service, the time of the schedule and by how much that was late.

    ``found``: the service had it already, from a submission of that part whose answer never came.
    """

    number: int
    job_id: int
    part: int
    at_s: float
    late_s: float
    user: str
    found: bool = False


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A job that the service does not take, and why."""

    number: int
    part: int
    at_s: float
    late_s: float
    why: str


class Held(msgspec.Struct, frozen=True, tag="held"):
    """What a job holds from now on (wall clock), as it was seen: processes, CPUs, nodes."""

    number: int
    wall_s: float
    processes: int
    cpus: int
    nodes: dict[str, int]


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A job that has ended; None: the service does not know it any more."""

    number: int
    job: JobDoc | None


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The end of a part, at that time of the schedule."""

    at_s: float
    why: str


Line = Begun | Part | Submitted | Refused | Held | Ended | Stopped
_DECODER: Final = msgspec.json.Decoder(Line)


class PlayLog(LineLog):
    """The lines so far, in order, and what they say of each job by its number in the log."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        """Read what is there, but for a ``fresh`` one. Raises :class:`BadInput` for lines that are none of ours."""
        super().__init__(path, "--output")
        self.begun: Begun | None = None
        self.parts: list[Part] = []
        self.submitted: dict[int, Submitted] = {}
        self.refused: dict[int, Refused] = {}
        self.held: dict[int, list[Held]] = {}
        self.ended: dict[int, Ended] = {}
        self.at_s = 0.0
        if not fresh:
            self.read(lambda line: self._take(_DECODER.decode(line)))

    def begin(self, begun: Begun) -> str:
        """Begin, or go on with the same; gives the tag.

        Raises :class:`BadInput` where it is another play, or another process plays it now.
        """
        if self.begun is None:
            self.claim()
            self.keep(begun)
            return begun.tag
        before, now = self.begun, begun
        if before.cluster_id != now.cluster_id:
            raise BadInput("--resume", "another cluster than the play began on", "the same service")
        for what, was, is_now in (("", before.settings, now.settings), ("file ", before.inputs, now.inputs)):
            for key in sorted(was.keys() | is_now.keys()):
                if was.get(key) != is_now.get(key):
                    found = f"{what}{key}: {is_now.get(key, 'nothing')[:40]}"
                    raise BadInput("--resume", found, f"{was.get(key, 'nothing')[:40]}, as in {self.path}")
        self.claim()
        return before.tag

    def keep(self, line: Line) -> None:
        """Write a line down, for good: what comes next may be the end of this process."""
        self.append(msgspec.json.encode(line))
        self._take(line)

    def part_at(self, moment: str) -> int:
        """Which part it was, counted from 1, at a moment of the service's clock."""
        begun = [at for at, part in enumerate(self.parts, 1) if part.time_s(moment) >= part.at_s]
        return max(begun, default=1)

    def _take(self, line: Line) -> None:
        match line:
            case Begun():
                self.begun = line
            case Part():
                self.parts.append(line)
            case Submitted():
                self.submitted[line.number] = line
            case Refused():
                self.refused[line.number] = line
            case Held():
                self.held.setdefault(line.number, []).append(line)
            case Ended():
                self.ended[line.number] = line
            case Stopped():
                pass
        if isinstance(line, Part | Submitted | Refused | Stopped):
            self.at_s = max(self.at_s, line.at_s)


def new_tag() -> str:
    """A name for a play that no other has."""
    return f"play-{secrets.token_hex(4)}"


def job_name(program: str, tag: str, number: int) -> str:
    """A job's name in the service."""
    return f"{program} {tag}.{number}"


def number_in(name: str, tag: str) -> int | None:
    """The log's number of a job of that play; None for any other job."""
    _, found, number = name.rpartition(f" {tag}.")
    return int(number) if found and number.isascii() and number.isdigit() else None
