"""The faults of a round of chaos: each begins at its time; what lasts is undone at its end, or when all is healed."""

import contextlib
import heapq
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from kit.desks import TYPIST

from campaigns import _nodes
from campaigns._chaos_plan import Fault
from campaigns._chaos_watch import Calm
from campaigns._disks import Disk
from campaigns.faults import Broken, Field
from cosched.errors import BadInput, Failed

#: How a lab in chaos refuses.
REFUSED = (BadInput, Failed, Broken, OSError)
#: All must be healed after so long.
_HEALED_S = 120.0
#: So often is a process looked for that is not there yet, and so long after.
_TRIES, _AGAIN_S = 20, 0.3
_NOT_RANKS = ("sh", "mpirun", "prterun", "prted", "cosched-rsh", "ssh")
Undo = Callable[[], object]


class Faults:
    """Carries out faults on the labs. ``met``: how often each kind was; ``told``: what was done, with its second."""

    def __init__(self, fields: list[Field], disks: Mapping[str, Disk], calm: Calm, began_s: float) -> None:
        self._fields, self._disks, self._calm, self._began_s = fields, disks, calm, began_s
        self._lasting: list[tuple[float, int, str, Undo]] = []
        self._number = 0
        self.met: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.told: list[str] = []

    def run(self, faults: list[Fault], until_s: float) -> None:
        """All of them, to the end of the time for faults."""
        waiting = [(fault.at_s, number, 0, fault) for number, fault in enumerate(faults)]
        heapq.heapify(waiting)
        while waiting:
            at_s, number, tries, fault = heapq.heappop(waiting)
            self._sleep_until(at_s)
            done = False
            with contextlib.suppress(*REFUSED):  # a lab in chaos may not be able to
                done = self._begin(fault)
            if done:
                self.met[fault.kind] += 1
            elif tries < _TRIES and at_s + _AGAIN_S < until_s:
                heapq.heappush(waiting, (at_s + _AGAIN_S, number, tries + 1, fault))
            else:
                self.missed[fault.kind] += 1
        self._sleep_until(until_s)

    def heal(self) -> None:
        """Undo all that lasts; some of it can be undone only when other things are. Raises OSError."""
        give_up_s = time.monotonic() + _HEALED_S
        while self._lasting:
            for _ in range(len(self._lasting)):
                self._undo_first()
            if self._lasting and time.monotonic() > give_up_s:
                raise OSError(f"not healed: {', '.join(what for _, _, what, _ in self._lasting)}")
        self._calm.since_s = self._calm.healed_s = time.monotonic()

    def _undo_first(self) -> None:
        """Undo what ends first; what cannot be undone yet is tried again."""
        _, number, what, undo = heapq.heappop(self._lasting)
        try:
            undo()
            self._tell(f"ends: {what}")
        except REFUSED as error:
            self._tell(f"does not end yet: {what}: {error}")
            heapq.heappush(self._lasting, (time.monotonic() - self._began_s + 1.0, number, what, undo))

    def _sleep_until(self, at_s: float) -> None:
        while True:
            now_s = time.monotonic() - self._began_s
            if self._lasting and self._lasting[0][0] <= min(now_s, at_s):
                self._undo_first()
            elif now_s >= at_s:
                return
            else:
                next_s = min(at_s, self._lasting[0][0]) if self._lasting else at_s
                time.sleep(max(0.0, next_s - now_s))
            self._calm.since_s = None if self._lasting else time.monotonic()

    def _tell(self, what: str) -> None:
        self.told.append(f"{time.monotonic() - self._began_s:6.1f} s  {what}")

    def _begin(self, fault: Fault) -> bool:
        """Whether there was what it befalls."""
        field = self._fields[fault.lab]
        word, _, of = fault.kind.partition(" ")
        if word in ("kill", "stop"):
            return self._signalled(fault, field, of)
        if word in ("full", "frozen"):
            return self._disk(fault, self._disks[of], of)
        node = field.lab.nodes[int(fault.chosen * len(field.lab.nodes))]
        if fault.kind == "cut clusters":
            one, other = field.lab.clusters
            field.lab.link("cut", (one, other))
            return self._lasts(fault, f"{field.lab.name}", lambda: field.lab.link("mend", (one, other)))
        if fault.kind == "cut node":
            near = next(iter(field.lab.clusters.values()), field.lab.nodes)  # the head has the ends of their cables
            node = near[int(fault.chosen * len(near))]
            _nodes.link(field.lab, node, "down")
            return self._lasts(fault, f"{node} of {field.lab.name}", lambda: _nodes.link(field.lab, node, "up"))
        if fault.kind == "owner comes":
            return self._lasts(fault, f"{node} of {field.lab.name}", _typist(field, node))
        self._at_desk(field, node, "pause")
        return self._lasts(fault, f"{node} of {field.lab.name}", lambda: self._at_desk(field, node, "resume"))

    def _at_desk(self, field: Field, node: str, do: str) -> None:
        ended = field.lab.run(
            node, [sys.executable, "-P", "-m", "cosched.apps.cli.main", "desk", do], directory="/", timeout_s=15.0
        )
        if ended.returncode:
            raise OSError(f"{node}: desk {do}: {ended.stderr.decode(errors='replace')}")

    def _disk(self, fault: Fault, disk: Disk, name: str) -> bool:
        if any(what.endswith(f" {name}") for _, _, what, _ in self._lasting):
            return False
        if fault.kind.startswith("full"):
            disk.fill()
            return self._lasts(fault, name, disk.free)
        disk.freeze()
        return self._lasts(fault, name, disk.thaw)

    def _signalled(self, fault: Fault, field: Field, site: str) -> bool:
        found = processes(field, site)
        if not found:
            return False
        pid = found[int(fault.chosen * len(found))]
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        where = f"{pid} of {field.lab.name}, {_node_of(field, pid)}"
        if fault.kind.startswith("kill"):
            try:
                return _sent(process, signal.SIGKILL) and self._done(f"{fault.kind} {where}")
            finally:
                os.close(process)
        if not _sent(process, signal.SIGSTOP):
            os.close(process)
            return False

        def go_on() -> None:
            _sent(process, signal.SIGCONT)
            os.close(process)

        return self._lasts(fault, where, go_on)

    def _done(self, what: str) -> bool:
        self._tell(what)
        self._calm.since_s = None if self._lasting else time.monotonic()
        return True

    def _lasts(self, fault: Fault, what: str, undo: Undo) -> bool:
        what = f"{fault.kind}, {what}"
        self._number += 1
        heapq.heappush(self._lasting, (time.monotonic() - self._began_s + fault.lasts_s, self._number, what, undo))
        return self._done(f"begins: {what}")


def _typist(field: Field, node: str) -> Undo:
    """Have keys pressed at a node's desk; calling what is returned ends that."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        return field.lab.start(node, [sys.executable, "-I", "-c", TYPIST], streams=[nothing] * 3, directory="/").close
    finally:
        os.close(nothing)


def processes(field: Field, site: str) -> list[int]:
    """The processes of a site in that lab now, in the order of their numbers."""
    if site not in ("mpirun", "rank", "script"):
        return field.pids(site, 0)
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            group = (folder / "cgroup").read_text()
            if f"/cosched-lab/{field.lab.name}/" in group and "/job-" in group:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if _site(words) == site:
                    found.append(int(folder.name))
    return sorted(found)


def _site(words: list[str]) -> str:
    if any(word.endswith("/script") for word in words[:2]):
        return "script"
    if any(Path(word).name in ("mpirun", "prterun") for word in words[:2]):
        return "mpirun"
    name = Path(words[0]).name
    return "other" if not name or name.startswith("cosched-") or name in _NOT_RANKS else "rank"


def _node_of(field: Field, pid: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/cgroup").read_text().split(f"/cosched-lab/{field.lab.name}/")[1].split("/")[0]
    return "?"


def _sent(process: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return False
    return True
