"""What befalls a round of chaos, drawn from its seed before it begins: labs, jobs, faults, and when."""

import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cosched.wire.api import Submission

KILLED = ("scheduler", "agent", "guard", "supervisor", "mpirun", "rank", "script")
STOPPED = ("scheduler", "agent", "guard", "supervisor", "mpirun", "rank")
OTHERS = (
    "cut node", "cut clusters", "full home", "frozen home", "full state", "frozen state", "owner comes", "owner pauses",
)  # fmt: skip
#: Every kind of fault; a campaign in which one of them never occurred has failed.
KINDS = (*(f"kill {site}" for site in KILLED), *(f"stop {site}" for site in STOPPED), *OTHERS)
#: How long those last that last, in seconds: beyond a lease (10 s) and a guard's watchdog (10 s) now and then.
LASTS_S = {"frozen home": (1.0, 40.0), "owner comes": (4.0, 15.0)}
_LASTS_S = (0.5, 14.0)
#: Seconds between two faults of a round, on average: a crowd, or one by one.
_GAPS_S = (1.5, 3.0, 6.0)
#: Both labs are drawn anew in each round.
CLUSTERED = ("equipartition", "equipartition", "coalloc-fpfs", "easy", "conservative")
SINGLE = ("fjt1+bfm", "fjt1+bfm", "fjt4", "fjt4+bfa", "equipartition", "easy")
FAULTS_S = 60.0
_SPIN = "import sys,time\nwhile time.process_time() < float(sys.argv[1]): pass\n"
_LIMIT_S = 45.0
#: Seconds between two jobs of a lab, on average.
_ARRIVAL_S = 3.0


@dataclass(frozen=True)
class LabPlan:
    """A lab of the round: nodes, processors of each, and how many nodes each cluster has (empty: one cluster)."""

    name: str
    nodes: int
    cpus: int
    policy: str
    clusters: str = ""

    @property
    def widest(self) -> int:
        """Processors that a job without components can have: a cluster's."""
        return self.nodes * self.cpus // (len(self.clusters.split(",")))


@dataclass(frozen=True)
class JobPlan:
    """A job: its lab's index, when it is submitted, its shape, what it runs, and when its user cancels it, if ever."""

    lab: int
    at_s: float
    name: str
    shape: dict[str, object]
    program: str
    cancel_after_s: float | None = None

    def submission(self, places: "Places") -> Submission:
        canary = places.shared / self.name
        script = (
            f'#!/bin/sh\necho "$COSCHED_JOB_ID $COSCHED_ATTEMPT $$" >> {canary}\n'
            f"echo begins\n{self.program.format(python=sys.executable, spin=places.spin)} || exit 9\n"
            f"echo ends >> {self.name}.log\necho done > {canary}.ended\n"
        )
        how: dict[str, object] = {"time_limit_s": _LIMIT_S, "environment": {"PATH": places.search}, **self.shape}
        output = str(places.home / f"{self.name}.out")
        return Submission(script=script, name=self.name, directory=str(places.home), output=output, **how)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Places:
    """``shared``: canaries and programs, on a disk that nothing befalls; ``home``: jobs' directories and output."""

    shared: Path
    home: Path
    search: str

    @property
    def spin(self) -> Path:
        return self.shared / "spin.py"

    def make(self) -> None:
        self.spin.write_text(_SPIN)


@dataclass(frozen=True)
class Fault:
    """One fault: when it begins, its kind, its lab's index, how long it lasts, and which of those it could befall.

    ``chosen`` is between 0 and 1: of so many, the one at that part of their number.
    """

    at_s: float
    kind: str
    lab: int
    lasts_s: float
    chosen: float


class RoundPlan:
    """The plan of round ``number`` under ``seed``: jobs are submitted and faults begin for ``faults_s``."""

    def __init__(self, seed: int, number: int, faults_s: float = FAULTS_S) -> None:
        self.seed, self.number, self.faults_s = seed, number, faults_s
        random = Random(f"chaos {seed} {number}")
        self.labs = (
            LabPlan("a", 4, 2, random.choice(CLUSTERED), clusters="2,2"),
            LabPlan("b", random.choice((2, 3)), random.choice((1, 2)), random.choice(SINGLE)),
        )
        self.jobs = [job for index, lab in enumerate(self.labs) for job in _jobs(random, index, lab, faults_s)]
        self.faults = _faults(random, random.choice(_GAPS_S), faults_s)

    def __str__(self) -> str:
        labs = ", ".join(f"{lab.clusters or lab.nodes}×{lab.cpus} {lab.policy}" for lab in self.labs)
        return f"{labs}; {len(self.jobs)} jobs, {len(self.faults)} faults"


