"""A pytest plugin for ``--second-chance MINUTES``: each failed test is run once more, alone, after all the others.

A test that passes then is *unsteady*. The run passes with at most :data:`UNSTEADY_MOST` unsteady tests if no test
failed twice; pytest's closing line counts them beside the passed ones: ``5 998 passed, 2 unsteady in …``. In a run with
more of them they stay failed. A failure of a test is one in its set-up, its call or its tear-down, or the crash of its
worker. A file that cannot be collected gets no second chance, nor does a run that was interrupted or stopped early.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from xml.etree import ElementTree

import pytest

#: With so many unsteady tests, or fewer, a run passes.
UNSTEADY_MOST = 2
#: When more tests than that have failed, the change is at fault and not the machine: none is run again.
FAILED_MOST = 8
#: Characters of each output that are shown, from its end.
_SHOWN = 4000
#: An interrupted second run has so long for its fixtures' tear-down.
_TEAR_DOWN_S = 10.0
_UNSTEADY = "unsteady"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--second-chance",
        type=float,
        metavar="MINUTES",
        help="run each failed test once more, alone, at the end, as far as that ends within so long of the beginning",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.second_chance is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondChance(config, time.monotonic() + 60 * config.option.second_chance))


class SecondChance:
    """Runs failed tests again when the session ends, and rewrites what the session reports of them.

    ``until_s``: when the last second run has to end, on the monotonic clock.
    """

    def __init__(self, config: pytest.Config, until_s: float) -> None:
        self._config = config
        self._until_s = until_s
        self._failures: dict[str, list[pytest.TestReport]] = {}
        self._second: dict[str, tuple[bool, str]] = {}
        self._no_chance = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failures.setdefault(report.nodeid, []).append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._no_chance = f"{report.nodeid or 'a file'} could not be collected"

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return (_UNSTEADY, "U", "UNSTEADY") if getattr(report, _UNSTEADY, False) else None

    # the innermost wrapper: after xdist has stopped its workers, before the terminal's summary
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int | pytest.ExitCode
    ) -> Generator[None, None, None]:
        yield
        if exitstatus == pytest.ExitCode.OK:
            return
        if exitstatus != pytest.ExitCode.TESTS_FAILED or session.shouldstop or session.shouldfail:
            self._no_chance = "the run was interrupted or stopped early"
        elif len(self._failures) > FAILED_MOST:
            self._no_chance = f"{len(self._failures)} tests failed; with more than {FAILED_MOST}, none is run again"
        if self._no_chance or not self._failures:
            return
        try:
            self._run_again()
        except KeyboardInterrupt:
            self._no_chance = "interrupted"
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        unsteady = [test for test, (passed, _) in self._second.items() if passed]
        if len(unsteady) <= UNSTEADY_MOST:
            self._rewrite(unsteady)
            if len(unsteady) == len(self._failures) and not self._no_chance:
                session.exitstatus = pytest.ExitCode.OK

    def _run_again(self) -> None:
        self._write_line(f"\n{len(self._failures)} failed; each is run once more, alone:")
        for test in self._failures:
            if (left_s := self._until_s - time.monotonic()) <= 0:
                self._no_chance = "no time was left"
                return
            self._write_line(f"second run: {test}")
            passed, output = self._second[test] = second_run(self._config, test, left_s)
            self._write_line(f"    {'passed' if passed else 'did not pass'}: {(output.splitlines() or [''])[-1]}")

    def _rewrite(self, unsteady: list[str]) -> None:
        """Take unsteady tests' reports out of the terminal's statistics, and report each as unsteady."""
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        for category in ("failed", "error", "passed"):
            if category in reporter.stats:
                kept = [report for report in reporter.stats[category] if report.nodeid not in unsteady]
                reporter.stats[category] = kept
                if not kept:
                    del reporter.stats[category]
        for test in unsteady:
            first = self._failures[test][0]
            report = pytest.TestReport(test, first.location, {}, "passed", None, "call")
            report.user_properties = first.user_properties
            setattr(report, _UNSTEADY, True)
            self._config.hook.pytest_runtest_logreport(report=report)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, (passed, output) in self._second.items():
            terminalreporter.write_sep("-", f"{test}: {_UNSTEADY if passed else 'failed twice'}")
            for first in self._failures[test]:
                printed = first.capstdout[-_SHOWN:] + first.capstderr[-_SHOWN:]
                terminalreporter.write_line(f"first run, {first.when}:\n{first.longreprtext[-_SHOWN:]}\n{printed}")
            terminalreporter.write_line(f"second run, alone:\n{output[-_SHOWN:]}")
        if self._no_chance:
            terminalreporter.write_line(f"no second chance: {self._no_chance}")
        unsteady = [test for test, (passed, _) in self._second.items() if passed]
        if unsteady:
            most = f"; with more than {UNSTEADY_MOST} the run fails" if len(unsteady) > UNSTEADY_MOST else ""
            terminalreporter.write_line(
                f"{_UNSTEADY}: {len(unsteady)} failed and passed when run again, alone{most}. Find the cause first:"
            )
        for test in unsteady:
            terminalreporter.write_line(f"    {test}")

    def _write_line(self, line: str) -> None:
        self._config.pluginmanager.getplugin("terminalreporter").write_line(line)


def second_run(config: pytest.Config, test: str, limit_s: float) -> tuple[bool, str]:
    """Run that test in a process of its own: whether it passed (a skip is no pass), and what the process printed."""
    if test.rfind("@") > test.rfind("]"):  # xdist's name for it has its group at the end
        test = test[: test.rfind("@")]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        options = [f"--rootdir={config.rootpath}", f"--junit-xml={results}", "--color=no"]
        options += [f"--config-file={config.inipath}"] if config.inipath else []
        options += [f"--{name}" for name in ("system", "long") if getattr(config.option, name, False)]
        with Path(folder, "output").open("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, test],
                cwd=config.rootpath,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            late = ""
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                late = f"\nno time was left: stopped after {limit_s:.0f} s"
            finally:
                _stop(process)
            output.seek(0)
            printed = output.read().rstrip() + late
        return process.returncode == 0 and not late and _passed(results), printed


def _passed(results: Path) -> bool:
    try:
        suites = ElementTree.parse(results).getroot().findall("testsuite")
    except (OSError, ElementTree.ParseError):
        return False
    counts = {
        key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    }
    return counts == {"tests": 1, "failures": 0, "errors": 0, "skipped": 0}


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the process if it still runs: an interrupt first, which tears its fixtures down."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TEAR_DOWN_S)
