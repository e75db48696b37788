"""The experiment on the contract: what the person at a desk feels beside parallel tasks, and what they still get.

On one node, interleaved: an *idle* desk; the *unprotected* one, on which as many computing tasks run as the owner's
equals; the contract under each coscheduling mode; and, with nobody there, parallel work by the contract and without
one. Tasks and what they use are counted for each CPU of the node. The owner is the probe of ``local_load``: wake-ups,
1 ms bursts and keys, each counted from the moment at which it was due. An unprotected desk that feels nothing proves
nothing: then the round is void.
"""

import random
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from cosched.apps.experiments.attempts import Attempts, Say
from cosched.apps.experiments.desk_under_load import Desk, Talking
from cosched.apps.experiments.interference import TRIES, InterferenceWatch, WatchedRun
from cosched.apps.experiments.site import PARALLEL, PLAIN, Site, owners_word
from cosched.client.client import Client
from cosched.errors import Failed

#: Where runs are kept, in the directory of results.
RUNS: Final = "contract-runs"
IDLE: Final = "idle desk"
UNPROTECTED: Final = "unprotected"
#: Nobody there, and what follows: a mode, or that there is no contract.
ABSENT: Final = "nobody there, "
ABSENT_UNPROTECTED: Final = f"{ABSENT}{UNPROTECTED}"
CALLS: Final = ("nanosleep", "poll", "burst", "key")
WAKE_UPS: Final = ("nanosleep", "poll")
RATE_HZ: Final = 150.0
#: A control that feels less than this shows that there was nothing to be protected from.
HARM_S: Final = 0.002
_SPIN: Final = (sys.executable, "-c", "while True: pass")
_TALK: Final = ("-P", "-m", "cosched.programs.pulse", "--grain-ms", "1", "--receive", "block")
_TALKING: Final = Talking((sys.executable, *_TALK), 2)
#: With fewer tasks the two that talk have no neighbour, and no mode has anything to do for them.
LEAST_TALKING: Final = _TALKING.tasks + 1
_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.05
#: Keys at a terminal that is as new as that may be seen at the agent's next look only.
_NEW_S: Final = 1.0
#: Without events a key is seen by its terminal's access time, which the kernel moves in steps of 8 s.
_SEEN_AGAIN_S: Final = 8.5


class ContractRuns(NamedTuple):
    """How many tasks on each CPU beside the owner, under which modes, how often and for how long each time.

    All of them compute; if two are ``talking``, these are one job whose ranks block for each other's messages.
    A run that is disturbed is made ``tries`` times at most.
    """

    tasks: Sequence[int]
    modes: Sequence[str]
    rounds: int
    seconds: float
    seed: int = 1
    talking: bool = False
    tries: int = TRIES


class Felt(WatchedRun, frozen=True):
    """One run. ``p99_s`` and the like are by call; ``parallel_cpus`` is what parallel work used of each CPU.

    ``promised`` is what the owner's contract leaves it of each: by the node's settings, whatever is in force.
    """

    p50_s: dict[str, float]
    p95_s: dict[str, float]
    p99_s: dict[str, float]
    parallel_cpus: float
    samples: int = 0
    promised: float = 0.5


class Measured(msgspec.Struct, frozen=True):
    """A run and what it was beside; a condition is one of the constants above, or a mode's name."""

    tasks: int
    condition: str
    felt: Felt


#: (tasks, condition) -> runs.
Runs = dict[tuple[int, str], list[Felt]]


