"""The queue and its scans against a sorted list."""

from collections.abc import Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cosched.model.job import Job
from space_scheduler.policy import queue as queues
from space_scheduler.policy.order import ORDERS, Order, fcfs, ljf, sjf
from space_scheduler.policy.queue import Entry, JobQueue

shapes = st.tuples(st.integers(1, 4), st.integers(1, 3))


class QueueBesideAList(RuleBasedStateMachine):
    """Jobs come, go from anywhere, and come back to their old places."""

    order: Order

    def __init__(self) -> None:
        super().__init__()
        self.queue = JobQueue(self.order)
        self.inside: list[tuple[Job, int]] = []
        self.outside: list[tuple[Job, int]] = []
        self.submitted = 0
        self.lines: list[tuple[Sequence[Entry], list[Job]]] = []

    @rule(shape=shapes)
    def submit(self, shape: tuple[int, int]) -> None:
        job = Job(self.submitted, *shape, submit_us=0)
        self.queue.add(job, self.submitted)
        self.inside.append((job, self.submitted))
        self.submitted += 1

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def take_any(self, data: st.DataObject) -> None:
        entry = self.inside.pop(data.draw(st.integers(0, len(self.inside) - 1)))
        self.queue.remove(entry[0])
        self.outside.append(entry)

    @precondition(lambda self: self.inside)
    @rule()
    def take_the_head(self) -> None:
        entry = self.sorted()[0]
        self.inside.remove(entry)
        self.queue.remove(entry[0])

    @precondition(lambda self: self.outside)
    @rule(data=st.data())
    def bring_back(self, data: st.DataObject) -> None:
        job, rank = self.outside.pop(data.draw(st.integers(0, len(self.outside) - 1)))
        self.queue.add(job, rank)
        self.inside.append((job, rank))

    @rule()
    def keep_the_line(self) -> None:
        self.lines.append((self.queue.line(), [job for job, _ in self.sorted()]))

    @invariant()
    def lines_stay_as_they_were(self) -> None:
        for line, jobs in self.lines:
            assert [job for _, job in line] == jobs
            assert [job for _, job in line[:2]] == jobs[:2]
            assert len(line) == len(jobs)

    def sorted(self) -> list[tuple[Job, int]]:
        return sorted(self.inside, key=lambda entry: self.order(*entry))

    @invariant()
    def the_queue_is_the_sorted_list(self) -> None:
        jobs = [job for job, _ in self.sorted()]
        assert list(self.queue) == jobs
        assert len(self.queue) == len(jobs)
        assert self.queue.head() == (jobs[0] if jobs else None)
        assert all(self.queue.job(job.id) == job for job in jobs)
        assert all(self.queue.key(job.id) == self.order(job, rank) for job, rank in self.inside)
        assert not any(job.id in self.queue for job, _ in self.outside)
        if jobs:
            assert self.queue.narrowest() == min(job.procs for job in jobs)

    @rule(free_procs=st.integers(0, 5))
    def scan_in_order(self, free_procs: int) -> None:
        assert scanned(self.queue, free_procs) == [job for job, _ in self.sorted() if job.procs <= free_procs]

    @rule(free_procs=st.integers(0, 5))
    def scan_shortest_first(self, free_procs: int) -> None:
        shortest = sorted(self.inside, key=lambda entry: (entry[0].estimate_us, entry[1]))
        expected = [job for job, _ in shortest if job.procs <= free_procs]
        assert scanned(self.queue, free_procs, shortest_first=True) == expected

    @rule(free_procs=st.integers(1, 5), dropped=shapes)
    def scan_and_drop_a_shape(self, free_procs: int, dropped: tuple[int, int]) -> None:
        scan = self.queue.scan(free_procs)
        seen = []
        while (job := scan.peek()) is not None:
            if (job.procs, job.estimate_us) == dropped:
                scan.drop()
            else:
                seen.append(job)
                scan.advance()
        expected = [job for job, _ in self.sorted() if job.procs <= free_procs]
        assert seen == [job for job in expected if (job.procs, job.estimate_us) != dropped]

    @rule(
        free_procs=st.integers(1, 5),
        longest_us=st.lists(st.integers(0, 3), min_size=5, max_size=5),
        by=st.sampled_from([{}, {"shortest_first": True}, {"widest_first": True}]),
        long=st.booleans(),
    )
    def scan_within_estimates(self, free_procs: int, longest_us: list[int], by: dict[str, bool], long: bool) -> None:
        """By shapes and by lines of jobs, with limits that fall once on the way."""
        expected = [
            job for job in scanned(self.queue, free_procs, **by) if job.estimate_us <= longest_us[job.procs - 1]
        ]
        with patch.object(queues, "_LONG", 0 if long else 1 << 30):
            scan = self.queue.scan(free_procs, longest_us=lambda procs: longest_us[procs - 1], **by)
            found = []
            while (job := scan.peek()) is not None:
                if job.estimate_us > longest_us[job.procs - 1]:
                    scan.drop()
                    continue
                found.append(job)
                if len(found) == 2:
                    longest_us[:] = [1] * 5
                scan.advance()
        assert found == expected[:2] + [job for job in expected[2:] if job.estimate_us <= 1]


