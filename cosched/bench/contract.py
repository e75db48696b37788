"""The experiment on the contract: what the person at a desk feels beside parallel tasks, and what they still get.

On one node of one CPU, interleaved: an *idle* desk; the *unprotected* one, on which as many computing tasks run in a
group that is the owner's equal; the contract under each coscheduling mode; and, with nobody there, parallel work by the
contract and without one. The owner is the probe of ``local_load``: wake-ups, 1 ms bursts and keys, each counted from
the moment at which it was due. An unprotected desk that feels nothing proves nothing: then the round is void.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from cosched.bench.desk import PARALLEL, PLAIN, Desk, Talking
from cosched.bench.quiet import Quiet
from cosched.client.client import Client
from cosched.errors import Failed
from cosched.lab import cgroups
from cosched.lab.lab import Lab
from cosched.model.node import Presence

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
Say = Callable[[str], None]


class Plan(NamedTuple):
    """How many tasks beside the owner, under which modes, how often and for how long each time.

    All of them compute; if two are ``talking``, these are one job whose ranks block for each other's messages.
    """

    tasks: Sequence[int]
    modes: Sequence[str]
    rounds: int
    seconds: float
    seed: int = 1
    talking: bool = False


class Felt(msgspec.Struct, frozen=True):
    """One run. ``p99_s`` and the like are by call; ``parallel_cpus`` is what parallel work used.

    ``steal`` and ``others``: what was taken of the machine meanwhile (``cosched.bench.quiet``).
    """

    p50_s: dict[str, float]
    p95_s: dict[str, float]
    p99_s: dict[str, float]
    parallel_cpus: float
    steal: float = 0.0
    samples: int = 0
    others: float = 0.0


class Measured(msgspec.Struct, frozen=True):
    """A run and what it was beside; a condition is one of the constants above, or a mode's name."""

    tasks: int
    condition: str
    felt: Felt


#: (tasks, condition) -> runs.
Runs = dict[tuple[int, str], list[Felt]]


class Experiment:
    """Runs on the first node of a lab, which has one CPU of its own. ``refused``: what could not be run, and why."""

    def __init__(self, lab: Lab, client: Client, plan: Plan, say: Say) -> None:
        self._lab = lab
        self._desk = Desk(lab, client)
        self._plan = plan
        self._say = say
        self._quiet = Quiet(lab.name, say)
        self._node = lab.nodes[0]
        self._random = random.Random(plan.seed)
        self.refused: dict[str, str] = {}

    def run(self) -> Iterator[Measured]:
        """All conditions, in an order of its own in each round, as they are measured."""
        for number in range(self._plan.rounds):
            for tasks in self._random.sample(list(self._plan.tasks), len(self._plan.tasks)):
                absent = [ABSENT + mode for mode in self._plan.modes]
                conditions = [IDLE, UNPROTECTED, ABSENT_UNPROTECTED, *absent, *self._plan.modes]
                for condition in self._random.sample(conditions, len(conditions)):
                    what = f"{tasks} tasks | {condition}"
                    try:
                        felt, taken = self._quiet.run(lambda: self._one(tasks, condition), what)  # noqa: B023 (at once)
                    except Failed as error:
                        self.refused[what] = str(error)
                        self._say(f"{what}: {error}")
                        continue
                    self._say(f"round {number + 1}: {what}: {_worded(felt)}")
                    yield Measured(tasks, condition, msgspec.structs.replace(felt, **taken._asdict()))

    def _one(self, tasks: int, condition: str) -> Felt:
        if condition == IDLE:
            self._desk.until(lambda node: not node.jobs, "no job to be there")
            return self._felt()
        if condition == UNPROTECTED:
            with self._desk.unprotected([_SPIN] * tasks):
                return self._felt(PLAIN)
        if condition == ABSENT_UNPROTECTED:
            with self._desk.unprotected([_SPIN] * tasks):
                return self._alone(PLAIN)
        programs: list[Sequence[str] | Talking] = [_SPIN] * tasks
        if self._plan.talking:
            programs[: _TALKING.tasks] = [_TALKING]
        with self._desk.jobs(programs, condition.removeprefix(ABSENT)):
            if condition.startswith(ABSENT):
                self._desk.until(
                    lambda node: node.presence is Presence.AWAY and node.armed is False, "nobody to be there"
                )
                return self._alone(PARALLEL)
            return self._felt(PARALLEL)

    def _felt(self, side: str = PARALLEL) -> Felt:
        """What the probe measures, and what the side has used meanwhile. A second at first is nobody's."""
        with tempfile.TemporaryFile() as none, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaint:
            streams = (none.fileno(), out.fileno(), complaint.fileno())
            with self._lab.start(self._node, self._probe(1.0 + self._plan.seconds), streams=streams) as probe:
                time.sleep(1.0 + 0.1 * self._plan.seconds)
                use = self._used(side, 0.8 * self._plan.seconds)
                status = probe.wait(self._plan.seconds + _PATIENCE_S)
            out.seek(0)
            complaint.seek(0)
            if status:
                raise Failed(f"the probe ended with {status}: {complaint.read().decode(errors='replace')[-300:]}")
            told = out.read()
        calls: dict[str, Any] = json.loads(told.splitlines()[-1])["calls"]
        p50, p95, p99 = ({name: float(calls[name][key]) for name in CALLS} for key in ("p50_s", "p95_s", "p99_s"))
        return Felt(p50, p95, p99, use, samples=sum(int(calls[name]["count"]) for name in CALLS))

    def _alone(self, side: str) -> Felt:
        return Felt({}, {}, {}, self._used(side, self._plan.seconds))

    def _used(self, side: str, seconds: float) -> float:
        """CPUs that a side has used in so many seconds."""
        before_s, began_s = cgroups.used_s(self._lab.name, self._node, side), time.monotonic()
        time.sleep(seconds)
        return (cgroups.used_s(self._lab.name, self._node, side) - before_s) / (time.monotonic() - began_s)

    def _probe(self, seconds: float) -> list[str]:
        seed = str(self._random.randrange(1 << 30))
        options = ["--seconds", f"{seconds:g}", "--rate", f"{RATE_HZ:g}", "--calls", ",".join(CALLS), "--seed", seed]
        return [sys.executable, "-m", "cosched.cli.main", "local-load", "probe", *options, "--json"]


