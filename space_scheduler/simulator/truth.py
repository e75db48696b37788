"""A world whose core has to learn what programs do: jobs go by what is true of them; the core is told what it is live.

The core predicts with what it knows of a job: the kind and the use of CPUs that the last job of its program was seen to
have, or nothing. How fast jobs really go follows here from the same function of rates with the true values. As agents
do, this world says how far a job is where the core's prediction is off by much, and what a program was seen to do.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import structs

from cosched.model.allocation import Allocation
from cosched.model.components import Between
from cosched.model.job import Job
from cosched.model.time import US_PER_S
from cosched.workload.rules import Workload
from space_scheduler.machine.events import Event, JobEnded, JobProgress, OwnerCame, OwnerLeft, ProgramMeasured
from space_scheduler.progress import ALONE_PPM, NodeCpu, Occupancy, Rate, Sharing
from space_scheduler.simulator.world import Run, Submissions

#: The core is told where its prediction is off by more than this part of the estimate, and by more than so much of it
#: as the job does in this time: as in the live service (``service.launch.work_done``).
TOLD_PART: Final = 100
TOLD_US: Final = 10 * US_PER_S


class Course:
    """How one job goes: work done at a time and the rate since, as it is and as the core predicts."""

    def __init__(self, job: Job, now_us: int) -> None:
        self.job = job
        self.done: Rate = 0
        self.rate: Rate = ALONE_PPM
        self.predicted: Rate = 0
        self.predicted_rate: Rate = ALONE_PPM
        self.as_of_us = now_us

    def settle(self, now_us: int) -> None:
        """Count both until now."""
        passed_us = max(0, now_us - self.as_of_us)
        self.done += passed_us * self.rate
        self.predicted += passed_us * self.predicted_rate
        self.as_of_us = max(self.as_of_us, now_us)

    def off_after_us(self) -> int | None:
        """In how long the prediction will be off by so much that it is worth telling; None: never."""
        worth: int = max(self.job.estimate_us * ALONE_PPM // TOLD_PART, int(TOLD_US * self.predicted_rate))
        drift = self.rate - self.predicted_rate
        off = self.done - self.predicted
        if not -worth <= off <= worth:
            return 0
        if not drift:
            return None
        return int((worth - off) // drift if drift > 0 else (worth + off) // -drift) + 1


class Untold(Submissions):
    """The workload's jobs without what tasks need of CPUs. ``true_jobs``: what is true of those that wait."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.true_jobs: dict[int, Job] = {}

    def take(self) -> Job:
        """The next job; its program is its user's of the log's executable."""
        programs = self.workload.tasks.program if self.workload.tasks is not None else ()
        number = programs[self.done] if programs else -1
        job = super().take()
        program = f"{job.user}:{number}" if number >= 0 else ""
        self.true_jobs[job.id] = job = structs.replace(job, program=program)
        return structs.replace(job, kind="", cpu_permille=1000)


class LearningRun:
    """The truth of a run on named nodes (a :class:`~space_scheduler.simulator.world.Truth`)."""

    def __init__(
        self,
        run: Run,
        sharing: Sharing,
        node_cpus: Callable[[], Mapping[str, NodeCpu]],
        between: Between | None = None,
    ) -> None:
        """``node_cpus``: the nodes as rates depend on them, by the core's own account of owners and memory.

        ``between``: what communication really costs jobs on several clusters.
        """
        self._run = run
        self._submissions = run.submissions = Untold(run.workload)
        self._occupancy = Occupancy(sharing, between=between)
        self._node_cpus = node_cpus
        self._courses: dict[int, Course] = {}
        self._touched: set[str] = set()

    def start(self, job_id: int, allocation: Allocation, up_us: int) -> None:
        """A job is launched."""
        job = self._submissions.true_jobs.pop(job_id)
        self._courses[job.id] = Course(job, up_us)
        if self._occupancy.between is not None or job.crossing_ppm is not None:
            self._occupancy.nodes = dict(self._node_cpus())
        self._occupancy.enter(job, allocation)
        self._touched.update(share.node for share in allocation.nodes)

    def predicted(self, job_id: int, rate_ppm: Rate, now_us: int) -> None:
        """By the core a job goes at this rate from now on."""
        course = self._courses[job_id]
        course.settle(now_us)
        course.predicted_rate = rate_ppm
        self._tell_when_off(course)

    def settle(self, now_us: int) -> None:
        """Have jobs go at the rates that follow from who is where."""
        if not self._touched:
            return
        self._occupancy.nodes = dict(self._node_cpus())
        rates = self._occupancy.rates_ppm(self._touched)
        self._touched.clear()
        for job_id, rate_ppm in rates.items():
            course = self._courses[job_id]
            if course.rate != rate_ppm:
                course.settle(now_us)
                course.rate = rate_ppm
                self._run.go_on(job_id, rate_ppm, now_us)
                self._tell_when_off(course)

    def follow(self, event: Event, now_us: int) -> Iterator[tuple[int, Event]]:
        """A job that ends was measured, and others go on without it; owners come and go; a prediction is set right."""
        if isinstance(event, JobEnded):
            if (course := self._courses.pop(event.job_id, None)) is None:
                return
            self._touched.update(self._occupancy.jobs[event.job_id].tasks)
            self._occupancy.leave(event.job_id)
            job = course.job
            if job.kind:
                yield now_us, ProgramMeasured(job.program, job.kind, job.cpu_permille)
        elif isinstance(event, OwnerCame | OwnerLeft):
            self._touched.add(event.name)
        elif isinstance(event, JobProgress):
            course = self._courses[event.job_id]
            course.settle(now_us)
            course.predicted = course.done
            self._tell_when_off(course)
        self.settle(now_us)

    def _tell_when_off(self, course: Course) -> None:
        """Enter when the core is to be told of a job's progress, if its rates stay; what was entered counts no more."""
        run, job = self._run, course.job
        run.progress_entry[job.id] = -1
        after_us = course.off_after_us()
        if after_us is None:
            return
        at_us = course.as_of_us + after_us
        done_us = int((course.done + after_us * course.rate) // ALONE_PPM)
        if done_us < job.estimate_us:
            run.enter(at_us, JobProgress(job.id, done_us))
            run.progress_entry[job.id] = run.entries
