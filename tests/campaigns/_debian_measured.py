"""The parts of the campaign ``debian`` that measure: contract, coscheduling and folds on control groups of version 2.

Each has a command of the checkout on the machines measure and print its table; its runs are copied to ``measured``
beside the machines' disks. A machine does not see what this one takes from it: how long it waited for this one's
CPUs is printed beside the table.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from campaigns._ansible_lab import need
from campaigns._debian_ground import CHECKOUT, HEAD, Ground
from cosched.apps.experiments.contract import IDLE, RUNS, Measured
from cosched.apps.experiments.contract_results import Cell, by_cell, cells
from cosched.apps.experiments.matrix import Spread
from cosched.apps.experiments.run_log import RunLog

_COSCHED: Final = f"{CHECKOUT}/.venv/bin/cosched"
_NS: Final = 1e9
#: Where runs are kept, beside the machines' disks.
_KEPT: Final = "measured"
#: A command may take so long, times the factor.
_PATIENCE_S: Final = 240.0


def contract(ground: Ground) -> None:
    """``cosched bench contract`` on one machine, in a lab of its own."""
    ground.up(HEAD)
    line = f"{_COSCHED} bench contract --modes none,ccs --tasks 1,2 --rounds 3 --seconds 3 --tries 2"
    _measured(ground, line, RUNS, "root")
    kept = RunLog(ground.work / _KEPT, RUNS, Measured)
    print("\n".join(ratios(cells(by_cell(kept.campaigns)))), flush=True)


def ratios(made: Sequence[Cell]) -> list[str]:
    """Rows in Markdown: 99th percentiles as multiples of the idle desk's beside as many tasks, and CPUs as they are."""
    idle = {cell.tasks: cell for cell in made if cell.condition == IDLE}
    rows = [
        "| tasks | desk | runs | wake-up | 1 ms burst | key | CPUs of parallel work |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in made:
        base = idle[cell.tasks]
        felt = [
            _ratio(cell.wake_up_p99_s, base.wake_up_p99_s),
            _ratio(cell.burst_p99_s, base.burst_p99_s),
            _ratio(cell.key_p99_s, base.key_p99_s),
        ]
        cpus = cell.parallel_cpus
        told = f"{cpus.median:.3f} [{cpus.low:.3f}, {cpus.high:.3f}]"
        rows.append(f"| {cell.tasks} | {cell.condition} | {cell.runs} | {' | '.join(felt)} | {told} |")
    return rows


def _ratio(found: Spread | None, base: Spread | None) -> str:
    if found is None or base is None:
        return ""
    median, low, high = (value / base.median for value in (found.median, found.low, found.high))
    return f"{median:.2g} [{low:.2g}, {high:.2g}]"


def coscheduling(ground: Ground) -> None:
    """``cosched bench coscheduling`` on one machine, in a lab of two nodes with one of its two CPUs each."""
    ground.up(HEAD)
    line = (
        f"{_COSCHED} bench coscheduling --modes plain,none,ccs --rounds 3 --tries 2"
        " --works 'block, 1 ms;yield, 1 ms;poll, 1 ms' --beside 'one computing task'"
    )
    _measured(ground, line, "coscheduling-runs", "root")


def folding(ground: Ground) -> None:
    """``./run bench folding`` on one machine with two CPUs, by the control group's set of CPUs."""
    ground.up(HEAD)
    _measured(ground, f"cd {CHECKOUT}; ./run bench folding 3 2 cpuset", None, "root")


def _measured(ground: Ground, line: str, runs: str | None, user: str) -> None:
    """Print what a command says and copy its runs out; a goal that it misses is a result."""
    place = "~/measured"
    before, load = _waiting(ground), os.getloadavg()[0]
    out = f" --out {place}" if runs else ""
    said = ground.head.at(f"rm -rf {place}; ({line}{out}) 2>&1; test $? -le 1", user=user, base_s=_PATIENCE_S)
    ran_s, waited_s = (after - then for after, then in zip(_waiting(ground), before, strict=True))
    print(said, flush=True)
    print(
        f"  {os.cpu_count()} CPUs here, load {load:.1f} to {os.getloadavg()[0]:.1f}: the machines ran for {ran_s:.0f} s"
        f" and waited for a CPU for {waited_s:.0f} s",
        flush=True,
    )
    if runs:
        kept = ground.work / _KEPT
        kept.mkdir(exist_ok=True)
        text = ground.head.at(f"cat {place}/{runs}.jsonl", user=user)
        need(text.count("\n") > 1, f"no runs: {said}")
        (kept / f"{runs}.jsonl").write_text(text, encoding="utf-8")


def _waiting(ground: Ground) -> tuple[float, float]:
    """Seconds that the machines' processes, those that are there, have run and have waited for a CPU of this host."""
    ran_ns = waited_ns = 0
    for machine in ground.machines.values():
        if machine.pid is None:
            continue
        root = psutil.Process(machine.pid)
        for process in (root, *root.children(recursive=True)):
            for thread in process.threads():
                with contextlib.suppress(OSError):
                    ran, waited, _ = Path(f"/proc/{process.pid}/task/{thread.id}/schedstat").read_text().split()
                    ran_ns, waited_ns = ran_ns + int(ran), waited_ns + int(waited)
    return ran_ns / _NS, waited_ns / _NS
