"""The guard as a process: ``python -I -m node_agent.guard --config node.toml``.

It arms the contract before it does anything else, and it never dies of a request: what cannot be done is an answer.
"""

import argparse
import fcntl
import os
import pwd
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from cosched.linux import check, files, process, slices
from cosched.linux.cgroup_find import find
from cosched.linux.cgroups import YES, NoCgroups
from cosched.linux.notify import Watchdog, notify
from node_agent.guard.base import requests
from node_agent.guard.base.loop import Duty, Loop
from node_agent.guard.base.records import Records
from node_agent.guard.base.requests import Request
from node_agent.guard.base.server import Handler, Server
from node_agent.guard.base.settings import BadSettings, Settings, load
from node_agent.guard.base.sockets import make_directory
from node_agent.guard.desk.decoys import Decoys
from node_agent.guard.desk.keys import Keys
from node_agent.guard.desk.limiter import Limiter
from node_agent.guard.desk.owners_word import OwnersWord
from node_agent.guard.desk.pause import Pause
from node_agent.guard.desk.periods import Periods
from node_agent.guard.desk.switch import Desk, Reach
from node_agent.guard.desk.wakeup_probe import WakeupProbe
from node_agent.guard.launcher.desk_jobs import DeskJobs
from node_agent.guard.launcher.groups import Shared
from node_agent.guard.launcher.jobs import Jobs
from node_agent.guard.launcher.user_survey import UserSurvey

_PATIENCE_S: Final = 3.0


class Guard:
    """Limits, jobs and the socket, joined by one loop."""

    def __init__(self, settings: Settings) -> None:
        """From now on this process gives way.

        Raises OSError or :class:`NoCgroups` where the machine does not have what the settings ask for.
        """
        agent_uid = _uid(settings.security.agent_user)
        cgroup = settings.cgroup
        self._cgroups = find(cgroup.mode, cgroup.mount, cgroup.cosched, settings.weights)
        records_fd, jobs_fd = _state(settings.paths.state, agent_uid)
        self._records = Records(records_fd)
        self._records.drop_half_written()
        self._limiter = Limiter(
            self._cgroups, settings.contract, settings.procs, settings.memory_bytes, _epoch(self._records)
        )
        self._limiter.arm(process.boottime_us())
        if not self._cgroups.kernel_groups:
            process.become_subreaper()
        self._periods = Periods(self._cgroups, lambda: self._limiter.ceiling_cpus)
        self._decoys = Decoys(self._cgroups, settings.cgroup.desk, allowed=settings.cgroup.decoys)
        self._probe = WakeupProbe(
            self._cgroups, settings.cgroup.desk, wanted=settings.monitoring.wakeups and settings.parallel
        )
        self._can = check.found(settings, self._cgroups) | {"gives way": slices.give_way()}
        self._loop = Loop(self._arm)
        self._server = Server(self._loop, settings.paths.run, agent_uid, self._left)
        self._keys = Keys(self._loop, self._server.emit)
        shared = Shared({}, self._cgroups, self._records, self._loop, self._server.emit)
        self._groups = shared.groups
        self._jobs = Jobs(
            settings,
            shared,
            jobs_fd,
            agent_uid=agent_uid,
            private_tmp=self._can["private /tmp"] == YES,
            holds=lambda: self._can.get("held turns") == YES and self._limiter.limits.cpus is not None,
            idle=lambda: self._limiter.limits.idle,
            memory_bytes=lambda: self._limiter.limits.memory_bytes,
            paused=lambda: self._desk.why,
            banned=lambda user: self._desk.banned(user),  # noqa: PLW0108 (the desk is made later)
        )
        self._users = UserSurvey(settings.security, self._loop)
        self._jobs.adopt()
        shown = DeskJobs(shared, self._jobs.endings, self._jobs.cpu_sets)
        self._desk = Desk(
            self._loop,
            settings.paths.run,
            self._records,
            Pause(self._records, opted_out=not settings.parallel),
            OwnersWord(self._records),
            settings.security.desk_users,
            agent_uid,
            Reach(
                self._jobs.freeze,
                lambda ratio: self._limiter.set_share(ratio, process.boottime_us()),
                self._probe.allow,
                shown.listing,
                shown.end,
                shown.ended,
                shown.has,
                lambda: {**self._limiter.status_fields(), **self._decoys.status_fields(), "can": self._can},
                # the agent hears at once what the owner has decided, before anything that comes of it
                lambda: self._server.emit({"event": "desk", **self._desk.status_fields()}),
            ),
        )
        self._server.handlers = self._handlers()

    def run(self) -> None:
        """Serve until SIGTERM. Then the contract is armed, and what runs goes on with its supervisors."""
        self._keep()
        notify("READY=1")
        try:
            while not self._loop.stopping:
                self._loop.run_once()
        finally:
            self._decoys.stop()
            self._probe.stop()
            self._jobs.easing.end_all()
            self._left()
        self._server.close()
        self._desk.close()
        if not self._groups:
            self._cgroups.close()

    def _keep(self) -> None:
        """What is looked after at each turn. Where any of it fails, the contract is armed."""
        watchdog = Watchdog()
        self._loop.duties = [
            Duty("keeping the contract", self._limit_in_time, self._limiter.due_us),
            Duty("keeping decoys", lambda _: self._keep_decoys(), lambda: None),
            Duty("keeping turns", self._jobs.levers.tick, lambda: self._jobs.levers.due_us),
            Duty("keeping periods", lambda _: self._periods.keep(), lambda: self._periods.due_us),
            Duty("easing what is left of jobs", self._jobs.easing.tick, self._jobs.easing.due_us),
            Duty("ending jobs", self._jobs.endings.tick, self._jobs.endings.due_us),
            # after the ends: a CPU that has become idle is given to one of two jobs that share another
            Duty("keeping jobs to their CPUs", self._jobs.cpu_sets.tick, self._jobs.cpu_sets.due_us),
            Duty("looking for what does not end", self._jobs.stalls.tick, self._jobs.stalls.due_us),
            Duty("keeping a pause", self._desk.tick, self._desk.due_us),
            Duty("stopping jobs", self._jobs.freezer.tick, lambda: self._jobs.freezer.due_us),
            Duty("keeping the wake-up probe", self._probe.tick, lambda: self._probe.due_us),
            Duty("the sign of life", watchdog.tick, watchdog.due_us),
        ]

    def _limit_in_time(self, now_us: int) -> None:
        if why := self._limiter.tick(now_us):
            self._server.emit({"event": "armed", "why": why})

    def _keep_decoys(self) -> None:
        present = any(group.present for group in self._groups.values())
        self._decoys.keep(self._limiter.ceiling_cpus if present else None)

    def _arm(self) -> None:
        self._limiter.arm(process.boottime_us())

    def _left(self) -> None:
        self._jobs.levers.undo_all(self._groups)
        self._periods.forget()
        self._keys.forget()
        self._limiter.arm(process.boottime_us())

    def _handlers(self) -> dict[type[Request], Handler]:
        """What is done about each request; :mod:`node_agent.guard.base.requests` says what each is answered with."""
        jobs, limiter, now_us = self._jobs, self._limiter, process.boottime_us
        return {
            requests.Prepare: jobs.prepare,
            requests.Spawn: jobs.spawn,
            requests.Forget: jobs.forget,
            requests.Resize: _at_once(jobs.resize),
            requests.Signal: _at_once(jobs.signal),
            requests.Kill: _at_once(jobs.kill),
            requests.Weigh: _at_once(jobs.weigh),
            requests.Slots: _at_once(jobs.slots),
            requests.Whose: _at_once(jobs.whose),
            requests.List: _at_once(lambda _: {"groups": jobs.listing()}),
            requests.Accounts: self._users.answer,
            requests.Keys: _at_once(lambda _: self._keys.listen()),
            requests.Relax: _at_once(self._relax),
            requests.Tighten: _at_once(lambda asked: limiter.tighten(asked.ratio, asked.until_us, now_us())),
            requests.Arm: _at_once(lambda _: self._arm()),
            requests.Periods: _at_once(lambda asked: {"until_us": self._periods.ask(asked.begin_us, asked.until_us)}),
            requests.Contract: _at_once(self._set_contract),
            requests.Status: _at_once(self._status),
        }

    def _set_contract(self, request: requests.Contract) -> dict[str, Any]:
        self._limiter.set_contract(request.cpu_ratio, request.memory_ratio, request.mpl, process.boottime_us())
        return self._limiter.status_fields()

    def _status(self, _: requests.Status) -> dict[str, Any]:
        return {
            **self._limiter.status_fields(),
            **self._jobs.levers.status_fields(),
            **self._desk.status_fields(),
            **self._decoys.status_fields(),
            **self._probe.status_fields(),
            "periods_moved": self._periods.moves,
            "can": self._can,
        }

    def _relax(self, request: requests.Relax) -> dict[str, Any]:
        before = self._limiter.epoch
        try:
            until_us = self._limiter.relax(request.until_us, request.epoch, process.boottime_us())
        finally:
            if self._limiter.epoch > before:
                self._records.write({"epoch": self._limiter.epoch}, "epoch")
        return {"until_us": until_us}


