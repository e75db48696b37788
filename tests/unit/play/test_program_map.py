"""The map from a log's jobs to programs: what it says, and what of it is refused, with file and key."""

from pathlib import Path

import pytest
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.snapshots import Snapshot

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


def test_what_cannot_be_is_told_with_file_and_key(snapshot: Snapshot, cosched: Call) -> None:  # noqa: F811
    snapshot.replay(cosched)
