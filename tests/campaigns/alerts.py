"""Every alert, provoked on a real lab that a real Prometheus watches: it fires, no other does, and it falls silent.

    ./run campaign alerts [--only CoschedAgentLost,…] [--faster N]

The lab has two nodes; Prometheus (Debian's package) runs on its head, reads the scheduler with a read-only token and
evaluates the rules of ``cosched monitoring render --faster N``. Before each case and after it no alert fires. The
scheduler's state lies on a small disk in memory, whose size is changed. A process on the head, where no job runs, says
how late it wakes: as late as an owner's alert wants, the machine has other work, and that alert is told in the row
instead of counting. Needs root (a lab of tier 1, mounts), takes about a quarter of an hour. Ends with 1 when an alert
does not fire, fires with another, or does not end.
"""

import argparse
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from kit.desks import TYPIST
from kit.disks import StallingDisk, stalling_disk
from kit.processes import running_module, standing_still
from kit.prometheus import LabPrometheus

from campaigns.faults import Broken, chosen, until
from cosched.apps.lab.lab import Lab
from cosched.apps.lab.plan import HEAD, USER_PORT
from cosched.errors import Failed
from cosched.identity.authority import issue
from cosched.monitoring import local
from cosched.monitoring.alerts import SCRAPE
from cosched.monitoring.recordings import LATE_S, WINDOWS_S
from cosched.wire.api import Submission

_POLICY = Path(__file__).with_name("_ailing_policy.py")
_FASTER = 20.0
#: Far more than any case takes on a machine with other work.
_PATIENCE_S = 400.0
#: Ten wake-ups a second; after each, how many there were and how many of them came too late. One that is late hides
#: none of those that became due meanwhile, as with an owner's probe (cosched/linux/wakeups.py).
_WITNESS = """
import sys, time
late = 0
due_s = time.monotonic()
for count in range(1, 1_000_000):
    due_s += 0.1
    if time.monotonic() - due_s > 10:
        due_s = time.monotonic()
    time.sleep(max(0.0, due_s - time.monotonic()))
    late += time.monotonic() - due_s > float(sys.argv[1])
    print(count, late, flush=True)
"""
#: What an owner's alerts look at: the windows that say that it still goes on, and from which part of late wake-ups on.
_OWNERS = {"CoschedOwnerLatencyFast": ("5m", 0.14), "CoschedOwnerLatencySlow": ("30m", 0.06)}
_SPIN = "#!/bin/sh\nwhile :; do :; done\n"
#: Three for each CPU, below the job's script, which is asked to end.
_SPIN_ALL = "#!/bin/sh\nfor each in $(seq $((3 * {}))); do sh -c 'while :; do :; done' & done\nwait\n"


class Witness:
    """How late processes wake on the lab's head, where no job runs: what the machine's other work does to a desk."""

    def __init__(self, told: Path, faster: float) -> None:
        self._told, self._faster = told, faster

    def slow(self, alert: str) -> bool:
        """Whether an owner's alert would fire of the machine itself, now or a moment ago."""
        if alert not in _OWNERS:
            return False
        window, part = _OWNERS[alert]
        wakes = round(10 * WINDOWS_S[window] / self._faster)
        counts = [(int(count), int(late)) for count, late in map(str.split, self._told.read_text().splitlines()[:-1])]
        counts = [(0, 0)] * 2 * wakes + counts
        pairs = zip(counts[-2 * wakes : -wakes], counts[-wakes:], strict=True)  # each window that ended lately
        return any(after[1] - before[1] > part * (after[0] - before[0]) for before, after in pairs)


