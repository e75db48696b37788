"""Real malleable programs: whatever maps they are told, their answers are those of a rigid run."""

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kit.malleable import (
    ALL,
    SYSTEMS,
    Agents,
    Program,
    agents,
    counting,
    mpirun,
    program_of,
    sleepers_use_next_to_nothing,
)

pytest.importorskip("mpi4py")

SCHEDULED = Path(__file__).with_name("scheduled.py")
#: Ranks on nodes, for each system one of these, and then two on each of two nodes.
LAYOUTS = [[1, 2, 1], [4], [1, 3]]


def drawn(layout: Sequence[int], chance: random.Random) -> Iterator[tuple[dict[str, int], bool]]:
    """Maps for so many ranks on nodes: each with whether it is adopted before the next one is told."""
    for _ in range(12):
        shares = {f"n{node}": chance.randint(0, ranks) for node, ranks in enumerate(layout)}
        yield shares if any(shares.values()) else {"n0": 1}, chance.random() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_remapping_applies_each_step_once_to_each_row_and_idle_ranks_use_no_cpu(tmp_path: Path, system: str) -> None:
    program, chance = counting(system, tmp_path), random.Random(system)
    for layout in (chance.choice(LAYOUTS), [2, 2]):
        place = Path(tempfile.mkdtemp(dir=tmp_path))
        with agents(place, len(layout)) as them, program.run(place, layout) as running:
            maps = list(drawn(layout, chance))
            for number, (shares, waits) in enumerate(maps, 1):
                them.offer(number, shares)
                if waits:
                    them.wait_for(number, running)
            them.wait_for(len(maps), running)
            assert running.ranks == enabled(layout, maps[-1][0])
            if layout == [2, 2]:
                them.begin_anew(ALL, running)
                sleepers_use_next_to_nothing(them, running)
            running.enough()
            assert not them.complaints.counts


def enabled(layout: Sequence[int], shares: dict[str, int]) -> list[int]:
    """The ranks that a map enables, by another way than the library's."""
    first = [sum(layout[:node]) for node in range(len(layout))]
    return [rank for node in range(len(layout)) for rank in range(first[node], first[node] + shares.get(f"n{node}", 0))]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "all_ranks"), [("heat", 24, (2, 4)), ("molecules", 27, (4,))])
def test_half_of_the_ranks_and_back_give_the_same_bits_as_a_rigid_run(
    tmp_path: Path, name: str, size: int, all_ranks: Sequence[int]
) -> None:
    """Shrunk to the first half, all again, to the second half (rank 0 sleeps), all again."""
    words = [name, "--size", str(size), "--steps", "60", "--json"]
    with mpirun(tmp_path, [1], *program_of("cosched.programs.malleable"), *words, COSCHED_JOB_SOCKET="") as alone:
        expected = report(alone.ended())
    assert expected["verified"]
    for ranks in all_ranks:
        half, place = ranks // 2, Path(tempfile.mkdtemp(dir=tmp_path))
        maps = [{"n0": half, "n1": 0}, {"n0": half, "n1": half}, {"n0": 0, "n1": half}, {"n0": half, "n1": half}]
        with agents(place, 2) as them:
            one_after_the_other(them, maps)
            with mpirun(place, [half, half], *program_of(SCHEDULED), "10", "4", *words) as running:
                found = report(running.ended())
            assert them.adapted == [("n0", 1), ("n0", 2), ("n1", 3), ("n0", 4)]
        assert (found["ranks"], found["map"], found["digest"]) == (ranks, 4, expected["digest"])
        assert found["verified"]


def one_after_the_other(them: Agents, maps: Sequence[dict[str, int]]) -> None:
    """Each map is told when the one before it has been adopted."""
    them.on_adapted = lambda number: them.tell(number + 1, maps[number]) if number < len(maps) else None
    them.offer(1, maps[0])


def report(ended: tuple[int, str, str]) -> Program:
    status, out, err = ended
    assert status == 0, err
    found: Program = json.loads(out)
    return found
