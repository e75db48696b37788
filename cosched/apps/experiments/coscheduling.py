"""The experiment on coscheduling: jobs beside company under every mode, interleaved, on nodes of one CPU each.

``plain`` is what Linux does with both in one group of processes: the job's own script starts the company. In all other
modes job and company are jobs of their own, each with a group of its own. The company's rate is read from what it has
told of its progress, between the job's first and last word; on a cluster the nodes' clocks have to agree.
"""

import random
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from cosched.apps.experiments.attempts import Attempts, Say
from cosched.apps.experiments.interference import TRIES, InterferenceWatch
from cosched.apps.experiments.jobs import BEGIN_S, ENDED, POLL_S, Cannot, Jobs, why
from cosched.apps.experiments.matrix import ALONE, Company, Run, Work
from cosched.apps.experiments.progress import Word, at, words_in
from cosched.client.client import Client
from cosched.model.job import JobState

#: Computing before the measured part: by then agents have seen how the job receives, and told each other.
WARM_S: Final = 1.5
_PROGRESS: Final = "cosched.programs.pulse"


class CoschedulingRuns(NamedTuple):
    """What to run: how often, how many seconds of computing a run has, on how many nodes, and in which order.

    A run that is disturbed is made ``tries`` times at most.
    """

    works: Sequence[Work]
    companies: Sequence[Company]
    modes: Sequence[str]
    rounds: int
    seconds: float
    nodes: int
    seed: int = 1
    tries: int = TRIES


class Experiment(Attempts):
    """Runs cells through a cluster's client."""

    def __init__(self, client: Client, plan: CoschedulingRuns, say: Say, lab: str | None = None) -> None:
        """``lab``: the name of the one on this machine that the client is of; then disturbed runs are made again."""
        super().__init__(say, InterferenceWatch(lab, say, tries=plan.tries))
        self._client = client
        self._jobs = Jobs(client)
        self._plan = plan

    def run(self) -> Iterator[Run]:
        """All runs, each mode's between those of the others and between runs alone, as they are made."""
        plan = self._plan
        rng = random.Random(plan.seed)
        for number in range(plan.rounds):
            pairs = [(work, company) for work in plan.works for company in plan.companies]
            rng.shuffle(pairs)
            for work, company in pairs:
                order = [ALONE, *plan.modes]
                rng.shuffle(order)
                for mode in order:
                    yield from self._one(number, work, company, mode)

    def _one(self, number: int, work: Work, company: Company, mode: str) -> Iterator[Run]:
        """The run, or none where it can't be made."""
        what = f"{work.name} | {company.name} | {mode}"
        if what not in self.refused:
            make = partial(self._made, work, company, mode)
            for found, taken in self.attempt(what, make, "{0[0]:.2f} s, company {0[1]:.2f}".format, number):
                yield Run(work.name, company.name, mode, *found, **taken)

    def _made(self, work: Work, company: Company, mode: str) -> tuple[float, float]:
        if mode == ALONE:
            return self.alone(work), 0.0
        if mode == "plain":
            return self.plain(work, company)
        return self.beside(work, company, mode)

    def alone(self, work: Work) -> float:
        """The job with the nodes to itself: its seconds."""
        return _lasted(self._told_by(self._jobs.finish(self._submit(self._script(work), "none", work)).job_id))

    def plain(self, work: Work, company: Company) -> tuple[float, float]:
        """Job and company in one group of processes on each node: the job's seconds, the company's rate."""
        if work.receive == "pvm":
            raise Cannot("PVM's tasks and mpirun's cannot be started side by side by one script")
        # every rank of the company writes where it is; those of this node speak for all, for nodes are alike
        told = '"${TMPDIR:-/tmp}"/pulse-company'
        launch = f"mpirun -n {self._plan.nodes}"
        lines = []
        for number in range(company.computing):
            pulse = shlex.join(_pulse(Work("", 10.0, 1, "none"), 0))
            lines.append(f"{launch} sh -c {shlex.quote(f'exec {pulse} >{told}{number}')} </dev/null &")
        if company.communicating:
            lines.append(f"{launch} {shlex.join(_pulse(work, 0))} >{told} </dev/null &")
        lines += [
            f'for at in $(seq 600); do [ "$(cat {told}* 2>/dev/null | wc -l)" -gt 5 ] && break; sleep 0.1; done',
            f"{launch} {shlex.join(_pulse(work, self._rounds(work)))} </dev/null || exit",
            f'sleep 0.2; for file in {told}*; do echo "company $file"; cat "$file"; done',
        ]
        job = self._jobs.finish(self._submit("#!/bin/sh\n" + "\n".join(lines) + "\n", "none", work))
        own, *others = self._jobs.output(job.job_id).split("company /")
        mine = words_in(own)
        rates = [_rate(words_in(text.partition("\n")[2]), mine) for text in others]
        return self._with_company(work, company, mine, sum(rates))

    def beside(self, work: Work, company: Company, mode: str) -> tuple[float, float]:
        """Job and company as jobs of their own, under a mode: the job's seconds, the company's rate."""
        with self._jobs.running() as started:
            self._accompany(started, work, company, mode)
            job_id = self._submit(self._script(work), mode, work)
            self._begun(job_id)
            mine = self._told_by(self._jobs.finish(job_id).job_id)
            time.sleep(2 * POLL_S)
            rates = [_rate(self._told_by(each), mine) for each in started]
        nodes = 1 if company.communicating else self._plan.nodes
        return self._with_company(work, company, mine, sum(rates) / nodes)

    @contextmanager
    def together(self, work: Work, company: Company, mode: str) -> Iterator[None]:
        """Job and company under a mode, without end: until the block is left."""
        with self._jobs.running() as started:
            self._accompany(started, work, company, mode)
            started.append(self._submit(self._script(work, forever=True), mode, work))
            self._begun(started[-1])
            yield

    def _accompany(self, started: list[int], work: Work, company: Company, mode: str) -> None:
        """Start the company, and come back when it works; its numbers are added to ``started``."""
        if company.communicating:
            started.append(self._submit(self._script(work, forever=True), mode, work))
        computing = "#!/bin/sh\nexec " + shlex.join(_pulse(Work("", 10.0, 1, "none"), 0)) + "\n"
        for _ in range(company.computing * self._plan.nodes):
            started.append(self._submit(computing, mode, work, tasks=1))  # noqa: PERF401 (known if the next is refused)
        for job_id in started:
            self._begun(job_id)
        self._check_places(started, company)

    def _with_company(self, work: Work, company: Company, mine: list[Word], rate: float) -> tuple[float, float]:
        """What came out; a communicating company's rate is held against what such a job does alone just then."""
        if company.communicating:
            rate *= self.alone(work) / self._plan.seconds
        return _lasted(mine), rate

    def _rounds(self, work: Work) -> int:
        return max(2, round((WARM_S + self._plan.seconds) * 1000 / work.grain_ms))

    def _script(self, work: Work, *, forever: bool = False) -> str:
        pulse = shlex.join(_pulse(work, 0 if forever else self._rounds(work), ranks=self._plan.nodes))
        if work.receive == "pvm":
            begin, end = "echo quit | pvm >/dev/null || exit 1", "status=$?; echo halt | pvm >/dev/null; exit $status"
            return f"#!/bin/sh\n{begin}\n{pulse}\n{end}\n"
        return f"#!/bin/sh\nexec mpirun {pulse}\n"

    def _submit(self, script: str, mode: str, work: Work, tasks: int | None = None) -> int:
        tasks = self._plan.nodes if tasks is None else tasks
        return self._jobs.submit(script, mode, tasks, polls=work.receive == "poll")

    def _begun(self, job_id: int) -> None:
        """Wait until a job has told of its progress, and until all nodes have heard of each other's jobs."""
        deadline_s = time.monotonic() + BEGIN_S
        while len(self._told_by(job_id)) < 2:
            job = self._client.job(job_id)
            if job.state in ENDED:
                if job.state == JobState.COMPLETED:
                    return
                raise Cannot(why(job))
            if time.monotonic() > deadline_s:
                raise Cannot(f"job {job_id} has not begun within {BEGIN_S:g} s: {job.state}")
            time.sleep(POLL_S)

    def _check_places(self, jobs: Sequence[int], company: Company) -> None:
        if company.communicating:
            return
        places = [share.name for job_id in jobs for share in self._client.job(job_id).nodes]
        if any(places.count(node) != company.computing for node in places):
            raise Cannot(f"the company's tasks are not spread evenly: {' '.join(places)}")

    def _told_by(self, job_id: int) -> list[Word]:
        return words_in(self._jobs.output(job_id))


