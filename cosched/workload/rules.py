"""From a log to a workload: which field means what, and what happens to jobs the log describes badly.

Every tool that "simulates EASY on the KTH log" makes these choices, most of them silently. Here each is a setting, and
what it touched is counted. The defaults are those of ``oracle`` as far as input goes (docs/design/semantics.md):
processors as allocated (field 5), a job runs at most its request, and the estimate is never below the run time. A job
that never ran is left out; under ``oracle`` it waits and runs one second on what it had, at least one processor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from cosched.errors import BadInput
from cosched.model.time import FOREVER_US, US_PER_S
from cosched.model.width import Components, Flexible, Range
from cosched.workload.log import Field, Log

T = TypeVar("T")

Times = NDArray[np.int64]
#: Rows of a workload, in order.
Rows = NDArray[np.int64] | slice
_Problem = tuple[str, NDArray[np.bool_], str, str]  # cause, jobs that have it, what was found, what was expected

#: Where the machine's size is from that no header says.
_WIDEST: Final = "the widest job"
#: Status of a part of an execution; the line of the whole has another status and the same number (SWF 2.2).
_PARTS: Final = (2, 3, 4)
#: No machine is larger; what says so is a mistake.
MAX_PROCS: Final = 1_000_000_000


class ProcsFrom(StrEnum):
    """Which field is a job's size. The other is used where the chosen one is unknown, except by ``allocated-only``."""

    ALLOCATED = "allocated"
    ALLOCATED_ONLY = "allocated-only"
    REQUESTED = "requested"


class NeverRan(StrEnum):
    """What becomes of a job that never ran: its run time is not above 0 or it has no processors, whatever its status.

    ``drop``: it is left out before the simulation. ``wait``: it waits for its width and runs one second with an
    estimate of one, submitted at second 1 at the earliest.
    """

    DROP = "drop"
    WAIT = "wait"


class NegativeTimes(StrEnum):
    """What becomes of a job with a negative time that does not mean "unknown".

    ``unknown`` takes it for unknown where the job never ran; another with a negative submission is skipped all the
    same.
    """

    SKIP = "skip"
    UNKNOWN = "unknown"


class AtLimit(StrEnum):
    """What happens when a job reaches its estimate: it is killed, or it runs on to the end the log has for it."""

    KILL = "kill"
    RUN = "run"


class InputRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a log's fields are read."""

    procs_from: ProcsFrom = ProcsFrom.ALLOCATED
    never_ran: NeverRan = NeverRan.DROP
    negative_times: NegativeTimes = NegativeTimes.SKIP
    at_limit: AtLimit = AtLimit.KILL
    preceding: bool = False  # jobs follow those of field 17, after the think time of field 18


