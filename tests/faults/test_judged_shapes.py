"""What is judged of shapes (S1): groups that are counted otherwise, or not at all, and nodes that are kept out."""

from types import SimpleNamespace as Made
from typing import Any

import pytest

from cosched.model.allocation import Allocation, Share
from cosched.model.job import JobState
from faults import shapes

KEY = (7, 1)


def judged(
    at: str,
    tasks: int,
    *,
    cpus: int | None = 1,
    procs: int | None = 2,
    agreed: bool = True,
    drained: str = "",
    policy: str = "fjt1+bfm",
    epoch: int = 3,
    asleep: bool = False,
    runs: bool = True,
    stale: bool = False,
) -> list[str]:
    """Of job 7, which is counted with one task on n1, a group of so many is found at a node."""
    allocation = Allocation(1, (Share("n1", 1),))
    record = Made(state=JobState.RUNNING, holding=Made(changing=False), allocation=allocation, job=Made(resident=False))
    size = None if procs is None else Made(procs=procs)
    book = Made(entry=lambda name: Made(size=size, agreed=agreed, stale={KEY} if stale else set()))
    scheduler: Any = Made(
        core=Made(state=Made(records={7: record}), records={7: Made(attempt=1)}),
        rules=Made(book=book, fence=Made(epoch=3)),
        config=Made(policy=policy),
        drained=lambda name: drained,
    )
    prepare = Made(fence=Made(epoch=epoch))
    group = Made(ending=False, tasks=tasks, cpus=cpus, asleep=asleep, prepare=prepare, running={0} if runs else set())
    nodes: Any = {at: Made(model=Made(groups={KEY: group}))}
    return list(shapes.wrong(scheduler, nodes))


def test_a_share_is_as_it_is_counted() -> None:
    assert judged("n1", 1) == []
    assert judged("n1", 2) == ["n1 has 2 tasks of job 7, which is counted with 1"]
    assert judged("n1", 2, drained="its guard is away") != [], "a node that is counted has what is counted"


@pytest.mark.parametrize("out", [{"drained": "its guard is away"}, {"procs": None}, {"agreed": False}])
def test_a_group_that_is_not_counted_may_live_where_nothing_new_is_started_alone(out: dict[str, Any]) -> None:
    assert judged("n3", 1) == ["n3 has a living group of job 7, which is counted on ['n1']"]
    assert judged("n3", 1, **out) == []


def test_what_is_only_prepared_may_live_until_its_end_that_is_ordered() -> None:
    assert judged("n3", 1, runs=False, stale=True) == []
    assert judged("n3", 1, runs=False) != []
    assert judged("n3", 1, stale=True) != []


def test_a_job_has_the_cpus_that_are_counted_where_the_policy_changes_shapes() -> None:
    assert judged("n1", 1, cpus=2) == ["n1 has job 7 on 2 CPUs, which is counted with 1"]
    assert judged("n1", 1, cpus=None) == ["n1 has job 7 on None CPUs, which is counted with 1"]
    assert judged("n1", 1, cpus=None, epoch=2) == [], "it was started under other settings"
    assert judged("n1", 1, cpus=2, policy="easy") == []
    assert judged("n1", 1, asleep=True) == ["n1 has job 7 asleep, which is counted with 1 CPUs"]


def test_no_node_gives_away_more_cpus_than_it_has() -> None:
    assert "n1 has given away more than its 2 CPUs: {(7, 1): 3}" in judged("n1", 1, cpus=3)
    assert len(judged("n1", 1, cpus=3, drained="its guard is away")) == 1, "nothing new is started there"
    asleep = judged("n1", 1, cpus=3, asleep=True)
    assert not [each for each in asleep if "given away" in each], "who sleeps has no CPU of its own"


def used(job: int, processors: tuple[int, ...], **how: Any) -> tuple[tuple[int, int], Any]:
    """A group that runs on these processors."""
    return (job, 1), Made(processors=processors, **({"running": {0}, "starting": False, "asleep": False} | how))


@pytest.mark.parametrize(
    "other", [used(2, (1,)), used(2, (0,), running=set()), used(2, (0,), asleep=True), used(2, ()), used(2, (0, 1))]
)
def test_processor_is_not_shared_in_vain(other: tuple[tuple[int, int], Any]) -> None:
    """By ended and by sleeping jobs, by those without a set, and where no processor is idle."""
    node: Any = Made(name="n1", model=Made(groups=dict([used(1, (0,)), other])))
    assert list(shapes.shared_in_vain(node, 2)) == []


def test_processor_that_a_started_and_a_starting_job_share_beside_an_idle_one_is_told() -> None:
    node: Any = Made(name="n1", model=Made(groups=dict([used(1, (0,)), used(2, (0,), running=set(), starting=True)])))
    told = ["processor 0 of n1 is used by jobs [1, 2], and processor 1 is idle"]
    assert list(shapes.shared_in_vain(node, 2)) == told
