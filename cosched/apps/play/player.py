"""The play itself: jobs are submitted at their times, watched until all have ended, and found again by their names.

One thread. What a service does not answer is asked again, for a while; the time of the schedule goes on meanwhile, and
what is submitted late says by how much. A submission whose answer never came is looked for by its name before it is
made again. A play that goes on takes the schedule's time from where it stopped, so that jobs keep their distances.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from cosched.apps.lab.interrupt import deferred
from cosched.apps.play.play_log import Ended, Held, PlayLog, Refused, Stopped, Submitted, job_name, number_in
from cosched.apps.play.submissions import PlannedJob
from cosched.client.client import Client, NotNow
from cosched.errors import BadInput, Failed, NoAnswer
from cosched.model.job import TERMINAL
from cosched.model.time import US_PER_S
from cosched.wire.api import JobDoc

_POLL_S: Final = 0.5
_SHORTEST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
#: How long cancelled jobs are waited for, at their end.
_ENDING_S: Final = 60.0
#: An API's list never has more.
_ALL: Final = 1_000_000
_ENDED: Final = frozenset(state.value for state in TERMINAL)
Say = Callable[[str], None]


class Player:
    """Plays a plan to its end, or as far as it gets; what has come of it is in its log."""

    def __init__(
        self,
        client: Client,
        plan: Sequence[PlannedJob],
        log: PlayLog,
        tag: str,
        *,
        say: Say,
        patience_s: float,
        progress: Callable[[int], None] = lambda done: None,
    ) -> None:
        self._client = client
        self._plan = plan
        self._log = log
        self._tag = tag
        self._say = say
        self._patience_s = patience_s
        self._progress = progress
        self._due_s = {each.number: each.at_us / US_PER_S for each in plan}
        self._zero_s = time.monotonic() - log.at_s
        self._away_since_s: float | None = None
        self._pause_s = _SHORTEST_PAUSE_S
        self._unsure = log.begun is not None and len(log.parts) > 1

    @property
    def now_s(self) -> float:
        """The time of the schedule, in seconds since its first job."""
        return time.monotonic() - self._zero_s

    def alive(self) -> dict[int, int]:
        """The jobs that the service has taken and that have not ended as far as is known: number -> number there."""
        return {n: each.job_id for n, each in self._log.submitted.items() if n not in self._log.ended}

    def play(self) -> None:
        """Submit what is not submitted yet and watch all to their ends.

        Raises :class:`NoAnswer` (or :class:`NotNow`) when the service stays away for longer than patience has it.
        """
        with self._told():
            if self._unsure:
                self._patiently(self._find)
            poll_s = 0.0
            for job in self._plan:
                if job.number in self._log.submitted or job.number in self._log.refused:
                    continue
                while (left_s := self._due_s[job.number] - self.now_s) > 0:
                    if time.monotonic() >= poll_s:
                        self._patiently(self._watch)
                        poll_s = time.monotonic() + _POLL_S
                    time.sleep(max(0.0, min(left_s, poll_s - time.monotonic())))
                self._patiently(lambda job=job: self._submit(job))  # type: ignore[misc]
            while self.alive():
                self._patiently(self._watch)
                time.sleep(_POLL_S)

    def cancel(self) -> None:
        """Cancel the jobs of this play, these alone, and wait a little until they have ended.

        Raises :class:`NoAnswer` where the service does not answer.
        """
        self._client.close()  # it may have been interrupted between a question and its answer
        self._find()
        for job_id in self.alive().values():
            try:
                self._client.cancel(job_id)
            except NoAnswer:
                raise
            except (BadInput, Failed):
                continue  # it has ended by itself
        end_s = time.monotonic() + _ENDING_S
        while self.alive() and time.monotonic() < end_s:
            self._watch()
            time.sleep(_SHORTEST_PAUSE_S)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever ends it, the log says at which time of the schedule."""
        why = "interrupted"
        try:
            yield
            why = "done"
        except Failed as error:
            why = str(error)
            raise
        finally:
            self._log.keep(Stopped(self.now_s, why))

    def _patiently(self, ask: Callable[[], None]) -> None:
        """Ask until there is an answer. Raises what it gets when patience is at its end."""
        while True:
            try:
                ask()
            except (NoAnswer, NotNow) as error:
                self._wait(error)
                continue
            if self._away_since_s is not None:
                self._say(f"it answers again, after {time.monotonic() - self._away_since_s:.1f} s")
            self._away_since_s, self._pause_s = None, _SHORTEST_PAUSE_S
            return

    def _wait(self, error: Failed) -> None:
        now_s = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now_s
            self._say(f"{error}; asking again for {self._patience_s:.0f} s")
        if now_s - self._away_since_s > self._patience_s:
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(_LONGEST_PAUSE_S, 1.5 * self._pause_s)

    def _submit(self, job: PlannedJob) -> None:
        if self._unsure:
            self._find()
            if job.number in self._log.submitted:
                return
        at_s = self.now_s
        late_s = at_s - self._due_s[job.number]
        named = msgspec.structs.replace(job.submission, name=job_name(job.program, self._tag, job.number))
        away: Failed | None = None
        with deferred():  # whoever interrupts it now would not know whether the job is there
            try:
                taken = self._client.submit(named)
            except BadInput as error:
                self._log.keep(Refused(job.number, len(self._log.parts), at_s, late_s, str(error)))
                self._say(f"job {job.number} is refused: {error}")
            except (NoAnswer, NotNow) as error:  # raised below: here, it would be told instead of an interrupt
                away = error
            else:
                self._log.keep(Submitted(job.number, taken.job_id, len(self._log.parts), at_s, late_s, taken.user))
        if away is not None:
            self._unsure = isinstance(away, NoAnswer)
            raise away
        self._progress(len(self._log.submitted) + len(self._log.refused))

    def _find(self) -> None:
        """Look for jobs of this play in the service of which the log does not know."""
        user = next((each.user for each in self._log.submitted.values()), None)
        for job in (*self._client.jobs(user), *self._client.history(user, _ALL)):
            number = number_in(job.name, self._tag)
            if number is None or number in self._log.submitted or number not in self._due_s:
                continue
            part = self._log.part_at(job.submit_time)
            at_s = self._log.parts[part - 1].time_s(job.submit_time)
            self._log.keep(Submitted(number, job.job_id, part, at_s, at_s - self._due_s[number], job.user, found=True))
            self._say(f"job {number} is job {job.job_id} of the service already")
        self._unsure = False

    def _watch(self) -> None:
        """See what the jobs hold, and which have ended."""
        expected = self.alive()
        if not expected:
            return
        user = next(iter(self._log.submitted.values())).user
        there = {job.job_id: job for job in self._client.jobs(user)}
        for number, job_id in expected.items():
            job = there.get(job_id)
            if job is None or job.state in _ENDED:
                self._end(number, job_id)
            else:
                self._hold(number, job)

    def _end(self, number: int, job_id: int) -> None:
        try:
            job = self._client.job(job_id)
        except BadInput as error:
            self._say(f"job {job_id} of the service, {number} of the log: {error}")
            self._log.keep(Ended(number, None))
            return
        if job.state not in _ENDED:
            return
        self._hold(number, job)
        self._log.keep(Ended(number, job))

    def _hold(self, number: int, job: JobDoc) -> None:
        """Write down what a job holds, where that is news; of one that waits again, nothing."""
        before = self._log.held.get(number)
        if not job.nodes and before is None:
            return
        nodes = {share.name: share.tasks for share in job.nodes}
        cpus = sum(share.tasks if share.cpus < 0 else share.cpus for share in job.nodes)
        now = Held(number, time.time(), sum(nodes.values()), cpus, nodes)
        if before is None or msgspec.structs.replace(before[-1], wall_s=now.wall_s) != now:
            self._log.keep(now)
