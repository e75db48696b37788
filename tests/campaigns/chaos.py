"""Everything at once, on two labs at once: processes killed and stopped, links cut, disks full and frozen, owners.

    ./run campaign chaos [--short | --minutes M | --rounds N] [--seed S] [--from R]

Each round draws from the seed two labs (one of two clusters, one of a single cluster) with their policies, jobs (rigid,
malleable, folded, over both clusters, to be queued again, cancelled) and faults: a minute in which schedulers, agents,
guards, supervisors, ``mpirun``, ranks and scripts are killed (-9) or stopped (-STOP), cables and the link between the
clusters are cut, the disk of jobs' directories and the disk of the labs (journals, records, logs) are full or frozen,
and owners come to their desks, pause and leave. Then all is healed, and everything still open must finish. At last one
job of each kind must complete on each lab.

Judged all the time: no processor is two jobs' by guards' records; no promise is in the past; and, while no fault
lasts, jobs hold what the scheduler says by guards' records and their processes' affinities. At the end of each round: a
job that was accepted is known and has one terminal state; no script ran twice, but of jobs that were queued again; no
job is ``starting`` or ``ending`` for long; all nodes are up; no process, control group, mount, record, file or shared
memory is left; the journals, decided again, give the same.

Rounds are independent. A round that breaks a promise prints it with the job's story and the ends of the logs, leaves
the rest in ``results/chaos/``, and the next one begins; the campaign ends with 1 then, and where a kind of fault never
occurred. Real machines repeat a seed's plan, not its moments. Needs root, for labs of tier 1, and loop devices.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

from campaigns import _chaos_judge as judge
from campaigns import _chaos_plan as plans
from campaigns._chaos_faults import REFUSED, Faults
from campaigns._chaos_plan import KINDS, JobPlan, LabPlan, Places, RoundPlan
from campaigns._chaos_watch import Calm, Watch
from campaigns._disks import Disk
from campaigns._processors import Processors
from campaigns.faults import Broken, Field
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.errors import BadInput, Failed
from cosched.wire.api import JobDoc
from space_scheduler.replay import replay

ROOT = Path(__file__).resolve().parents[2]
#: Of jobs' directories, and of the labs; in megabytes.
DISKS = {"home": 64, "state": 256}
#: Once all is healed: until all jobs have ended, and then until the last ones have completed.
_QUIET_S = 300.0
_PROBES_S = 200.0
#: A node that is set aside is resumed by its operator after so long.
_OPERATOR_S = 15.0
_TAIL_LINES = 6


class Workload(threading.Thread):
    """Submits a lab's jobs at their times, and cancels some. ``accepted``: their numbers by name."""

    def __init__(self, lab: Lab, jobs: list[JobPlan], places: Places, began_s: float) -> None:
        super().__init__(daemon=True, name=f"workload-{lab.name}")
        self._lab, self._jobs, self._places, self._began_s = lab, jobs, places, began_s
        self._over = threading.Event()
        self.accepted: dict[str, int] = {}
        self.came: Counter[str] = Counter()
        self.problems: list[str] = []

    def run(self) -> None:
        deeds = [(job.at_s, job, False) for job in self._jobs]
        deeds += [(job.at_s + job.cancel_after_s, job, True) for job in self._jobs if job.cancel_after_s is not None]
        for at_s, job, cancels in sorted(deeds, key=lambda each: each[0]):
            if self._over.wait(max(0.0, self._began_s + at_s - time.monotonic())):
                return
            try:
                with self._lab.client() as client:
                    if not cancels:
                        self.accepted[job.name] = client.submit(job.submission(self._places)).job_id
                        self.came["accepted"] += 1
                    elif job.name in self.accepted:
                        client.cancel(self.accepted[job.name])
                        self.came["cancelled"] += 1
            except BadInput as error:
                self.problems.append(f"{job.name} {'cannot be cancelled' if cancels else 'is refused'}: {error}")
            except (Failed, OSError):
                self.came["not answered"] += 1

    def stop(self) -> None:
        """Submit no more."""
        self._over.set()
        self.join()


