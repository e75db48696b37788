"""The user himself, a process of his own: types, thinks, computes, talks to a peer, and holds memory, by a profile.

Started by ``local_load.seat`` as ``python -m local_load.user``, which gives it a line of JSON and reads lines of JSON
from it: where he sat down, and every second what he used by his own accounting and how long his keys took.

*Held by feedback.* The schedule says what bursts and messages should add up to; what is done is that, less what was
used already (typing and calls cost CPU too, headers cost bytes). He does not catch up what an overloaded machine kept
from him: a burst that took longer than its CPU time delays all that follows, as it does a person who waits for its end.
Between keys, also in a long thought or burst, a pointer moves about once a second: the session is seen to be used.
Every key has its moment, and its delay is counted from that moment to the echo, however late he himself was woken.
"""

import contextlib
import json
import mmap
import os
import resource
import signal
import sys
import time
from types import FrameType
from typing import Any, Final

import msgspec

from local_load import machine, memory
from local_load.calls import Calls
from local_load.peer import OVERHEAD_BYTES, Line
from local_load.profile import Profile
from local_load.schedule import Act, acts
from local_load.terminal import ECHO_S, Pointer, Terminal
from local_load.work import Worker

_TELL_S: Final = 1.0
_PIECE_S: Final = 0.1  # a burst is done in pieces, so that he can be told to leave
_BLOCK_BYTES: Final = 64 << 20
_ADJUST_S: Final = 5.0
_COSTLY: Final = 200  # looking at memory may take this fraction of the time
_SMALL_BYTES: Final = 512 << 10
_ANSWER_SHARE: Final = 0.8  # of a message's payload: what comes back


class _Left(Exception):
    """He was told to leave."""


