"""./run without a network: which interpreter it takes, when it makes the environment anew, what it says when it can't.

Each test has a copy of the script in a folder of its own and interpreters that only pretend: they answer the script's
questions with facts that the test chooses, and keep a diary of what they were asked to install.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.command import Ended
from kit.needs import need_mounts
from kit.snapshots import Snapshot, told
from kit.waiting import BOUND_S

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    "sh",
    "dirname",
    "sed",
    "cat",
    "sha256sum",
    "cmp",
    "env",
    "uname",
    "flock",
    "rm",
    "mv",
    "mkdir",
    "cp",
    "tr",
    "nproc",
)
#: What runs the whole suite.
WHOLE = f"python 3.12 runs: -m pytest -n {2 * len(os.sched_getaffinity(0))} --dist loadgroup --no-loadscope-reorder"

# Answers the script's question about an interpreter as this machine's own Python does, with facts changed.
ASKED = """#!{python} -I
import sys, sysconfig, os
if sys.argv[1:3] != ["-I", "-c"]:
    sys.exit("not asked to do that")
{facts}
question, sys.argv = sys.argv[3], ["-c", *sys.argv[4:]]
exec(question)
"""

# Pretends to be Python 3.{minor}: `-m venv` copies it into the new environment, `-m pip` and `-m compileall` only write
# the diary.
PRETENDS = """#!/bin/sh
echo "$*" >>"{diary}"
case "$*" in "-m pip"*) {{ env | sort; echo; }} >>"{diary}.environment" ;; esac
case "$*" in
    -I*) echo "ok {minor} {path}" ;;
    "-m venv"*) mkdir -p "$3/bin" && cp "{path}" "$3/bin/python" ;;
    "-m pip"*) {pip} ;;
    "-m compileall"*) ;;
    *) {command} ;;
