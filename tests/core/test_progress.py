"""Rates of jobs that share nodes, worked by hand."""

import random

import pytest

from cosched.model.allocation import Allocation, Share
from cosched.model.coscheduling import Mode
from cosched.model.job import Job
from space_scheduler.progress import ALONE_PPM, NodeCpu, Occupancy, Sharing, end_us

Nodes = dict[str, int]


def occupancy(sharing: Sharing | Mode, sites: dict[str, NodeCpu], *jobs: tuple[str, int, Nodes]) -> Occupancy:
    """Jobs 1, 2, ... of (kind, thousandths of a CPU, tasks by node)."""
    found = Occupancy(sharing if isinstance(sharing, Sharing) else Sharing(sharing))
    found.nodes = dict(sites)
    for job_id, (kind, cpu_permille, nodes) in enumerate(jobs, 1):
        tasks = sum(nodes.values())
        job = Job(job_id, tasks, 1, 0, kind=kind, cpu_permille=cpu_permille)
        found.enter(job, Allocation(tasks, tuple(Share(name, n) for name, n in nodes.items())))
    return found


def paces(found: Occupancy) -> dict[int, float]:
    return {job_id: float(rate / ALONE_PPM) for job_id, rate in found.rates_ppm(found.nodes).items()}


IDLE = {"a": NodeCpu(1.0, 1), "b": NodeCpu(1.0, 1)}
OWNED = {"a": NodeCpu(0.5, 1, owned=True)}
CROWDED = [("cpu", 1000, {"a": 1, "b": 1}), ("cpu", 1000, {"a": 1}), ("cpu", 1000, {"b": 1}), ("cpu", 1000, {"b": 1})]


@pytest.mark.parametrize("mode", list(Mode))
def test_who_is_alone_goes_at_its_own_pace(mode: Mode) -> None:
    assert paces(occupancy(mode, IDLE, ("cpu", 900, {"a": 1}), ("comm", 700, {"b": 1}))) == {1: 1.0, 2: 1.0}


@pytest.mark.parametrize(
    ("mode", "found"),
    [
        # on b three share, so job 1 goes at a third; on a plain Linux keeps half of the CPU for it all the same
        (Mode.NONE, {1: 1 / 3, 2: 1 / 2, 3: 1 / 3, 4: 1 / 3}),
        (Mode.CCS, {1: 1 / 3, 2: 2 / 3, 3: 1 / 3, 4: 1 / 3}),
        (Mode.GANG, {1: 1 / 3, 2: 1 / 2, 3: 1 / 3, 4: 1 / 3}),
    ],
)
def test_the_slowest_node_sets_the_pace(mode: Mode, found: dict[int, float]) -> None:
    assert paces(occupancy(mode, IDLE, *CROWDED)) == pytest.approx(found, abs=2e-6)


def test_only_those_are_told_whose_pace_may_have_changed() -> None:
    apart = [("cpu", 1000, {"a": 1}), ("cpu", 1000, {"b": 1})]
    assert list(occupancy(Mode.NONE, IDLE, *apart).rates_ppm(["a"])) == [1]
    assert list(occupancy(Mode.CCS, IDLE, *apart).rates_ppm(["a"])) == [1]
    assert list(occupancy(Mode.NONE, IDLE, *CROWDED).rates_ppm(["a"])) == [1, 2]
    assert list(occupancy(Mode.CCS, IDLE, *CROWDED).rates_ppm(["a"])) == [1, 2, 3, 4]


def test_nobody_gets_more_than_he_uses() -> None:
    # of one CPU: 0.3 wanted and had, 0.7 shared by the two who want more
    jobs = [("comm", 300, {"a": 1}), ("cpu", 900, {"a": 1}), ("cpu", 900, {"a": 1})]
    expected = {1: 1.0, 2: 0.35 / 0.9, 3: 0.35 / 0.9}
    for mode in (Mode.NONE, Mode.CCS):
        assert paces(occupancy(mode, IDLE, *jobs)) == pytest.approx(expected, abs=2e-6)


def test_two_tasks_of_one_job_on_a_cpu_share_it_too() -> None:
    for mode in (Mode.NONE, Mode.CCS, Mode.GANG):
        assert paces(occupancy(mode, IDLE, ("cpu", 1000, {"a": 2, "b": 2}))) == pytest.approx({1: 0.5})
    assert paces(occupancy(Mode.CCS, {"a": NodeCpu(2.0, 2)}, ("cpu", 1000, {"a": 2}))) == {1: 1.0}


@pytest.mark.parametrize(
    ("mode", "found"),
    [
        # the contract leaves half a CPU: 0.25 each
        (Mode.NONE, {1: 0.25 / 0.69, 2: 0.25 / 0.93}),
        (Mode.CCS, {1: 0.25 / 0.69, 2: 0.25 / 0.93}),
        (Mode.DCS, {1: 0.5 / 0.69, 2: 0.0}),  # who communicates takes all there is
        (Mode.SPIN, {1: 0.25, 2: 0.25 / 0.93}),  # 0.69 of a spinner's CPU is of use
        (Mode.GANG, {1: 0.25, 2: 0.25}),
    ],
)
def test_the_contract_is_what_there_is(mode: Mode, found: dict[int, float]) -> None:
    jobs = [("comm", 690, {"a": 1}), ("cpu", 930, {"a": 1})]
    assert paces(occupancy(mode, OWNED, *jobs)) == pytest.approx(found, abs=2e-6)


