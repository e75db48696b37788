"""The kernels under a real mpirun: right answers are verified on any number of ranks, wrong ones never."""

import itertools
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from kit.command import Ended
from kit.mpi import DEBIAN, WHEEL, job_here, mpirun
from kit.waiting import BOUND_S

pytest.importorskip("mpi4py")

FAULTY = Path(__file__).with_name("faulty.py")
PROGRAM = (sys.executable, "-m", "cosched.programs")
NAMES = ("cg", "is", "mg", "bt")


def report_of(ended: Ended) -> dict[str, Any]:
    """The one line of JSON."""
    assert len(ended.out.splitlines()) == 1, ended
    found: dict[str, Any] = json.loads(ended.out)
    return found


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_verified_on_any_number_of_ranks(tmp_path: Path, name: str, ranks: int) -> None:
    ended = mpirun(tmp_path, ranks, *PROGRAM, name, "--iterations", "3", "--json")
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


@pytest.mark.parametrize("name", ["cg", "is"])
def test_three_ranks_are_as_good_where_the_problem_divides(tmp_path: Path, name: str) -> None:
    assert mpirun(tmp_path, 3, *PROGRAM, name, "--iterations", "2", "--json").status == 0


@pytest.mark.parametrize(("name", "usable"), [("mg", "1, 2, 4, 8, 16"), ("bt", "1, 2, 4, 8, 16")])
def test_a_number_of_ranks_that_does_not_divide_the_problem_is_refused(tmp_path: Path, name: str, usable: str) -> None:
    ended = mpirun(tmp_path, 3, *PROGRAM, name)
    assert ended.status == 2
    assert ended.out == ""
    assert f"cosched.programs: {name} S: 3 ranks for" in ended.err
    assert f"usable: {usable}" in ended.err
    assert ended.err.count("cosched.programs:") == 1


@pytest.mark.parametrize("name", ["cg", "mg", "bt"])
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(tmp_path: Path, name: str) -> None:
    words = (*PROGRAM, name, "--iterations", "2", "--json")
    first, again, other = (
        report_of(mpirun(tmp_path, 2, *words, "--seed", seed))["verification"] for seed in ("5", "5", "6")
    )
    assert first == again
    assert first != other


def test_a_program_can_run_for_a_time_instead(tmp_path: Path) -> None:
    report = report_of(mpirun(tmp_path, 2, *PROGRAM, "cg", "--seconds", "0.5", "--json"))
    assert report["seconds"] >= 0.5
    assert report["iterations"] >= 1
    assert report["verified"]


@pytest.mark.slow
def test_a_program_tells_how_far_it_is_until_it_is_ended(tmp_path: Path) -> None:
    if not WHEEL.exists():
        pytest.skip(f"needs {WHEEL}: the extra `lab`")
    with subprocess.Popen(
        [WHEEL, *PROGRAM, "cg", "--tell", "0.3"], env=job_here(tmp_path, 2), cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        late = threading.Timer(BOUND_S, running.kill)
        late.start()
        try:
            told = [json.loads(line) for line in itertools.islice(running.stdout, 12)]
        finally:
            running.send_signal(signal.SIGTERM)  # mpirun ends its ranks
        running.stdout.read()
        late.cancel()
    assert running.returncode != 0
    assert len(told) == 12
    assert {word["program"] for word in told} == {"cg"}
    for before, after in itertools.pairwise(told):
        assert after["time_s"] - before["time_s"] >= 0.3
        assert after["done"] > before["done"]
        assert after["cpu_s"] >= before["cpu_s"]
        assert after["comm_s"] >= before["comm_s"]


def test_who_tells_ends_with_a_wrong_answer(tmp_path: Path) -> None:
    ended = mpirun(tmp_path, 2, sys.executable, FAULTY, "NoReaction", "--tell", "0.1", "--ranks", "2")
    assert ended.status == 1
    assert "cosched.programs: bt S: WRONG after 16 iterations" in ended.err


def test_without_json_it_says_the_same_in_a_sentence(tmp_path: Path) -> None:
    ended = mpirun(tmp_path, 2, *PROGRAM, "is", "--iterations", "2")
    assert ended.out.startswith("is S: 2 iterations on 2 ranks (")
    assert ended.out.endswith("MB a rank, verified (0)\n")


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


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_answer_is_never_verified(tmp_path: Path, fault: str, ranks: int) -> None:
    ended = mpirun(tmp_path, ranks, sys.executable, FAULTY, fault, "--iterations", "2", "--json")
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
    words = ("-n", "2", *PROGRAM, "is", "--iterations", "1", "--json")
    ended = mpirun(tmp_path, 4, *words)
    assert ended.status == 3
    assert "this world has 2 ranks, and the job has 4 tasks: if that is meant, say so with --ranks 2" in ended.err
    assert mpirun(tmp_path, 4, *words, "--ranks", "2").status == 0


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
def test_bad_input_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    ended = subprocess.run(
        [*PROGRAM, *words], env=job_here(tmp_path, 1), capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert ended.returncode == 2
    assert said in ended.stderr


@pytest.mark.system("openmpi-bin")
@pytest.mark.parametrize("name", NAMES)
def test_they_run_under_debians_open_mpi_with_its_library(tmp_path: Path, name: str) -> None:
    library = next(iter(sorted(Path("/usr/lib").glob("*/libmpi.so.40"))))
    words = ("-x", f"MPI4PY_LIBMPI={library}", *PROGRAM, name, "--iterations", "2", "--json")
    ended = mpirun(tmp_path, 2, *words, with_=DEBIAN)
    assert ended.status == 0, ended.err
    assert report_of(ended)["ranks"] == 2


@pytest.mark.system("openmpi-bin")
def test_an_mpirun_and_a_library_that_do_not_fit_never_look_like_a_success(tmp_path: Path) -> None:
    library = next(iter(sorted(Path("/usr/lib").glob("*/libmpi.so.40"))))
    ended = mpirun(tmp_path, 2, *PROGRAM, "is", "--iterations", "1", with_=WHEEL, MPI4PY_LIBMPI=str(library))
    assert ended.status != 0
    assert ended.out == ""