def scanned(queue: JobQueue, free_procs: int, **how: Any) -> list[Job]:
    scan = queue.scan(free_procs, **how)
    jobs = []
    while (job := scan.peek()) is not None:
        jobs.append(job)
        scan.advance()
    return jobs


class FcfsQueue(QueueBesideAList):
    order = staticmethod(fcfs)


class SjfQueue(QueueBesideAList):
    order = staticmethod(sjf)


class LjfQueue(QueueBesideAList):
    order = staticmethod(ljf)


TestFcfsQueue, TestSjfQueue, TestLjfQueue = FcfsQueue.TestCase, SjfQueue.TestCase, LjfQueue.TestCase
for _case in (TestFcfsQueue, TestSjfQueue, TestLjfQueue):
    _case.settings = settings(max_examples=max(30, settings().max_examples * 3 // 10))


@pytest.mark.parametrize("name", ORDERS)
@given(jobs=st.lists(shapes, min_size=2, max_size=20))
def test_jobs_of_one_shape_keep_their_order_of_arrival(name: str, jobs: list[tuple[int, int]]) -> None:
    """What the scan by shapes relies on."""
    keys = [(shape, ORDERS[name](Job(rank, *shape, submit_us=0), rank)) for rank, shape in enumerate(jobs)]
    for shape in set(jobs):
        same = [key for other, key in keys if other == shape]
        assert same == sorted(set(same))


def test_a_long_queue_eaten_from_the_front_forgets_what_is_gone() -> None:
    queue = JobQueue()
    jobs = [Job(i, 1, 1, 0) for i in range(3_000)]
    for rank, job in enumerate(jobs):
        queue.add(job, rank)
    for gone, job in enumerate(jobs, start=1):
        assert queue.head() == job
        queue.remove(job)
        assert len(queue) == len(jobs) - gone
    assert list(queue) == []
    assert len(queue._sorted) < 1_100


def test_line_finds_adds_and_removes_as_a_sorted_list_of_several_blocks() -> None:
    chance = Random(5)
    line, ranks = queues.Line(), list(range(1_000))
    chance.shuffle(ranks)
    jobs = {(rank,): Job(rank, 1, chance.randint(1, 400), 0) for rank in ranks}
    for rank, job in jobs.items():
        line.add(rank, job)
    for gone in [(rank,) for rank in ranks]:
        most_us, after = chance.randint(0, 400), (chance.randint(-1, 1_000),)
        expected = min(
            (rank for rank, job in jobs.items() if rank > after and job.estimate_us <= most_us), default=None
        )
        assert line.next(most_us, after) == (expected and (expected, jobs[expected]))
        line.remove(gone)
        del jobs[gone]
    assert line.next(400) is None
