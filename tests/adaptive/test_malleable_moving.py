"""Real mpirun: rows go by measured speed, and no rank ever holds the whole."""

from pathlib import Path

import pytest
from kit.malleable import Running, agents, mpirun, program_of

pytest.importorskip("mpi4py")

MEASURING = Path(__file__).with_name("measuring.py")


def said(running: Running) -> dict[int, float]:
    status, out, err = running.ended()
    assert status == 0, err
    return {int(rank): float(what) for rank, what in (line.split() for line in out.splitlines())}


@pytest.mark.slow
def test_a_slow_rank_gets_fewer_rows_also_where_nothing_is_resized(tmp_path: Path) -> None:
    """Without an agent: its socket is not there."""
    with mpirun(
        tmp_path, [3], *program_of(MEASURING), "balance", COSCHED_JOB_SOCKET="none-there", WITHOUT="0"
    ) as running:
        rows = said(running)
    assert sum(rows.values()) == 60
    assert rows[1] < 15
    assert min(rows[0], rows[2]) > 20


def test_arrays_move_without_a_copy_of_the_whole_on_any_rank(tmp_path: Path) -> None:
    """16 MB a rank become 21 on three, and 16 again: old and new rows, and what is under way."""
    maps = [{"n0": 2, "n1": 1}, {"n0": 1, "n1": 2}, {"n0": 2, "n1": 2}]
    with agents(tmp_path, 2) as them:
        them.on_adapted = lambda number: them.tell(number + 1, maps[number]) if number < len(maps) else None
        them.offer(1, maps[0])
        with mpirun(tmp_path, [2, 2], *program_of(MEASURING), "memory") as running:
            grown_mb = said(running)
    assert sorted(grown_mb) == [0, 1, 2, 3]
    assert max(grown_mb.values()) < 50, grown_mb
    print(grown_mb)  # noqa: T201