def _jobs(random: Random, index: int, lab: LabPlan, until_s: float) -> list[JobPlan]:
    found: list[JobPlan] = []
    at_s = 0.0
    while at_s < until_s:
        shape, program = random.choice(_kinds(random, lab))
        cancelled = random.random() < 0.1
        if random.random() < 0.2:
            shape = {**shape, "requeue": True}
        after_s = random.uniform(0.5, 10.0) if cancelled else None
        found.append(JobPlan(index, at_s, f"{lab.name}{len(found)}", shape, program, after_s))
        at_s += random.expovariate(1 / _ARRIVAL_S)
    return found


def _kinds(random: Random, lab: LabPlan) -> list[tuple[dict[str, object], str]]:
    """What may be drawn for that lab: shape and program of a job; their numbers are drawn for each."""
    tasks = random.randint(1, lab.widest)
    seconds = random.uniform(0.5, 6.0)
    ranks = f"mpirun --oversubscribe -n $COSCHED_TASKS sleep {seconds:.1f}"
    kinds: list[tuple[dict[str, object], str]] = [
        ({"tasks": 1}, f"sleep {seconds:.1f}"),
        ({"tasks": tasks}, ranks),
        ({"tasks": min(2, lab.widest)}, "mpirun --oversubscribe {python} -m cosched.programs cg --seconds 1 --json"),
    ]
    if lab.policy.startswith("equipartition"):
        kinds += [_malleable(random.randint(2, 4), random.choice((1500, 4000, 12_000)))] * 2
    if lab.policy.startswith("fjt"):
        spin = f"mpirun --oversubscribe -n $COSCHED_TASKS {{python}} {{spin}} {random.uniform(0.3, 1.5):.1f}"
        kinds += [({"sizes": str(tasks)}, spin), ({"sizes": f"1-{lab.widest}"}, spin)]
    if lab.clusters:
        each = random.choice((1, 2, 4))
        kinds += [({"tasks": 2 * each, "components": (each, each)}, ranks)] * 2
    return kinds


def _malleable(most: int, steps: int) -> tuple[dict[str, object], str]:
    """A malleable job; 20 000 steps take 20 s on two processors."""
    heat = f"{{python}} -m cosched.programs.malleable heat --size 64 --steps {steps} --json"
    return {"min_tasks": 1, "max_tasks": most}, f"mpirun --oversubscribe {heat}"


def probes(lab: LabPlan, index: int) -> list[JobPlan]:
    """Jobs that must complete when all is healed: one of each kind that the lab takes, the widest among them.

    A malleable one comes first, and is resized while it starts.
    """
    random = Random(f"probes {lab.policy}")
    first = [_malleable(lab.nodes * lab.cpus, 6_000)] if lab.policy.startswith("equipartition") else []
    own: tuple[dict[str, object], str] = {"tasks": lab.widest}, "mpirun --oversubscribe -n $COSCHED_TASKS sleep 1"
    kinds = [*first, *_kinds(random, lab), own]
    return [JobPlan(index, 0.0, f"{lab.name}-probe{n}", shape, does) for n, (shape, does) in enumerate(kinds)]


def _faults(random: Random, gap_s: float, until_s: float) -> list[Fault]:
    """Kinds in turn from a shuffled deck."""
    found: list[Fault] = []
    deck: list[str] = []
    at_s = 2.0
    while at_s < until_s:
        deck = deck or random.sample(KINDS, len(KINDS))
        kind = deck.pop()
        lab = 0 if kind == "cut clusters" else random.randrange(2)
        found.append(Fault(at_s, kind, lab, random.uniform(*LASTS_S.get(kind, _LASTS_S)), random.random()))
        at_s += random.expovariate(1 / gap_s)
    return found
