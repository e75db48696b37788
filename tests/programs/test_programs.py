"""The kernels under a real mpirun: right answers are verified on any number of ranks, wrong ones never."""

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from kit.command import Ended
from kit.mpi import DEBIAN, WHEEL, job_here, mpirun
from kit.waiting import BOUND_S

from cosched.programs.command import main

pytest.importorskip("mpi4py")

FAULTY = Path(__file__).with_name("faulty.py")
IN_TURN = Path(__file__).with_name("in_turn.py")
PROGRAM = (sys.executable, "-m", "cosched.programs")
NAMES = ("cg", "is", "mg", "bt")


#: Faults, and the program that each is in.
FAULTS = {
    "EntryForgotten": "cg",
    "NotSymmetric": "cg",
    "NothingExchanged": "cg",
    "NoNumber": "cg",
    "Unsorted": "is",
    "KeyLost": "is",
    "KeyReplaced": "is",
    "RanksTheOtherWayRound": "is",
    "NoHalo": "mg",
    "WrongStencil": "mg",
    "GathersInTheWrongOrder": "mg",
    "NoReaction": "bt",
    "NotTurnedBack": "bt",
}
#: By their words: runs that are right, and with a fault in front of its program's name.
RIGHT = {name: ("", name, "--iterations", "3", "--json") for name in NAMES}
FAULTY_RUNS = {fault: (fault, name, "--iterations", "1", "--json") for fault, name in FAULTS.items()}
SEEDS = {
    (name, seed): ("", name, "--iterations", "1", "--json", "--seed", seed)
    for name in ("cg", "mg", "bt")
    for seed in ("5", "6")
}
FOR_A_TIME = ("", "cg", "--seconds", "0.5", "--json")
SENTENCE = ("", "is", "--iterations", "2")
TELLS = ("NoReaction", "bt", "--tell", "0.1", "--ranks", "2")
#: What is run on so many ranks.
RUNS: dict[int, list[tuple[str, ...]]] = {
    1: [*RIGHT.values(), *FAULTY_RUNS.values()],
    2: [*RIGHT.values(), *FAULTY_RUNS.values(), *SEEDS.values(), FOR_A_TIME, SENTENCE, TELLS],
    3: list(RIGHT.values()),
    4: list(RIGHT.values()),
}