def test_what_sharing_costs_is_counted_for_each_task_beyond_the_cpus() -> None:
    sharing = Sharing(Mode.NONE, {"comm": {"cpu": 200, "comm": 500, "owner": 100}})
    wide = ("comm", 1000, {"a": 1, "b": 1})
    jobs = [wide, ("cpu", 1000, {"a": 1}), wide]
    assert paces(occupancy(sharing, IDLE, *jobs)) == pytest.approx({1: 1 / 3 / 1.7, 2: 1 / 3, 3: 1 / 3 / 1.7}, abs=2e-6)
    assert paces(occupancy(sharing, IDLE | OWNED, wide)) == pytest.approx({1: 0.5 / 1.1}, abs=2e-6)
    # three tasks on two CPUs: one of two neighbours is beyond them
    assert paces(occupancy(sharing, {"a": NodeCpu(2.0, 2), "b": NodeCpu(2.0, 2)}, *jobs))[1] == pytest.approx(
        2 / 3 / 1.35, abs=2e-6
    )


def test_a_job_of_one_task_waits_for_nobody_and_pays_nothing() -> None:
    sharing = Sharing(Mode.NONE, {"cpu": {"cpu": 400, "comm": 400, "owner": 400}})
    assert paces(occupancy(sharing, IDLE, ("cpu", 1000, {"a": 1}), ("cpu", 1000, {"a": 1}))) == {1: 0.5, 2: 0.5}


def test_a_job_stands_still_while_the_owner_of_one_of_its_desks_computes() -> None:
    """Half a CPU, and two owners who compute for a fifth and a quarter of their time, each when he likes."""
    sites = {"a": NodeCpu(0.5, 1, True, bursts_permille=200), "b": NodeCpu(0.5, 1, True, bursts_permille=250)}
    jobs = [("cpu", 1000, {"a": 1, "b": 1}), ("cpu", 1000, {"a": 1})]
    assert paces(occupancy(Mode.NONE, sites, *jobs)) == pytest.approx({1: 0.25 * 0.8 * 0.75, 2: 0.25 * 0.8}, abs=2e-6)
    assert paces(occupancy(Mode.CCS, sites, *jobs)) == pytest.approx({1: 0.25 * 0.8 * 0.75, 2: 0.25 * 0.8}, abs=2e-6)


@pytest.mark.parametrize("mode", [Mode.NONE, Mode.CCS, Mode.GANG])
def test_rate_at_a_tie_is_rounded_exactly_to_the_even_millionth(mode: Mode) -> None:
    """Half of 0.75 x 0.85^2 is 270 937.5 millionths; in floats it is 270 937.49999999994."""
    sites = {name: NodeCpu(0.75, 1, True, bursts_permille=150) for name in "ab"}
    jobs = [("cpu", 1000, {"a": 1, "b": 1}), ("cpu", 1000, {"a": 1})]
    exact, floats = occupancy(mode, sites, *jobs), occupancy(mode, sites, *jobs)
    floats.exact = False  # as in journals of the first edition of the rules
    assert [each.rates_ppm("ab")[1] for each in (exact, floats)] == [270_938, 270_937]


def test_memory_that_is_not_there_costs_paging() -> None:
    sharing = Sharing(Mode.NONE, paging_permille=4000)
    site = {"a": NodeCpu(1.0, 1, lacking_permille=250)}
    assert paces(occupancy(sharing, site, ("cpu", 1000, {"a": 1}))) == pytest.approx({1: 0.5})


def test_the_end_is_the_first_microsecond_at_which_all_is_done() -> None:
    assert end_us(5, 10 * ALONE_PPM, ALONE_PPM) == 15
    assert end_us(5, 10 * ALONE_PPM + 1, ALONE_PPM) == 16
    assert end_us(5, 10, 0) > 10**17


@pytest.mark.parametrize("seed", range(20))
def test_no_node_gives_more_than_it_has_and_ccs_leaves_nothing_that_somebody_could_use(seed: int) -> None:
    rng = random.Random(seed)
    sites = {f"n{i}": NodeCpu(rng.choice([0.5, 1.0, 2.0]), 1) for i in range(6)}
    jobs = [
        (
            rng.choice(["cpu", "comm"]),
            rng.randint(200, 1000),
            dict.fromkeys(rng.sample(sorted(sites), rng.randint(1, 4)), 1),
        )
        for _ in range(8)
    ]
    for mode in (Mode.NONE, Mode.CCS, Mode.DCS, Mode.GANG):
        found = paces(occupancy(mode, sites, *jobs))
        used = dict.fromkeys(sites, 0.0)
        for job_id, (_, cpu_permille, nodes) in enumerate(jobs, 1):
            for name in nodes:
                used[name] += found[job_id] * cpu_permille / 1000
        assert all(used[name] <= site.usable + 1e-5 for name, site in sites.items())
        if mode is Mode.CCS:
            full = {name for name, site in sites.items() if used[name] >= site.usable - 1e-5}
            assert all(found[i] > 1 - 1e-5 or full & set(nodes) for i, (_, _, nodes) in enumerate(jobs, 1))
