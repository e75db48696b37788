"""The campaign ``ansible``: from one version to another and back, while jobs run."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from campaigns._ansible_lab import DESKS, HEAD, ROOT, Lab, changed, need
from campaigns._systemd_hosts import HOME, USER, run

JOURNAL = "/var/lib/cosched/scheduler/journal.db"
BROKEN = "/etc/systemd/system/cosched-guard.service.d/broken.conf"


def wheelhouse(directory: Path, source: Path, minor: str = "3.11") -> Path:
    """What './run wheelhouse' makes of a checkout, for the Python of the image."""
    argv = (source / "lock/wheelhouse.py", directory, "--python", minor, "--extra", "scheduler,local-load")
    run(sys.executable, *argv, timeout_s=600)
    return directory


def later_checkout(directory: Path, suffix: str, *, journal: bool = False) -> Path:
    """This checkout's commit, said to be a later version; ``journal``: with a later format of the journal."""
    directory.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)
    edited(directory / "cosched/__init__.py", r'(__version__ = "[^"]*)"', rf'\1{suffix}"')
    if journal:
        schema = directory / "space_scheduler/service/journal/schema.py"
        edited(schema, r"(?m)^VERSION: Final = (\d+)$", lambda found: f"VERSION: Final = {int(found[1]) + 1}")
    return directory


def edited(path: Path, pattern: str, new: str | Callable[[re.Match[str]], str]) -> None:
    """Replace what must be there once."""
    text, times = re.subn(pattern, new, path.read_text())
    need(times == 1, f"{path}: {pattern!r} is there {times} times")
    path.write_text(text)


def name_of(wheels: Path) -> str:
    """The version that a wheelhouse has."""
    return next(wheels.glob("cosched_testbed-*")).name.split("-")[1]


def go(lab: Lab, number: int, desks: tuple[str, ...]) -> None:
    """Let a job that waits come to its end."""
    for name in desks:
        lab.hosts.at(name, f"touch {HOME}/go")
    lab.verified(number, desks)
    for name in desks:
        lab.hosts.at(name, f"rm {HOME}/go")


def waiting(lab: Lab, tasks: int, desks: tuple[str, ...]) -> tuple[int, dict[str, str]]:
    """A job that runs on these desks until it is told to go on, and its processes."""
    number = lab.submit("waits", tasks)
    lab.until(lambda: lab.job(number)["state"] == "running", "the job runs")
    return number, lab.ranks("waits", desks)


def in_use(lab: Lab, versions: dict[str, Path]) -> None:
    """Each host uses the version of its wheelhouse."""
    wanted = {name: name_of(wheels) for name, wheels in versions.items()}
    found = {name: lab.version(name) for name in versions}
    need(found == wanted, f"in use: {found}, wanted: {wanted}")


def upgraded(lab: Lab, later: Path, earlier: Path) -> None:
    """To a later version and back while a job runs on all desks, which goes on."""
    number, ranks = waiting(lab, lab.tasks(DESKS), DESKS)
    lab.inventory(DESKS, later)
    for playbook, wheels in (("upgrade", later), ("rollback", earlier)):
        lab.play(playbook)
        in_use(lab, dict.fromkeys((HEAD, *DESKS), wheels))
        need(lab.job(number)["state"] == "running", f"{playbook}: job {number} is {lab.job(number)['state']}")
        need(lab.ranks("waits", DESKS) == ranks, f"{playbook}: other processes than before")
    need(lab.hosts.at(HEAD, "ls -d /var/lib/cosched/scheduler.*").strip(), "no copy of the journal")
    lab.inventory(DESKS, earlier)
    go(lab, number, DESKS)


def journal_format(lab: Lab, where: str = JOURNAL) -> int:
    """The number of the journal's format; it is only read."""
    look = f'print(*sqlite3.connect("file:{where}?mode=ro", uri=True).execute("PRAGMA user_version").fetchone())'
    return int(lab.hosts.at(HEAD, f"python3 -c 'import sqlite3; {look}'"))


