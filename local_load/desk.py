"""A synthetic user at a desk: ``python -m local_load.desk --seconds 30 --seed 1``.

He types into an editor at a terminal of his own: a child process that reads the terminal, does a little work for each
key and echoes it, so the machine sees a terminal in use as with a person. Words of keys, pauses to think, and now and
then something that takes the CPU for a while (a page, a compilation), for whose end he waits. All of it is drawn from
the seed before it happens. Each key has its moment, and its delay is counted from that moment to the echo, however late
the user himself was woken: what an overloaded machine delays is not forgotten. (What it adds to a burst delays all that
follows, and is told apart from the keys' delays.)

In the end, or when told to leave (SIGTERM), he prints one line of JSON; see :class:`Felt`.
"""

import argparse
import json
import math
import os
import random
import resource
import select
import signal
import sys
import time
import tty
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, NamedTuple

_MAX_SECONDS: Final = 86_400.0
_KEY_S: Final = 0.15  # mean between the keys of a word; 80 words a minute
_KEYS_IN_WORD: Final = 6.0
_THINK_S: Final = 1.0
_WORDS_PER_BURST: Final = 4
_KEY_WORK_S: Final = 0.0005  # what an editor does for a key
_ECHO_S: Final = 10.0  # an echo that does not come within this is the longest delay there is


class Act(NamedTuple):
    """Something the user does ``at_s`` after he sat down: a key, or ``burst_s`` seconds of CPU."""

    at_s: float
    burst_s: float = 0.0


def acts(seed: int, busy: float) -> Iterator[Act]:
    """What the user does, without end. ``busy`` is the share of one CPU that his bursts take on the average."""
    random_ = random.Random(seed)
    at_s = 0.2
    owed_s = 0.0
    last_s = at_s
    while True:
        for _ in range(random_.randint(1, _WORDS_PER_BURST)):
            for _ in range(1 + int(random_.expovariate(1 / _KEYS_IN_WORD))):
                yield Act(at_s)
                at_s += 0.03 + random_.expovariate(1 / (_KEY_S - 0.03))
            at_s += random_.expovariate(1 / _THINK_S)
        # a burst pays what was owed so far, in sizes that vary
        owed_s += busy / (1 - busy) * (at_s - last_s) if busy < 1 else 1.0
        burst_s = min(owed_s, owed_s * random_.uniform(0.5, 1.5))
        owed_s -= burst_s
        if burst_s > 0:
            yield Act(at_s, burst_s)
            at_s += burst_s
        last_s = at_s


@dataclass
class Felt:
    """What the user measured, all in seconds: each key's delay to its echo, his own wake-ups, his bursts' delays."""

    echo: list[float] = field(default_factory=list)
    wake_up: list[float] = field(default_factory=list)
    burst_cpu: float = 0.0
    burst_wall: float = 0.0
    lost: int = 0

    def summary(self, seed: int, seconds: float) -> dict[str, Any]:
        """For the JSON line: ``latency_ms`` from key to echo, ``wake_up_ms``, how much longer bursts took than CPU."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return {
            "seed": seed,
            "seconds": round(seconds, 3),
            "latency_ms": distribution_ms(self.echo),
            "wake_up_ms": distribution_ms(self.wake_up),
            "burst_cpu_s": round(self.burst_cpu, 3),
            "burst_slowdown": round(self.burst_wall / self.burst_cpu, 3) if self.burst_cpu else None,
            "lost_keys": self.lost,
            "cpu_s": round(sum(each.ru_utime + each.ru_stime for each in used), 3),
        }


def distribution_ms(values_s: list[float]) -> dict[str, float]:
    """Count, p50, p95, p99 and max of some seconds, in milliseconds; nearest rank. Zero where there are none."""
    ordered = sorted(values_s)

    def at(share: float) -> float:
        rank = max(0, math.ceil(share * len(ordered)) - 1)
        return round(ordered[rank] * 1000, 3) if ordered else 0.0

    return {"count": len(ordered), "p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": at(1.0)}


class _Left(Exception):
    """The user was told to leave."""


def sit(seconds: float, seed: int, busy: float) -> dict[str, Any]:
    """Be the user for so long; what he felt."""
    felt = Felt()
    master, slave = os.openpty()
    tty.setraw(slave)
    editor = os.fork()
    if editor == 0:
        os.close(master)
        _edit(slave)
    os.close(slave)
    began, late_s = time.monotonic(), 0.0
    try:
        for act in acts(seed, busy):
            due = began + late_s + act.at_s
            _sleep_until(min(due, began + seconds))
            if due - began > seconds:
                break
            if act.burst_s:
                burst_s = min(act.burst_s, began + seconds - due)
                late_s += max(0.0, _burst(burst_s, felt) - burst_s)
            else:
                felt.wake_up.append(time.monotonic() - due)
                _press(master, due, felt)
    except _Left:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(master)  # the editor reads the end
        os.kill(editor, signal.SIGKILL)
        os.waitpid(editor, 0)
    return felt.summary(seed, time.monotonic() - began)


def _edit(terminal: int) -> None:
    """The editor: for each key a little work, and the echo. Never returns."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while key := os.read(terminal, 1):
            _work(_KEY_WORK_S)
            os.write(terminal, key)
    except OSError:  # the user has gone
        pass
    finally:
        os._exit(0)


def _press(master: int, due: float, felt: Felt) -> None:
    os.write(master, b"x")
    if select.select([master], [], [], _ECHO_S)[0]:
        os.read(master, 64)
        felt.echo.append(time.monotonic() - due)
    else:
        felt.lost += 1
        felt.echo.append(_ECHO_S)


def _burst(cpu_s: float, felt: Felt) -> float:
    """Use so much CPU; how long that took."""
    began = time.monotonic()
    felt.burst_cpu += _work(cpu_s)
    took = time.monotonic() - began
    felt.burst_wall += took
    return took


def _work(cpu_s: float) -> float:
    """Use the CPU for so long; for how long it was."""
    began = time.thread_time()
    while (used := time.thread_time() - began) < cpu_s:
        for _ in range(200):
            pass
    return used


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="local_load.desk", description="A synthetic user at a desk.")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long he stays (at most a day)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--busy", type=float, default=0.15, help="share of a CPU that he takes beside typing")
    given = parser.parse_args()
    if not 0 < given.seconds <= _MAX_SECONDS:
        parser.error(f"--seconds: {given.seconds}; expected more than 0, at most {_MAX_SECONDS:.0f}")
    if not 0 <= given.busy <= 0.95:
        parser.error(f"--busy: {given.busy}; expected 0 to 0.95")

    def leave(number: int, frame: FrameType | None) -> None:
        raise _Left

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    signal.signal(signal.SIGINT, leave)
    sys.stdout.write(json.dumps(sit(given.seconds, given.seed, given.busy)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
