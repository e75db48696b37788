"""What ``cosched submit`` refuses before anybody is asked: status 2, and where, what was found, what was expected."""

from pathlib import Path

import pytest
from kit.command import Call

SCRIPT = "#!/bin/sh\n#COSCHED --time 10min\n\n# a comment\necho hello\n"


@pytest.fixture
def script(cosched: Call, tmp_path: Path) -> Path:
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No service of this machine is asked by accident."""
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("COSCHED_SERVER", raising=False)
    monkeypatch.delenv("COSCHED_LAB", raising=False)


#: Options -> what the message must contain.
BAD_OPTIONS = {
    ("--time", "10"): ["--time: '10'", "with its unit"],
    ("--time", "10mn"): ["--time: unknown unit 'mn'", "did you mean 'min'?"],
    ("--time", "0s"): ["--time: '0s'", "more than nothing"],
    ("--mem", "1024"): ["--mem: '1024'", "with its unit"],
    ("--mem", "2gb"): ["--mem: unknown unit 'gb'", "did you mean 'GB'?"],
    ("--mem", "0B"): ["--mem: '0B'", "at least 1B"],
    ("--tasks", "0"): ["--tasks: '0'", "a whole number from 1"],
    ("-n", "four"): ["--tasks: 'four'", "a whole number from 1"],
    ("-n", "-2"): ["--tasks: '-2'", "a whole number from 1"],
    ("--kind", "com"): ["--kind: 'com'", "one of cpu, comm", "did you mean 'comm'?"],
    ("--sizes", "pow3"): ["--sizes: 'pow3'", "a number, a range such as 1-8, a list such as 4;8;16, pow2 or square"],
    ("--sizes", "8-1"): ["--sizes: '8-1'", "a range such as 1-8"],
    ("--sizes", "0"): ["--sizes: '0'"],
    ("--sizes", "4,8"): ["--sizes: '4,8'", "a list such as 4;8;16"],
    ("--sizes", "1-8", "--min", "2"): ["--sizes: '1-8' beside a minimum or a maximum"],
    ("--sizes", "1-8", "-n", "2"): ["--tasks: 2 beside other sizes", "one number of tasks, or several sizes"],
    ("-n", "2", "--max", "4"): ["--tasks: 2 beside other sizes"],
    ("--min", "0"): ["--min: '0'", "a whole number from 1"],
    ("--max", "many"): ["--max: 'many'", "a whole number from 1"],
    ("--min", "8", "--max", "4"): ["--min: 8, above the maximum of 4"],
    ("--components", "2,2"): ["--components: '2,2'", "tasks of each component, such as 2+2"],
    ("--components", "2+0"): ["--components: '2+0'"],
    ("--crossing", "nan"): ["--crossing: 'nan'", "a part of its time from 0 to 1000, such as 0.25"],
    ("--crossing", "-1"): ["--crossing: '-1'"],
    ("--crossing", "much"): ["--crossing: 'much'"],
    ("--components", "2+2", "-n", "5"): ["--components: 2+2, 4 together, for 5 tasks"],
    ("--components", "2+2", "--max", "5"): ["--components: 2+2 beside other sizes"],
    ("--fold", "maybe"): ["--fold: 'maybe'", "one of yes, no"],
    ("--class", "lang"): ["--class: 'lang'", "one of long, short", "did you mean 'long'?"],
    ("--export", "everything"): ["--export: 'everything'", "one of programs, all, none"],
    ("--env", "1X=3"): ["--env: '1X=3'", "NAME or NAME=VALUE"],
    ("--env", "NOT_SET_HERE"): ["--env: NOT_SET_HERE, which is not set here", "NAME=VALUE"],
    ("--tim", "10min"): ["--tim", "--time"],
    ("-N", "2"): ["-N: an option of another batch system; expected --tasks; nodes are chosen for the job"],
    ("--ntasks=4",): ["--ntasks: an option of another batch system; expected --tasks"],
    ("-t", "5"): ["-t: an option of another batch system; expected --time, with its unit, such as 10min"],
    ("-J", "x"): ["-J: an option of another batch system; expected --name"],
    ("-o", "x"): ["-o: an option of another batch system; expected --output"],
    ("-D", "x"): ["-D: an option of another batch system; expected --directory"],
    ("--cpus-per-task=2",): ["--cpus-per-task: an option of another batch system; expected --tasks; a task is one CPU"],
    ("-e", "err.txt"): ["-e: an option of another batch system; expected --error"],
    ("--ntasks-per-node=2",): ["--ntasks-per-node: an option of another batch system; expected --tasks"],
    ("--mem-per-cpu=1G",): ["--mem-per-cpu: an option of another batch system; expected --mem, which is of each task"],
    ("--wrap", "cmd"): ["--wrap: an option of another batch system; expected a script, or - for standard input"],
    ("--parsable",): ["--parsable: an option of another batch system; expected --json"],
    ("--array=1-200%8",): ["--array: an option of another batch system, without a counterpart here; expected options"],
    ("--dependency=afterok:12",): ["--dependency: an option of another batch system, without a counterpart here"],
    ("--exclusive",): ["--exclusive: an option of another batch system, without a counterpart here"],
    ("--constraint=big",): ["--constraint: an option of another batch system, without a counterpart here"],
    ("--exclude=desk3",): ["--exclude: an option of another batch system, without a counterpart here"],
    ("--nodelist=desk3",): ["--nodelist: an option of another batch system, without a counterpart here"],
    ("--gres=gpu:1",): ["--gres: an option of another batch system, without a counterpart here"],
    ("--begin=now+1hour",): ["--begin: an option of another batch system, without a counterpart here"],
    ("--deadline=18:00",): ["--deadline: an option of another batch system, without a counterpart here"],
    ("--mail-type=END",): ["--mail-type: an option of another batch system, without a counterpart here"],
    ("--signal=USR1@60",): ["--signal: an option of another batch system, without a counterpart here"],
    ("--time", "1-00:00:00"): ["--time: '1-00:00:00'", "with its unit"],
    ("--time", "00:05:00"): ["--time: '00:05:00'", "with its unit"],
    ("--server", "http://here"): ["--server: 'http://here'", "the path of a Unix socket, or https://HOST:PORT"],
    ("--server", "https://here/path"): ["--server", "https://HOST:PORT"],
    ("--server", "here"): ["--server: 'here'", "the path of a Unix socket"],
    ("--lab", "../x"): ["lab: '../x'", "letters, digits"],
    ("--lab", "a", "--server", "/x"): ["--lab: 'a', together with --server", "one of the two"],
}


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_options(options: tuple[str, ...], cosched: Call, script: Path) -> None:
    ended = cosched("submit", *options, "job.sh")
    assert ended.status == 2, ended
    for part in BAD_OPTIONS[options]:
        assert part in ended.err
    assert not ended.out


#: The script -> what the message must contain.
BAD_SCRIPTS = {
    "empty": ("", ["job.sh:1: empty", "#!/bin/sh"]),
    "no interpreter": ("echo hello\n", ["job.sh:1: found 'echo hello'", "names the interpreter"]),
    "only #!": ("#!\necho\n", ["job.sh:1: found '#!'"]),
    "of Windows": ("#!/bin/sh\r\necho\r\n", ["job.sh:1: lines end with CR LF"]),
    "unknown option": ("#!/bin/sh\n#COSCHED --tme 3s\n", ["job.sh:2:", "--tme"]),
    "bad duration": ("#!/bin/sh\n# why\n#COSCHED -n 4 --time 3 sec\n", ["job.sh:3: --time: '3'", "its unit"]),
    "bad unit": ("#!/bin/sh\n#COSCHED --time 3sec\n", ["job.sh:2: --time: unknown unit 'sec'"]),
    "bad kind": ("#!/bin/sh\n#COSCHED --kind cup\n", ["job.sh:2: --kind: 'cup'", "did you mean 'cpu'?"]),
    "bad sizes": ("#!/bin/sh\n#COSCHED --sizes 8-4\n", ["job.sh:2: --sizes: '8-4'"]),
    "option of the command": ("#!/bin/sh\n#COSCHED --wait\n", ["job.sh:2: --wait", "options of the job"]),
    "the command's server": ("#!/bin/sh\n#COSCHED --server /x\n", ["job.sh:2: --server", "options of the job"]),
    "json": ("#!/bin/sh\n#COSCHED --json\n", ["job.sh:2: --json", "options of the job"]),
    "help": ("#!/bin/sh\n#COSCHED --help\n", ["job.sh:2:", "--help"]),
    "words": ("#!/bin/sh\n#COSCHED -n 4 other.sh\n", ["job.sh:2: '-n 4 other.sh'", "options alone"]),
    "dash dash": ("#!/bin/sh\n#COSCHED -- x\n", ["job.sh:2: '-- x'", "options alone"]),
    "missing value": ("#!/bin/sh\n#COSCHED --time\n", ["job.sh:2"]),
    "open quote": ("#!/bin/sh\n#COSCHED --name 'a b\n", ["job.sh:2", "no closing quotation"]),
    "a space too many": ("#!/bin/sh\n# COSCHED --time 3s\n", ["job.sh:2: found '# COSCHED --time 3s'"]),
    "small letters": ("#!/bin/sh\n#cosched --time 3s\n", ["job.sh:2: found '#cosched --time 3s'"]),
    "a colon": ("#!/bin/sh\n#COSCHED: --time 3s\n", ["job.sh:2: found '#COSCHED: --time 3s'"]),
}


@pytest.mark.parametrize("case", BAD_SCRIPTS)
def test_scripts(case: str, cosched: Call, script: Path) -> None:
    text, parts = BAD_SCRIPTS[case]
    script.write_bytes(text.encode())
    ended = cosched("submit", "job.sh")
    assert ended.status == 2, ended
    for part in parts:
        assert part in ended.err
    assert not ended.out


def test_a_script_that_is_missing_unreadable_too_long_or_no_text(cosched: Call, tmp_path: Path) -> None:
    ended = cosched("submit", "nosuch.sh")
    assert (ended.status, ended.err) == (
        2,
        "cosched: nosuch.sh: no such file; expected a job script, or - for standard input\n",
    )
    assert cosched("submit", tmp_path).status == 2
    (tmp_path / "big.sh").write_bytes(b"#!/bin/sh\n" + b"#" * (1 << 20))
    ended = cosched("submit", "big.sh")
    assert (ended.status, "longer than 1 MiB" in ended.err) == (2, True)
    (tmp_path / "bytes.sh").write_bytes(b"#!/bin/sh\n\necho \xff\n")
    ended = cosched("submit", "bytes.sh")
    assert (ended.status, "bytes.sh:3: not text" in ended.err) == (2, True)


def test_without_a_script(cosched: Call) -> None:
    ended = cosched("submit")
    assert ended.status == 2
    assert "SCRIPT" in ended.err


def test_a_line_after_the_first_command_is_told_and_not_read(cosched: Call, script: Path) -> None:
    script.write_text(SCRIPT + "#COSCHED --nonsense\n")
    ended = cosched("submit", "job.sh")
    assert "job.sh:6: '#COSCHED --nonsense' stands after a command: not read" in ended.err
    assert ended.status == 3  # good input, and nobody there


def test_standard_input_is_named_in_errors(cosched: Call) -> None:
    ended = cosched("submit", "-", given="#!/bin/sh\n#COSCHED --time x\n")
    assert ended.status == 2
    assert "standard input:2: --time: 'x'" in ended.err


@pytest.mark.parametrize("verb", ["show", "explain", "logs", "wait", "cancel", "hold", "release"])
@pytest.mark.parametrize("number", ["seven", "0", "1.5", "१"])
def test_a_job_that_is_no_number(verb: str, number: str, cosched: Call) -> None:
    ended = cosched(verb, number)
    assert ended.status == 2
    assert f"ID: '{number}'; expected the number of a job" in ended.err


@pytest.mark.parametrize("option", ["--output", "--error"])
def test_output_without_its_directory_is_refused_with_the_remedy(
    option: str, cosched: Call, script: Path, tmp_path: Path
) -> None:
    ended = cosched("submit", option, "logs/out.txt", "job.sh")
    assert ended.status == 2
    place = tmp_path / "logs"
    expected = f"cosched: {option}: there is no directory {place}; expected one that is there: mkdir -p {place}\n"
    assert ended.err == expected
    place.mkdir()
    assert cosched("submit", option, "logs/out.txt", "job.sh").status == 3  # good input, and nobody there
    assert f"{option}: {place} is a directory" in cosched("submit", option, "logs", "job.sh").err
    elsewhere = ("--directory", "/no-such-directory", option, "logs2/out.txt")
    for unseen in (elsewhere, (option, "/no-such-top/out.txt"), (option, "logs-%N/out.txt")):
        assert cosched("submit", *unseen, "job.sh").status == 3


def test_no_service_anywhere(cosched: Call, script: Path, tmp_path: Path) -> None:
    for call in (["submit", "job.sh"], ["queue"], ["show", "1"], ["nodes"], ["history"], ["explain", "1"]):
        ended = cosched(*call)
        assert ended.status == 3, ended
        assert "no scheduler answers" in ended.err
        assert "cosched lab up" in ended.err
    ended = cosched("queue", "--server", tmp_path / "none.sock")
    assert ended.status == 3
    assert str(tmp_path / "none.sock") in ended.err
    assert "no such file or directory" in ended.err
    ended = cosched("queue", "--lab", "mine")
    assert ended.status == 3
    assert "no lab 'mine' is up" in ended.err
    assert "cosched lab up --name mine" in ended.err


def test_bytes_that_are_no_text(cosched: Call, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = b"\xff".decode(errors="surrogateescape")
    for arguments in (["job.sh", bad], ["--name", bad, "job.sh"], ["--env", f"A={bad}", "job.sh"]):
        ended = cosched("submit", *arguments)
        assert ended.status == 2
        assert "expected text in UTF-8" in ended.err