class Site:
    """A lab, what watches it, and how to harm it."""

    def __init__(
        self, lab: Lab, prometheus: LabPrometheus, witness: Witness, folder: Path, disk: Path, users: StallingDisk
    ) -> None:
        """``disk`` has the scheduler's state; ``users``: where jobs may write."""
        self.lab, self.prometheus, self.witness, self.folder, self.disk = lab, prometheus, witness, folder, disk
        self.users = users

    def firing(self) -> dict[str, set[str]]:
        """The alerts that fire, but for those of owners that the machine's other work explains."""
        return {name: about for name, about in self.prometheus.firing().items() if not self.witness.slow(name)}

    # what can be done to it

    def submit(self, script: str = "#!/bin/sh\ntrue\n", tasks: int = 1) -> int:
        with self.lab.client() as client:
            wanted = Submission(script=script, tasks=tasks, time_limit_s=900.0, directory="/")
            return client.submit(wanted).job_id

    def cancel_all(self) -> None:
        with self.lab.client() as client:
            for job in client.jobs():
                with contextlib.suppress(Failed):  # it may have ended meanwhile
                    client.cancel(job.job_id)

    def pids(self, module: str, node: str = "") -> list[int]:
        """The processes that run a module for the lab, or for one of its nodes, as this machine numbers them."""
        return running_module(module, self.lab.directory / "nodes" / node if node else self.lab.directory)

    def stopped(self, pids: list[int]) -> AbstractContextManager[None]:
        """Processes that do nothing while the block lasts."""
        if not pids:
            raise Broken("there is no process to stop")
        return standing_still(pids)

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """The policy is told something while the block lasts."""
        (self.folder / what).touch()
        try:
            yield
        finally:
            (self.folder / what).unlink()

    def sized(self, size: str) -> None:
        """Give the disk another size."""
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.disk)], check=True)

    @contextmanager
    def again_and_again(self, do: Callable[[], object], every_s: float) -> Iterator[None]:
        """Something is done in a thread while the block lasts."""
        enough = threading.Event()

        def work() -> None:
            while not enough.wait(every_s):
                with contextlib.suppress(Failed, OSError):
                    do()

        worker = threading.Thread(target=work)
        worker.start()
        try:
            yield
        finally:
            enough.set()
            worker.join()


# --- the cases --------------------------------------------------------------------------------------------------------


def scheduler_down(site: Site) -> AbstractContextManager[None]:
    """It is stopped."""
    return site.stopped(site.pids("scheduler"))


@contextmanager
def journal_full(site: Site) -> Iterator[None]:
    """No file of its process may grow, as on a full disk."""
    (pid,) = site.pids("scheduler")
    log = Path(f"{site.lab.journal}-wal")
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (log.stat().st_size, before[1]))
    try:
        with site.again_and_again(site.submit, 1.0):
            yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def journal_filling(site: Site) -> Iterator[None]:
    """Its disk becomes smaller."""
    site.sized("600m")
    try:
        yield
    finally:
        site.sized("4g")


@contextmanager
def policy_fails(site: Site) -> Iterator[None]:
    """It raises."""
    with site.told("fails"):
        site.submit()
        yield


@contextmanager
def job_set_aside(site: Site) -> Iterator[None]:
    """The policy raises while any job waits."""
    with site.told("refuses"):
        site.submit()
        yield


@contextmanager
def scheduler_lag(site: Site) -> Iterator[None]:
    """Its passes take a second, and what comes meanwhile waits."""
    with site.told("slow"), site.again_and_again(site.submit, 0.3):
        yield


@contextmanager
def queue_stuck(site: Site) -> Iterator[None]:
    """All nodes are drained, and a job waits."""
    with site.lab.client() as client:
        for node in site.lab.nodes:
            client.drain(node, "an alert is tried")
        try:
            site.submit()
            yield
        finally:
            for node in site.lab.nodes:
                client.resume(node)


def agent_lost(site: Site) -> AbstractContextManager[None]:
    """The agent of a node is stopped, for longer than its lease."""
    return site.stopped(site.pids("node_agent", "node2"))


def guard_lost(site: Site) -> AbstractContextManager[None]:
    """A guard is stopped, and first its parent, whose watchdog would start another."""
    (guard,) = site.pids("node_agent.guard", "node2")[-1:]
    parent = int(Path(f"/proc/{guard}/status").read_text().partition("PPid:")[2].split()[0])
    return site.stopped([parent, guard])