class TaskRules(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks need where nodes are shared, if the log does not tell; ``programs``: kinds by executable's number."""

    memory_bytes: int
    cpu_permille: int = 1000
    kind: str = ""
    programs: Mapping[int, str] = {}


@dataclass(frozen=True)
class Tasks:
    """What each job's tasks need where nodes are shared. Arrays of shape (n,), in the workload's order.

    ``memory_bytes`` and ``cpu_permille`` (thousandths of a CPU, alone) are each task's; ``kind`` is "cpu", "comm", "".
    ``program`` is the number of the log's executable (-1: not known; empty: of none).
    """

    memory_bytes: NDArray[np.int64]
    cpu_permille: NDArray[np.int64]
    kind: Sequence[str]
    program: Sequence[int] = ()

    def only(self, rows: Rows) -> "Tasks":
        """Those of these rows alone, which rise."""
        kind, program = _those(self.kind, rows), _those(self.program, rows)
        return Tasks(self.memory_bytes[rows], self.cpu_permille[rows], kind, program)


class Ask(NamedTuple):
    """What an evolving job asks for: when this part of its work is done, so many processes more (negative: fewer)."""

    part: Fraction
    procs: int


class Shaped(NamedTuple):
    """A job of several widths: its work and that of its estimate (in microseconds at speed 1), its class, its requests.

    ``long``, ``foldable`` and ``shape`` as for :class:`cosched.model.job.Job`.
    """

    shape: Range
    work_us: int
    estimate_work_us: int
    long: bool = False
    foldable: bool = True
    asks: tuple[Ask, ...] = ()


@dataclass(frozen=True)
class Workload:
    """Jobs ready to be scheduled, in order of submission (file order within an instant). All arrays have shape (n,).

    ``job_id`` is the log's own number, which logs may repeat or not give: see :meth:`identities`. Times are
    integer microseconds since the start of the log. ``estimate_us`` is what the scheduler is told, ``run_us`` how long
    the job really runs, ``request_us`` what the log's user asked for, raised to the logged run time where that is
    longer (the column ``requested`` of a schedule). ``timed_out`` marks those that the limit cuts. ``tasks`` is for
    machines whose nodes have names. ``shapes`` has each job's widths, None for one that is as the log has it; empty:
    all are. Where a job has several, the columns are those of its largest one, times rounded up. ``divided`` has each
    job's components on several clusters, None for a job of one; empty: all are of one. ``crossing_ppm`` has by how many
    millionths of its time each is slower on several, where that is known of it. ``never_ran`` counts the log's jobs
    that never ran, left out or not. ``preceding`` has the row of the job that each follows, -1 where it follows none,
    and ``think_us`` how long after the end of that; None: jobs are independent.
    """

    name: str
    procs_total: int
    job_id: NDArray[np.int64]
    submit_us: Times
    run_us: Times
    procs: NDArray[np.int64]
    estimate_us: Times
    request_us: Times
    user: NDArray[np.int64]
    timed_out: NDArray[np.bool_]
    procs_total_from: str = "given"
    skipped: Mapping[str, int] = field(default_factory=dict)
    adjusted: Mapping[str, int] = field(default_factory=dict)
    provider: str | None = None
    unix_start_s: int | None = None
    timezone: str | None = None
    timezone_offset_s: int | None = None
    tasks: Tasks | None = None
    shapes: Sequence[Shaped | None] = ()
    divided: Sequence[Components | Flexible | None] = ()
    crossing_ppm: Sequence[int | None] = ()
    never_ran: int = 0
    preceding: NDArray[np.int64] | None = None
    think_us: Times | None = None

    def __len__(self) -> int:
        return len(self.job_id)

    @property
    def guessed(self) -> bool:
        """Whether the machine is as wide as the widest job, for want of a size in the header."""
        return self.procs_total_from.startswith(_WIDEST)

    @property
    def offered_load(self) -> float:
        """Its work over what the machine can do between the first and the last submission; infinite at one instant."""
        span_us = int(self.submit_us[-1] - self.submit_us[0])
        work = float(np.dot(self.run_us.astype(np.float64), self.procs))
        return work / (self.procs_total * span_us) if span_us else math.inf

    def identities(self) -> NDArray[np.int64]:
        """What jobs are called in the core, its events and its messages, shape (n,).

        The log's own numbers where each is a number and given once; else the places in order of submission, from 1.
        """
        usable = len(np.unique(self.job_id)) == len(self) and (self.job_id >= 0).all()
        return self.job_id if usable else np.arange(1, len(self) + 1)

    def only(self, rows: Rows) -> "Workload":
        """The jobs of these rows alone, which rise."""
        columns = ("job_id", "submit_us", "run_us", "procs", "estimate_us", "request_us", "user", "timed_out")
        preceding = think_us = None
        if self.preceding is not None and self.think_us is not None:
            kept = np.full(len(self) + 1, -1)
            kept[:-1][rows] = np.arange(len(self.job_id[rows]))
            preceding, think_us = kept[self.preceding[rows]], self.think_us[rows]
        return replace(
            self,
            preceding=preceding,
            think_us=think_us,
            tasks=None if self.tasks is None else self.tasks.only(rows),
            shapes=_those(self.shapes, rows),
            divided=_those(self.divided, rows),
            crossing_ppm=_those(self.crossing_ppm, rows),
            **{name: getattr(self, name)[rows] for name in columns},
        )


def workload_of(
    name: str,
    procs_total: int,
    submit_us: Times,
    run_us: Times,
    procs: NDArray[np.int64],
    estimate_us: Times | None = None,
    *,
    job_id: NDArray[np.int64] | None = None,
    **more: Any,
) -> Workload:
    """Jobs that are known without a log: of users that are not known, and that request what they estimate.

    Without ``job_id`` they are numbered from 1; without ``estimate_us`` they know how long they run.
    """
    count = len(submit_us)
    numbers = np.arange(1, count + 1) if job_id is None else job_id
    told_us = run_us if estimate_us is None else estimate_us
    user, timed_out = np.full(count, -1, np.int64), np.zeros(count, np.bool_)
    return Workload(name, procs_total, numbers, submit_us, run_us, procs, told_us, told_us, user, timed_out, **more)


def _those(values: Sequence[T], rows: Rows) -> list[T]:
    """The values of these rows; of no values at all, none."""
    if isinstance(rows, slice):
        return [*values[rows]]
    return [values[row] for row in rows.tolist()] if values else []


def machine_size(log: Log, given: int | None = None, *, strict: bool = False) -> tuple[int, str]:
    """Processors of the machine and where the number comes from: given, MaxProcs, MaxNodes, or the widest job.

    A size in the header that is none is told of beside that; ``strict``: raises :class:`BadInput`.
    """
    if given is not None:
        return given, "given"
    no_sizes = ""
    for key in ("MaxProcs", "MaxNodes"):
        size, text = log.header.integer(key), log.header.entries.get(key, "")
        if size is not None and 0 < size <= MAX_PROCS:
            return size, f"{key} in the header{no_sizes}"
        if text and size != -1:  # -1: not known, as everywhere in the format
            if strict:
                raise BadInput(f"{log.name}: header", f"{key}: {text[:40]}", f"a whole number from 1 to {MAX_PROCS}")
            no_sizes += f"; {key}: {text[:40]!r} is no size"
    if len(log):
        widest = int(max(log.column(Field.PROCS_ALLOCATED).max(), log.column(Field.PROCS_REQUESTED).max()))
        if widest > 0:
            return widest, f"{_WIDEST} (no MaxProcs or MaxNodes in the header{no_sizes})"
    raise BadInput(log.name, "the header has no MaxProcs and no job has a size", "the machine's size: --procs N")


def to_us(seconds: NDArray[np.float64]) -> Times:
    """Microseconds, rounded, of an array of seconds."""
    rounded: Times = np.rint(seconds * US_PER_S).astype(np.int64)
    return rounded


def _numbering(log: Log) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Which jobs have a number below 0, which one that an earlier job has, and which have one at all (-1: none)."""
    numbers = log.column(Field.JOB)
    twice = np.ones(len(log), np.bool_)
    twice[np.unique(numbers, return_index=True)[1]] = False
    return numbers < 0, twice, numbers != -1


def _of_numbers(below: NDArray[np.bool_], twice: NDArray[np.bool_]) -> list[_Problem]:
    return [
        ("negative_job_number", below, "a job number below 0", "one of 0 or more"),
        ("duplicate_job_number", twice, "a job number that an earlier line has", "each number once"),
    ]


def check_numbers(log: Log) -> None:
    """Raises :class:`BadInput` at the first job whose number is below 0 or was there before."""
    below, twice, _ = _numbering(log)
    if (unfit := below | twice).any():
        _refuse_first(log, unfit, _of_numbers(below, twice))


def _refuse_first(log: Log, unfit: NDArray[np.bool_], problems: Sequence[_Problem]) -> NoReturn:
    row = int(unfit.argmax())
    found, expected = next((found, expected) for _, bad, found, expected in problems if bad[row])
    raise BadInput(_where(log, row), found, expected)


def prepare(
    log: Log,
    rules: InputRules | None = None,
    *,
    procs_total: int | None = None,
    strict: bool = False,
    tasks: TaskRules | None = None,
) -> Workload:
    """Apply the rules to a log.

    Raises :class:`BadInput` in strict mode at the first line that would be skipped or had to be interpreted.
    """
    rules = rules or InputRules()
    size, size_from = machine_size(log, procs_total, strict=strict)
    first, other = Field.PROCS_ALLOCATED, Field.PROCS_REQUESTED
    if rules.procs_from == ProcsFrom.REQUESTED:
        first, other = other, first
    procs = log.column(first).copy()
    if rules.procs_from != ProcsFrom.ALLOCATED_ONLY:
        procs = np.where(procs > 0, procs, log.column(other))
    run_s, request_s = log.column(Field.RUN_S), log.column(Field.REQUEST_S)
    submit_s = log.column(Field.SUBMIT_S).copy()
    no_run, no_size = run_s <= 0, procs < 1
    never = no_run | no_size
    parts, alone = _parts(log)
    negative = (submit_s < 0) | (run_s < -1) | (request_s < -1)
    if rules.negative_times == NegativeTimes.UNKNOWN:
        negative &= ~never

    problems: list[_Problem] = [
        ("partial_execution", parts, "a part of an execution that has a line of its own", "a line a job"),
    ]
    if rules.never_ran == NeverRan.DROP:
        problems.append(("never_ran", never, "a job that never ran", "a run time and processors above 0"))
    problems += [
        ("negative_time", negative, "a negative time", "times of 0 or more"),
        (
            "wider_than_machine",
            procs > size,
            f"wider than the machine's {size} processors",
            "a larger machine: --procs, or nodes of --site",
        ),
    ]
    keep, skipped = _kept(log, problems)
    submit_s[never] = np.maximum(1, submit_s[never])
    below, twice, known = _numbering(log)
    follows, not_followed = _following(log, keep, submit_s) if rules.preceding else (None, _ignored(log))
    notes = _interpreted(log, (first, other), no_run, no_size) + not_followed
    notes += [
        ("partial_execution_alone", alone, "a part of an execution that has no line of its own", "a line a job"),
        (
            "out_of_submit_order",
            _early(submit_s, keep),
            "a submission before that of an earlier line",
            "lines in order",
        ),
    ]
    if strict:
        notes += _of_numbers(below, twice)
        if (unfit := ~keep | np.logical_or.reduce([bad for _, bad, _, _ in notes])).any():
            _refuse_first(log, unfit, [*problems, *notes])
    notes += _of_numbers(below & known, twice & known)

    request = np.where(request_s > 0, request_s, run_s)  # no estimate in the log: the exact one
    estimate = np.maximum(request, run_s)
    if rules.at_limit == AtLimit.KILL:
        actual, told = np.minimum(run_s, request), estimate
    else:
        actual, told = run_s.copy(), request.copy()
    timed_out = (run_s > request) & (rules.at_limit == AtLimit.KILL)
    actual[never], told[never], estimate[never] = 1, 1, 1
    procs = np.maximum(1, procs)
    timed_out &= ~never

    adjusted = {cause: int((bad & keep).sum()) for cause, bad, _, _ in notes}
    last_s = float(submit_s[keep].max(initial=0)) + float(np.maximum(actual, told)[keep].sum())
    if last_s * US_PER_S >= FOREVER_US / 2:
        raise BadInput(
            log.name, f"its jobs one after the other end after {last_s:.3g} s", "times that end within 10^12 s"
        )
    index = np.flatnonzero(keep)
    index = index[np.argsort(submit_s[index], kind="stable")]
    return Workload(
        name=log.name,
        procs_total=size,
        procs_total_from=size_from,
        job_id=log.column(Field.JOB)[index].astype(np.int64),
        submit_us=to_us(submit_s[index]),
        run_us=np.maximum(1, to_us(actual[index])),
        procs=procs[index].astype(np.int64),
        estimate_us=np.maximum(1, to_us(told[index])),
        request_us=np.maximum(1, to_us(estimate[index])),
        user=log.column(Field.USER)[index].astype(np.int64),
        timed_out=timed_out[index],
        skipped=skipped,
        adjusted={cause: n for cause, n in adjusted.items() if n},
        provider=log.header.entries.get("Acknowledge"),
        unix_start_s=log.header.integer("UnixStartTime"),
        timezone=log.header.entries.get("TimeZoneString"),
        timezone_offset_s=log.header.integer("TimeZone"),
        tasks=_tasks(log, index, tasks) if tasks is not None else None,
        never_ran=int((never & ~parts).sum()),
        preceding=None if follows is None else _in_rows(index, follows),
        think_us=None if follows is None else to_us(np.maximum(0, log.column(Field.THINK_S)[index])),
    )


def _kept(log: Log, problems: Sequence[_Problem]) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Which jobs have none of the problems, and how many lines are skipped for which: each for its first."""
    skipped = dict(log.skipped)
    keep = np.ones(len(log), np.bool_)
    for cause, unfit, _, _ in problems:
        bad = unfit & keep
        if count := int(bad.sum()):
            skipped[cause] = skipped.get(cause, 0) + count
            keep &= ~bad
    return keep, skipped


def _interpreted(
    log: Log, sizes: tuple[Field, Field], no_run: NDArray[np.bool_], no_size: NDArray[np.bool_]
) -> list[_Problem]:
    """What the rules change of jobs, or do not look at, field by field."""
    ran = ~(no_run | no_size)
    run_s, request_s = log.column(Field.RUN_S), log.column(Field.REQUEST_S)
    one, two = log.column(sizes[0]), log.column(sizes[1])
    return [
        ("run_not_positive_runs_1s", no_run, "a run time of 0 or unknown", "more than 0 s"),
        ("no_processors_runs_1s", no_size & ~no_run, "no number of processors", "field 5 or field 8 of at least 1"),
        ("run_beyond_request", (run_s > request_s) & (request_s > 0) & ran, "a run time above the request", "less"),
        ("no_request_uses_run", (request_s <= 0) & ran, "no request", "field 9 above 0"),
        (
            "allocated_differs_from_requested",
            (one != two) & (one > 0) & (two > 0),
            "another number of processors allocated than requested",
            "the same in fields 5 and 8",
        ),
    ]


def _ignored(log: Log) -> list[_Problem]:
    """Preceding jobs and think times, where they are not looked at."""
    return [
        ("preceding_job_ignored", log.column(Field.PRECEDING_JOB) > 0, "a preceding job", "-1: it is not waited for"),
        ("think_time_ignored", log.column(Field.THINK_S) > 0, "a think time", "-1: it is not kept"),
    ]


def _following(
    log: Log, keep: NDArray[np.bool_], submit_s: NDArray[np.float64]
) -> tuple[NDArray[np.int64], list[_Problem]]:
    """The line of each line's preceding job, -1 where it follows none; and the lines whose one cannot be followed.

    Of several lines with that number, the last that was submitted before counts. Raises :class:`BadInput` for a log
    without any preceding job: its schedule would be that of the rules without.
    """
    numbers, asked = log.column(Field.JOB), log.column(Field.PRECEDING_JOB)
    if not (asked > 0).any():
        raise BadInput(log.name, "no job has a preceding job (field 17)", "a log that has them, or no --preceding")
    everywhere, kept_numbers = set(numbers.tolist()), set(numbers[keep].tolist())
    follows = np.full(len(log), -1)
    missing, dropped, later = (np.zeros(len(log), np.bool_) for _ in range(3))
    before: dict[float, int] = {}
    for line in np.argsort(submit_s, kind="stable").tolist():
        number = float(asked[line])
        if number > 0:
            if number in before:
                follows[line] = before[number]
            elif number in kept_numbers:
                later[line] = True
            else:
                (dropped if number in everywhere else missing)[line] = True
        if keep[line]:
            before[float(numbers[line])] = line
    expected = "-1, or the number of an earlier job that is simulated"
    return follows, [
        ("preceding_job_missing", missing, "a preceding job that the log does not have", expected),
        ("preceding_job_dropped", dropped, "a preceding job that is skipped", expected),
        ("preceding_job_later", later, "a preceding job that is submitted later", expected),
    ]


def _in_rows(index: NDArray[np.intp], follows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of the lines of ``index``, in which row of these is the line that each follows; -1: it follows none."""
    row_of = np.full(len(follows) + 1, -1)
    row_of[index] = np.arange(len(index))
    rows: NDArray[np.int64] = row_of[follows[index]]
    return rows


def _parts(log: Log) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which lines are parts of executions that have a line of the whole beside them, and which of others."""
    part = np.isin(log.column(Field.STATUS), _PARTS)
    number = log.column(Field.JOB)
    beside = part & (number >= 0) & np.isin(number, number[~part])
    return beside, part & ~beside


def _early(submit_s: NDArray[np.float64], keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the kept lines were submitted before the kept line above them."""
    early = np.zeros(len(submit_s), np.bool_)
    rows = np.flatnonzero(keep)
    early[rows[1:]] = np.diff(submit_s[rows]) < 0
    return early


def _tasks(log: Log, index: NDArray[np.intp], rules: TaskRules) -> Tasks:
    """What the tasks of these jobs need: memory as requested, else as used; CPU time over run time; kind by program."""
    asked, used, cpu_s, run_s, program = (
        log.column(field)[index]
        for field in (Field.MEMORY_REQUESTED_KB, Field.MEMORY_KB, Field.CPU_TIME_S, Field.RUN_S, Field.EXECUTABLE)
    )
    memory_kb = np.where(asked > 0, asked, used)
    permille = np.where((cpu_s > 0) & (run_s > 0), np.round(1000 * cpu_s / np.maximum(run_s, 1e-6)), rules.cpu_permille)
    return Tasks(
        np.where(memory_kb > 0, memory_kb * 1024, rules.memory_bytes).astype(np.int64),
        np.clip(permille, 1, 1000).astype(np.int64),
        tuple(rules.programs.get(int(number), rules.kind) for number in program),
        tuple(int(number) for number in program),
    )


def _where(log: Log, row: int) -> str:
    if len(log.line_numbers):
        return f"{log.name}:{int(log.line_numbers[row])}: job {int(log.rows[row, Field.JOB])}"
    return f"{log.name}: job {int(log.rows[row, Field.JOB])}"