esac
"""


class Checkout:
    """A folder with the script, and a PATH with a few tools and the interpreters that a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.bin = folder / "bin"
        self.diary = folder / "diary"
        self.bin.mkdir()
        for name in ("run", "lock/requirements.txt", "lock/pip.txt", "lock/fetch_pip.py", "pyproject.toml"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        (self.root / "cosched").mkdir()
        (self.root / "cosched/__init__.py").write_text('__version__ = "0"\n')
        for tool in (*TOOLS, "grep", "sort", "sleep", "tail", "touch", "wc"):
            if found := shutil.which(tool):
                (self.bin / tool).symlink_to(found)

    def put(self, name: str, text: str) -> Path:
        file = self.bin / name
        file.write_text(text)
        file.chmod(0o755)
        return file

    def put_asked(self, name: str, facts: str) -> Path:
        """An interpreter that is this machine's, but for the facts."""
        return self.put(name, ASKED.format(python=Path(sys.executable).resolve(), facts=facts))

    def put_pretender(
        self, minor: int, *, pip: str = "true", command: str = 'echo "python 3.{minor} runs: $*"'
    ) -> Path:
        path = self.bin / f"python3.{minor}"
        command = command.format(minor=minor)
        return self.put(path.name, PRETENDS.format(minor=minor, diary=self.diary, path=path, pip=pip, command=command))

    def start(self, *arguments: str, **environ: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self.root / "run", *arguments],
            env={"PATH": str(self.bin), "HOME": str(self.root.parent), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments, **environ)
        out, err = process.communicate(timeout=BOUND_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def times(self, what: str) -> int:
        """How often an interpreter was asked for something that begins so."""
        return sum(line.startswith(what) for line in self.diary.read_text().splitlines())

    @property
    def made(self) -> int:
        return self.times("-m venv")

    @property
    def linked(self) -> int:
        return sum("--editable" in line for line in self.diary.read_text().splitlines())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


# --- What it says -----------------------------------------------------------------------------------------------------


def session(checkout: Checkout, *commands: str, **environ: str) -> str:
    """These commands of ./run and what they print."""
    lines = []
    for each in commands:
        answer = checkout.run(*each.split(), **environ)
        before = "".join(f"{name}={value} " for name, value in environ.items())
        lines += [f"$ {before}./run {each}", *told(Ended(answer.returncode, answer.stdout, answer.stderr))]
    return "".join(f"{line}\n" for line in lines)


def test_help_and_bad_usage(checkout: Checkout, snapshot: Snapshot) -> None:
    (checkout.root / "benchmarks").mkdir()
    (checkout.root / "tests/campaigns").mkdir(parents=True)
    for name in ("benchmarks/__init__.py", "benchmarks/kth.py", "tests/campaigns/rank_kills.py"):
        (checkout.root / name).touch()
    snapshot(session(checkout, "help", "tset", "bench ktj", "campaign kth"))
    assert checkout.run("help").stdout == checkout.run().stdout == checkout.run("--help").stdout


def test_a_campaign_is_found_among_the_tests_and_imports_as_they_do(checkout: Checkout) -> None:
    (checkout.root / "tests/campaigns").mkdir(parents=True)
    (checkout.root / "tests/campaigns/rank_kills.py").touch()
    checkout.put_pretender(12, command='echo "$PYTHONPATH: $*"')
    answer = checkout.run("campaign", "rank-kills", "7")
    assert answer.stdout == f"{checkout.root}/tests: {checkout.root}/tests/kit/guarded.py campaigns.rank_kills 7\n"


@pytest.mark.parametrize("asks", ["-h", "--help"])
def test_a_measurement_asked_for_help_tells_of_itself_and_measures_nothing(checkout: Checkout, asks: str) -> None:
    (checkout.root / "benchmarks").mkdir()
    (checkout.root / "benchmarks/kth.py").write_text(
        '"""What KTH costs.\n\n    ./run bench kth [ROUNDS]\n"""\nraise SystemExit(1)\n'
    )
    answer = checkout.run("bench", "kth", asks)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == "What KTH costs.\n\n    ./run bench kth [ROUNDS]\n\n"
    assert not checkout.diary.exists()


#: What an interpreter may be, or lack.
UNFIT = [
    "sys.version_info = (3, 9, 2)", "sys.version_info = (3, 15, 0)", "sys.implementation.name = 'pypy'",
    "sys.maxsize = 2**31 - 1", "sysconfig.get_config_var = lambda name: 1", "os.confstr = lambda name: None",
    "os.confstr = lambda name: 'glibc 2.27'", "sys.modules['sqlite3'] = None", "sys.modules['ssl'] = None",
    "sys.exit('pyenv: command not found')",
]  # fmt: skip


def test_python_and_machine_that_will_not_do_are_refused_with_the_reason(
    checkout: Checkout, snapshot: Snapshot
) -> None:
    shown = "# No Python at all\n" + session(checkout, "demo")
    for facts in UNFIT:
        python = checkout.put_asked("python3", facts)
        shown += f"\n# {facts}\n" + session(checkout, "test")
    shown += session(checkout, "test", COSCHED_PYTHON=str(python))
    assert not (checkout.root / ".venv").exists()
    (checkout.bin / "uname").unlink()
    for system, machine in (("Darwin", "arm64"), ("Linux", "riscv64")):
        checkout.put("uname", f"#!/bin/sh\ncase $1 in -s) echo {system} ;; *) echo {machine} ;; esac\n")
        shown += f"\n# {system} on {machine}\n" + session(checkout, "test")
    snapshot(shown)


@pytest.mark.parametrize("made", [False, True], ids=["not made", "made before"])
def test_checkout_on_noexec_mount_is_refused_with_remedy(checkout: Checkout, made: bool) -> None:
    need_mounts()
    (checkout.bin / "findmnt").symlink_to(str(shutil.which("findmnt")))
    checkout.put_pretender(12)
    if made:
        assert checkout.run("test").returncode == 0
    hardened = 'mount --bind "$1" "$1" && mount -o remount,bind,noexec "$1" && exec env PATH="$2" sh "$1/run" demo'
    answer = subprocess.run(
        ["unshare", "-m", "sh", "-c", hardened, "sh", checkout.root, checkout.bin],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"run: {checkout.root} is on a file system mounted noexec: nothing of ")
    assert "\nClone into a directory where programs may be executed" in answer.stderr
    assert made == (checkout.root / ".venv").exists()


# --- Which interpreter ------------------------------------------------------------------------------------------------


def test_takes_the_newest_that_works(checkout: Checkout) -> None:
    checkout.put_asked("python3.13", "sys.exit('a shim with nothing behind it')")
    checkout.put_pretender(11)
    newest = checkout.put_pretender(12)
    answer = checkout.run("test", "-x")
    assert (answer.returncode, answer.stdout) == (0, f"{WHOLE} -x\n")
    assert f"setting up .venv with {newest}" in answer.stderr


def test_takes_the_one_asked_for_and_says_nothing_when_it_is_there_already(checkout: Checkout) -> None:
    checkout.put_pretender(11)
    checkout.put_pretender(12)
    assert "python 3.11 runs" in checkout.run("test", COSCHED_PYTHON="3.11").stdout
    assert checkout.run("test", COSCHED_PYTHON="3.11").stderr == ""
    assert checkout.made == 1
    assert "python 3.12 runs" in checkout.run("test", COSCHED_PYTHON=str(checkout.bin / "python3.12")).stdout
    assert checkout.made == 2


# --- When the environment is made -------------------------------------------------------------------------------------


def test_made_once(checkout: Checkout) -> None:
    checkout.put_pretender(12)
    for _ in range(3):
        assert checkout.run("test").returncode == 0
    assert (checkout.made, checkout.linked) == (1, 1)


def test_whole_suite_runs_on_all_cores_and_a_part_of_it_in_one_process(checkout: Checkout) -> None:
    checkout.put_pretender(12)
    assert checkout.run("test", "--system").stdout == f"{WHOLE} --system\n"
    assert checkout.run("test", "--whole", "--system").stdout == f"{WHOLE} --whole --system\n"
    assert checkout.run("test", "--durations=9", "-x").stdout == f"{WHOLE} --durations=9 -x\n"
    quick = "python 3.12 runs: -m pytest -n auto --dist loadgroup --quick --system\n"
    assert checkout.run("test", "--quick", "--system").stdout == quick
    assert checkout.run("test", "--system", "tests/unit").stdout == "python 3.12 runs: -m pytest --system tests/unit\n"
    assert checkout.run("test", "-k", "easy").stdout == "python 3.12 runs: -m pytest -k easy\n"
    assert checkout.run("test", "tests/unit").stdout == "python 3.12 runs: -m pytest tests/unit\n"


def interrupt(checkout: Checkout) -> None:
    (checkout.root / ".venv/cosched-stamp").unlink()


def change_lock(checkout: Checkout) -> None:
    with (checkout.root / "lock/requirements.txt").open("a") as file:
        file.write("# changed\n")


def move(checkout: Checkout) -> None:
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))


