"""What the experiment on memory comes to: an owner that loses nothing, one that does, controls that show nothing."""

import json
from pathlib import Path

import pytest

from cosched.apps.cli.bench_memory import RUNS, shown
from cosched.apps.experiments.memory import CONTRACT, IDLE, OWNER_BYTES, UNPROTECTED, MemoryRun, file_system, swap_bytes
from cosched.apps.experiments.memory_results import cells, table, verdict
from cosched.apps.experiments.run_log import RunLog
from cosched.errors import BadInput

PAGES = OWNER_BYTES // 4096


def run(condition: str, lost_share: float, hits: int = 0) -> MemoryRun:
    return MemoryRun(condition, True, round(lost_share * PAGES * 10), 7, PAGES * 10, 0.5, hits)


def told(alone: float, unprotected: float, contract: float, hits: int = 5) -> str:
    runs = [run(IDLE, alone), run(UNPROTECTED, unprotected), run(CONTRACT, contract, hits)]
    return verdict(cells(runs * 3), swap=True)


def test_an_owner_who_loses_no_more_than_alone() -> None:
    assert told(0.0, 0.2, 0.0) == ""
    assert told(0.01, 0.2, 0.01) == ""


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (told(0.0, 0.2, 0.05), "5.00% of what he touches is lost, 0.00% alone"),
        (told(0.0, 0.005, 0.0), "not testable here: an unprotected owner loses 0.50%"),
        (told(0.0, 0.2, 0.0, hits=0), "void: parallel work did not press on its limit"),
        (verdict(cells([run(IDLE, 0.0)]), swap=True), "not all conditions were run"),
        (verdict(cells([run(IDLE, 0.0)]), swap=False), "not all conditions were run"),
    ],
)
def test_what_is_missed_or_shows_nothing_is_told(found: str, words: str) -> None:
    assert words in found


def test_results_are_for_people_and_programs(tmp_path: Path) -> None:
    kept = RunLog(tmp_path, RUNS, MemoryRun)
    kept.begin({"seconds": 5}, add=False)
    kept.keep_each([run(IDLE, 0.0), run(UNPROTECTED, 0.2), run(CONTRACT, 0.0, 3)])
    assert shown(kept, tmp_path) == 0
    raw = json.loads((tmp_path / "memory.json").read_text())
    assert raw["missed"] == {"with swap": ""}
    assert raw["cells"][1]["major_faults"]["median"] == 0.2 * PAGES * 10
    made = cells(kept.campaigns[0])
    assert [row["desk"] for row in table(made).as_dicts()] == [IDLE, UNPROTECTED, CONTRACT]


def test_a_swap_file_is_bounded() -> None:
    assert swap_bytes("0", 0) == 0
    assert swap_bytes("1GiB", 1 << 30) == 1 << 30
    for size in (1 << 20, 5 << 30):
        with pytest.raises(BadInput, match="--swap"):
            swap_bytes("x", size)


def test_the_file_system_of_a_path() -> None:
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(Path("/dev/shm")) == "tmpfs"
