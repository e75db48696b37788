"""The three futures answer alike where they should: a shadow time as a profile, named nodes as counted processors."""

from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.checks import Broken, hold
from kit.drive import policy_named
from kit.script import live

from cosched.model.coscheduling import Mode
from cosched.model.job import Job
from cosched.model.node import Node
from cosched.model.time import FOREVER_US
from space_scheduler.feasibility import Room
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.node_profile import NodeProfile
from space_scheduler.policy.future import CountedFuture, Future, NamedFuture, SharedFuture, counted, keeping
from space_scheduler.policy.interface import Changes, Snapshot
from space_scheduler.policy.place import place_of
from space_scheduler.policy.queue import JobQueue
from space_scheduler.policy.room import room_of
from space_scheduler.progress import Sharing
from space_scheduler.reasons import Reason, Why

FITS = Reason(Why.FITS)
seeds = st.integers(0, 1 << 32)


def a_snapshot(chance: Random) -> Snapshot:
    """Counted processors, some of them busy."""
    procs, busy = chance.randint(2, 8), 0
    ends = []
    for job_id in range(chance.randint(0, 5)):
        width = chance.randint(1, 3)
        if busy + width <= procs:
            busy += width
            ends.append((100 + chance.randint(1, 9), 1000 + job_id, width))
    return Snapshot(100, procs, procs - busy, JobQueue(), sorted(ends), Changes(due=True))


def a_job(chance: Random, number: int) -> Job:
    return Job(number, chance.randint(1, 8), chance.randint(1, 12), 0)


def asked(future: Future, chance: Random) -> list[object]:
    """A head that waits has a reservation; of the others each starts that may."""
    found: list[object] = []
    head = a_job(chance, 0)
    start_us = future.earliest(head)
    found.append(start_us)
    if start_us == future.now_us:
        future.start(head, FITS)
    else:
        future.reserve(head, start_us)
    for number in range(1, 8):
        job = a_job(chance, number)
        starts = future.now(job)
        if isinstance(future, CountedFuture):
            hold((job.estimate_us <= future.longest_us(job.procs)) == starts, f"{job} starts: {starts}")
        found.append((starts, future.free_procs, future.obstacle(job)))
        if starts:
            future.start(job, FITS)
    return found


def one_reservation_is_as_in_a_profile(seed: int) -> None:
    chance = Random(seed)
    snapshot = a_snapshot(chance)
    state = chance.getstate()
    short = asked(CountedFuture(snapshot), chance)
    chance.setstate(state)
    hold(asked(keeping(snapshot, ()), chance) == short, f"seed {seed}: {short}")


@given(seed=seeds)
def test_a_shadow_time_and_extra_processors_answer_as_the_profile(seed: int) -> None:
    one_reservation_is_as_in_a_profile(seed)


def test_the_comparison_catches_a_processor_too_many() -> None:
    honest = counted.shadow_of

    def one_more(*arguments: object) -> tuple[int, int]:
        shadow_us, extra_procs = honest(*arguments)  # type: ignore[arg-type]
        return shadow_us, extra_procs + (shadow_us != FOREVER_US)

    def all_of_them() -> None:
        for seed in range(500):
            one_reservation_is_as_in_a_profile(seed)

    with patch.object(counted, "shadow_of", one_more), pytest.raises(Broken):
        all_of_them()


@given(seed=seeds)
def test_a_node_that_nobody_shares_answers_as_counted_processors(seed: int) -> None:
    """One node of as many CPUs: by name, and where rates are kept, which are then those of jobs alone."""
    chance = Random(seed)
    procs = chance.randint(2, 8)
    shared = SchedulerState(policy_named("3dbf-light"), MachineRules(sharing=Sharing(Mode.NONE)))
    shared.handle(ev.NodeJoined(Node("n0", procs, 1 << 30, procs)), 100)
    for number in range(4):
        job = Job(1000 + number, chance.randint(1, procs), chance.randint(1, 9), 100)
        shared.handle(ev.JobSubmitted(job), 100)
    for told in shared.handle(ev.Boundary(), 100):
        if isinstance(told, Start):
            shared.handle(ev.JobLaunched(told.job.id), 100)
    snapshot = shared.view(Changes(due=True))
    assert snapshot.nodes is not None
    state = chance.getstate()
    expected = asked(CountedFuture(replace(snapshot, nodes=None)), chance)
    for future in (NamedFuture(snapshot), SharedFuture(snapshot)):
        chance.setstate(state)
        assert asked(future, chance) == expected, type(future).__name__