def _at_once(act: Callable[[Any], dict[str, Any] | None]) -> Handler:
    """A handler whose answer is what ``act`` returns for the request, at once; None: nothing but that it was done."""
    return lambda request, fds, answer: act(request) or {}


def _state(state: str, agent_uid: int) -> tuple[int, int]:
    """Descriptors of ``state/records`` and ``state/jobs``, which one guard has at a time. Raises OSError.

    ``state`` itself is made for the agent, who keeps other things there.
    """
    make_directory(state, 0o711, agent_uid)
    top = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    records = files.own_directory("records", 0o700, top)
    jobs = files.own_directory("jobs", 0o711, top)
    os.close(top)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=records)
    deadline_s = time.monotonic() + _PATIENCE_S  # a child of a guard that was killed just now may still hold it
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return records, jobs
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise FileExistsError(17, "another guard runs with this state directory", state) from None
            time.sleep(0.02)


def _epoch(records: Records) -> int:
    """The highest epoch that was seen, -1 for none."""
    found = (records.read("epoch") or {}).get("epoch")
    return found if type(found) is int else -1


def _uid(name: str) -> int:
    if not name:
        return os.geteuid()
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise BadSettings(f"security.agent_user: there is no user {name}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the guard. Returns 0 when it was told to end, 1 when it could not start, 2 when its settings are unusable."""
    parser = argparse.ArgumentParser(prog="node_agent.guard", description="Enforce the contract on this workstation.")
    parser.add_argument("--config", required=True, metavar="FILE", help="the node's settings, node.toml")
    options = parser.parse_args(arguments)
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:  # a descriptor that travels must not become 0, 1 or 2
        pass
    os.close(fd)
    os.umask(0o022)
    try:
        guard = Guard(load(options.config))
    except (BadSettings, NoCgroups) as error:
        sys.stderr.write(f"guard: {error}\n")
        return 2 if isinstance(error, BadSettings) else 1
    except OSError as error:
        sys.stderr.write(f"guard: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}\n")
        return 1
    guard.run()
    return 0
