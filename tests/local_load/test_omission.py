"""The probe against an independent program, in C, while both are kept from the CPU in a known way.

Both are stopped for 400 ms out of every 500. Who looks at a moment of his own choice then waits for nothing with a
chance of 1 in 5, else for up to 400 ms: half of all moments are more than 150 ms late, 1 in 100 more than 395 ms. A
measurement that begins its next look only when the last one has ended sees one slow look each half second and, between
them, many fast ones: its median says that nothing is wrong.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.desks import Probed
from kit.waiting import BOUND_S, wait_for

_PERIOD_US = 10_000
_SECONDS = 10
_CYCLE_S, _STOPPED_S = 0.5, 0.4

pytestmark = pytest.mark.system("gcc")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("late") / "late"
    subprocess.run(["gcc", "-O1", "-o", binary, Path(__file__).with_name("late.c")], check=True, timeout=BOUND_S)
    return binary


@pytest.fixture
def running(program: Path) -> Iterator[tuple[Probed, dict[str, "subprocess.Popen[str]"]]]:
    """The probe, and the C program in both ways, all at work."""
    count = _SECONDS * 1_000_000 // _PERIOD_US
    others: dict[str, subprocess.Popen[str]] = {}
    probed = Probed(("nanosleep",), 1e6 / _PERIOD_US, 1, _SECONDS)
    try:
        for how, times in (("open", count), ("closed", count // 5)):  # the closed one gets no more done
            command: list[str | Path] = [program, str(_PERIOD_US), str(times), how]
            others[how] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stdout = others[how].stdout
            assert stdout
            assert stdout.readline() == "ready\n"
        wait_for(lambda: "nanosleep" in Path(f"/proc/{probed.process.pid}/wchan").read_text(), "the probe to begin")
        yield probed, others
    finally:
        everybody: list[subprocess.Popen[Any]] = [probed.process, *others.values()]
        for process in everybody:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(BOUND_S)
        for process in others.values():
            process.communicate(timeout=BOUND_S)


def _sleeps(process: "subprocess.Popen[Any]") -> int:
    """How often a process has gone to sleep; 0 where it has ended."""
    if process.poll() is not None:
        return 0
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@pytest.mark.slow
def test_the_probe_sees_what_an_independent_program_sees_and_a_closed_loop_hides(
    running: tuple[Probed, dict[str, "subprocess.Popen[str]"]],
) -> None:
    probed, others = running
    everybody: list[subprocess.Popen[Any]] = [probed.process, *others.values()]
    measured: list[subprocess.Popen[Any]] = [probed.process, others["open"]]
    begin = time.monotonic()
    cycle = 0
    unheard = 0  # how often one of them got no CPU between two stops: it was stopped for twice as long
    while any(process.poll() is None for process in measured) and cycle < 120:
        for number, at_s in ((signal.SIGSTOP, 0.0), (signal.SIGCONT, _STOPPED_S)):
            before = [_sleeps(process) for process in measured]
            time.sleep(max(0.0, begin + cycle * _CYCLE_S + at_s - time.monotonic()))
            if number == signal.SIGSTOP and cycle:
                unheard += sum(0 < slept == _sleeps(each) for each, slept in zip(measured, before, strict=True))
            for process in everybody:
                if process.poll() is None:
                    os.kill(process.pid, number)
        cycle += 1
    late_s = {"probe": np.array([each[1] for each in probed.end().samples["nanosleep"]]) / 1e9}
    for how, process in others.items():
        out, _ = process.communicate(timeout=BOUND_S)
        late_s[how] = np.array(list(map(int, out.split()))) / 1e9
    quantiles = {
        how: {"p50": float(np.quantile(late, 0.5)), "p99": float(np.quantile(late, 0.99))}
        for how, late in late_s.items()
    }
    if unheard:
        pytest.skip("other work kept the measured programs from the CPU between two stops")
    # on a busy machine each of the two is late by itself, too; a closed loop is wrong by a factor of hundreds
    for which in ("p50", "p99"):
        assert quantiles["probe"][which] == pytest.approx(quantiles["open"][which], rel=0.4), quantiles
    # and both what was done to them, as far as a busy machine lets it be done on time
    assert 0.10 < quantiles["probe"]["p50"] < 0.25, quantiles
    assert 0.35 < quantiles["probe"]["p99"] < 1.0, quantiles
    # the closed loop was stopped as often and as long, and its median is a hundredth
    assert quantiles["closed"]["p50"] < 0.05 * quantiles["open"]["p50"], quantiles
