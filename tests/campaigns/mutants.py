"""Changed operators and branches of the core, the launch, the agent and the guard: which tests fail with each.

    ./run campaign mutants [--seed S] [--count N] [--room core] [--pure] [--processes P] [--results DIR]

Draws N mutants (50) of each room by the seed, with Cosmic Ray's operators, which it installs in DIR. Each is one change
of one line, in a checkout of its own. Coverage tells which tests execute the line in their own process (:data:`_FAR` is
left out, and what is marked slow): those run first, the most particular before others. A mutant that they do not catch
meets all other tests that import its file, those that import it at first hand before others; with --pure it does not,
and the same command without it goes on from there. Each answer is kept at once in ``DIR/COMMIT/SEED.jsonl``. A table
comes last: drawn, caught in their own process, by any test, and the survivors by file and line.

Some mutants change nothing that can be seen (a bound of a search, a pause). Survivors are read, not counted alone.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Final

from kit.changed import importers, modules, reached

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = {
    "core": ("space_scheduler/machine", "space_scheduler/eligibility", "space_scheduler/policy"),
    "launch": ("space_scheduler/service/launch", "space_scheduler/launch"),
    "agent": ("node_agent/core", "node_agent/service", "node_agent/policy"),
    "guard": ("node_agent/guard",),
}
#: Folders whose tests start what they look at as programs.
_FAR: Final = ("adaptive", "campaigns", "identity", "lab", "live", "programs")
#: A test that takes longer waits for ever, as the mutant has it: that test has caught it.
_TEST_S: Final = 240
#: As many tests of a line in one pytest: a mutant of a common line is caught by the first.
_AT_ONCE: Final = 40
#: A run of tests that takes longer says nothing.
_RUN_S: Final = 5400
PURE, ANY, NONE, LATE, OPEN = "pure", "other", "survived", "no answer", "not pure"


def cosmic_ray(place: Path) -> Path:
    """A Python that has it, in an environment there; made when it is missing."""
    python = place / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "cosmic-ray>=8.7,<9"], check=True)
    return python


def drawn(python: Path, seed: int, count: int, rooms: list[str]) -> list[dict[str, Any]]:
    files = {
        room: sorted(
            each.relative_to(ROOT).as_posix() for folder in ROOMS[room] for each in (ROOT / folder).rglob("*.py")
        )
        for room in rooms
    }
    command = [str(python), str(Path(__file__).with_name("_draw_mutants.py")), str(seed), str(count)]
    said = subprocess.run(command, input=json.dumps(files), text=True, capture_output=True, check=True, cwd=ROOT)
    return [json.loads(line) for line in said.stdout.splitlines()]


def covered(checkout: Path) -> dict[str, dict[str, list[str]]]:
    """File -> line -> the tests that execute it in their own process, from one run of them with coverage."""
    python, data = checkout / ".venv/bin/python", checkout / ".coverage"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "pytest-cov>=7,<8"], check=True)
    folders = [each for each in sorted((checkout / "tests").glob("*/")) if each.name not in (*_FAR, "kit")]
    rooms = [folder for room in ROOMS.values() for folder in room]
    run = [
        str(python), "-m", "pytest", "-q", "-n", "auto", "--dist=loadgroup", "-m", "not slow",
        *(f"--cov={each}" for each in rooms), "--cov-context=test", "--cov-report=term:skip-covered",
        *[str(each) for each in folders if any(each.rglob("test_*.py"))],
    ]  # fmt: skip
    with (checkout.parent / "coverage.txt").open("w") as report:
        ended = subprocess.run(run, cwd=checkout, stdout=report, check=False)
    if ended.returncode != 0:
        print(f"not all tests passed: {report.name}", flush=True)
    files = [each.relative_to(checkout).as_posix() for room in rooms for each in (checkout / room).rglob("*.py")]
    read = [python, Path(__file__).with_name("_executed.py"), data]
    said = subprocess.run(read, input=json.dumps(files), text=True, capture_output=True, check=True, cwd=checkout)
    found: dict[str, dict[str, list[str]]] = json.loads(said.stdout)
    return found


def pure_steps(tests: list[str]) -> Iterator[tuple[str, list[str]]]:
    for start in range(0, len(tests), _AT_ONCE):
        yield PURE, tests[start : start + _AT_ONCE]


def other_steps(file: str) -> Iterator[tuple[str, list[str]]]:
    """All tests that import the file, those that do at first hand before others."""
    by = importers(modules())
    tests = sorted(each for each in reached([file], by) if Path(each).name.startswith("test_"))
    yield ANY, ["--whole", *(each for each in tests if each in by[file])]
    yield ANY, ["--whole", "-n4", "--dist=loadgroup", *tests]


def judged(checkout: Path, mutant: dict[str, Any], steps: Iterator[tuple[str, list[str]]]) -> tuple[str, str]:
    """What caught the mutant (pure, other, survived, or no answer), and by which test."""
    path = checkout / mutant["file"]
    before = path.read_text()
    path.write_text(mutant["text"])
    hang = ["-o", f"faulthandler_timeout={_TEST_S}", "-o", "faulthandler_exit_on_timeout=true"]
    try:
        for caught, tests in steps:
            run = [str(checkout / "run"), "test", *hang, "-x", "-q", "--no-header", "--tb=no", *tests]
            try:
                said = subprocess.run(run, cwd=checkout, capture_output=True, text=True, timeout=_RUN_S, check=False)
            except subprocess.TimeoutExpired:
                return LATE, f"{caught} tests took more than {_RUN_S} s"
            if said.returncode not in (0, 5):
                lines = [line for line in said.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return caught, lines[0].split(" ")[1] if lines else f"exit status {said.returncode}"
        return NONE, ""
    finally:
        path.write_text(before)


def checkout_at(place: Path) -> Path:
    """A clone of this commit with an environment of its own, without what an interrupted campaign left in it."""
    if place.exists():
        subprocess.run(["git", "checkout", "--quiet", "--", "."], cwd=place, check=True)
        return place
    subprocess.run(["git", "clone", "--quiet", ROOT, place], check=True)
    subprocess.run([place / "run", "cosched", "--version"], check=True, stdout=subprocess.DEVNULL)
    return place


def key(mutant: dict[str, Any]) -> str:
    return f"{mutant['file']}:{mutant['line']} {mutant['operator']}"


def table(answers: list[dict[str, Any]]) -> Iterator[str]:
    yield "| Room | Mutants | Caught by tests in their own process | By any test |\n|---|---|---|---|"
    for room in ROOMS:
        counts = Counter(each["caught"] for each in answers if each["room"] == room)
        if total := counts.total():
            pure, other = counts[PURE], counts[PURE] + counts[ANY]
            yield f"| {room} | {total} | {pure} ({pure / total:.0%}) | {other} ({other / total:.0%}) |"
    for each in answers:
        if each["caught"] in (NONE, LATE, OPEN):
            yield f"{each['caught']}: {key(each)} {each['by']}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run campaign mutants", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50, help="mutants of each room (50)")
    parser.add_argument("--room", action="append", choices=ROOMS, help="this one alone; more than once: these")
    parser.add_argument("--pure", action="store_true", help="only tests that execute the line in their own process")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=ROOT / "results/mutants", help="kept for the next time")
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout[
        :8
    ]
    place = given.results / commit
    place.mkdir(parents=True, exist_ok=True)
    log = place / f"{given.seed}.jsonl"
    known = {each["key"]: each for each in map(json.loads, log.read_text().splitlines() if log.exists() else ())}
    wanted = drawn(cosmic_ray(given.results / "cosmic-ray"), given.seed, given.count, given.room or [*ROOMS])
    checkouts = [checkout_at(place / f"checkout-{number}") for number in range(given.processes)]
    kept = place / "lines.json"
    if not kept.exists():
        kept.write_text(json.dumps(covered(checkouts[0])))
    tests_of_line = json.loads(kept.read_text())
    left: Queue[dict[str, Any]] = Queue()
    for mutant in wanted:
        if known.get(key(mutant), {"caught": OPEN})["caught"] == OPEN:
            left.put(mutant)
    writes = threading.Lock()

    def answer_of(checkout: Path, mutant: dict[str, Any]) -> tuple[str, str]:
        tests = tests_of_line[mutant["file"]].get(str(mutant["line"]), [])
        if key(mutant) not in known:
            caught, by = judged(checkout, mutant, pure_steps(tests))
            if caught != NONE:
                return caught, by
        if given.pure:
            return OPEN, f"{len(tests)} tests execute the line"
        return judged(checkout, mutant, other_steps(mutant["file"]))

    def work(checkout: Path) -> None:
        while True:
            try:
                mutant = left.get_nowait()
            except Empty:
                return
            caught, by = answer_of(checkout, mutant)
            answer = {
                "key": key(mutant),
                "caught": caught,
                "by": by,
                **{n: mutant[n] for n in ("room", "file", "line", "operator")},
            }
            with writes, log.open("a") as file:
                file.write(json.dumps(answer) + "\n")
                known[answer["key"]] = answer
                print(f"{caught:8} {answer['key']}  {by}", flush=True)

    workers = [threading.Thread(target=work, args=(checkout,)) for checkout in checkouts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("\n".join(table([known[key(mutant)] for mutant in wanted])))


if __name__ == "__main__":
    main()