class Experiment(Attempts):
    """Runs at a desk."""

    refusals = (Failed,)

    def __init__(self, site: Site, client: Client, plan: ContractRuns, say: Say) -> None:
        """Raises :class:`Failed` where jobs could start elsewhere, or not here."""
        super().__init__(say, InterferenceWatch(site.lab, say, here=True, tries=plan.tries))
        self._site = site
        self._desk = Desk(site, client)
        self._plan = plan
        self._random = random.Random(plan.seed)

    def run(self) -> Iterator[Measured]:
        """All conditions, in an order of its own in each round, as they are measured."""
        for number in range(self._plan.rounds):
            for tasks in self._random.sample(list(self._plan.tasks), len(self._plan.tasks)):
                absent = [ABSENT + mode for mode in self._plan.modes]
                conditions = [IDLE, UNPROTECTED, ABSENT_UNPROTECTED, *absent, *self._plan.modes]
                for condition in self._random.sample(conditions, len(conditions)):
                    make = partial(self._one, tasks, condition)
                    for felt, taken in self.attempt(f"{tasks} tasks | {condition}", make, _worded, number):
                        yield Measured(tasks, condition, msgspec.structs.replace(felt, **taken))

    def _one(self, tasks: int, condition: str) -> Felt:
        if condition == IDLE:
            self._desk.until(lambda node: not node.jobs, "no job to be there")
            return self._felt()
        computing = [_SPIN] * (tasks * self._site.cpus)
        if condition == UNPROTECTED:
            with self._desk.unprotected(computing):
                felt = self._felt(PLAIN)
            self._desk.away()  # else the pressure of this run halves the next contract's ceiling
            return felt
        if condition == ABSENT_UNPROTECTED:
            with self._desk.unprotected(computing):
                return self._alone(PLAIN)
        programs: list[Sequence[str] | Talking] = [*computing]
        if self._plan.talking:
            programs[: _TALKING.tasks] = [_TALKING]
        with self._desk.jobs(programs, condition.removeprefix(ABSENT)):
            if condition.startswith(ABSENT):
                self._desk.away()
                return self._alone(PARALLEL)
            return self._felt(PARALLEL)

    def _felt(self, side: str = PARALLEL) -> Felt:
        """What the probe measures, and what the side has used meanwhile. A second at first is nobody's."""
        seconds, used = self._plan.seconds, []

        def meanwhile() -> None:
            time.sleep(1.0 + 0.1 * seconds)
            used.append(self._used(side, 0.8 * seconds))

        told = owners_word(self._site, self._probe(1.0 + seconds), seconds + _PATIENCE_S, meanwhile)
        calls: dict[str, Any] = told["calls"]
        p50, p95, p99 = ({name: float(calls[name][key]) for name in CALLS} for key in ("p50_s", "p95_s", "p99_s"))
        count = sum(int(calls[name]["count"]) for name in CALLS)
        return Felt(p50, p95, p99, used[0], samples=count, promised=self._site.settings.contract.cpu_ratio)

    def _alone(self, side: str) -> Felt:
        return Felt({}, {}, {}, self._used(side, self._plan.seconds))

    def _used(self, side: str, seconds: float) -> float:
        """How much of each CPU a side has used in so many seconds."""
        before_s, began_s = self._site.used_s(side), time.monotonic()
        time.sleep(seconds)
        used_s = self._site.used_s(side) - before_s
        return used_s / (time.monotonic() - began_s) / self._site.cpus

    def _probe(self, seconds: float) -> list[str]:
        seed = str(self._random.randrange(1 << 30))
        options = ["--seconds", f"{seconds:g}", "--rate", f"{RATE_HZ:g}", "--calls", ",".join(CALLS), "--seed", seed]
        return [sys.executable, "-m", "cosched.apps.cli.main", "local-load", "probe", *options, "--json"]


def _worded(felt: Felt) -> str:
    told = [f"{name} {1000 * value:.3f}" for name, value in felt.p99_s.items()]
    return f"p99 ms: {', '.join(told)}; {felt.parallel_cpus:.3f} CPUs" if told else f"{felt.parallel_cpus:.3f} CPUs"


class Reaction(NamedTuple):
    """Seconds from a key at the desk to the ceiling in the kernel, and to the moment when that is gone again."""

    limited_s: float
    back_s: float


def reactions(site: Site, times: int, say: Say, *, events: bool) -> list[Reaction]:
    """What follows from a single key, so many times.

    The key is pressed by a process of the owner's, at a terminal of its own; the moment is taken just before. Without
    ``events`` it is pressed at any moment between two looks of the agent's.
    """
    moments = random.Random(times)

    def ceiling(*, there: bool) -> float:
        """Wait until it is there, or not; when that was."""
        patience_s = _PATIENCE_S if there else _PATIENCE_S + 2 * site.quiet_s
        deadline_s = time.monotonic() + patience_s
        while (site.ceiling_cpus() is not None) is not there:
            if time.monotonic() > deadline_s:
                what = f"{'armed' if there else 'relaxed'} in {patience_s:g} s"
                raise Failed(f"the contract on {site.node} was not {what}")
            time.sleep(0.0002 if there else _POLL_S)
        return time.monotonic()

    typist = (
        "import os, pty, sys, time\n"
        "keys, program = pty.openpty()\n"
        "print('open', flush=True)\n"
        "for _ in sys.stdin:\n"
        "    now = time.monotonic()\n"
        "    os.write(keys, b'x\\n')\n"
        "    os.read(program, 10)\n"
        "    print(now, flush=True)\n"
    )
    found = []
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        tempfile.TemporaryFile() as complaints,
        site.start([sys.executable, "-c", typist], (theirs.fileno(), theirs.fileno(), complaints.fileno())),
        ours.makefile("rw", encoding="ascii") as desk,
    ):
        theirs.close()

        def said() -> str:
            if line := desk.readline():
                return line
            complaints.seek(0)
            raise Failed(f"no key could be pressed on {site.node}: {complaints.read().decode(errors='replace')[-300:]}")

        said()
        time.sleep(_NEW_S)
        for _ in range(times):
            ceiling(there=False)
            if not events:
                time.sleep(_SEEN_AGAIN_S + moments.random())
            desk.write("\n")
            desk.flush()
            in_force_s = ceiling(there=True)
            pressed_s = float(said())
            found.append(Reaction(in_force_s - pressed_s, ceiling(there=False) - pressed_s))
            say(f"reaction: {1000 * found[-1].limited_s:.1f} ms, whole node back after {found[-1].back_s:.2f} s")
    return found