class Half:
    """One of a round's two labs, with what submits to it and what looks at it."""

    def __init__(
        self, plan: LabPlan, lab: Lab, places: Places, jobs: list[JobPlan], calm: Calm, began_s: float
    ) -> None:
        self.plan, self.lab, self.places = plan, lab, places
        self.field = Field(lab, places.shared)
        self.workload = Workload(lab, jobs, places, began_s)
        self.watch = Watch(lab, calm, began_s)
        self.processors = Processors(lab)
        self.problems: list[str] = []
        self.came: Counter[str] = Counter()
        self.told: dict[int, JobDoc] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        for each in (self.processors, self.watch, self.workload):
            each.start()
        try:
            yield
        finally:
            for each in (self.workload, self.watch, self.processors):
                each.stop()

    def finish(self) -> None:
        """Everything that is open must finish now; then it is judged."""
        with self.lab.client() as client:
            self._await_all_ended(client)
            self._judge_jobs(client)
            self._probe(client)
            try:
                self.field._services_back(client)
                self.field._nothing_left([*self.told])
            except Broken as error:
                self.problems.append(str(error))
        found = replay(self.lab.journal)
        if not found.agrees:
            self.problems.append(f"the journal decided again: {found.difference}")
        self.came["instructions replayed"] += found.instructions

    def seen(self) -> None:
        """Take what was seen all the time."""
        self.problems += [*self.workload.problems, *self.watch.problems.values(), *self.processors.twice[:3]]
        self.came += self.watch.looks + self.workload.came + Counter({"records read": self.processors.looks})

    def _await_all_ended(self, client: Client) -> None:
        began_s = time.monotonic()
        while True:
            alive: list[JobDoc] | None = None
            with contextlib.suppress(Failed):
                alive = client.jobs()
                if time.monotonic() - began_s > _OPERATOR_S:
                    self._resume_nodes(client)
            if alive == []:
                return
            if time.monotonic() - began_s > _QUIET_S:
                what = "no answer" if alive is None else ", ".join(f"job {job.job_id} {job.state}" for job in alive)
                self.problems.append(f"{_QUIET_S:g} s after all was healed: {what}")
                return
            time.sleep(0.5)

    def _resume_nodes(self, client: Client) -> None:
        for node in client.nodes():
            if node.state in ("drained", "draining"):
                client.resume(node.name)
                self.came["nodes resumed by hand"] += 1

    def _judge_jobs(self, client: Client) -> None:
        for name, job_id in self.workload.accepted.items():
            try:
                job = client.job(job_id)
            except BadInput:
                self.problems.append(f"job {job_id} ({name}) was accepted, and is not known")
                continue
            if job.name != name:
                self.problems.append(f"job {job_id} was accepted as {name}, and is {job.name}")
        for brief in client.history(limit=1000):
            job = self.told[brief.job_id] = client.job(brief.job_id)
            self.came[job.state] += 1
            canary = self.places.shared / job.name
            lines = canary.read_text().splitlines() if canary.exists() else []
            requeued = any(each.name == job.name and each.shape.get("requeue") for each in self.workload._jobs)
            restarts = requeued or self.plan.policy.endswith("+bfa")
            at_end = canary.with_name(f"{canary.name}.ended").exists()
            self.problems += [f"job {job.job_id} {what}" for what in judge.job_problems(job, lines, at_end, restarts)]

    def _probe(self, client: Client) -> None:
        """One job of each kind must complete."""
        asked = {}
        for probe in plans.probes(self.plan, 0):
            asked[probe.name] = client.submit(probe.submission(self.places)).job_id
        give_up_s = time.monotonic() + _PROBES_S
        for name, job_id in asked.items():
            job = client.job(job_id)
            while job.state not in judge.ENDED and time.monotonic() < give_up_s:
                job = client.wait(job_id, 5.0)
                self._resume_nodes(client)
            self.told[job_id] = job
            if job.state != "completed":
                self.problems.append(
                    f"job {job_id} ({name}), submitted after all was healed, is {job.state}: {job.failure}"
                )
            else:
                self.came["completed when healed"] += 1

    def keep_evidence(self, folder: Path) -> None:
        """What a reader needs to find the cause."""
        folder.mkdir(parents=True, exist_ok=True)
        for node in ("", *self.lab.nodes):
            source = self.lab.directory / "nodes" / node if node else self.lab.directory
            for log in source.glob("*.log"):
                shutil.copy(log, folder / f"{node or 'head'}-{log.name}")
            if node:
                for record in (source / "state/records").glob("*.*"):
                    with contextlib.suppress(OSError):
                        shutil.copy(record, folder / f"{node}-{record.name}")
        with (
            closing(sqlite3.connect(self.lab.journal)) as live,
            closing(sqlite3.connect(folder / "journal.db")) as kept,
        ):
            live.backup(kept)
        with contextlib.suppress(*REFUSED), self.lab.client() as client:
            (folder / "nodes.json").write_bytes(msgspec.json.encode(client.nodes()))
            for job in client.jobs():
                self.told[job.job_id] = client.job(job.job_id)
                (folder / f"explain-{job.job_id}.json").write_bytes(msgspec.json.encode(client.explain(job.job_id)))
        for job_id, job in self.told.items():
            (folder / f"job-{job_id}.json").write_bytes(msgspec.json.format(msgspec.json.encode(job)))

    def story(self, folder: Path) -> str:
        """The jobs that the problems name, and the ends of the logs."""
        lines = []
        for job_id in list(dict.fromkeys(re.findall(r"job (\d+)", " ".join(self.problems))))[:3]:
            if (job := self.told.get(int(job_id))) is not None:
                lines += [f"--- job {job_id}", msgspec.json.encode(job).decode()]
        for log in sorted(folder.glob("*.log")):
            lines += [f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]]
        return "\n".join(lines)


