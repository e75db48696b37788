"""Kill -9 at random moments, on a real lab with real MPI jobs, and what became of every job.

    ./run campaign faults [--only scheduler,agent,guard,supervisor,script,rank] [--rounds N] [--seed S] [--from R]

A round submits three jobs of two ranks on a lab of four one-processor nodes (two start at once, the third follows), and
kills one process of the round's *site* in the round's *phase*: ``launch`` (between the submission and the first rank),
``run``, ``end`` (about when the script ends and all is cleared away; of a rank, about when its program ends). Which
job, which node and when come from the seed. Then everything must come to rest: each job in exactly one terminal state,
none lost, no script run twice (each leaves a line in a file of its own), every service back, and nothing left of a job:
processes, control groups, supervisors, records, directories, node files, shared memory. Who only carries things out
must not be missed: with the scheduler, an agent or a guard killed, every job completes.

A site that was not there to be killed in its phase (an end can be over in no time) is counted as such; each site must
have been hit in every phase that was tried, or the campaign fails. The first round that fails ends it, and prints the
command that repeats it. Needs root, for a lab of tier 1.
"""

import argparse
import contextlib
import glob
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cosched.apps.lab import rooms
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.errors import Failed
from cosched.model.job import TERMINAL
from cosched.wire.api import JobDoc, Submission

SITES = ("scheduler", "agent", "guard", "supervisor", "script", "rank")
PHASES = ("launch", "run", "end")
NODES, JOBS, TASKS = 4, 3, 2
#: With one of these killed, every job completes all the same.
HARMLESS = ("scheduler", "agent", "guard")
_PATIENCE_S = 60.0
#: How long the programs compute: usually, and in a job that is to be met while it runs and ends by that.
_SHORT_S, _LONG_S = 1, 30
#: How long after the phase was seen to begin.
_MOMENTS_S = {"launch": (0.0, 0.5), "run": (0.0, 1.0), "last seconds": (0.9, 1.3), "end": (0.0, 0.5)}
_ENDED = {str(state) for state in TERMINAL}
_SCRIPT = """#!/bin/sh
echo "$COSCHED_JOB_ID $$" >> {canary}
mpirun {python} -m cosched.programs cg --class S --seconds {seconds} --json || exit 9
echo done > {canary}.ending
sleep 0.3
echo done > {canary}.ended
"""


class Broken(Exception):
    """A promise was broken; the message says which."""


@dataclass
class Round:
    """One fault: where, in which phase, and all that is random about it."""

    site: str
    phase: str
    number: int
    seed: int
    fired: bool = False
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed} {self.site} {self.number}")

    @property
    def is_met(self) -> bool:
        """Whether the kill ends the job, which can therefore run for long enough to be met by it, however late."""
        return self.site in ("script", "rank") and self.phase == "run"

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"./run campaign faults --only {self.site} --rounds 1 --from {self.number} --seed {self.seed}"


def rounds(sites: list[str], count: int, seed: int, first: int = 0) -> Iterator[Round]:
    """So many rounds of each site, phases in turn."""
    for number in range(first, first + count):
        for site in sites:
            yield Round(site, PHASES[(number + SITES.index(site)) % len(PHASES)], number, seed)