def remove_interpreter(checkout: Checkout) -> None:
    (checkout.root / ".venv/bin/python").unlink()


@pytest.mark.parametrize("harm", [interrupt, change_lock, move, remove_interpreter])
def test_made_anew_when_it_is_not_whole(checkout: Checkout, harm: Callable[[Checkout], None]) -> None:
    checkout.put_pretender(12)
    checkout.run("test")
    harm(checkout)
    assert checkout.run("test").returncode == 0
    assert (checkout.made, checkout.linked) == (2, 2)


def test_only_the_project_is_installed_anew_when_only_it_changed(checkout: Checkout) -> None:
    checkout.put_pretender(12)
    checkout.run("test")
    (checkout.root / "cosched/__init__.py").write_text('__version__ = "1"\n')
    assert checkout.run("test").returncode == 0
    assert (checkout.made, checkout.linked) == (1, 2)


def test_a_failed_installation_is_told_and_leaves_nothing_that_looks_whole(checkout: Checkout) -> None:
    checkout.put_pretender(12, pip="echo 'ERROR: no such host' >&2; exit 1")
    answer = checkout.run("test")
    assert answer.returncode == 1
    assert "ERROR: no such host" in answer.stderr
    assert "PIP_INDEX_URL" in answer.stderr
    assert not (checkout.root / ".venv/cosched-stamp").exists()
    checkout.put_pretender(12)
    assert checkout.run("test").returncode == 0


def test_uv_is_used_where_it_is_and_pip_where_it_fails(checkout: Checkout) -> None:
    python = checkout.put_pretender(12)
    checkout.put("uv", f'#!/bin/sh\ncase $1 in venv) mkdir -p "$6/bin" && cp {python} "$6/bin/python" ;; esac\n')
    assert checkout.run("test").returncode == 0
    assert (checkout.made, checkout.linked) == (0, 1)
    interrupt(checkout)
    checkout.put("uv", "#!/bin/sh\nexit 2\n")
    answer = checkout.run("test")
    assert answer.returncode == 0
    assert "uv could not do it; trying pip" in answer.stderr
    assert (checkout.made, checkout.linked) == (1, 2)