class Memory:
    """Memory that is held: so much that the processes of ``family`` together hold ``target_bytes``."""

    def __init__(self, target_bytes: int, reserve_bytes: int, family: int) -> None:
        self._target_bytes, self._reserve_bytes, self._family = target_bytes, reserve_bytes, family
        self._blocks: list[mmap.mmap] = []
        self._next_s = 0.0
        self.resident_bytes = 0
        self.refused = False

    def adjust(self, now_s: float) -> None:
        """Take or give back what is missing or too much; looks again only after a while."""
        if now_s < self._next_s:
            return
        began = time.thread_time()
        self.resident_bytes = memory.resident_bytes(machine.family(self._family))
        missing = self._target_bytes - self.resident_bytes
        self._next_s = now_s + max(_ADJUST_S, _COSTLY * (time.thread_time() - began))
        if missing > max(_SMALL_BYTES, self._target_bytes // 100):
            self._grow(missing)
        elif missing < -max(_SMALL_BYTES, self._target_bytes // 100):
            self._shrink(-missing)
        else:
            return
        self.resident_bytes = memory.resident_bytes(machine.family(self._family))

    def _grow(self, size: int) -> None:
        room = memory.free_bytes() - self._reserve_bytes
        self.refused = size > room
        size = min(size, room)
        while size >= mmap.PAGESIZE:
            block = min(size, _BLOCK_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
            try:
                self._blocks.append(mmap.mmap(-1, block, flags=flags))
            except (OSError, ValueError):
                self.refused = True
                return
            size -= block

    def _shrink(self, size: int) -> None:
        while size > 0 and self._blocks:
            block = self._blocks.pop()
            size -= len(block)
            block.close()
        if size < 0:
            self._grow(-size)

    def transfer(self, size: int) -> None:
        """Copy so many bytes within what is held."""
        if self._blocks and size:
            block = self._blocks[0]
            half = len(block) // 2
            for at in range(0, size, half):
                piece = min(half, size - at)
                block[half : half + piece] = block[:piece]


class User:
    """One session. ``order`` is what ``local_load.seat`` says; see :func:`main`."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._profile = msgspec.convert(order["profile"], Profile)
        self._seed: str = order["seed"]
        self._seconds: float = order["seconds"]
        self._base_ns: int = order["base_ns"]
        self._worker = Worker()
        self._terminal = Terminal(round(self._profile.typing.work_s * self._worker.units_per_s))
        self._pointer = Pointer()
        self._calls = Calls()
        self._line = Line(*order["peer"]) if order["peer"] else None
        self._memory = Memory(order["memory_bytes"], order["reserve_bytes"], order["family"])
        self._keys: list[tuple[int, int]] = []
        self._lost_keys = 0
        self._late_s = 0.0
        self._planned_cpu_s = self._planned_bytes = 0.0
        self._began_s = self._told_s = self._cpu_before_s = 0.0

    def sit(self) -> None:
        """Be there until the time is over or he is told to leave."""
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
            self._memory.adjust(time.monotonic())
            _tell({"sat": self._terminal.name, "editor": self._terminal.editor})
            self._began_s = self._told_s = time.monotonic()
            self._cpu_before_s = self._spent_s()
            for act in acts(self._profile, self._seed):
                due_s = self._began_s + self._late_s + act.at_s
                self._wait(min(due_s, self._began_s + self._seconds))
                if due_s - self._began_s >= self._seconds:
                    break
                self._do(act, due_s)
        except _Left:
            pass
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if self._began_s:
                with contextlib.suppress(BrokenPipeError):
                    self._report()
            self._terminal.close()
            self._pointer.close()

    def _do(self, act: Act, due_s: float) -> None:
        if act.kind == "key":
            self._press(round(due_s * 1e9))
            for call in act.calls:
                self._calls.by_name[call]()
            self._memory.transfer(act.transfer_bytes)
        elif act.kind == "message":
            self._talk(act.amount)
        else:
            self._burst(act.amount)

    def _press(self, due_ns: int) -> None:
        took_ns = self._terminal.press(due_ns)
        if took_ns < 0:
            self._lost_keys += 1
            took_ns = round(ECHO_S * 1e9)
        self._keys.append((due_ns - self._base_ns, took_ns))

    def _talk(self, planned_bytes: float) -> None:
        if self._line is None:
            return
        self._planned_bytes += planned_bytes
        payload = round(self._planned_bytes - self._line.wire_bytes() - OVERHEAD_BYTES)
        if payload > 0:
            answer = round(payload * _ANSWER_SHARE)
            self._line.exchange(payload - answer, answer)

    def _burst(self, planned_s: float) -> None:
        self._planned_cpu_s += planned_s
        began_s = time.monotonic()
        wanted_s = self._planned_cpu_s - (self._spent_s() - self._cpu_before_s)
        left_s = min(wanted_s, 2 * planned_s + 0.2)
        end_s = self._began_s + self._seconds
        while left_s > 0 and (now_s := time.monotonic()) < end_s:
            left_s -= self._worker.use(min(left_s, _PIECE_S, end_s - now_s)) or left_s
            self._look()
        self._late_s += max(0.0, time.monotonic() - began_s - planned_s)

    def _spent_s(self) -> float:
        """CPU seconds of his: this process, its editor, the programs it started."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + machine.cpu_s([self._terminal.editor]) + ended.ru_utime + ended.ru_stime

    def _wait(self, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, max(0.001, self._told_s + _TELL_S - time.monotonic())))
            self._look()

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._told_s + _TELL_S:
            self._pointer.move()
            self._memory.adjust(now_s)
            self._report()

    def _report(self) -> None:
        self._told_s = time.monotonic()
        line = self._line
        _tell(
            {
                "elapsed_s": self._told_s - self._began_s,
                "late_s": self._late_s,
                "cpu_s": self._spent_s() - self._cpu_before_s,
                "memory_bytes": self._memory.resident_bytes,
                "memory_refused": self._memory.refused,
                "wire_bytes": line.wire_bytes() if line else 0,
                "line_problem": f"{line.problem}, {line.lost} times" if line and line.problem else "",
                "lost_keys": self._lost_keys,
                "keys": self._keys,
            }
        )
        self._keys = []


def _tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Be a user, as the line on standard input says."""
    order = json.loads(sys.stdin.readline())
    machine.die_with_parent(order["parent"])

    def leave(number: int, frame: FrameType | None) -> None:
        raise _Left

    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))  # until there is somebody to tidy up
    signal.signal(signal.SIGTERM, leave)
    user = User(order)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's: whoever runs us gets it too, and says when to leave
    with contextlib.suppress(_Left, BrokenPipeError):
        user.sit()
    os._exit(0)


if __name__ == "__main__":
    main()