class Campaign:
    """All rounds: the two disks, and what came of it. ``broken``: how many rounds broke a promise.

    ``results`` is where what a broken round leaves is kept.
    """

    def __init__(self, base: Path, disks: dict[str, Disk], results: Path) -> None:
        self._base, self._disks, self._results = base, disks, results
        self.met: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.came: Counter[str] = Counter()
        self.broken = 0

    @property
    def never(self) -> list[str]:
        """Kinds of fault that have not occurred yet."""
        return [kind for kind in KINDS if not self.met[kind]]

    def goes_on(self, done: int, rounds: int | None, part: float) -> bool:
        """Whether another round begins after so many; ``part`` of the time is over.

        On a machine so slow that few rounds were made, a kind of fault that never occurred has twice the time.
        """
        return done < rounds if rounds else part < (2.0 if self.never else 1.0)

    def run(self, plan: RoundPlan) -> list[str]:
        """One round; what it broke."""
        shared = self._base / "shared"
        search = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        places = Places(shared, self._disks["home"].path, search)
        problems: list[str] = []
        with ExitStack() as down:
            labs = [down.enter_context(self._lab(each, shared)) for each in plan.labs]
            places.make()
            began_s, calm = time.monotonic(), Calm()
            halves = [
                Half(each, lab, places, [job for job in plan.jobs if job.lab == index], calm, began_s)
                for index, (each, lab) in enumerate(zip(plan.labs, labs, strict=True))
            ]
            faults = Faults([half.field for half in halves], self._disks, calm, began_s)
            with ExitStack() as looking:
                for half in halves:
                    looking.enter_context(half.watched())
                try:
                    faults.run(plan.faults, plan.faults_s)
                finally:
                    faults.heal()
                for half in halves:
                    half.workload.join()
                finishing = [threading.Thread(target=self._finish, args=(half,), daemon=True) for half in halves]
                for thread in finishing:
                    thread.start()
                for thread in finishing:
                    thread.join()
            for half in halves:
                half.seen()
                self.came += half.came
                problems += [f"{half.lab.name}, {half.plan.policy}: {what}" for what in half.problems]
            if problems:
                self._tell(plan, halves, faults, problems)
            self.met += faults.met
            self.missed += faults.missed
        left = [str(path) for lab in labs for path in _left(lab.name)]
        for disk in self._disks.values():
            left += [str(path) for path in disk.path.glob("**/*") if path.is_file() and disk is self._disks["state"]]
        problems += [f"left when the labs were down: {what}" for what in left]
        for each in (*places.home.iterdir(), *shared.iterdir()):
            each.unlink()
        self.broken += bool(problems)
        return problems

    @contextmanager
    def _lab(self, plan: LabPlan, shared: Path) -> Iterator[Lab]:
        name = f"chaos{os.getpid()}{plan.name}"
        how = {"cpus": plan.cpus, "policy": plan.policy, "clusters": plan.clusters}
        with Lab.up(plan.nodes, name=name, keep=[shared, self._disks["home"].path], timeout_s=180.0, **how) as lab:  # type: ignore[arg-type]
            if lab.tier != 1:
                raise SystemExit(f"needs labs of tier 1: {lab.why}")
            try:
                yield lab
            finally:
                for disk in self._disks.values():  # a lab on a frozen disk does not go down
                    disk.thaw()

    def _finish(self, half: Half) -> None:
        try:
            half.finish()
        except REFUSED as error:
            half.problems.append(f"the end of the round: {error}")

    def _tell(self, plan: RoundPlan, halves: list[Half], faults: Faults, problems: list[str]) -> None:
        kept = self._results / f"seed{plan.seed}-round{plan.number}"
        shutil.rmtree(kept, ignore_errors=True)
        for half in halves:
            half.keep_evidence(kept / half.plan.name)
        jobs = [f"{job.at_s:6.1f} s  {job.name}: {json.dumps(job.shape)} {job.program}" for job in plan.jobs]
        (kept / "round.txt").write_text("\n".join([*problems, "", *faults.told, "", *jobs, ""]))
        for half in halves:
            if half.problems:
                print(half.story(kept / half.plan.name))
        print(f"--- what befell\n{chr(10).join(faults.told)}\n--- kept in {kept}")


