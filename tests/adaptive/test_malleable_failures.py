"""Malleable programs when something goes wrong, or is asked for: agents that end, ranks that die, sleepers' CPU."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.malleable import ALL, ONE, WHEELS, Agents, Running, agents, counting, mpirun, program_of
from kit.waiting import wait_for

pytestmark = pytest.mark.slow

pytest.importorskip("mpi4py")

OTHER = {"n0": 0, "n1": 1}
ASKING = Path(__file__).with_name("asking.py")
FAILING = Path(__file__).with_name("failing.py")
Job = tuple[Agents, Running]
one_process = pytest.mark.xdist_group("malleable")


@pytest.fixture
def them(tmp_path: Path) -> Iterator[Agents]:
    with agents(tmp_path, 2) as made:
        yield made


@pytest.fixture(scope="module", params=WHEELS)
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Two ranks on each of two nodes, for several tests one after the other; in the end their answer is right."""
    place = tmp_path_factory.mktemp("lasting")
    with agents(place, 2) as them, counting(request.param, place).run(place, [2, 2]) as program:
        yield them, program
        program.enough()


@pytest.fixture
def job(lasting: Job) -> Job:
    """That, with all ranks enabled."""
    them, program = lasting
    them.begin_anew(ALL, program)
    return lasting


@one_process
def test_an_agent_that_starts_anew_hears_what_is_in_force_and_is_obeyed(job: Job) -> None:
    them, running = job
    them.resize(1, ONE, running)
    them.stop("n0")
    running.passes_a_step()
    them.adapted.clear()
    them.start("n0")
    wait_for(lambda: ("n0", 1) in them.adapted, "the leader to say again what is in force")
    them.resize(2, ALL, running)
    assert running.ranks == [0, 1, 2, 3]


@one_process
def test_the_node_of_sleepers_may_lose_its_agent_meanwhile(job: Job) -> None:
    """They have no hint then; the leader's message wakes them."""
    them, running = job
    them.resize(1, ONE, running)
    them.stop("n1")
    them.offer(2, ALL, "n0")
    them.wait_for(2, running)
    assert running.ranks == [0, 1, 2, 3]
    them.start("n1")
    them.resize(3, OTHER, running)
    assert them.adapted[-1] == ("n1", 3)


@one_process
def test_maps_that_come_while_others_are_carried_out_end_in_the_newest(job: Job) -> None:
    them, running = job
    running.passes_a_step()
    for number in range(1, 60):
        them.offer(number, (ALL, ONE, OTHER)[number % 3], "n1", "n0")
    them.resize(60, {"n0": 1, "n1": 1}, running)
    assert running.ranks == [0, 2]
    numbers = [number for _, number in them.adapted]
    assert numbers == sorted(set(numbers))


@one_process
def test_a_map_that_only_sleepers_have_heard_of_changes_nothing(job: Job) -> None:
    them, running = job
    them.resize(1, ONE, running)
    them.offer(2, ALL, "n1")
    running.passes_a_step()
    assert running.ranks == [0]
    them.offer(3, OTHER, "n0")
    them.wait_for(3, running)
    assert running.ranks == [2]


@one_process
def test_a_map_for_nobody_is_not_answered_and_one_with_the_same_shares_is(job: Job) -> None:
    them, running = job
    them.resize(1, ONE, running)
    them.offer(2, {"n0": 0, "n1": 0})
    running.passes_a_step()
    them.offer(3, {"elsewhere": 4})
    running.passes_a_step()
    them.resize(4, {"n0": 1}, running)
    assert [number for _, number in them.adapted] == [1, 4]
    assert running.ranks == [0]


@pytest.mark.parametrize(
    ("system", "victim"),
    [pytest.param(*system.values, victim, marks=system.marks) for system, victim in zip(WHEELS, (0, 3), strict=True)],
)
def test_killed_leader_or_sleeping_rank_ends_the_job_and_all_sleeping_ranks(
    them: Agents, tmp_path: Path, system: str, victim: int
) -> None:
    with counting(system, tmp_path).run(tmp_path, [2, 2]) as running:
        them.resize(1, ONE, running)
        pids = [running.pid(rank) for rank in range(4)]
        os.kill(pids[victim], signal.SIGKILL)
        status, _, _ = running.ended()
        assert status != 0
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of all ranks")


def test_a_job_asks_for_processes_and_gets_them_by_a_map(them: Agents, tmp_path: Path) -> None:
    them.offer(1, ONE)
    with mpirun(tmp_path, [2, 2], *program_of(ASKING)) as running:
        wait_for(lambda: them.asked, "the request")
        assert them.asked == [("n0", 2)]
        them.call(lambda: them.channels["n0"].answer((1, 1), 1, waits=True))
        them.offer(2, {"n0": 1, "n1": 1})
        status, out, err = running.ended()
        assert (status, sorted(out.splitlines())) == (0, ["0: (1, True)", "2: (1, True)"]), err


def test_an_exception_ends_the_job_and_is_told(them: Agents, tmp_path: Path) -> None:
    them.offer(1, {"n0": 2, "n1": 0})
    with mpirun(tmp_path, [2, 2], *program_of(FAILING)) as running:
        status, out, err = running.ended()
        assert status == 1
        assert "ZeroDivisionError" in err
        assert out == ""


@pytest.mark.parametrize(
    ("system", "changes"),
    [
        *(pytest.param(*system.values, {"WITHOUT": "3"}, marks=system.marks) for system in WHEELS),
        pytest.param(*WHEELS[1].values, {"COSCHED_JOB_SOCKET": ""}, marks=WHEELS[1].marks),
    ],
)
def test_where_a_rank_or_each_has_no_agent_all_are_enabled_for_good(
    them: Agents, tmp_path: Path, system: str, changes: dict[str, str]
) -> None:
    them.offer(1, ONE)
    with counting(system, tmp_path).run(tmp_path, [2, 2], 0.001, **changes) as running:
        assert running.ranks == [0, 1, 2, 3]
        running.enough()
        assert them.adapted == []
