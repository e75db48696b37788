"""A guard's jobs without processes, in made time: when they end and stand still, which CPUs and turns they have."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.guards import MIB
from kit.jobs_alone import HOUR_US, KEY, LIMIT_US, NAME, JobsAlone

from cosched.linux.process import US_PER_S
from node_agent.guard.base.requests import MAX_LEASE_US, Refusal
from node_agent.guard.launcher.levers import MAX_HELD_US


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobsAlone]:
    made = JobsAlone(tmp_path, monkeypatch)
    yield made
    made.close()


# --- ends -------------------------------------------------------------------------------------------------------------


def test_job_hears_sigterm_at_its_limit_and_is_killed_after_its_grace(alone: JobsAlone) -> None:
    group = alone.run(grace_us=20 * US_PER_S)
    alone.passes(LIMIT_US - 1)
    assert (alone.kernel.sent, group.state) == ([], "running")
    alone.passes(1)
    assert alone.kernel.sent == [(NAME, signal.SIGTERM), (NAME, signal.SIGCONT)]
    assert (group.state, group.ending) == ("ending", "limit")
    assert alone.killed_after_us() == 20 * US_PER_S


@pytest.mark.parametrize(("graces_s", "killed_s"), [((3,), 3), ((3600, 0), 0), ((3600, 2), 2), ((2, 3600), 2)], ids=str)
def test_another_order_shortens_the_grace_and_never_lengthens_it(
    alone: JobsAlone, graces_s: tuple[int, ...], killed_s: int
) -> None:
    alone.run(grace_us=HOUR_US)
    for grace_s in graces_s:
        alone.kill(grace_s * US_PER_S)
    assert abs(alone.killed_after_us() - killed_s * US_PER_S) <= 200_000
    assert alone.groups[KEY].ending == "killed"


@pytest.mark.parametrize(("grace_us", "killed_us"), [(HOUR_US, 5 * US_PER_S), (2 * US_PER_S, 2 * US_PER_S)])
@pytest.mark.parametrize("begun_by", ["", "cluster"])
@pytest.mark.parametrize("paused", [False, True])
def test_owner_waits_five_seconds_at_most_for_an_end_in_a_pause_too(
    alone: JobsAlone, grace_us: int, killed_us: int, begun_by: str, paused: bool
) -> None:
    """Independent of the grace that the cluster gives jobs, and of what ended the job first."""
    group = alone.run(grace_us=grace_us)
    alone.run(2)
    if begun_by:
        alone.kill(HOUR_US)
    if paused:
        alone.pause()
    assert alone.desk.end(None) == ([2] if begun_by else [1, 2])
    assert group.ending == ("killed" if begun_by else "owner")
    assert alone.desk.end(1) == []
    assert alone.desk.ended() == ([[2, 1]] if begun_by else [[1, 1], [2, 1]])
    assert abs(alone.killed_after_us() - killed_us) <= 200_000


def test_owner_ends_a_job_that_has_not_begun_and_none_that_is_not_here(alone: JobsAlone) -> None:
    alone.prepare()
    with pytest.raises(Refusal, match="job 7 is not here"):
        alone.desk.end(7)
    assert alone.desk.end(1) == [1]
    assert alone.refusal("spawn")[0] == "stale"


def test_owner_is_told_when_a_job_ends_at_most_where_another_node_keeps_its_limit(alone: JobsAlone) -> None:
    group = alone.prepare()
    (shown,) = alone.desk.listing()
    assert (group.deadline_us, shown["until_us"]) == (None, alone.now_us + LIMIT_US)


def test_job_is_prepared_once_and_forgotten_when_nothing_of_it_is_alive(alone: JobsAlone) -> None:
    group = alone.prepare()
    assert alone.prepare() is group
    assert alone.refusal("prepare", tasks=2) == ("busy", "attempt 1 at job 1 is prepared here already")
    for n in (0, 1):
        alone.spawn(n=n)
        assert alone.refusal("spawn", n=n) == ("busy", f"command {n} has been started already")
        assert alone.refusal("forget") == ("busy", "attempt 1 at job 1 is running; kill it first")
        alone.ends(n=n)
        assert (group.state, alone.events[-1]["event"]) == ("empty", "empty"), "and can be used again"
    alone.killed()
    assert alone.refusal("spawn", n=2) == ("stale", "attempt 1 at job 1 is ended")
    alone.forget()
    assert alone.groups == {}
    for ask in ("kill", "forget", "spawn"):
        assert alone.refusal(ask) == ("unknown", "attempt 1 at job 1 is not known here")


# --- pauses, and shares without a CPU ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    ["pause resume", "none some", "pause none resume some", "none pause some resume", "none pause resume some",
     "pause none some resume"],
)  # fmt: skip
@pytest.mark.parametrize("successor", [False, True])
def test_job_stands_still_while_paused_or_without_a_cpu_and_that_time_counts_once_in_no_limit(
    alone: JobsAlone, steps: str, successor: bool
) -> None:
    deeds: dict[str, Callable[[], object]] = {
        "pause": alone.pause,
        "resume": alone.resume,
        "none": lambda: alone.share(7, 0),
        "some": lambda: alone.share(8, 1),
    }
    deadline_us = alone.run().deadline_us
    assert deadline_us is not None
    *before, last = steps.split()
    for step in before:
        deeds[step]()
        if successor and "pause" not in steps:  # else the desk has its successor pause too
            alone.start()
        assert alone.kernel.frozen == {NAME}
        alone.passes(LIMIT_US)
        assert alone.groups[KEY].state == "running"
    deeds[last]()
    assert alone.kernel.frozen == set()
    assert alone.groups[KEY].deadline_us == deadline_us + LIMIT_US * len(before)
    alone.passes(LIMIT_US)
    assert alone.groups[KEY].ending == "limit"


def test_nothing_new_starts_in_a_pause_or_without_a_cpu(alone: JobsAlone) -> None:
    alone.run()
    alone.paused = "paused"
    assert alone.refusal("spawn", n=1)[0] == alone.refusal("prepare", 2)[0] == "paused"
    alone.paused = ""
    alone.share(7, 0)
    assert alone.refusal("spawn", n=1)[0] == "busy"


@pytest.mark.parametrize("dies", ["", "afterwards", "before the deed"])
def test_job_without_a_cpu_is_let_go_to_hear_of_its_end_and_paused_as_any_other(alone: JobsAlone, dies: str) -> None:
    group = alone.run()
    alone.share(7, 0)
    alone.kill(HOUR_US)
    if dies == "before the deed":
        group.stopped_us = alone.now_us
        alone.jobs.endings.save(group)
        alone.kernel.frozen.add(NAME)
    if dies:
        alone.start()
    assert alone.kernel.frozen == set()
    alone.pause()
    assert alone.kernel.frozen == {NAME}
    alone.resume()
    assert alone.kernel.frozen == set()


def test_job_whose_guard_died_between_the_record_of_its_share_and_the_deed_stands_still(alone: JobsAlone) -> None:
    alone.run()
    alone.share(7, 0)
    alone.kernel.frozen.clear()
    alone.start()
    assert alone.kernel.frozen == {NAME}
    alone.share(8, None)
    assert alone.kernel.frozen == set()


def test_job_that_cannot_be_stopped_can_be_ended_in_a_pause(alone: JobsAlone) -> None:
    alone.run()
    alone.kernel.unstoppable = True
    alone.pause()
    alone.kill(0)
    assert alone.killed_after_us() <= 200_000


# --- what a successor goes on with ------------------------------------------------------------------------------------


def test_limit_and_grace_hold_over_a_guards_death(alone: JobsAlone) -> None:
    deadline_us = alone.run(grace_us=20 * US_PER_S).deadline_us
    alone.start()
    assert alone.groups[KEY].deadline_us == deadline_us
    alone.passes(LIMIT_US)
    alone.start()
    assert alone.groups[KEY].ending == "limit"
    assert alone.killed_after_us() == 20 * US_PER_S
    alone.passes(US_PER_S)
    assert alone.desk.listing() == []
    assert alone.events[-1]["event"] == "empty"


# --- CPUs -------------------------------------------------------------------------------------------------------------


def test_cpus_of_jobs_do_not_touch_as_long_as_there_are_idle_ones(alone: JobsAlone) -> None:
    for job in (1, 2, 3):
        alone.run(job, cpus=1)
    assert alone.cpus(1, 2, 3) == [[0], [1], [0]], "the node has two processors, and all are taken"
    assert alone.share(7, 2, job=2) == [0, 1]
    assert alone.share(7, 1, job=2) == [0, 1], "an order that was obeyed is known by its number"
    assert alone.refusal("share", 6, 1, job=2) == ("stale", "order 6; order 7 was obeyed already")
    assert alone.share(8, None, job=2) == []


@pytest.mark.parametrize("how", ["killed", "forgotten", "ended by itself", "ended while no guard was there"])
def test_job_that_has_no_process_uses_no_cpu(alone: JobsAlone, how: str) -> None:
    for job in (1, 2):
        alone.run(job, cpus=1)
    if how in ("killed", "forgotten"):
        alone.killed(2)
        alone.forget(2) if how == "forgotten" else None
    elif how == "ended by itself":
        alone.ends(2)
    else:
        alone.kernel.populated.discard("job-2.1")
        alone.start()
    alone.run(3, cpus=1)
    assert alone.cpus(1, 3) == [[0], [1]]


def test_job_that_may_start_at_any_moment_uses_its_cpu_also_with_the_next_guard(alone: JobsAlone) -> None:
    alone.prepare(1, cpus=1)
    alone.run(2, cpus=1)
    alone.ends(2)
    alone.start()
    alone.run(3, cpus=1)
    assert alone.cpus(1, 3) == [[0], [1]]


def test_job_that_starts_again_moves_from_a_shared_cpu_to_an_idle_one(alone: JobsAlone) -> None:
    """A node between two ``mpirun`` of a job runs nothing of it: its CPU is lent to another job once all are used."""
    for job in (1, 2):
        alone.run(job, cpus=1)
    alone.ends(2)
    alone.run(3, cpus=1)
    assert alone.cpus(2, 3) == [[1], [1]]
    alone.killed(1)
    alone.spawn(2, n=1)
    assert alone.cpus(2, 3) == [[0], [1]]


def test_jobs_that_share_a_cpu_are_separated_when_one_becomes_idle_and_that_is_on_record(alone: JobsAlone) -> None:
    for job in (1, 2, 3):
        alone.run(job, cpus=1)
    alone.killed(2)
    alone.passes(US_PER_S)
    assert alone.cpus(1, 3) == [[0], [1]]
    alone.start()
    assert alone.cpus(1, 3) == [[0], [1]]


def test_job_shares_the_cpu_of_a_sleeping_job_before_that_of_another(alone: JobsAlone) -> None:
    alone.run(1, cpus=1)
    alone.run(2, cpus=1, asleep=True)
    alone.run(3, cpus=1)
    assert alone.cpus(2, 3) == [[1], [1]]
    alone.killed(1)
    assert alone.share(5, 1, job=2) == [0], "it is awake, and one CPU is idle"


def test_memory_goes_by_places_and_is_not_taken_from_whom_it_would_kill(alone: JobsAlone) -> None:
    alone.run(1, tasks=2, memory_bytes=128 * MIB)
    alone.run(2, memory_bytes=512 * MIB)
    alone.kernel.memory_bytes = 160 * MIB
    code, why = alone.refusal("share", 3, 1)
    assert (code, f"{128 * MIB} would be left to them" in why, alone.cpus(1)) == ("memory", True, [[]])
    code, why = alone.refusal("share", 4, 1, tasks=5)
    assert (code, "of other jobs" in why) == ("memory", True)
    alone.share(5, None, tasks=4)
    alone.share(6, None, tasks=2)
    alone.start()
    assert alone.refusal("prepare", 3, memory_bytes=512 * MIB)[0] == "memory"


# --- weights and turns ------------------------------------------------------------------------------------------------


def two_jobs(alone: JobsAlone) -> None:
    for job in (1, 2):
        alone.run(job)


def states(alone: JobsAlone) -> list[str]:
    """How jobs 1 and 2 stand: held, in the idle class, by a weight, or as they were made."""

    def state(name: str) -> str:
        percent, idle = alone.kernel.weights.get(name, (100, False))
        return "held" if name in alone.kernel.held else "idle" if idle else "runs" if percent == 100 else str(percent)

    return [state(NAME), state("job-2.1")]


def test_weight_lasts_as_long_as_was_asked_for_and_ten_seconds_at_most(alone: JobsAlone) -> None:
    two_jobs(alone)
    assert alone.weigh(1000, HOUR_US) == MAX_LEASE_US == 10 * US_PER_S
    assert alone.weigh(1000, US_PER_S) == US_PER_S
    assert (states(alone), alone.jobs.levers.status_fields()["levers"]) == (["1000", "runs"], [[1, 1, 1000, False]])
    alone.passes(US_PER_S)
    assert (states(alone), alone.jobs.levers.status_fields()["levers"]) == (["runs", "runs"], [])


@pytest.mark.parametrize("ceiling", [False, True])
def test_turns_change_over_and_end_with_their_lease(alone: JobsAlone, ceiling: bool) -> None:
    two_jobs(alone)
    alone.ceiling, waits = ceiling, "held" if ceiling else "idle"
    alone.turns(US_PER_S, 5 * US_PER_S // 2)
    for expected in (["runs", waits], [waits, "runs"], ["runs", waits]):
        assert states(alone) == expected
        alone.passes(US_PER_S)
    assert states(alone) == ["runs", "runs"]


def test_ceiling_that_goes_or_comes_counts_at_once_for_those_who_wait(alone: JobsAlone) -> None:
    two_jobs(alone)
    alone.turns(US_PER_S, 5 * US_PER_S)
    for ceiling, waits in ((True, "held"), (False, "idle"), (True, "held")):
        alone.ceiling = ceiling
        alone.passes(1)
        assert states(alone) == ["runs", waits]


def test_nobody_is_held_for_longer_than_the_longest_period(alone: JobsAlone) -> None:
    two_jobs(alone)
    alone.ceiling = True
    for slot_us, waits in ((MAX_HELD_US, "held"), (MAX_HELD_US + 1, "idle")):
        alone.turns(slot_us, 5 * US_PER_S)
        assert states(alone) == ["runs", waits]


@pytest.mark.parametrize("successor", [False, True])
def test_job_that_is_to_end_is_held_no_more(alone: JobsAlone, successor: bool) -> None:
    two_jobs(alone)
    alone.ceiling = True
    alone.turns(US_PER_S, 5 * US_PER_S)
    alone.kill(HOUR_US, job=2)
    if successor:
        alone.start()
        assert states(alone) == ["runs", "runs"], "as they were made"
        alone.turns(US_PER_S, 5 * US_PER_S)
    assert states(alone) == ["runs", "idle"]
    alone.passes(US_PER_S)
    assert states(alone) == ["held", "runs"], "the second one's turn"


def test_sleeping_job_is_in_the_idle_class_across_guards_until_it_has_a_cpu(alone: JobsAlone) -> None:
    alone.run(1, cpus=1, asleep=True)
    for _ in range(2):
        assert states(alone)[0] == "idle"
        alone.weigh(1000, US_PER_S)
        assert states(alone)[0] == "idle"
        alone.start()
    alone.share(7, 1)
    assert states(alone)[0] == "runs"
    alone.share(8, 1, asleep=True)
    assert states(alone)[0] == "idle"


def test_jobs_end_takes_its_weight_along(alone: JobsAlone) -> None:
    two_jobs(alone)
    alone.weigh(1000, 5 * US_PER_S)
    alone.killed()
    alone.forget()
    assert alone.jobs.levers.status_fields()["levers"] == []
    for refused in (("weigh", 200, US_PER_S), ("turns", US_PER_S, US_PER_S)):
        assert alone.refusal(*refused)[0] == "unknown"
    assert alone.refusal("weigh", 200, -1, job=2)[0] == "stale"
