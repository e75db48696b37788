"""What tests may ask for: system packages, public logs, the oracle's schedules; and the account of what was skipped.

Nothing is skipped silently. A test that needs what this machine lacks is skipped by the name of what is missing, and
the closing summary lists them all. With ``--system`` a missing *package* is an error: that is how CI runs.
"""

import difflib
import os
import shutil
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from kit import guardian
from kit.standstills import Standstills

from space_scheduler.machine import blame
from space_scheduler.service.core.journalled import JournalledCore

pytest_plugins = ("kit.crashed_workers", "kit.second_chance", "kit.snapshots")

ROOT = Path(__file__).resolve().parents[1]

# Debian's package -> the commands it brings that tests use.
SYSTEM_PACKAGES = {
    "chromium": ("chromium",),
    "curl": ("curl",),
    "dbus": ("dbus-daemon",),
    "gcc": ("gcc",),
    "libmpich-dev": ("mpicc.mpich",),
    "libopenmpi-dev": ("mpicc.openmpi",),
    "mpich": ("mpiexec.mpich",),
    "openmpi-bin": ("mpirun.openmpi",),
    "openssh-server": ("sshd", "ssh-keygen"),
    "prometheus": ("prometheus", "promtool"),
    "pvm": ("pvm", "pvmd"),
    "pvm-dev": ("aimk",),
    "python3-dbusmock": ("/usr/lib/python3/dist-packages/dbusmock/__main__.py",),
    "shellcheck": ("shellcheck",),
    "strace": ("strace",),
    "systemd": ("/lib/systemd/systemd",),
    "iproute2": ("ip", "tc"),
    "user-mode-linux": ("linux.uml",),
    "xdotool": ("xdotool",),
    "xvfb": ("Xvfb",),
}

JournalledCore.compares = True

# Tests interrupt what they start, and a child inherits what its parent ignores: SIGINT, in the background of a script.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are drawn from constants of whatever modules are loaded by then, which other tests decide: from none instead.
providers._get_local_constants = Constants

# The same examples each time, so that a red run means a changed program; `campaign` looks further and wants hours. How
# long an example takes, or its making, says nothing on a machine with other work.
_UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("default", derandomize=True, print_blob=True, **_UNTIMED)
hypothesis.settings.register_profile("quick", max_examples=20, derandomize=True, print_blob=True, **_UNTIMED)
hypothesis.settings.register_profile("campaign", max_examples=5_000, print_blob=True, **_UNTIMED)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


#: What --quick runs: everything that starts no lab, no agent and no MPI, without the tests marked ``slow``.
QUICK_FOLDERS = ("client", "core", "properties", "scenarios", "service", "unit")
#: Groups that would be the end of a whole run, with other processors idle, if they did not begin first.
_LONGEST_GROUPS = ("live", "faults", "hosts")
_left_out = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="two minutes: no labs, no agents, nothing slow")
    parser.addoption("--whole", action="store_true", help="also what is marked slow; so is it where tests are chosen")
    parser.addoption("--system", action="store_true", help="a missing system package is an error instead of a skip")
    parser.addoption("--long", action="store_true", help="also the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_left_out] = Counter()
    option = config.option
    if (told := getattr(config, "workerinput", None)) is not None:
        option.whole = told["whole"]
    else:
        for path in (argument.partition("::")[0] for argument in config.args):
            if not (config.invocation_params.dir / path).exists():  # with workers, pytest would say nothing of it
                raise pytest.UsageError(f"file or directory not found: {path}")
        chosen = option.keyword or option.markexpr or config.args_source is config.ArgsSource.ARGS
        option.whole = bool(option.whole or option.long or chosen)
        guardian.watch()
        config.pluginmanager.register(Standstills())
        if option.system:
            config.pluginmanager.register(FailuresAtOnce(config))
    if config.getoption("--quick") and "HYPOTHESIS_PROFILE" not in os.environ:
        hypothesis.settings.load_profile("quick")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker is to be started: it is told what follows from the options, not from its own arguments."""
    node.workerinput["whole"] = node.config.option.whole


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether a folder is not even looked at: reading all tests takes a process ten seconds."""
    of_tests = collection_path.parent == ROOT / "tests" and collection_path.is_dir()
    return True if config.option.quick and of_tests and collection_path.name not in QUICK_FOLDERS else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not wanted(config, item)]
    if left_out:
        for item in left_out:
            slow = item.get_closest_marker("slow") and not config.option.quick
            config.stash[_left_out][f"{folder_of(item)} (slow)" if slow else folder_of(item)] += 1
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if wanted(config, item)]
    items.sort(key=_begins)
    for item in items:
        if item.get_closest_marker("oracle"):
            item.user_properties.append(("oracle", True))  # travels in the reports, also between processes