@contextmanager
def jobs_cannot_end(site: Site) -> Iterator[None]:
    """A job is cancelled while it waits for a file system that does not answer."""
    written = site.users.mount / "written"
    job = site.submit(f"#!/bin/sh\nwhile date >{written}; do sleep 0.1; done\n")
    _until(written.exists, "the job to write")
    site.users.freeze()
    try:
        with site.lab.client() as client:
            client.cancel(job)
        yield
    finally:
        site.users.thaw()


@contextmanager
def over_contract(site: Site) -> Iterator[None]:
    """Somebody is at a desk and leaves little to a job there; what limits it is lifted by hand, again and again."""
    typist = site.lab.popen("node1", [sys.executable, "-c", TYPIST], stdin=subprocess.DEVNULL)
    try:
        _desk(site, "share", "0.01")
        jobs = [site.submit(_SPIN) for _ in site.lab.nodes]
        _until(lambda: all(_state(site, job) == "running" for job in jobs), "jobs to run")
        with site.again_and_again(lambda: _lift(site), 0.01):
            yield
    finally:
        typist.terminate()
        typist.wait()
        _desk(site, "share", "contract")


def _lift(site: Site) -> None:
    """Take the quotas of CPU off node1's groups."""
    for root, name, none in (("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "-1"), ("/sys/fs/cgroup", "cpu.max", "max")):
        for quota in Path(root).glob(f"cosched-lab/{site.lab.name}/node1/**/{name}"):
            with contextlib.suppress(FileNotFoundError):  # of a job that has ended
                quota.write_text(none)


def _desk(site: Site, *words: str) -> None:
    """The owner's word at node1."""
    ended = site.lab.run("node1", [sys.executable, "-m", "cosched.apps.cli.main", "desk", *words])
    if ended.returncode:
        raise Broken(f"desk {' '.join(words)}: {ended.stderr.decode()}")


def _state(site: Site, job_id: int) -> str:
    with site.lab.client() as client:
        return client.job(job_id).state


@contextmanager
def owner_waits(site: Site) -> Iterator[None]:
    """All of a desk's own processes together have a twentieth of a CPU, and one of them wants a whole one."""
    desk = f"cosched-lab/{site.lab.name}/node1/desk"
    limits = {Path(f"/sys/fs/cgroup/cpu/{desk}/cpu.cfs_quota_us"): ("5000", "-1")}
    if not all(path.exists() for path in limits):
        limits = {Path(f"/sys/fs/cgroup/{desk}/cpu.max"): ("5000 100000", "max 100000")}
    spinner = site.lab.popen("node1", ["sh", "-c", "while :; do :; done"], stdin=subprocess.DEVNULL)
    try:
        for path, (narrow, _) in limits.items():
            path.write_text(narrow)
        yield
    finally:
        for path, (_, wide) in limits.items():
            path.write_text(wide)
        spinner.terminate()
        spinner.wait()


@contextmanager
def calls_slow(site: Site) -> Iterator[None]:
    """A user sits at a desk where a job computes on every CPU; by hand the desk weighs little and quotas are off."""
    desk = f"cosched-lab/{site.lab.name}/node1/desk"
    groups = (Path("/sys/fs/cgroup/cpu", desk, "cpu.shares"), Path("/sys/fs/cgroup", desk, "cpu.weight"))
    weight = next(path for path in groups if path.exists())
    before = weight.read_text()
    address = _user_address(site.lab)
    argv = [sys.executable, "-P", "-m", "cosched.apps.cli.main", "local-load", "run", "--profile", "xwindows"]
    user = site.lab.popen("node1", [*argv, "--memory", "256MiB", "--listen", address], stdin=subprocess.DEVNULL)
    try:
        _until(lambda: _measured(site) > 40, "the user's calls to be scraped")
        job = site.submit(_SPIN_ALL.format(os.cpu_count() or 1), tasks=len(site.lab.nodes))
        _until(lambda: _state(site, job) == "running", "the job to run")
        weight.write_text("2")  # the least that both versions of control groups take
        began_s = time.monotonic()

        def prevail() -> None:
            """Which weight makes calls late depends on the machine: it doubles every 10 s."""
            doublings = min(5, int((time.monotonic() - began_s) / 10))
            _prevail(site, weight=160 << doublings)

        with site.again_and_again(prevail, 0.01):
            yield
    finally:
        weight.write_text(before)
        _prevail(site, weight=None)
        user.terminate()
        user.wait()


def _prevail(site: Site, weight: int | None) -> None:
    """Take the quotas off node1's groups; give jobs there this weight, or put them into the idle class again."""
    _lift(site)
    group = f"cosched-lab/{site.lab.name}/node1/cosched"
    for file in (Path("/sys/fs/cgroup/cpu", group, "cpu.shares"), Path("/sys/fs/cgroup", group, "cpu.weight")):
        with contextlib.suppress(OSError):  # of the other version; or the guard has made the group idle meanwhile
            file.with_name("cpu.idle").write_text(str(int(weight is None)))
            if weight is not None:
                file.write_text(str(weight))


def _user_address(lab: Lab) -> str:
    """Where node1's user is scraped."""
    (address,) = [node["address"] for node in lab.state["nodes"] if node["name"] == "node1"]
    return f"{address}:{USER_PORT}"


def _measured(site: Site) -> float:
    return sum(value for _, value in site.prometheus.ask(f"sum({local.RESPONSE.name}_count)"))


@contextmanager
def certificate_ends(site: Site) -> Iterator[None]:
    """The scheduler has a certificate for two days, and is started anew."""
    identity = site.lab.directory / "identity"
    with tempfile.TemporaryDirectory(dir=site.folder) as kept, tempfile.TemporaryDirectory(dir=site.folder) as made:
        for name in ("scheduler.pem", "scheduler.key"):
            shutil.copy2(identity / name, kept)
        address = [site.lab.state["scheduler_address"]]
        issue(identity, "scheduler", "scheduler", Path(made), addresses=address, life=timedelta(days=2))
        _started_with(site, Path(made))
        try:
            yield
        finally:
            _started_with(site, Path(kept))


def _started_with(site: Site, certificate: Path) -> None:
    for name in ("scheduler.key", "scheduler.pem"):
        shutil.copy2(certificate / name, site.lab.directory / "identity" / name)
    (pid,) = site.pids("scheduler")
    os.kill(pid, signal.SIGKILL)
    _until(lambda: bool(set(site.pids("scheduler")) - {pid}) and _answers(site), "the scheduler to be back")


def _answers(site: Site) -> bool:
    with contextlib.suppress(Failed), site.lab.client() as client:
        return all(node.state == "up" for node in client.nodes())
    return False


class Case(NamedTuple):
    """How an alert is provoked, whom it is about, and which others may fire with it."""

    provoke: Callable[[Site], AbstractContextManager[None]]
    about: str = ""
    too: frozenset[str] = frozenset()


CASES = {
    "CoschedSchedulerDown": Case(scheduler_down, too=frozenset({"CoschedSchedulerLag"})),  # what is stopped is slow
    "CoschedJournalFull": Case(journal_full),
    "CoschedJournalFilling": Case(journal_filling),
    "CoschedPolicyFails": Case(policy_fails),
    "CoschedJobSetAside": Case(job_set_aside),
    "CoschedSchedulerLag": Case(scheduler_lag),
    "CoschedQueueStuck": Case(queue_stuck),
    "CoschedAgentLost": Case(agent_lost, "node2"),
    "CoschedGuardLost": Case(guard_lost, "node2"),
    "CoschedJobsCannotEnd": Case(jobs_cannot_end, "node1"),
    "CoschedDeskOverContract": Case(over_contract, "node1"),
    "CoschedCertificateExpired": Case(certificate_ends, "scheduler", frozenset({"CoschedCertificateExpiring"})),
    "CoschedCertificateExpiring": Case(certificate_ends, "scheduler", frozenset({"CoschedCertificateExpired"})),
    # last: what they do to a desk is in the longest window of its alert for as long as a campaign takes
    "CoschedOwnerLatencyFast": Case(owner_waits, "node1", frozenset({"CoschedOwnerLatencySlow"})),
    "CoschedOwnerLatencySlow": Case(owner_waits, "node1", frozenset({"CoschedOwnerLatencyFast"})),
    "CoschedDeskCallsSlow": Case(calls_slow, "node1", frozenset({"CoschedDeskOverContract", *_OWNERS})),
}


def _until(condition: Callable[[], object], what: str | Callable[[], str]) -> None:
    until(condition, what, _PATIENCE_S, 0.2)


def tried(site: Site, name: str) -> tuple[float, float]:
    """Provoke an alert; after how long it fired, and was over. Raises :class:`Broken`."""
    case = CASES[name]
    seen: dict[str, set[str]] = {}

    def fires() -> bool:
        found = site.prometheus.firing()
        for alert, about in site.firing().items():
            seen.setdefault(alert, set()).update(about)
        return case.about in found.get(name, set())

    _until(lambda: _up(site) and not site.firing(), lambda: f"silence before {name}: {site.firing()}")
    began_s = time.monotonic()
    with case.provoke(site):
        _until(fires, lambda: f"{name}; there were {sorted(seen)}")
        fired_s = time.monotonic()
    ended_s = time.monotonic()
    site.cancel_all()
    _until(lambda: not site.firing(), lambda: f"the end of {name}: {site.firing()}")
    if others := {alert: about for alert, about in seen.items() if alert not in {name} | case.too}:
        raise Broken(f"with {name} fired {others}")
    return fired_s - began_s, time.monotonic() - ended_s


def _up(site: Site) -> bool:
    return any(value == 1 for _, value in site.prometheus.ask(f'up{{job="{SCRAPE}"}}'))


@contextmanager
def site(faster: float) -> Iterator[Site]:
    """A lab on a disk of its own, and a Prometheus that watches it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="alerts-", dir="/var/tmp")))
        disk = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="alerts-", dir="/run")))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g,mode=755", "alerts", str(disk)], check=True)
        stack.callback(subprocess.run, ["umount", str(disk)], check=False)
        shutil.copy(_POLICY, folder / "ailing.py")
        os.environ["COSCHED_RUNTIME_DIR"] = str(disk)
        stack.callback(os.environ.pop, "COSCHED_RUNTIME_DIR")
        stack.enter_context(contextlib.chdir(folder))
        users = stack.enter_context(stalling_disk(folder / "users"))
        lab = stack.enter_context(Lab.up(2, name=f"al-{os.getpid()}", policy="ailing:ailing", keep=[folder]))
        if lab.tier != 1:
            raise SystemExit(f"needs a lab of tier 1: {lab.why}")
        prometheus = stack.enter_context(LabPrometheus(lab, folder, faster, {"node1": _user_address(lab)}))
        yield Site(lab, prometheus, stack.enter_context(_witness(lab, folder, faster)), folder, disk, users)


@contextmanager
def _witness(lab: Lab, folder: Path, faster: float) -> Iterator[Witness]:
    told = folder / "witness"
    with told.open("w") as file:
        process = lab.popen(HEAD, [sys.executable, "-c", _WITNESS, str(LATE_S)], stdout=file, stdin=subprocess.DEVNULL)
        try:
            yield Witness(told, faster)
        finally:
            process.terminate()
            process.wait()


def campaign(names: list[str], faster: float = _FASTER, say: Callable[[str], None] = print) -> None:
    """All these alerts on one lab. Raises :class:`Broken`."""
    say("| alert | fired after | silent after | the machine itself was slow |\n|---|---|---|---|")
    with site(faster) as watched:
        for name in names:
            fired_s, silent_s = tried(watched, name)
            slow = "yes" if any(map(watched.witness.slow, _OWNERS)) else "no"
            say(f"| {name} | {fired_s:.0f} s | {silent_s:.0f} s | {slow} |")


def main() -> None:
    """Try, and print a table."""
    parser = argparse.ArgumentParser(prog="./run campaign alerts", description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default=",".join(CASES), help="alerts, separated by commas")
    parser.add_argument("--faster", type=float, default=_FASTER, help="all times of the rules are so much shorter")
    options = parser.parse_args()
    names = chosen(parser, options.only, CASES)
    try:
        campaign(names, options.faster)
    except Broken as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
