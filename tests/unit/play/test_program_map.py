"""The map from a log's jobs to programs: what it says, and what of it is refused, with file and key."""

from pathlib import Path

import pytest

from cosched.apps.play.program_map import Known, Program, ProgramMap
from cosched.errors import BadInput

GOOD = """\
programs:
  cg:
    run: exec mpirun cg $PLAY_WORK
    rate: [[4, 40], [1, 10], [2, 18]]
    startup: 2s
    kind: comm
    memory: 64MiB
  spin:
    script: spin.sh
    arguments: [--hard, "1"]
jobs:
  - {executable: [1, "5-7"], tasks: 2-4, program: cg}
  - {class: long, program: cg}
  - {user: 9, program: cg}
  - {executable: 2, program: spin}
"""


def made(tmp_path: Path, text: str) -> ProgramMap:
    (tmp_path / "spin.sh").write_text('#!/bin/sh\nexec spin "$@"\n')
    (tmp_path / "bad.sh").write_text("exec spin\n")
    path = tmp_path / "map.yaml"
    path.write_text(text)
    return ProgramMap(path)


def known(**given: object) -> Known:
    return Known(**({"number": 1, "executable": 3, "user": 1, "tasks": 1, "job_class": ""} | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "program"),
    [
        (known(executable=1, tasks=2), "cg"),
        (known(executable=6, tasks=4), "cg"),
        (known(executable=2, job_class="long"), "cg"),
        (known(executable=2, job_class="short"), "spin"),
        (known(executable=2, user=9), "cg"),
    ],
)
def test_the_first_rule_that_fits_decides(tmp_path: Path, job: Known, program: str) -> None:
    assert made(tmp_path, GOOD).of(job) == program


@pytest.mark.parametrize("job", [known(), known(executable=1, tasks=5), known(executable=8, tasks=2)])
def test_a_job_that_no_rule_fits_is_told_with_what_is_known_of_it(tmp_path: Path, job: Known) -> None:
    with pytest.raises(BadInput, match=f"no rule for job 1 .executable {job.executable}, {job.tasks} tasks, user 1"):
        made(tmp_path, GOOD).of(job)


def test_a_program_is_a_script_of_lines_or_a_file_with_arguments(tmp_path: Path) -> None:
    programs = made(tmp_path, GOOD)
    assert programs.scripts == {
        "cg": "#!/bin/sh\nexec mpirun cg $PLAY_WORK\n",
        "spin": '#!/bin/sh\nexec spin "$@"\n',
    }
    assert [each.name for each in programs.files] == ["map.yaml", "spin.sh"]
    assert programs.programs["cg"].memory_bytes == 64 << 20
    assert programs.programs["spin"].memory_bytes is None


@pytest.mark.parametrize(
    ("seconds", "tasks", "work"),
    [
        (12, 1, 100),  # two seconds of the twelve are its start
        (12, 2, 180),
        (12, 3, 290),  # on a straight line between 18 and 40 a second
        (12, 4, 400),
        (12, 8, 400),  # beyond what was measured: no faster
        (2, 4, 1),
        (0.5, 4, 1),
    ],
)
def test_work_is_what_a_measured_program_does_in_that_time(
    tmp_path: Path, seconds: float, tasks: int, work: int
) -> None:
    program = made(tmp_path, GOOD).programs["cg"]
    assert program.work(round(seconds * 1e6), tasks) == work


def test_a_rate_by_itself_is_each_tasks() -> None:
    assert Program(run="x", rate=2.5).work(4_000_000, 3) == 30
    assert Program(run="x", rate=[(4, 40)]).work(1_000_000, 1) == 10  # below what was measured: in proportion


BAD = {
    "programs: [1]": "programs",
    "jobs: []\nprograms: {a: {run: x}}": "map.yaml: jobs: no rule",
    "jobs: [{program: a}]": "missing",
    "jobs: [{program: b}]\nprograms: {a: {run: x}}": "jobs[0].program: no program 'b'; expected one of a",
    "jobs: [{program: spinn}]\nprograms: {spin: {run: x}}": "did you mean 'spin'?",
    "jobs: [{program: a, class: lang}]\nprograms: {a: {run: x}}": "jobs[0].class: 'lang'; expected long or short",
    "jobs: [{program: a, tasks: many}]\nprograms: {a: {run: x}}": "jobs[0].tasks: 'many'; expected a whole number",
    "jobs: [{program: a, task: 2}]\nprograms: {a: {run: x}}": "jobs[0]: task: unknown key",
    "jobs: [{program: a}]\nprograms: {a: {runs: x}}": "did you mean 'run'?",
    "jobs: [{program: a}]\nprograms: {a: {}}": "programs.a: neither run nor script",
    "jobs: [{program: a}]\nprograms: {a: {run: x, script: y}}": "programs.a: run and script",
    "jobs: [{program: a}]\nprograms: {a: {run: x, arguments: [y]}}": "programs.a.arguments: arguments beside run",
    "jobs: [{program: a}]\nprograms: {a: {script: none.sh}}": "none.sh: No such file",
    "jobs: [{program: a}]\nprograms: {a: {script: bad.sh}}": "bad.sh:1: found 'exec spin'",
    "jobs: [{program: a}]\nprograms: {a: {run: x, rate: 0}}": "programs.a.rate: 0 with 1 tasks",
    "jobs: [{program: a}]\nprograms: {a: {run: x, rate: -1}}": "programs.a.rate: -1 with 1 tasks",
    "jobs: [{program: a}]\nprograms: {a: {run: x, rate: .inf}}": "programs.a.rate: inf with 1 tasks",
    "jobs: [{program: a}]\nprograms: {a: {run: x, rate: []}}": "programs.a.rate: []",
    "jobs: [{program: a}]\nprograms: {a: {run: x, rate: [[1, 2], [1, 3]]}}": "each number of tasks once",
    "jobs: [{program: a}]\nprograms: {a: {run: x, rate: [[0, 2]]}}": "programs.a.rate: 2 with 0 tasks",
    "jobs: [{program: a}]\nprograms: {a: {run: x, startup: 5}}": "programs.a: startup: found 5; expected str",
    "jobs: [{program: a}]\nprograms: {a: {run: x, startup: 5x}}": "unknown unit 'x'",
    "jobs: [{program: a}]\nprograms: {a: {run: x, kind: com}}": "did you mean 'comm'?",
    "jobs: [{program: a}]\nprograms: {a: {run: x, memory: 0B}}": "programs.a.memory: '0B'",
    "jobs: [{program: a}]\nprograms: {a: {run: x, coscheduling: gag}}": "did you mean 'gang'?",
    "jobs: [{program: a b}]\nprograms: {a b: {run: x}}": "a name of letters",
    "jobs: [": "not YAML",
}


@pytest.mark.parametrize(("text", "told"), BAD.items(), ids=list(BAD))
def test_what_cannot_be_is_told_with_file_and_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadInput) as refused:
        made(tmp_path, text)
    assert told in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_map_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file; expected a map from jobs to programs"):
        ProgramMap(tmp_path / "map.yaml")