class Field:
    """The lab that faults are tried on, and the directory that all its nodes see."""

    def __init__(self, lab: Lab, shared: Path) -> None:
        self.lab, self.shared = lab, shared
        self.kept = rooms.kept([*rooms.own_places(), shared])  # nodes see it below their own /tmp, no job left it
        self.path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"

    def run(self, fault: Round) -> None:
        """One round. Raises :class:`Broken`."""
        mark = f"{fault.site}-{fault.number}"
        canaries = [self.shared / f"{mark}-{index}" for index in range(JOBS)]
        with self.lab.client() as client:
            chosen = fault.random.randrange(2)  # one of those that start at once
            jobs = [
                self._submitted(client, canary, _LONG_S if fault.is_met and index == chosen else _SHORT_S)
                for index, canary in enumerate(canaries)
            ]
            phase = "last seconds" if (fault.site, fault.phase) == ("rank", "end") else fault.phase
            self._await_phase(client, phase, jobs[chosen], canaries[chosen])
            time.sleep(fault.random.uniform(*_MOMENTS_S[phase]))
            self._kill(client, fault, jobs[chosen])
            told = [self._ended(client, job_id) for job_id in jobs]
            for job, canary in zip(told, canaries, strict=True):
                fault.outcomes[job.state] += 1
                self._judge(fault, job, canary)
            self._services_back(client)
            self._nothing_left(jobs)

    # --- the jobs -----------------------------------------------------------------------------------------------------

    def _submitted(self, client: Client, canary: Path, seconds: int) -> int:
        return client.submit(
            Submission(
                script=_SCRIPT.format(canary=canary, python=sys.executable, seconds=seconds),
                tasks=TASKS,
                time_limit_s=60.0,
                directory="/",
                environment={"PATH": self.path},
            )
        ).job_id

    def _await_phase(self, client: Client, phase: str, job_id: int, canary: Path) -> None:
        def come() -> bool:
            if phase == "launch":
                return True
            if phase == "end" and canary.with_name(f"{canary.name}.ending").exists():
                return True
            state = client.job(job_id).state
            return state in _ENDED or (phase != "end" and state == "running" and bool(self.pids("rank", job_id)))

        until(come, f"job {job_id} to come to its {phase}")

    def _ended(self, client: Client, job_id: int) -> JobDoc:
        found: list[JobDoc] = []

        def ended() -> bool:
            with contextlib.suppress(Failed):  # the scheduler may be on its way back
                job = client.job(job_id)
                if job.state in _ENDED:
                    found.append(job)
            return bool(found)

        until(ended, f"job {job_id} to end")
        return found[0]

    def _judge(self, fault: Round, job: JobDoc, canary: Path) -> None:
        """What is promised of every job, whatever was killed."""
        terminal = [step.state for step in job.history if step.state in _ENDED]
        if terminal != [job.state] or job.history[-1].state != job.state:
            raise Broken(f"job {job.job_id} has ended as {terminal}, and is {job.state}")
        ran = canary.read_text().splitlines() if canary.exists() else []
        if len(ran) > 1:
            raise Broken(f"job {job.job_id} ran {len(ran)} times: {ran}")
        if job.state == "completed" and not canary.with_name(f"{canary.name}.ended").exists():
            raise Broken(f"job {job.job_id} is completed, and its script did not come to its end")
        if fault.site in HARMLESS and job.state != "completed":
            raise Broken(f"job {job.job_id} {job.state}, though only a {fault.site} was killed: {job.failure}")

    # --- the fault ----------------------------------------------------------------------------------------------------

    def _kill(self, client: Client, fault: Round, job_id: int) -> None:
        """Kill one process of the site, as soon as there is one, unless the jobs are over before."""
        pidfds: list[int] = []

        def there() -> bool:
            for pid in fault.random.sample(found := self.pids(fault.site, job_id), len(found)):
                with contextlib.suppress(ProcessLookupError):
                    pidfds.append(os.pidfd_open(pid))
                    return True
            with contextlib.suppress(Failed):
                return client.job(job_id).state in _ENDED
            return False

        until(there, f"a {fault.site} to kill")
        for pidfd in pidfds:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                fault.fired = True
            os.close(pidfd)

    def pids(self, site: str, job_id: int) -> list[int]:
        """The processes of a site now, as this machine numbers them; of this job, where they are a job's."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if site in ("script", "rank"):
                    if f"/cosched-lab/{self.lab.name}/" not in (folder / "cgroup").read_text():
                        continue
                    if f"/job-{job_id}." not in (folder / "cgroup").read_text():
                        continue
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                name = (folder / "comm").read_text().strip()
            except OSError:
                continue
            if self._is(site, words, name):
                found.append(int(folder.name))
        return sorted(found)

    def _is(self, site: str, words: list[str], name: str) -> bool:
        if site == "script":
            return any(word.endswith("/script") for word in words[:2]) and str(self.lab.directory) in " ".join(words)
        if site == "rank":
            return "cosched.programs" in words and name.startswith("python")
        if str(self.lab.directory) not in " ".join(words):
            return False
        if site == "supervisor":
            return name == "cosched-superv"
        module = {"scheduler": "scheduler", "agent": "node_agent", "guard": "node_agent.guard"}[site]
        return module in words and not name.startswith("cosched-")  # the guard's children: supervisors, decoys, a probe

    # --- afterwards ---------------------------------------------------------------------------------------------------

    def _services_back(self, client: Client) -> None:
        def back() -> bool:
            running = all(
                how == "running" for node in ("head", *self.lab.nodes) for how in self.lab.services(node).values()
            )
            with contextlib.suppress(Failed):
                return running and all(node.state == "up" and not node.jobs for node in client.nodes())
            return False

        until(back, "services and nodes to be back")

    def _nothing_left(self, jobs: list[int]) -> None:
        until(lambda: not self.residue(jobs), lambda: f"nothing to be left, and there is {self.residue(jobs)}", 30.0)

    def residue(self, jobs: list[int]) -> list[str]:
        """What there still is of these jobs."""
        left = [f"supervisor {pid}" for pid in self.pids("supervisor", 0)]
        for mount in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()):
            left += glob.glob(f"{mount}/cosched-lab/{self.lab.name}/**/job-*", recursive=True)
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"/cosched-lab/{self.lab.name}/" not in (folder / "cgroup").read_text():
                    continue
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            left += [f"process {folder.name}" for job_id in jobs if f"COSCHED_JOB_ID={job_id}".encode() in environment]
        for node in self.lab.state["nodes"]:
            state = Path(node["directory"]) / "state"
            left += [str(each) for each in (state / "jobs").iterdir()]
            left += [str(each) for each in (state / "records").iterdir() if each.name not in ("epoch", "lock")]
            seen = self.lab.run(node["name"], ["sh", "-c", "ls -d /tmp/* /dev/shm/* /run/cosched/jobs/* 2>/dev/null"])
            for path in sorted(seen.stdout.decode().split()):
                if not any(Path(kept).is_relative_to(path) for kept in self.kept):
                    left.append(f"{node['name']}: {path}")
        return left


def until(
    condition: Callable[[], object], what: str | Callable[[], str], within_s: float = _PATIENCE_S, pause_s: float = 0.01
) -> None:
    """Wait for it, asked more and more rarely: some conditions look at every process. Raises :class:`Broken`.

    ``what`` says what there is instead.
    """
    give_up_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up_s:
            raise Broken(f"waited {within_s:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(pause_s)
        pause_s = max(pause_s, min(1.2 * pause_s, 0.1))


def campaign(faults: list[Round], say: Callable[[str], None] = print) -> Counter[tuple[str, str]]:
    """All these rounds on one lab; how often each was hit in each phase. Raises :class:`Broken`, with the command."""
    hit: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name, Lab.up(nodes=NODES, name=f"faults-{os.getpid()}", keep=[name]) as lab:
        if lab.tier != 1:
            raise SystemExit(f"needs a lab of tier 1: {lab.why}")
        field_ = Field(lab, Path(name))
        for fault in faults:
            try:
                field_.run(fault)
            except Broken as error:
                raise Broken(f"{fault.site}, {fault.phase}: {error}\nrepeat it: {fault.command}") from None
            hit[fault.site, fault.phase] += fault.fired
            outcomes = ", ".join(f"{count} {state}" for state, count in sorted(fault.outcomes.items()))
            say(f"{fault.site:10} {fault.phase:7} {'killed' if fault.fired else 'missed':7} {outcomes}")
    never = {(fault.site, fault.phase) for fault in faults} - {key for key, count in hit.items() if count}
    if never:
        raise Broken(f"never hit: {', '.join(sorted(f'{site} in {phase}' for site, phase in never))}")
    return hit


def asked(name: str, about: str, sites: Sequence[str], count: int) -> tuple[argparse.Namespace, list[str]]:
    """The options of a campaign of rounds, ``count`` of each site unless it is said, and the sites."""
    parser = argparse.ArgumentParser(prog=f"./run campaign {name}", description=about.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", default=",".join(sites), help="sites, separated by commas")
    parser.add_argument("--rounds", type=int, default=count, help="of each site")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="R", help="the number of the first round")
    options = parser.parse_args()
    return options, chosen(parser, options.only, sites)


def chosen(parser: argparse.ArgumentParser, only: str, names: Collection[str]) -> list[str]:
    """The names of ``--only``; ends with a usage error where one of them is none."""
    found = only.split(",")
    if unknown := set(found) - set(names):
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return found


def main() -> None:
    """Try, and print a table."""
    options, sites = asked("faults", __doc__, SITES, 20)
    try:
        hit = campaign(list(rounds(sites, options.rounds, options.seed, options.first)))
    except Broken as error:
        raise SystemExit(str(error)) from None
    print("\n| killed | launch | run | end |\n|---|---|---|---|")
    for site in sites:
        print(f"| {site} | {' | '.join(str(hit[site, phase]) for phase in PHASES)} |")


if __name__ == "__main__":
    main()