def _worded(felt: Felt) -> str:
    told = [f"{name} {1000 * value:.3f}" for name, value in felt.p99_s.items()]
    return f"p99 ms: {', '.join(told)}; {felt.parallel_cpus:.3f} CPUs" if told else f"{felt.parallel_cpus:.3f} CPUs"


class Reaction(NamedTuple):
    """Seconds from a key at the desk to the ceiling in the kernel, and to the moment when that is gone again."""

    limited_s: float
    back_s: float


def reactions(lab: Lab, times: int, say: Say, *, events: bool) -> list[Reaction]:
    """What follows from a single key, so many times.

    The key is pressed by a process of the node's, at a terminal of its own; the moment is taken just before. Without
    ``events`` it is pressed at any moment between two looks of the agent's.
    """
    moments = random.Random(times)
    node = lab.nodes[0]

    def ceiling(*, there: bool) -> float:
        """Wait until it is there, or not; when that was."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while (cgroups.ceiling_cpus(lab.name, node, "cosched") is not None) is not there:
            if time.monotonic() > deadline_s:
                raise Failed(f"the contract on {node} was not {'armed' if there else 'relaxed'} in {_PATIENCE_S:g} s")
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
    with subprocess.Popen(
        [sys.executable, "-m", "cosched.cli.main", "lab", "run", "--quiet", "--name", lab.name, node, "--",
         sys.executable, "-c", typist],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ,
    ) as desk:  # fmt: skip
        assert desk.stdin is not None
        assert desk.stdout is not None
        if not desk.stdout.readline():
            raise Failed(f"no terminal could be opened on {node}")
        time.sleep(_NEW_S)
        for _ in range(times):
            ceiling(there=False)
            if not events:
                time.sleep(_SEEN_AGAIN_S + moments.random())
            desk.stdin.write(b"\n")
            desk.stdin.flush()
            in_force_s = ceiling(there=True)
            pressed_s = float(desk.stdout.readline())
            found.append(Reaction(in_force_s - pressed_s, ceiling(there=False) - pressed_s))
            say(f"reaction: {1000 * found[-1].limited_s:.1f} ms, whole node back after {found[-1].back_s:.2f} s")
    return found