World = dict[tuple[str, ...], Ended]
one_process = pytest.mark.xdist_group("programs")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], World]:
    """How each run on so many ranks has ended: all of them in one world, started when the first is asked for."""

    @cache
    def world(ranks: int) -> World:
        runs = RUNS[ranks]
        words = (sys.executable, IN_TURN, json.dumps(runs))
        return dict(zip(runs, ended_in_turn(mpirun(tmp_path_factory.mktemp("world"), ranks, *words)), strict=True))

    return world


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The runs with the first seed, in another world."""
    runs = [words for (_, seed), words in SEEDS.items() if seed == "5"]
    words = (sys.executable, IN_TURN, json.dumps(runs))
    return dict(zip(runs, ended_in_turn(mpirun(tmp_path_factory.mktemp("again"), 2, *words)), strict=True))


def ended_in_turn(ended: Ended) -> list[Ended]:
    assert ended.status == 0, ended.err
    return [Ended(*each) for each in json.loads(ended.out)]


def report_of(ended: Ended) -> dict[str, Any]:
    """The one line of JSON."""
    assert len(ended.out.splitlines()) == 1, ended
    found: dict[str, Any] = json.loads(ended.out)
    return found


@one_process
@pytest.mark.parametrize(
    ("name", "ranks"), [(name, ranks) for name in NAMES for ranks in (1, 2, 3, 4) if ranks != 3 or name in ("cg", "is")]
)
def test_the_answer_is_verified_on_any_number_of_ranks(worlds: Callable[[int], World], name: str, ranks: int) -> None:
    ended = worlds(ranks)[RIGHT[name]]
    assert ended.status == 0, ended.err
    report = report_of(ended)
    assert (report["program"], report["class"], report["ranks"]) == (name, "S", ranks)
    assert report["verified"] is True
    assert report["verification"] <= report["allowed"]
    assert report["iterations"] == 3
    assert len(report["hosts"]) == 1
    assert report["seconds"] > 0
    assert 0 <= report["comm_ratio"] <= 1
    assert report["peak_memory_bytes"] > 10e6


@one_process
@pytest.mark.parametrize(("name", "usable"), [("mg", "1, 2, 4, 8, 16"), ("bt", "1, 2, 4, 8, 16")])
def test_a_number_of_ranks_that_does_not_divide_the_problem_is_refused(
    worlds: Callable[[int], World], name: str, usable: str
) -> None:
    ended = worlds(3)[RIGHT[name]]
    assert ended.status == 2
    assert ended.out == ""
    assert f"cosched.programs: {name} S: 3 ranks for" in ended.err
    assert f"usable: {usable}" in ended.err


@one_process
@pytest.mark.parametrize("name", ["cg", "mg", "bt"])
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(
    worlds: Callable[[int], World], again: World, name: str
) -> None:
    first, other = (report_of(worlds(2)[SEEDS[name, seed]])["verification"] for seed in ("5", "6"))
    assert report_of(again[SEEDS[name, "5"]])["verification"] == first
    assert first != other


@one_process
def test_a_program_can_run_for_a_time_instead(worlds: Callable[[int], World]) -> None:
    report = report_of(worlds(2)[FOR_A_TIME])
    assert report["seconds"] >= 0.5
    assert report["iterations"] >= 1
    assert report["verified"]


def test_a_program_tells_how_far_it_is_until_it_is_ended(tmp_path: Path) -> None:
    if not WHEEL.exists():
        pytest.skip(f"needs {WHEEL}: the extra `lab`")
    with subprocess.Popen(
        [WHEEL, *PROGRAM, "cg", "--tell", "0.1"], env=job_here(tmp_path, 2), cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        late = threading.Timer(BOUND_S, running.kill)
        late.start()
        try:
            told = [json.loads(line) for line in itertools.islice(running.stdout, 6)]
        finally:
            running.send_signal(signal.SIGTERM)  # mpirun ends its ranks
        running.stdout.read()
        late.cancel()
    assert running.returncode != 0
    assert len(told) == 6
    assert {word["program"] for word in told} == {"cg"}
    for before, after in itertools.pairwise(told):
        assert after["time_s"] - before["time_s"] >= 0.1
        assert after["done"] > before["done"]
        assert after["cpu_s"] >= before["cpu_s"]
        assert after["comm_s"] >= before["comm_s"]


@one_process
def test_who_tells_ends_with_a_wrong_answer(worlds: Callable[[int], World]) -> None:
    ended = worlds(2)[TELLS]
    assert ended.status == 1
    assert "cosched.programs: bt S: WRONG after 16 iterations" in ended.err


@one_process
def test_without_json_it_says_the_same_in_a_sentence(worlds: Callable[[int], World]) -> None:
    ended = worlds(2)[SENTENCE]
    assert ended.out.startswith("is S: 2 iterations on 2 ranks (")
    assert ended.out.endswith("MB a rank, verified (0)\n")


@one_process
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_answer_is_never_verified(worlds: Callable[[int], World], fault: str, ranks: int) -> None:
    ended = worlds(ranks)[FAULTY_RUNS[fault]]
    assert ended.status == 1, ended
    assert f"cosched.programs: {FAULTS[fault]} S: WRONG" in ended.err
    report = report_of(ended)
    assert report["verified"] is False


def test_a_rank_that_raises_takes_the_others_with_it(tmp_path: Path) -> None:
    """Else they would wait for it until the job's limit."""
    ended = mpirun(tmp_path, 2, sys.executable, FAULTY, "OneRankRaises", timeout_s=60)
    assert ended.status == 1
    assert "RuntimeError: a mistake in one rank" in ended.err
    assert "MPI_ABORT was invoked on rank 1" in ended.err


def test_a_world_that_is_smaller_than_the_job_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    words = ("", "is", "--iterations", "1", "--json")
    in_turn = (sys.executable, IN_TURN, json.dumps([words, (*words, "--ranks", "2")]))
    refused, meant = ended_in_turn(mpirun(tmp_path, 4, "-n", "2", *in_turn))
    assert refused.status == 3
    assert "this world has 2 ranks, and the job has 4 tasks: if that is meant, say so with --ranks 2" in refused.err
    assert meant.status == 0


def test_a_world_of_one_rank_in_a_job_of_several_says_what_may_have_happened(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*PROGRAM, "is"], env=job_here(tmp_path, 2), capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert ended.returncode == 3
    assert "this world has 1 rank, and the job has 2 tasks: several worlds of one rank mean" in ended.stderr
    assert "MPI4PY_LIBMPI" in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ft"], "invalid choice: 'ft'"),
        (["cg", "--class", "C"], "invalid choice: 'C'"),
        (["cg", "--iterations", "0"], "invalid positive number value: '0'"),
        (["cg", "--seconds", "nan"], "invalid positive number value: 'nan'"),
        ([], "required: program"),
    ],
)
def test_bad_input_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.system("openmpi-bin")
def test_they_run_under_debians_open_mpi_with_its_library(tmp_path: Path) -> None:
    library = next(iter(sorted(Path("/usr/lib").glob("*/libmpi.so.40"))))
    words = ("-x", f"MPI4PY_LIBMPI={library}", sys.executable, IN_TURN, json.dumps(list(RIGHT.values())))
    for ended in ended_in_turn(mpirun(tmp_path, 2, *words, with_=DEBIAN)):
        assert ended.status == 0, ended.err
        assert report_of(ended)["ranks"] == 2


@pytest.mark.system("openmpi-bin")
def test_an_mpirun_and_a_library_that_do_not_fit_never_look_like_a_success(tmp_path: Path) -> None:
    library = next(iter(sorted(Path("/usr/lib").glob("*/libmpi.so.40"))))
    ended = mpirun(tmp_path, 2, *PROGRAM, "is", "--iterations", "1", with_=WHEEL, MPI4PY_LIBMPI=str(library))
    assert ended.status != 0
    assert ended.out == ""
