"""What is asked for attempts at jobs on this node: make ready, start commands, signal, end, forget, tell.

Nothing here waits: what may take long is done by a child, whose report comes through the loop.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from cosched.linux import process, users
from cosched.linux.cgroups import MARK
from node_agent.guard.base.children import Child, Result
from node_agent.guard.base.records import Record
from node_agent.guard.base.requests import Forget, Kill, Prepare, Refusal, Resize, Signal, Slots, Spawn, Weigh, Whose
from node_agent.guard.base.server import Answer
from node_agent.guard.base.settings import Settings
from node_agent.guard.launcher import groups
from node_agent.guard.launcher.adoption import adopted
from node_agent.guard.launcher.cpu_sets import CpuSets
from node_agent.guard.launcher.easing import Easing
from node_agent.guard.launcher.endings import Endings
from node_agent.guard.launcher.freezer import Freezer
from node_agent.guard.launcher.groups import Command, Group, Key, Shared
from node_agent.guard.launcher.levers import Levers
from node_agent.guard.launcher.sandboxes import Sandboxes
from node_agent.guard.launcher.stalls import Stalls
from node_agent.guard.launcher.supervisor import CommandPlan, supervise

MAX_GROUPS: Final = 96  # so that a list of them all fits into a packet
MAX_ALIVE: Final = 64
_BEGINS_AGAIN_US: Final = process.US_PER_S // 20


class Jobs:
    """All attempts on this node."""

    def __init__(
        self,
        settings: Settings,
        shared: Shared,
        jobs_fd: int,
        *,
        agent_uid: int,
        private_tmp: bool,
        holds: Callable[[], bool],
        idle: Callable[[], bool],
        memory_bytes: Callable[[], int],
        paused: Callable[[], str],
        banned: Callable[[str], str],
    ) -> None:
        """``agent_uid`` may connect to commands' streams; ``holds``: whether a job that waits for its turn is held now.

        ``idle``: whether jobs are in the idle class. ``memory_bytes``: what they may have together, by the contract.
        ``paused``: why nothing may start here now; ``banned``: why a user's jobs are not taken; empty where they are.
        """
        self._shared = shared
        self._memory_bytes = memory_bytes
        self._paused = paused
        self._banned = banned
        self._jobs_fd = jobs_fd
        self._agent_uid = agent_uid
        self.levers = Levers(shared, holds)
        self.endings = Endings(shared, self._ends)
        self.cpu_sets = CpuSets(shared, settings.procs, self.endings.save)
        self.freezer = Freezer(shared, self.endings)
        self.stalls = Stalls(shared, self.endings, (settings.paths.state, settings.paths.run))
        self._sandboxes = Sandboxes(settings, shared, self.stalls, jobs_fd, private_tmp=private_tmp)
        self.easing = Easing(shared, idle, self.endings)

    def adopt(self) -> None:
        """Take over what a predecessor left."""
        for group in adopted(self._shared.records, self._shared.cgroups):
            self._shared.groups[group.key] = group
            self.endings.watch(group)
            for found in group.commands.values():
                if found.pidfd is not None:
                    self._follow(group, found, found.pidfd)
            self.endings.look_in(group, 0)
            with contextlib.suppress(OSError):  # it has what the predecessor gave it, then
                self.cpu_sets.apply(group)
            if group.stopped_us is not None:  # it may have died between its record and the deed
                if group.ending:
                    group.stopped_us = None  # nothing but a pause holds it back
                self.freezer.see_to([group.key])
        self.levers.undo_all(self._shared.groups)
        self.easing.end_all()
        self.levers.apply(process.boottime_us())
        self._sandboxes.remove_stray(self._shared.groups.values())

    def freeze(self, frozen: bool, since_us: int) -> None:
        """Stop all jobs' processes in a pause, or let them go on after it; it counts in no time limit."""
        self.endings.held_since_us = since_us if frozen else None
        self.freezer.see_to_all()
        for group in self._shared.groups.values():
            if not frozen and group.deadline_us is not None:
                # of a pause in which it was stopped, the rest counts when it has a CPU again
                until_us = process.boottime_us() if group.stopped_us is None else group.stopped_us
                group.deadline_us += max(0, until_us - since_us)
                self.endings.save(group)

    # --- requests -----------------------------------------------------------------------------------------------------

    def prepare(self, request: Prepare, _: Sequence[int], answer: Answer) -> dict[str, Any] | None:
        """Cgroup and private directories; the user and the directory are looked at as the user will see them."""
        known = self._shared.groups.get(request.key)
        if known is not None:
            if known.request != request or known.state != "prepared":
                raise Refusal("busy", f"{request} is {known.state} here already")
            return _prepared(known)
        if why := self._paused():
            raise Refusal("paused", why)
        if why := self._banned(request.user):
            raise Refusal("owner", why)
        if len(self._shared.groups) >= MAX_GROUPS:
            raise Refusal("busy", f"{MAX_GROUPS} attempts at jobs are here already; forget some")
        group = Group(request)
        self._admit(group)

        def done(found: Result) -> None:
            try:
                self._take_in(group, found)
                answer(_prepared(group))
            except Refusal as refusal:
                if group.errand is None:
                    self._remove(group, answer, refusal)
                    return
                group.ending, group.killed_us = "killed", process.boottime_us()
                group.told_empty = False
                answer(refusal)

        def ended() -> None:
            if group.errand is not None:
                group.errand = None
                self.endings.look_in(group, 0)

        self._sandboxes.make(group, group.memory_bytes or self._memory_bytes(), done, ended)
        self._shared.groups[group.key] = group
        return None

    def _take_in(self, group: Group, found: Result) -> None:
        """What an attempt needs has been made. Raises :class:`Refusal`."""
        if isinstance(found, Refusal):
            raise found
        request = group.request
        try:
            if request.cpus is not None:
                self.cpu_sets.give(group, request.cpus)
        except OSError as error:
            raise Refusal("failed", f"giving it {request.cpus} CPUs: {error.strerror}") from None
        if group.ending is not None:
            raise Refusal("stale", "killed while it was being prepared")
        group.user = users.User(*found["user"])
        group.since_us = process.boottime_us()
        self._sleep(group, asleep=request.asleep)
        self.endings.watch(group)
        self.endings.save(group)

    def spawn(self, request: Spawn, fds: Sequence[int], answer: Answer) -> None:
        """Fork a supervisor for a command; the answer comes when the command runs or could not be executed.

        One that is on its way already is answered when the first is: whoever asked before may have gone.
        """
        group, user = self._to_start_in(request)
        if (known := group.commands.get(request.n)) is not None:
            known.answers.append(answer)
            return
        env = request.env if self._shared.cgroups.kernel_groups else {**request.env, MARK: group.mark}
        with contextlib.suppress(OSError):  # it shares a CPU, then
            self.cpu_sets.separate(starting=group)
        plan = CommandPlan(
            replace(request, env=env),
            group.name,
            self._sandboxes.place(group, user),
            tuple(fds[:3]),
            fds[3] if request.script else None,
            self._jobs_fd if request.script or request.stream is not None else None,
            self._agent_uid,
            self._shared.cgroups.usage(group.name).oom_kills,
            self.cpu_sets.affinity(group),
        )
        begun_on = group.processors
        started = Command(request.n, answer)

        def heard(found: Result) -> None:
            if isinstance(found, Refusal):
                self._not_started(group, started, found)
            elif "child" in found:
                started.child = int(found["child"]), int(found["start_time"])
            elif "pid" in found:
                self._begun(group, started, found["pid"], moved=group.processors != begun_on)
            else:
                self._ended(group, started, found["exited"])

        def gone() -> None:
            started.let_go()
            if started.state == "starting" and group.commands.get(started.n) is started:
                code = "unrun" if started.child is None else "failed"
                self._not_started(group, started, Refusal(code, "the command's supervisor died before the command ran"))
            elif started.state == "running":
                self._ended(group, started, self._shared.records.read("exit", *group.key, started.n) or groups.UNKNOWN)

        group.commands[request.n] = started
        group.told_empty = False
        keep = [self._shared.records.fd, *plan.before_exec]
        child = Child(partial(supervise, plan, self._shared.cgroups, self._shared.records), heard, gone, keep)
        try:
            self._shared.loop.fork(child)
        except Refusal as refusal:
            self._not_started(group, started, refusal)
            return
        self.stalls.watch_start(group, started, request)
        with contextlib.suppress(OSError):
            started.pidfd = os.pidfd_open(child.pid)  # it is a child, and is not reaped before the loop goes on
        self._shared.cgroups.watch_over(group.name, group.mark, child.pid, group.memory_bytes)

    def _to_start_in(self, request: Spawn) -> tuple[Group, users.User]:
        """Where a command is to be started, and as whom. Raises :class:`Refusal`."""
        group = self._known(request.key)
        if group.ending or group.removing:
            raise Refusal("stale", f"{request} is {group.state}")
        if why := self._paused():
            raise Refusal("paused", why)
        if group.user is None:
            raise Refusal("busy", f"{request} is not ready yet")
        if group.stopped_us is not None:
            raise Refusal("busy", f"{request} has no CPU now")
        if (known := group.commands.get(request.n)) is not None and known.state == "starting" and not known.withdrawn:
            return group, group.user
        if known is not None or self._shared.records.read("exit", *request.key, request.n):
            raise Refusal("busy", f"command {request.n} has been started already")
        if len(group.alive) >= MAX_ALIVE:
            raise Refusal("busy", f"{MAX_ALIVE} commands of this job run here already")
        return group, group.user

    def resize(self, request: Resize) -> dict[str, Any]:
        """Another share of the node: all of it, or none. What is there already changes nothing."""
        group = self._known(request.key)
        if group.ending or group.removing or group.user is None:
            raise Refusal("stale", f"{request} is {group.state}")
        if request.n < group.resize_order:
            raise Refusal("stale", f"order {request.n}; order {group.resize_order} was obeyed already")
        if 0 < request.n == group.resize_order:  # obeyed already, so that it cannot be refused now
            return {"cpus": list(self.cpu_sets.cpus(group))}
        before, had = group.request, group.processors
        group.request = replace(before, tasks=request.tasks)
        try:
            if request.tasks != before.tasks:
                self._fit_memory(group)
            self.cpu_sets.give(group, request.cpus)
            self._stop(group, stopped=request.cpus == 0)
        except (OSError, Refusal):
            group.request = before
            self._shared.cgroups.create(group.name, group.memory_bytes, group.processes)
            self.cpu_sets.give(group, len(had))
            raise
        group.resize_order = request.n
        self._sleep(group, asleep=request.asleep)
        self.endings.save(group)
        return {"cpus": list(self.cpu_sets.cpus(group))}

    def _stop(self, group: Group, *, stopped: bool) -> None:
        """A job has no CPU at all, or has some again; for so long its time limit does not count."""
        before_us = group.stopped_us
        if stopped == (before_us is not None):
            return
        group.stopped_us = process.boottime_us() if stopped else None
        if stopped:
            self.endings.save(group)  # before the deed: a successor does it again
        try:
            self.freezer.obey(group.key)
        except OSError:
            group.stopped_us = before_us
            self.endings.save(group)
            self.freezer.see_to([group.key])  # a part of it may have been done
            raise
        if before_us is not None:
            self._went_on(group, before_us)

    def _went_on(self, group: Group, stopped_us: int) -> None:
        """The time without a CPU does not count in its limit; of a pause that lasts, the rest counts at its end."""
        if group.deadline_us is not None:
            until_us = self.endings.held_since_us or process.boottime_us()
            group.deadline_us += max(0, until_us - stopped_us)

    def _sleep(self, group: Group, *, asleep: bool) -> None:
        """Have a job's processes come after those of all other jobs, or not any more."""
        if asleep != group.asleep:
            group.asleep = asleep
            self.levers.apply(process.boottime_us())

    def _ends(self, group: Group) -> None:
        """A job is to end: nothing but a pause holds back its processes, so that they hear of it."""
        if group.stopped_us is not None:
            stopped_us, group.stopped_us = group.stopped_us, None
            self._went_on(group, stopped_us)
            self.freezer.see_to([group.key])
            self.endings.save(group)  # after the deed: a successor does it again
        self.levers.apply(process.boottime_us())

    def _fit_memory(self, group: Group) -> None:
        """Have the job's limits follow its places. Raises :class:`Refusal`, OSError."""
        self._admit(group)
        used = self._shared.cgroups.usage(group.name).memory_bytes
        if group.memory_bytes is not None and used > group.memory_bytes:
            raise Refusal("memory", f"its processes use {used} bytes; {group.memory_bytes} would be left to them")
        group.problems = self._shared.cgroups.create(group.name, group.memory_bytes, group.processes)

    def signal(self, request: Signal) -> dict[str, Any]:
        """To the process group that the command leads, as far as it is in the job's cgroup."""
        group = self._known(request.key)
        found = group.commands.get(request.n)
        if found is None or found.state != "running":
            raise Refusal("unknown", f"command {request.n} does not run")
        return {"sent": self._shared.cgroups.signal(group.name, request.signal, group=found.pid)}

    def kill(self, request: Kill) -> None:
        """End all of it. ``empty`` follows when nothing is left, also when nothing was there."""
        self.endings.end(self._known(request.key), "killed", request.grace_us)

    def forget(self, request: Forget, _: Sequence[int], answer: Answer) -> None:
        """Remove cgroup, directories and records, unless something is alive."""
        group = self._known(request.key)
        if group.state in {"preparing", "running", "ending"} or group.removing:
            raise Refusal("busy", f"{request} is {group.state}; kill it first")
        self._remove(group, answer)

    def weigh(self, request: Weigh) -> dict[str, Any]:
        """Raise or lower a job among the jobs of this node, for a while."""
        key = self._known(request.key).key
        return {"until_us": self.levers.weigh(key, request.percent, request.until_us, process.boottime_us())}

    def slots(self, request: Slots) -> dict[str, Any]:
        """Let the jobs of this node take turns, for a while."""
        for key in itertools.chain(*request.rows):
            self._known(key)
        return {"until_us": self.levers.slots(request, process.boottime_us())}

    def whose(self, request: Whose) -> dict[str, Any]:
        """Which attempt a process belongs to."""
        group = groups.group_of(request.pid, self._shared.groups.values(), self._shared.cgroups)
        if group is None or group.state == "preparing":
            raise Refusal("unknown", f"process {request.pid} belongs to no job")
        return {"job": group.request.job, "attempt": group.request.attempt}

    def listing(self) -> list[dict[str, Any]]:
        """For ``list``."""
        return [
            {
                "job": group.request.job,
                "attempt": group.request.attempt,
                "user": group.request.user,
                "uid": group.user.uid if group.user is not None else None,
                "state": group.state,
                "ending": group.ending,
                "deadline_us": group.deadline_us,
                **self.endings.used(group),
                "cpus": list(self.cpu_sets.cpus(group)),
                "ranks": group.ranks,
                "commands": [found.status_fields() for found in group.commands.values()],
            }
            for group in self._shared.groups.values()
        ]

    # --- commands -----------------------------------------------------------------------------------------------------

    def _ended(self, group: Group, found: Command, record: Record) -> None:
        found.state, found.exit = "ended", record
        self._shared.emit(
            {
                "event": "exited",
                "job": group.request.job,
                "attempt": group.request.attempt,
                "n": found.n,
                **{key: record.get(key) for key in ("status", "signal", "cause")},
            }
        )
        ended = [n for n, each in group.commands.items() if each.state == "ended" and n != 0 and each.pidfd is None]
        for n in ended[: -groups.ENDED_KEPT]:
            del group.commands[n]
            for kind in ("run", "exit"):
                self._shared.records.drop(kind, *group.key, n)
        if not group.alive:
            self.endings.look_in(group, 0)

    def _follow(self, group: Group, found: Command, pidfd: int) -> None:
        """Hear of the end of a command whose supervisor is a predecessor's child."""

        def look(*, gone: bool) -> None:
            record = self._shared.records.read("exit", *group.key, found.n)
            unrun = gone and not record and self._shared.records.read("run", *group.key, found.n) is None
            if found.state == "starting" and unrun:
                self._not_started(group, found, Refusal("unrun", "it has ended before the command began"))
            elif found.state != "ended" and (record or gone):
                if found.state == "starting" and found.child is not None:
                    self._begun(group, found, found.child[0], moved=False)
                self._ended(group, found, record or groups.UNKNOWN)
            if gone:
                self._shared.loop.unwatch(pidfd)
                found.let_go()

        def again() -> None:  # without cgroups, supervisors outlive their commands
            if found.state == "running" and found.pidfd is not None:
                look(gone=False)
                self._shared.loop.later(process.US_PER_S, again)

        def begins() -> None:  # a predecessor has forked it, and was not told that it runs
            if found.state != "starting" or found.child is None or found.pidfd is None:
                return
            now = process.stat_of(found.child[0])
            if now is not None and now.executed and now.start_ticks == found.child[1]:
                self._begun(group, found, found.child[0], moved=True)
            else:
                self._shared.loop.later(_BEGINS_AGAIN_US, begins)

        self._shared.loop.watch(pidfd, lambda: look(gone=True))
        if not self._shared.cgroups.kernel_groups:
            again()
        if found.state == "starting":
            self.stalls.watch_start(group, found)
            begins()
        else:
            self._limit(group, found)

    def _begun(self, group: Group, found: Command, pid: int, *, moved: bool) -> None:
        """A command has executed its program: of the script, the time limit counts from now on.

        ``moved``: the job's CPUs are others than when it was forked, or may be.
        """
        found.pid, found.state = pid, "running"
        self._limit(group, found)
        self._shared.cgroups.began(group.name, pid)
        if moved:
            self.cpu_sets.apply(group)
        if self.endings.held_since_us is not None or group.stopped_us is not None:
            self.freezer.see_to([group.key])
        found.answer({"pid": pid})

    def _limit(self, group: Group, found: Command) -> None:
        """Have the time limit of a script that has begun count, if it does not yet."""
        if found.n == 0 and group.deadline_us is None and group.request.limit_us is not None and not group.ending:
            group.deadline_us = process.boottime_us() + group.request.limit_us
            self.endings.save(group)

    def _not_started(self, group: Group, found: Command, why: Refusal) -> None:
        group.commands.pop(found.n, None)
        if not group.alive:
            self.endings.look_in(group, 0)
        found.answer(why)

    # --- making and removing ------------------------------------------------------------------------------------------

    def _admit(self, group: Group) -> None:
        """Refuse what would not fit beside the others: limits promised are the last line before the owner's memory."""
        wanted = group.memory_bytes or 0
        promised = sum(
            other.memory_bytes or 0
            for other in self._shared.groups.values()
            if other is not group and other.state != "ended"
        )
        if wanted and promised + wanted > (left := self._memory_bytes()):
            raise Refusal(
                "memory",
                f"{wanted} bytes wanted beside {promised} of other jobs; the contract leaves {left}",
            )

    def _remove(self, group: Group, answer: Answer, why: Refusal | None = None) -> None:
        """Take everything away, then answer ``why``; None: {} or why something is left."""

        def removed(found: Result) -> None:
            group.removing = False
            if isinstance(found, Refusal):
                answer(why or found)
                return
            if group.watch_fd is not None:
                self._shared.loop.unwatch(group.watch_fd)
                os.close(group.watch_fd)
            self._shared.records.drop_attempt(*group.key)
            self.levers.forget(group.key)
            self._shared.groups.pop(group.key, None)
            answer(why or {})

        self._sandboxes.remove(group, removed)
        group.removing = True

    def _known(self, key: Key) -> Group:
        if (group := self._shared.groups.get(key)) is None:
            raise Refusal("unknown", f"attempt {key[1]} at job {key[0]} is not known here")
        return group


def _prepared(group: Group) -> dict[str, Any]:
    """The answer to a preparation."""
    assert group.user is not None
    return {"problems": group.problems, "uid": group.user.uid}