def _pulse(work: Work, rounds: int, ranks: int = 2) -> list[str]:
    receive = work.receive if work.receive in ("block", "pvm", "none") else "mpi"
    options = ["--grain-ms", f"{work.grain_ms:g}", "--exchanges", str(work.exchanges), "--rounds", str(rounds)]
    return [sys.executable, "-P", "-m", _PROGRESS, *options, "--receive", receive, "--ranks", str(ranks)]


def _measured(words: list[Word]) -> tuple[float, float]:
    """From when to when the measured part went: all but the first seconds of computing."""
    if len(words) < 2 or words[-1].done <= WARM_S:
        raise Cannot("the job has told too little of its progress")
    before = words[0]
    for word in words:
        if word.done >= WARM_S:
            part = (WARM_S - before.done) / max(1e-9, word.done - before.done)
            return before.time_s + part * (word.time_s - before.time_s), words[-1].time_s
        before = word
    raise AssertionError  # the last word has more


def _lasted(words: list[Word]) -> float:
    begin_s, end_s = _measured(words)
    return end_s - begin_s


def _rate(company: list[Word], mine: list[Word]) -> float:
    """Seconds of computing for each second, while the measured part of the job ran."""
    begin_s, end_s = _measured(mine)
    if not company or company[0].time_s > begin_s or end_s <= begin_s:
        raise Cannot("the company was not there from the job's beginning")
    return (at(company, end_s).done - at(company, begin_s).done) / (end_s - begin_s)
