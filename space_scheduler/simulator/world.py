"""The world of a simulation: a workload's jobs come as it has them, and run for as long as it says."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from itertools import starmap
from math import ceil
from typing import Final, Protocol

from msgspec import structs

from cosched.errors import Failed
from cosched.model.allocation import Allocation
from cosched.model.job import COMPLETED, TIMED_OUT, After, Job, JobState
from cosched.model.time import FOREVER_US
from cosched.workload.rules import Ask, Shaped, Tasks, Workload
from cosched.workload.schedule import Holding
from space_scheduler.machine.events import (
    Boundary,
    Event,
    JobEnded,
    JobLaunched,
    JobProgress,
    JobResized,
    JobSubmitted,
    NodesJoined,
    ResizeAsked,
    TimerDue,
)
from space_scheduler.machine.instructions import (
    Answer,
    Instruction,
    Kill,
    RateChanged,
    Resize,
    SetAside,
    SetTimer,
    Start,
    Tell,
)
from space_scheduler.progress import ALONE_PPM, Rate, end_us, moves_data
from space_scheduler.reasons import Reason, Why

_CHUNK = 4096
_BOUNDARY: Final = Boundary()
_IDLE_WAKE_UPS = 100_000
#: So often in a row jobs that are set aside are tried again though nothing has happened since they were tried last.
_IDLE_TRIES = 1
NOTHING: Final = Allocation(0)


class Truth(Protocol):
    """How jobs really go, where that is not what the core is told of them."""

    def predicted(self, job_id: int, rate_ppm: Rate, now_us: int) -> None:
        """By the core a job goes at this rate from now on."""

    def settle(self, now_us: int) -> None:
        """What was instructed has been carried out: have jobs go at the rates that follow."""

    def follow(self, event: Event, now_us: int) -> Iterable[tuple[int, Event]]:
        """What else happens then, after an event."""


class Stuck(Failed):
    """Nothing more can happen and jobs still wait: a policy that starves."""


class Run:
    """A dedicated machine of interchangeable processors."""

    def __init__(
        self,
        workload: Workload,
        sequential: bool,
        launch_delay_us: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.workload = workload
        self.sequential = sequential
        self.launch_delay_us = launch_delay_us
        self.progress = progress
        self.tell_at = _CHUNK
        count = len(workload)
        #: By row, -1: not yet. Arrays of the standard library: numpy's take several times as long for one number.
        self.starts_us = array("q", [-1]) * count
        self.ends_us = array("q", [-1]) * count
        self.promised_us = array("q", [-1]) * count
        self.reasons: Counter[Why] = Counter()
        #: How long each job runs alone, until it ends or, once it has started under a limit, is killed.
        self.run_us: list[Rate] = workload.run_us.tolist()
        #: Where nodes have names: each started job's tasks by node, of a resident job those that were enabled.
        self.placed: dict[int, tuple[tuple[str, int], ...]] = {}
        self.timed_out: list[bool] = workload.timed_out.tolist()
        self.submissions: Submissions = Submissions(workload)
        #: The rows of the jobs that are alive, by their numbers.
        self.rows: dict[int, int] = {}
        self.agenda: list[tuple[int, int, Event]] = []  # (time, in order of entry, event): a heap
        self.entries = 0
        self.idle_wake_ups = 0
        self.timer_us = FOREVER_US
        #: What was told of jobs that passes have set aside.
        self.aside: list[SetAside] = []
        #: How often in a row the timer was set for such a try, and nothing else happened.
        self.idle_tries = 0
        #: Jobs that have changed while they ran: work left at a time, and the rate since.
        self.paced: dict[int, tuple[Rate, int, Rate]] = {}
        #: Of those, the entry of their end in the agenda: others of theirs are not their end any more.
        self.end_entry: dict[int, int] = {}
        #: The same of what is told of their progress.
        self.progress_entry: dict[int, int] = {}
        #: Whether jobs were resized or ended by the last pass, so that there is another at the same time.
        self.again = False
        #: What each job held from when on (None: nobody asks), a row for each change.
        self.holdings: list[Holding] | None = None
        #: How long a running job does nothing after a change of the number of its processes.
        self.resize_cost_us = 0
        #: Of evolving jobs, how many of their requests have been made, and the entry of the next one.
        self.asked: dict[int, int] = {}
        self.ask_entry: dict[int, int] = {}
        #: How many processes more each was given, and that with those that it asks for.
        self.given: Counter[int] = Counter()
        self.grown: Counter[int] = Counter()
        for row, shaped in enumerate(workload.shapes):
            if shaped is not None:  # not rounded up to microseconds
                self.run_us[row] = Fraction(shaped.work_us, shaped.shape.speed(int(workload.procs[row])))
        #: What else follows from what happens, where jobs go otherwise than the core knows (``truth``).
        self.truth: Truth | None = None

    def happenings(self) -> Iterator[tuple[int, Event]]:  # noqa: PLR0912 (every event of a simulation goes through it)
        """What comes next, in order of time."""
        for joined in self.joining():
            yield 0, joined
        yield 0, _BOUNDARY
        submissions, agenda, sequential = self.submissions, self.agenda, self.sequential
        while True:
            if self.end_entry or self.ask_entry:
                self._pass_over()
            next_end_us = agenda[0][0] if agenda else FOREVER_US
            next_us = submissions.next_us if submissions.next_us < next_end_us else next_end_us
            now_us = next_us if next_us < self.timer_us else self.timer_us
            if now_us == FOREVER_US:
                return
            if now_us < next_us:
                self._count_wake_up()
            else:
                self.idle_wake_ups = self.idle_tries = 0
            while submissions.next_us == now_us:
                job = submissions.take()
                if job.after is not None:
                    job = self._following(job, job.after)
                self.rows[job.id] = submissions.done - 1
                yield now_us, JobSubmitted(job)
                if sequential:
                    yield from self._passes(now_us)
            if self.progress and submissions.done >= self.tell_at:
                self.tell_at = submissions.done + _CHUNK
                self.progress(submissions.done)
            while agenda and agenda[0][0] == now_us:  # what follows from one of them at this time included
                event = heappop(agenda)[2]
                yield now_us, event
                if isinstance(event, JobEnded):
                    del self.rows[event.job_id]
                elif isinstance(event, ResizeAsked):
                    self.asked[event.job_id] = self.asked.get(event.job_id, 0) + 1
                    self.grown[event.job_id] += event.procs
                    self._enter_ask(event.job_id)
                if self.truth is not None:
                    yield from self.truth.follow(event, now_us)
                if sequential:
                    yield from self._passes(now_us)
                if self.end_entry or self.ask_entry:
                    self._pass_over()
            if self.timer_us <= now_us:
                self.timer_us = FOREVER_US
                yield now_us, TimerDue()
                if sequential:
                    yield from self._passes(now_us)
            if not sequential:
                yield now_us, _BOUNDARY
                if self.again:
                    yield from self._further_passes(now_us)

    def _following(self, job: Job, after: After) -> Job:
        """A job with the end of its preceding one, where that has ended; that was submitted before."""
        assert self.workload.preceding is not None
        if after.job_id in self.rows:
            return job
        ended_us = self.ends_us[int(self.workload.preceding[self.submissions.done - 1])]
        return structs.replace(job, after=structs.replace(after, ended_us=ended_us))

    def _passes(self, now_us: int) -> Iterator[tuple[int, Event]]:
        """A pass, and others while what it has changed changes more."""
        yield now_us, _BOUNDARY
        yield from self._further_passes(now_us)

    def _further_passes(self, now_us: int) -> Iterator[tuple[int, Event]]:
        while self.again:
            self._count_wake_up()
            self.again = False
            yield now_us, _BOUNDARY

    def _count_wake_up(self) -> None:
        """A policy that asks for the timer again and again while nothing else happens is stopped."""
        self.idle_wake_ups += 1
        if self.idle_wake_ups > _IDLE_WAKE_UPS:
            raise Stuck(f"the policy asked {_IDLE_WAKE_UPS} times in a row to be woken, and nothing else happened")

    def joining(self) -> Iterable[Event]:
        """What is there from the beginning."""
        return [NodesJoined(self.workload.procs_total)]

    def carry_out(  # noqa: PLR0912 (every instruction of a simulation goes through it)
        self, instructions: list[Instruction], now_us: int
    ) -> list[Event]:
        """Start, resize and end jobs, have them go at the rates they are told, and note what else they are told."""
        launched: list[Event] = []
        for instruction in instructions:
            if type(instruction) is Start:  # isinstance takes three times as long to say no, and most are promises
                self.start(instruction, now_us)
                if not self.launch_delay_us:
                    launched.append(JobLaunched(instruction.job.id))
            elif type(instruction) is Tell:
                row = self.rows[instruction.job_id]
                if self.promised_us[row] < 0 and instruction.promised_us < FOREVER_US:  # only the first one counts
                    self.promised_us[row] = instruction.promised_us
            elif isinstance(instruction, SetTimer):
                self.timer_us = self._timer_us(instruction)
            elif isinstance(instruction, SetAside):
                self.aside.append(instruction)
            elif isinstance(instruction, RateChanged):
                if self.truth is None:
                    self.go_on(instruction.job_id, instruction.rate, now_us)
                else:
                    self.truth.predicted(instruction.job_id, instruction.rate, now_us)
            elif isinstance(instruction, Resize):
                self.again = True
                self.resize(instruction, now_us)
                launched.append(JobResized(instruction.job_id))
            elif isinstance(instruction, Answer):
                self._answered(instruction)
            elif isinstance(instruction, Kill):
                self.again = True
                self.end_entry[instruction.job_id] = -1
                self.ask_entry[instruction.job_id] = -1
                self._hold(instruction.job_id, NOTHING, instruction.reason, now_us)
                launched.append(JobEnded(instruction.job_id, JobState.CANCELLED))
        if self.truth is not None:
            self.truth.settle(now_us)
        return launched

    def _timer_us(self, timer: SetTimer) -> int:
        """When the timer is due: never where jobs that are set aside are tried in vain while nothing happens."""
        self.idle_tries = self.idle_tries + 1 if timer.reason.why is Why.TRY_AGAIN else 0
        return timer.at_us if self.idle_tries <= _IDLE_TRIES else FOREVER_US

    def start(self, start: Start, now_us: int) -> None:
        """A job is launched, and will end."""
        row = self.rows[start.job.id]
        self.reasons[start.reason.why] += 1
        up_us = now_us + self.launch_delay_us
        run_us = self.run_us[row]
        if start.limit_us is not None:
            limit_us = start.job.alone_us if start.job.work_us else start.limit_us  # not rounded up
            if run_us > limit_us:
                run_us = self.run_us[row] = limit_us
                self.timed_out[row] = True
        until_us = up_us + (run_us if type(run_us) is int else ceil(run_us))
        self.starts_us[row] = up_us
        if self.holdings is not None:
            self._hold(start.job.id, start.allocation, start.reason, up_us)
        self.ends_us[row] = until_us
        if self.launch_delay_us:
            self.enter(up_us, JobLaunched(start.job.id))
        self.enter(until_us, self.end_of(start.job.id))
        if start.job.id in self.end_entry:  # it has run before, and was queued again
            self.end_entry[start.job.id] = self.entries
            self.paced.pop(start.job.id, None)
        if start.job.shape is not None:
            for of_before in (self.asked, self.given, self.grown):
                of_before.pop(start.job.id, None)
            self._enter_ask(start.job.id)

    def resize(self, resize: Resize, now_us: int) -> None:
        """A job holds something else from now on; where its work is divided anew it does nothing for a while."""
        job_id = resize.job_id
        self._hold(job_id, resize.new, resize.reason, now_us)
        shaped = self.workload.shapes[self.rows[job_id]] if self.workload.shapes else None
        if self.resize_cost_us and moves_data(shaped.shape if shaped else None, resize.old, resize.new):
            work, _, rate_ppm = self._settled(job_id, now_us)
            self._go_on(job_id, work, now_us + self.resize_cost_us, rate_ppm)

    def go_on(self, job_id: int, rate_ppm: Rate, now_us: int) -> None:
        """A job goes at another rate from now on, and ends at another time than was entered."""
        work, since_us, _ = self._settled(job_id, now_us)
        self._go_on(job_id, work, since_us, rate_ppm)

    def _settled(self, job_id: int, now_us: int) -> tuple[Rate, int, Rate]:
        """The work that a job has left, from when on it does any of it, and at which rate."""
        row = self.rows[job_id]
        alone = self.run_us[row] * ALONE_PPM, self.starts_us[row], ALONE_PPM
        work, as_of_us, rate_ppm = self.paced.get(job_id) or alone
        since_us = max(now_us, as_of_us)  # not before it is up
        return max(0, work - (since_us - as_of_us) * rate_ppm), since_us, rate_ppm

    def _go_on(self, job_id: int, work: Rate, since_us: int, rate_ppm: Rate) -> None:
        self.paced[job_id] = work, since_us, rate_ppm
        until_us = end_us(since_us, work, rate_ppm)
        self.ends_us[self.rows[job_id]] = until_us
        self.enter(until_us, self.end_of(job_id))
        self.end_entry[job_id] = self.entries
        if job_id in self.ask_entry:
            self._enter_ask(job_id)

    def _answered(self, answer: Answer) -> None:
        """An evolving job knows what it was given of what it asked for; what it waits for it still asks for."""
        if not answer.waits:
            self.grown[answer.job_id] = self.given[answer.job_id] = self.given[answer.job_id] + answer.given
            self._enter_ask(answer.job_id)
        else:
            self.given[answer.job_id] += answer.given

    def _next_ask(self, job_id: int, asks: Sequence[Ask], ask_fewer: int) -> Ask | None:
        """An evolving job's next request: it gives back no more than its shape lets it ask for.

        What it asked for before may have been refused. A request that is nothing then is passed over. None: there is no
        further one.
        """
        for at in range(self.asked.get(job_id, 0), len(asks)):
            part, procs = asks[at]
            if procs < 0:
                procs = min(0, max(procs, -ask_fewer - self.grown[job_id]))
            if procs:
                self.asked[job_id] = at
                return Ask(part, procs)
        return None

    def _enter_ask(self, job_id: int) -> None:
        """Enter when an evolving job makes its next request, if its rate stays and it does not end before."""
        row = self.rows[job_id]
        shaped = self.workload.shapes[row] if self.workload.shapes else None
        if shaped is None or not shaped.asks:
            return
        self.ask_entry[job_id] = -1
        if (request := self._next_ask(job_id, shaped.asks, shaped.shape.ask_fewer)) is None:
            return
        part, procs = request
        all_us = Fraction(shaped.work_us, shaped.shape.speed(int(self.workload.procs[row])))
        work, since_us, rate_ppm = self._settled(job_id, 0)
        before = work - (self.run_us[row] - all_us * part) * ALONE_PPM  # of its own work, not of what its limit leaves
        at_us = end_us(since_us, before if before > 0 else 0, rate_ppm)
        if at_us < end_us(since_us, work, rate_ppm):
            self.enter(at_us, ResizeAsked(job_id, procs))
            self.ask_entry[job_id] = self.entries

    def _hold(self, job_id: int, allocation: Allocation, reason: Reason, at_us: int) -> None:
        if self.holdings is not None:
            row, why = self.rows[job_id], reason.why.name.lower()
            self.holdings.append(Holding(row, at_us, allocation.processes, allocation.procs, why))

    def _pass_over(self) -> None:
        """Take ends off the agenda that are not their jobs' any more, or never come."""
        agenda = self.agenda
        while agenda and isinstance(event := agenda[0][2], JobEnded | JobProgress | ResizeAsked):
            at_us, entry, _ = agenda[0]
            entered = self.end_entry
            if not isinstance(event, JobEnded):
                entered = self.progress_entry if isinstance(event, JobProgress) else self.ask_entry
            if entered.get(event.job_id, entry) == entry and at_us < FOREVER_US:
                return
            heappop(agenda)

    def enter(self, at_us: int, event: Event) -> None:
        """It will happen then."""
        self.entries += 1
        heappush(self.agenda, (at_us, self.entries, event))

    def end_of(self, job_id: int) -> JobEnded:
        """How a job ends by itself, or at its limit."""
        return JobEnded(job_id, TIMED_OUT if self.timed_out[self.rows[job_id]] else COMPLETED)