@pytest.mark.parametrize("kind", ["counted", "named"])
@given(seed=seeds)
def test_a_start_without_a_question_has_a_place_of_its_own_or_is_refused(kind: str, seed: int) -> None:
    """The door for a user's policy: ``obstacle`` and ``start``, without ``now``."""
    for state, (_, event), _ in live(policy_named("easy"), seed, 30, named=kind == "named"):
        if not isinstance(event, ev.Boundary):
            continue
        snapshot = state.view(Changes(due=True))
        room = room_of(snapshot)
        for job in snapshot.queue:
            if room.obstacle(job) is None:
                start = room.start(job, FITS)
                assert (start.allocation is None) == (kind == "counted")
            elif kind == "named":
                with pytest.raises(ValueError, match=f"job {job.id} has no place"):
                    room.start(job, FITS)
        assert room.free_procs >= min(0, snapshot.free_procs)  # drained processors can still be held


# --- who is on a node when --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["normal", "normal(overcommit=1)", "uniform-light", "uniform-hard"])
@settings(max_examples=max(40, settings().max_examples * 2 // 5))
@given(seed=seeds)
def test_a_place_is_chosen_beside_those_who_will_be_there(place: str, seed: int) -> None:
    """Against a plain account of who is where at each moment; CPU is admitted at the worst moment of a stretch."""
    chance = Random(seed)
    rule = place_of(place)
    names = ["a", "b", "c"]
    room = Room(names, [4, 4, 4], [40, 40, 40], None, rule, (), [2, 2, 2])
    profile = NodeProfile(100, room)
    spans: list[tuple[Job, int, Any]] = []
    for number in range(1, 8):
        job = Job(
            number, chance.randint(1, 4), chance.randint(1, 9), 0,
            memory_bytes=chance.randint(0, 6), kind=chance.choice(("cpu", "comm")),
            cpu_permille=chance.choice((400, 1000)),
        )  # fmt: skip
        found = profile.earliest(job, 100)
        rooms = [room_at(room, spans, time_us) for time_us in range(100, 189)]
        moments = [at for at in range(100, 180) if beside(rooms, job, at).obstacle(job) is None]
        assert (found[0] if found else None) == (moments[0] if moments else None)
        if found is not None:
            assert found[1] == beside(rooms, job, found[0]).placed(job)
            profile.take(job, *found)
            spans.append((job, *found))
    for job, start_us, allocation in spans:
        profile.give(job, start_us, allocation)
    assert not any(profile.throughout(100, 200).residents)


def room_at(room: Room, spans: list[tuple[Job, int, Any]], time_us: int) -> Room:
    """What is left at one moment."""
    found = room.copy()
    for other, from_us, allocation in spans:
        if from_us <= time_us < from_us + other.estimate_us:
            found.take(other, allocation)
    return found


def beside(rooms_from_100: list[Room], job: Job, start_us: int) -> Room:
    """The room of a stretch: free at its worst moment, with the residents of its first."""
    rooms = rooms_from_100[start_us - 100 : start_us - 100 + job.estimate_us]
    procs = [min(each) for each in zip(*(each.procs for each in rooms), strict=True)]
    memory = [min(each) for each in zip(*(each.memory_bytes for each in rooms), strict=True)]
    found = rooms[0].with_free(procs, memory)
    found.residents = rooms[0].residents
    used = [[sum(r.tasks * r.cpu_permille for r in here) for here in each.residents] for each in rooms]
    found.used_permille = [max(each) for each in zip(*used, strict=True)]
    return found