def _left(name: str) -> Iterator[str]:
    """What there still is of a lab that is down."""
    for mount in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()):
        yield from map(str, mount.glob(f"cosched-lab/{name}"))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if f"/labs/{name}" in line:
            yield f"mount {line}"
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"COSCHED_LAB={name}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield f"process {folder.name} {(folder / 'cmdline').read_bytes()!r}"


def main() -> None:
    """Rounds until the time is over; a table of what befell, and what came of it."""
    parser = argparse.ArgumentParser(prog="./run campaign chaos", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="no round begins later (60), unless a fault is missing"
    )
    parser.add_argument("--short", action="store_true", help="ten minutes")
    parser.add_argument("--rounds", type=int, help="so many instead, however long they take")
    parser.add_argument("--seed", type=int, help="(drawn)")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="R", help="the number of the first round")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(3), "big")
    minutes = 10.0 if options.short else options.minutes
    if os.geteuid():
        raise SystemExit("needs root, for labs of tier 1 and disks of its own")
    for number in (signal.SIGINT, signal.SIGTERM):  # frozen disks are thawed on both
        signal.signal(number, signal.default_int_handler)
    print(f"seed {seed}", flush=True)
    began_s = time.monotonic()
    with ExitStack() as stack:
        base = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        base.chmod(0o755)
        (base / "shared").mkdir()
        disks = {name: Disk(base / name, megabytes) for name, megabytes in DISKS.items()}
        for disk in disks.values():
            stack.enter_context(disk).make()  # unmounted also when it is interrupted
        os.environ["COSCHED_RUNTIME_DIR"] = str(disks["state"].path)
        campaign = Campaign(base, disks, ROOT / "results" / "chaos")
        number = options.first
        while campaign.goes_on(number - options.first, options.rounds, (time.monotonic() - began_s) / 60 / minutes):
            plan = RoundPlan(seed, number)
            round_s = time.monotonic()
            problems = campaign.run(plan)
            print(f"round {number}: {plan}; {time.monotonic() - round_s:.0f} s", end="")
            print("".join(f"\n    BROKEN {what}" for what in problems) or ", well", flush=True)
            if problems:
                print(f"    repeat it: ./run campaign chaos --seed {seed} --from {number} --rounds 1", flush=True)
            number += 1
    print("\n| fault | occurred | no target |\n|---|---|---|")
    for kind in KINDS:
        print(f"| {kind} | {campaign.met[kind]} | {campaign.missed[kind]} |")
    print("\n" + ", ".join(f"{count} {what}" for what, count in sorted(campaign.came.items())))
    print(f"seed {seed}: {number - options.first} rounds, {campaign.broken} broke a promise")
    if campaign.never and not options.rounds:
        raise SystemExit(f"never occurred: {', '.join(campaign.never)}")
    raise SystemExit(bool(campaign.broken))


if __name__ == "__main__":
    main()