def stops(lab: Lab, newest: Path, earlier: Path) -> tuple[int, dict[str, str]]:
    """An upgrade stops at the desk whose guard cannot start; job and its processes, which go on.

    Scheduler and desk1 have the newer version then, desk3 the older one and serves a job; mended, the run goes on.
    """
    was = journal_format(lab)
    number, ranks = waiting(lab, lab.tasks(("desk1", "desk2")), ("desk1", "desk2"))
    broken = "[Service]\\nExecStartPre=/bin/false\\n"
    lab.hosts.at("desk2", f"mkdir {Path(BROKEN).parent}; printf '{broken}' >{BROKEN}; systemctl daemon-reload")
    lab.inventory(DESKS, newest)
    lab.play("upgrade", fails=True)
    for words in ("desk2 does not work with the new version", "rollback.yml --limit desk2", "run upgrade.yml again"):
        need(words in lab.said, f"not said: {words}\n{lab.said[-3000:]}")
    in_use(lab, {HEAD: newest, "desk1": newest, "desk3": earlier})
    lab.until(
        lambda: lab.nodes()["desk2"] != "up", "desk2, whose agent has just been restarted, tells that it has no guard"
    )
    need(lab.job(number)["state"] == "running", f"job {number} is {lab.job(number)['state']}")
    need(lab.ranks("waits", ("desk1", "desk2")) == ranks, "other processes than before")
    lab.verified(lab.submit("once", lab.tasks(("desk3",))), ("desk3",))
    need(journal_format(lab) == was + 1, f"the journal has format {journal_format(lab)}, before {was}")
    copies = lab.hosts.at(HEAD, f"ls -d /var/lib/cosched/scheduler.{name_of(earlier)}.[0-9]*").split()
    need(journal_format(lab, f"{copies[-1]}/journal.db") == was, f"the copy in {copies[-1]} is not the older journal")
    lab.hosts.at("desk2", f"rm -r {Path(BROKEN).parent}; systemctl daemon-reload")
    recap = lab.play("upgrade")
    need("desk3" in changed(recap) and HEAD not in changed(recap), f"changed: {changed(recap)}")
    in_use(lab, dict.fromkeys((HEAD, *DESKS), newest))
    need(lab.nodes() == dict.fromkeys(DESKS, "up"), f"nodes: {lab.nodes()}")
    need(lab.ranks("waits", ("desk1", "desk2")) == ranks, "other processes than before")
    return number, ranks


def in_vain(lab: Lab, newest: Path, running: int) -> None:
    """The older version does not start at all: the newer one goes on, with its journal and its jobs."""
    was, older = journal_format(lab), "/opt/cosched/previous/bin/cosched"
    lab.hosts.at(HEAD, f"chmod a-x {older}")
    lab.play("rollback", "-e", "scheduler_restore=true", "--limit", HEAD, fails=True)
    lab.hosts.at(HEAD, f"chmod a+x {older}")
    need("it goes on with the version that it had" in lab.said, f"not said:\n{lab.said[-3000:]}")
    lab.until(lambda: lab.nodes() == dict.fromkeys(DESKS, "up"), "all nodes are up")
    in_use(lab, {HEAD: newest})
    need(journal_format(lab) == was, f"the journal has format {journal_format(lab)}, before {was}")
    need(lab.job(running)["state"] == "running", f"job {running} is {lab.job(running)['state']}")


def restored(lab: Lab, newest: Path, earlier: Path) -> None:
    """Back from a newer journal: refused with words, then in vain, then with the journal of before.

    A job of before goes on with its processes; one that was submitted since is forgotten, and ended, and its number is
    not given again.
    """
    number, ranks = stops(lab, newest, earlier)
    later, _ = waiting(lab, lab.tasks(("desk3",)), ("desk3",))
    recap = lab.play("rollback", fails=True)
    need(not changed(recap), f"changed: {changed(recap)}")
    for words in ("scheduler_restore=true", "use the newer software", f"/scheduler.{name_of(earlier)}."):
        need(words in lab.said, f"not said: {words}\n{lab.said[-3000:]}")
    in_vain(lab, newest, later)
    lab.play("rollback", "-e", "scheduler_restore=true")
    in_use(lab, dict.fromkeys((HEAD, *DESKS), earlier))
    need(lab.job(number)["state"] == "running", f"job {number} is {lab.job(number)['state']}")
    need(lab.ranks("waits", ("desk1", "desk2")) == ranks, "other processes than before")
    left = f"pgrep -u {USER} -f waits.py || true"
    lab.until(lambda: not lab.hosts.at("desk3", left).strip(), f"job {later}, which nobody knows, is ended")
    lab.until(lambda: lab.nodes() == dict.fromkeys(DESKS, "up"), "all nodes are up")
    lab.inventory(DESKS, earlier)
    go(lab, number, ("desk1", "desk2"))
    after = lab.submit("once", lab.tasks(DESKS))
    need(after > later, f"a job after {later} that nobody knows has the number {after}")
    lab.verified(after, DESKS)
    need(not changed(lab.play("site")), "site.yml after it changes something")