class Submissions:
    """The workload's jobs, made as their time comes: a million of them are never in memory at once."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.done = 0
        self._jobs = self._made()
        self._next = next(self._jobs, None)
        self.next_us = FOREVER_US if self._next is None else self._next.submit_us

    def take(self) -> Job:
        """The next job."""
        job = self._next
        assert job is not None
        self.done += 1
        self._next = following = next(self._jobs, None)
        self.next_us = FOREVER_US if following is None else following.submit_us
        return job

    def _made(self) -> Iterator[Job]:
        load, ids = self.workload, self.workload.identities()
        for first in range(0, len(load), _CHUNK):
            part = slice(first, first + _CHUNK)
            columns = ids[part], load.procs[part], load.estimate_us[part], load.submit_us[part], load.user[part]
            jobs = starmap(Job, zip(*(column.tolist() for column in columns), strict=True))
            plain = load.tasks is None and not load.shapes and not (load.divided or load.crossing_ppm)
            if plain and load.preceding is None:
                yield from jobs
                continue
            for row, each in enumerate(jobs, first):
                job = each if load.tasks is None else _with_tasks(each, load.tasks, row)
                if load.preceding is not None and load.think_us is not None and (at := load.preceding[row]) >= 0:
                    job = structs.replace(job, after=After(int(ids[at]), int(load.think_us[row])))
                shaped = load.shapes[row] if load.shapes else None
                if load.divided and (components := load.divided[row]) is not None:
                    job = structs.replace(job, shape=components)
                if load.crossing_ppm and (crossing_ppm := load.crossing_ppm[row]) is not None:
                    job = structs.replace(job, crossing_ppm=crossing_ppm)
                yield job if shaped is None else _with_shape(job, shaped)


def _with_shape(job: Job, shaped: Shaped) -> Job:
    return structs.replace(
        job, shape=shaped.shape, work_us=shaped.estimate_work_us, long=shaped.long, foldable=shaped.foldable
    )


def _with_tasks(job: Job, tasks: Tasks, row: int) -> Job:
    memory_bytes, cpu_permille = int(tasks.memory_bytes[row]), int(tasks.cpu_permille[row])
    return structs.replace(job, memory_bytes=memory_bytes, kind=tasks.kind[row], cpu_permille=cpu_permille)