class FailuresAtOnce:
    """Says of each failure what failed as soon as it has: a long run may be cut off before its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of each test that has ended."""
        reporter = self._plugins.getplugin("terminalreporter")
        if report.failed and reporter is not None:
            printed = report.capstdout[-1000:] + report.capstderr[-1000:]
            reporter.write_line(f"\nfailed: {report.nodeid}\n{report.longreprtext[-2000:]}\n{printed}")


def _begins(item: pytest.Item) -> tuple[int, int]:
    """Groups whose tests run one by one for minutes begin first, then what is slow, other groups among it.

    Files come in a mixed order, the same each time: those of one folder wait alike, or compute alike, and side by side
    would leave processors idle, or want twice as many as there are.
    """
    group = item.get_closest_marker("xdist_group")
    if group is not None:
        name = str(group.args[0])
        return 0 if name in _LONGEST_GROUPS else 1, zlib.crc32(name.encode())
    file = item.path.relative_to(ROOT).as_posix()
    return 1 if item.get_closest_marker("slow") else 2, zlib.crc32(file.encode())


def wanted(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether the options leave the item in."""
    slow = item.get_closest_marker("slow") is not None
    if config.option.quick:
        return folder_of(item) in QUICK_FOLDERS and not slow
    return config.option.whole or not slow


def folder_of(item: pytest.Item) -> str:
    """The folder of ``tests`` that the item is in."""
    return item.path.relative_to(ROOT / "tests").parts[0]


@pytest.fixture
def sets_aside() -> None:
    """For tests that plant a job with which a pass fails: it is set aside, as outside of tests."""


@pytest.fixture(autouse=True)
def _failing_passes_raise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere a pass that fails fails its test: no policy may have a job set aside unseen."""
    if "sets_aside" not in request.fixturenames:
        monkeypatch.setattr(blame, "without_culprits", _raised)


def _raised(_attempt: object, _known: object, _new: object, error: Exception) -> None:
    raise error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """A test imports from where its process did before: a command that it calls may look in its directory, too."""
    path = sys.path[:]
    try:
        return (yield)
    finally:
        sys.path[:] = path


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("long") and not item.config.getoption("--long"):
        pytest.skip("takes minutes: asked for with --long")
    for marker in item.iter_markers("xdist_group"):
        if hasattr(item.config, "workerinput") and not item.nodeid.endswith(f"@{marker.args[0]}"):
            pytest.fail(f"not kept in one process with its group {marker.args[0]}: see why pytest is pinned")
    for marker in item.iter_markers("system"):
        for package in marker.args:
            need_package(package, required=item.config.getoption("--system"))
    for marker in item.iter_markers("log"):
        public_log(*marker.args)


def need_package(package: str, *, required: bool) -> None:
    """Skip the running test, or fail it where the package is required, unless the package's commands are here."""
    if package not in SYSTEM_PACKAGES:
        near = difflib.get_close_matches(package, SYSTEM_PACKAGES, n=1)
        pytest.fail(f"tests/conftest.py knows no package {package!r}{f': {near[0]!r}?' if near else ''}", pytrace=False)
    missing = [
        command for command in SYSTEM_PACKAGES[package] if not (os.path.exists(command) or shutil.which(command))
    ]
    if missing:
        reason = f"needs Debian's package {package} (no {' and no '.join(missing)} on PATH)"
        if required:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def folder_from(variable: str, default: str) -> Path:
    """Where files that are not the project's own are looked for: what the variable names, else a folder beside it."""
    return Path(os.environ.get(variable) or ROOT.parent / default)


def public_log(name: str) -> Path:
    """The public log of that catalogue name, as the archive has it; skips the running test where it is absent."""
    folder = folder_from("COSCHED_TRACES", "shared/traces")
    for file in (folder / f"{name}.swf.gz", folder / f"{name}.swf"):
        if file.is_file():
            return file
    pytest.skip(f"needs the public log {name} (looked in {folder}; COSCHED_TRACES names another folder)")


@pytest.fixture(scope="session")
def find_log() -> Callable[[str], Path]:
    """A function from catalogue name to the log's file, for tests that use several."""
    return public_log


@pytest.fixture
def log_path(request: pytest.FixtureRequest) -> Path:
    """The file of the log that the test's marker names: ``@pytest.mark.log("KTH-SP2-1996-2.1-cln")``."""
    marker = request.node.get_closest_marker("log")
    assert marker is not None, "a test with log_path names its log: @pytest.mark.log(NAME)"
    return public_log(*marker.args)


@pytest.fixture(scope="session")
def oracle_dir() -> Path:
    """The folder with the schedules of an independent simulator."""
    folder = folder_from("COSCHED_ORACLE", "shared/oracle")
    if not any(folder.glob("*.csv.gz")):
        pytest.skip(f"needs the oracle's schedules (looked in {folder}; COSCHED_ORACLE names another folder)")
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not run and why, and whether the oracle was asked. Pytest's own closing line stays the last."""
    tell_left_out(terminalreporter)
    tell_skipped(terminalreporter)
    tell_oracle(terminalreporter)


def tell_left_out(reporter: pytest.TerminalReporter) -> None:
    """What --quick or the want of --whole left out, by folder; a process that ran no tests itself has no numbers."""
    option, left_out = reporter.config.option, reporter.config.stash[_left_out]
    counts = ", ".join(f"{folder} {number}" for folder, number in sorted(left_out.items()))
    if option.quick:
        slow = f"what is marked slow{f' ({counts})' if counts else ''}"
        what = f"all folders but {', '.join(QUICK_FOLDERS)}, and there {slow}"
        reporter.write_line(f"quick: left out: {what}. Properties had 20 examples. All of it: ./run test --whole")
    elif not option.whole:
        reporter.write_line(f"left out: {counts or 'what is marked slow'}. With it: ./run test --whole")


def tell_skipped(reporter: pytest.TerminalReporter) -> None:
    tests_by_reason: dict[str, list[str]] = {}
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple | list) else str(report.longrepr)
        tests_by_reason.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    if tests_by_reason:
        reporter.write_sep("-", "not run here")
    for reason, tests in sorted(tests_by_reason.items()):
        reporter.write_line(f"{len(tests)} × {reason}")
        for test in sorted(tests):
            reporter.write_line(f"    {test}")


def tell_oracle(reporter: pytest.TerminalReporter) -> None:
    # a file that could not be collected has a report without properties
    counts = Counter(
        outcome
        for outcome in ("passed", "unsteady", "failed", "error", "skipped")
        for report in reporter.stats.get(outcome, [])
        if ("oracle", True) in map(tuple, getattr(report, "user_properties", ()))
    )
    checked = f"{counts['passed'] + counts['unsteady']} tests agree, {counts['failed'] + counts['error']} do not"
    if counts.total() == 0:
        reporter.write_line("oracle: not asked, none of its tests was selected")
    elif counts.total() == counts["skipped"]:
        reporter.write_line(f"oracle: absent, {counts['skipped']} tests skipped")
    elif counts["skipped"]:
        reporter.write_line(f"oracle: checked in part: {checked}, {counts['skipped']} skipped")
    else:
        reporter.write_line(f"oracle: checked: {checked}")