@pytest.mark.parametrize("with_flock", [True, False])
def test_two_at_once_make_it_once(checkout: Checkout, with_flock: bool) -> None:
    checkout.put_pretender(12, pip="sleep 0.3")
    if not with_flock:  # the lock is then taken by a real interpreter
        (checkout.bin / "flock").unlink()
        pretender = checkout.bin / "python3.12"
        pretender.write_text(
            pretender.read_text().replace("-I*)", f'-c*fcntl*) exec {sys.executable} "$@" ;;\n    -I*)')
        )
    both = [checkout.start("test"), checkout.start("test")]
    assert [process.communicate(timeout=BOUND_S)[0] for process in both] == [f"{WHOLE}\n"] * 2
    assert (checkout.made, checkout.linked) == (1, 1)


def test_commands_run_side_by_side(checkout: Checkout) -> None:
    at_work = checkout.root / "at-work"
    together = f"echo >>{at_work}; until [ $(wc -l <{at_work}) = 2 ]; do sleep 0.02; done"
    checkout.put_pretender(12, command=together)
    both = [checkout.start("test"), checkout.start("test")]
    try:
        assert [process.communicate(timeout=BOUND_S)[0] for process in both] == ["", ""]
    finally:
        for process in both:
            process.kill()
            process.communicate()


def test_nobodys_environment_is_taken_from_under_him(checkout: Checkout) -> None:
    stamp, at_work, go = (checkout.root / each for each in (".venv/cosched-stamp", "at-work", "go"))
    checkout.put_pretender(11)
    waits = f"until [ -e {go} ] || [ $((n += 1)) = 6000 ]; do sleep 0.02; done"
    busy = checkout.put_pretender(12, command=f"touch {at_work}; {waits}; cat {stamp}")
    first = checkout.start("test", COSCHED_PYTHON="3.12")
    while not at_work.exists() and first.poll() is None:
        time.sleep(0.01)
    second = checkout.start("test", COSCHED_PYTHON="3.11")
    assert second.stderr is not None
    said = second.stderr.readline()
    go.touch()
    out, err = first.communicate(timeout=BOUND_S)
    assert f"python {busy}\n" in out, err
    out, err = second.communicate(timeout=BOUND_S)
    assert "waiting for another ./run" in said
    assert "python 3.11 runs" in out, err


# --- What must not leak in --------------------------------------------------------------------------------------------


def test_the_callers_settings_do_not_leak_in(checkout: Checkout) -> None:
    checkout.put_pretender(12)
    leaks = {
        "PYTHONPATH": "/elsewhere",
        "PYTHONHOME": "/elsewhere",
        "VIRTUAL_ENV": "/elsewhere",
        "PIP_TARGET": "/elsewhere",
        "PIP_PREFIX": "/elsewhere",
        "PIP_CONSTRAINT": "/elsewhere",
        "PIP_REQUIRE_VIRTUALENV": "elsewhere",
    }
    heeded = {"PIP_INDEX_URL": "http://index.example/simple", "PIP_CERT": "/certificates", "PIP_FIND_LINKS": "/wheels"}
    assert checkout.run("test", PIP_USER="1", **leaks, **heeded).returncode == 0
    installing = Path(f"{checkout.diary}.environment").read_text().split("\n\n")[0]  # of the first call: packages
    assert "PIP_USER=0" in installing
    assert "elsewhere" not in installing
    for name, value in heeded.items():
        assert f"{name}={value}" in installing


# --- The script itself ------------------------------------------------------------------------------------------------


@pytest.mark.system("shellcheck")
@pytest.mark.parametrize("script", ["run", "lock/regenerate", ".ci/run"])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    answer = subprocess.run(["shellcheck", ROOT / script], capture_output=True, text=True, check=False)
    assert answer.stdout == ""


@pytest.mark.parametrize("script", ["run", "lock/regenerate", ".ci/run"])
def test_scripts_are_executable(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
