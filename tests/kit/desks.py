"""Users and probes as tests run them: the real commands, in processes of their own."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kit.waiting import BOUND_S
from local_load.probe import CALLS, OWN, SAMPLE

ROOT = Path(__file__).resolve().parents[2]
LOCAL_LOAD = (sys.executable, "-P", "-m", "cosched.apps.cli.main", "local-load")
#: A program that presses keys at a desk.
TYPIST = """
import os, pty, time
keys, program = pty.openpty()
while True:
    os.write(keys, b"x\\n")
    os.read(program, 10)
    time.sleep(0.3)
"""


@contextlib.contextmanager
def user(*arguments: object, prefix: Sequence[str] = (), **how: Any) -> "Iterator[subprocess.Popen[str]]":
    """``cosched local-load run …`` while the block lasts; its standard output is read by ``communicate``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COSCHED_")}
    command = [*prefix, *LOCAL_LOAD, "run", *map(str, arguments)]
    with subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **how
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def told(process: "subprocess.Popen[str]", timeout_s: float = 90) -> dict[str, Any]:
    """What a run with ``--json`` says at its end, which must be a good one."""
    out, err = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, (process.returncode, out, err)
    document: dict[str, Any] = json.loads(out.splitlines()[-1])
    return document


def below(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
    return found


def modules(pid: int) -> dict[str, int]:
    """The processes of a run by what they are: user, probe, editor (who has a terminal)."""
    found = {}
    for each in below(pid):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
            for module in (b"local_load.user", b"local_load.probe"):
                if module in words:
                    name = module.decode().rpartition(".")[2]
                    found["editor" if name in found else name] = each
    return found


class Probed:
    """A probe, run to its end or told to end. ``samples`` by call: (moment, response, own time, made), ns."""

    def __init__(self, calls: Sequence[str], rate_hz: float, seed: int, seconds: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "local_load.probe"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        order = {"calls": list(calls), "rate_hz": rate_hz, "seed": seed, "seconds": seconds, "parent": os.getpid()}
        assert self.process.stdin
        self.process.stdin.write(json.dumps(order | {"base_ns": time.monotonic_ns()}).encode() + b"\n")
        self.process.stdin.flush()
        self.samples: dict[str, list[tuple[int, int, int, bool]]] = defaultdict(list)
        self.order: list[tuple[int, str]] = []
        self.cpu: list[tuple[int, int]] = []

    def end(self, timeout_s: float = 90) -> "Probed":
        """Wait for its end, and take in what it gave."""
        out, _ = self.process.communicate(timeout=timeout_s)
        for call, skipped, at_ns, response_ns, own_ns in SAMPLE.iter_unpack(out):
            if call == OWN:
                self.cpu.append((at_ns, response_ns))
            else:
                self.samples[CALLS[call]].append((at_ns, response_ns, own_ns, not skipped))
                self.order.append((at_ns, CALLS[call]))
        return self

    def kill(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=BOUND_S)
