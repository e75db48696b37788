"""Rules that are asked: each job passes them one after the other, before it is queued.

A job comes to the first rule when it is submitted, released or queued again, in the pass that would have shown it to
the policy. A rule that lets it wait says when to ask again; nothing is asked in between, so a job that waits costs
passes nothing. A job that has waited for a rule has its place in the queue by the time at which it has passed the last
one. What was decided is recorded with the pass: a replay asks no rule.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec
from msgspec.structs import replace

from cosched.model.job import Job
from cosched.model.time import US_PER_S
from space_scheduler.eligibility.rule import Ended, Moment, Rule, Wait
from space_scheduler.reasons import Reason, Why

#: A rule that raises, or says neither when nor after which ends to ask again, is asked so much later; one that names a
#: time that has passed, so much.
_LATER_US: Final = 60 * US_PER_S
_SOONEST_US: Final = 1 * US_PER_S


class Gate(msgspec.Struct, frozen=True, gc=False):
    """A job waits by this rule, by its name."""

    rule: str
    wait: Wait


class Gates:
    """The jobs that wait by a rule that is asked: ``waits``, by number.

    ``rules`` are asked in their order (None: no rule is asked, and those that wait do so). ``ended`` are the jobs that
    have ended since the last pass, noted where rules may ask for them.
    """

    __slots__ = ("_awaited", "_due", "_orphans", "active", "ended", "rules", "waits")

    def __init__(self, rules: Sequence[Rule] | None = None) -> None:
        self.rules = rules
        self.waits: dict[int, Gate] = {}
        self.ended: dict[int, Ended] = {}
        self._awaited: dict[int, set[int]] = {}  # which jobs wait for the end of a job
        self._due: list[tuple[int, int]] = []  # (until_us, job): a heap; entries may be stale
        self._orphans: set[int] = set()  # jobs that wait by a rule that is not there any more
        self.active = bool(rules)

    def restore(self, waits: Mapping[int, Gate], ended: Mapping[int, Ended]) -> None:
        """As saved."""
        self.ended = dict(ended)
        names = None if self.rules is None else {rule.name for rule in self.rules}
        for job_id, gate in waits.items():
            self.put(job_id, gate)
            if names is not None and gate.rule not in names:
                self._orphans.add(job_id)
        self.active = self.active or bool(self._orphans)

    def reason(self, job_id: int) -> Reason | None:
        """Why such a rule keeps the job back; None: none does."""
        gate = self.waits.get(job_id)
        return None if gate is None else gate.wait.reason

    def put(self, job_id: int, gate: Gate) -> None:
        """A job waits by this rule from now on, or for something else."""
        self.drop(job_id)
        self.waits[job_id] = gate
        for other in gate.wait.ends:
            self._awaited.setdefault(other, set()).add(job_id)
        if gate.wait.until_us is not None:
            heappush(self._due, (gate.wait.until_us, job_id))

    def drop(self, job_id: int) -> None:
        """A job has passed all rules, or is gone."""
        gate = self.waits.pop(job_id, None)
        if gate is None:
            return
        self._orphans.discard(job_id)
        for other in gate.wait.ends:
            if found := self._awaited.get(other):
                found.discard(job_id)
                if not found:
                    del self._awaited[other]
        if len(self._due) > 2 * len(self.waits) + 64:
            self._due = [each for each in self._due if self._is_due(*each)]
            heapify(self._due)

    def asked(self, now_us: int) -> set[int]:
        """The waiting jobs whose rule is to be asked now."""
        found = {job_id for other in self.ended for job_id in self._awaited.get(other, ())} | self._orphans
        while self._due and self._due[0][0] <= now_us:
            until_us, job_id = heappop(self._due)
            if self._is_due(until_us, job_id):
                found.add(job_id)
        return found

    def next_us(self) -> int | None:
        """When a rule is to be asked again, if nothing happens until then."""
        while self._due and not self._is_due(*self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def _is_due(self, until_us: int, job_id: int) -> bool:
        gate = self.waits.get(job_id)
        return gate is not None and gate.wait.until_us == until_us

    def judge(self, job: Job, moment: Moment) -> Gate | None:
        """By which rule a job waits now; None: it has passed the last one."""
        before = self.waits.get(job.id)
        rules = [*(self.rules or ())]
        names = [rule.name for rule in rules]
        at = names.index(before.rule) if before is not None and before.rule in names else None
        for rule in rules[at:]:
            known = before.wait if before is not None and rule.name == before.rule else None
            if (wait := _asked(rule, job, moment._replace(before=known))) is not None:
                return Gate(rule.name, wait)
        return None


def _asked(rule: Rule, job: Job, moment: Moment) -> Wait | None:
    """What a rule says; one that raises, or answers otherwise, lets the job wait, and is asked again a minute later."""
    try:
        wait = rule.wait(job, moment)
        if wait is None:
            return None
        msgspec.json.encode(wait)
        live = tuple(other for other in wait.ends if moment.state_of(other) is not None)
        until_us = wait.until_us
    except Exception as error:  # a rule may raise anything
        problem = f"{type(error).__name__}: {error}"
        return Wait(Reason(Why.RULE_FAILED), moment.now_us + _LATER_US, words=f"rule {rule.name}: {problem}")
    if until_us is not None and until_us <= moment.now_us:
        until_us = moment.now_us + _SOONEST_US
    if until_us is None and not live:
        until_us = moment.now_us + _LATER_US
    return replace(wait, ends=live, until_us=until_us)
