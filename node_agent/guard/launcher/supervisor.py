"""A supervisor: forked by the guard for one command, its parent, and the only one who can learn how it ended.

It stands outside the job's cgroup, so that what kills the job doesn't reach it, in a session of its own, so that what
ends the guard doesn't either. It writes the exit record whether or not there is still a guard to hear of it. A command
that was called from elsewhere has its streams kept here too (``streams``). SIGTERM means: once your command has ended,
wait for nobody.
"""

import contextlib
import json
import os
import resource
import select
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from cosched.linux import machine, process
from cosched.linux.cgroups import Cgroups
from node_agent.guard.base.records import Record, Records
from node_agent.guard.base.requests import Refusal, Spawn, refusal_of
from node_agent.guard.launcher import command
from node_agent.guard.launcher.streams import Streams

_MAX_SCRIPT_BYTES: Final = 16 << 20
_PIECE_BYTES: Final = 1 << 20
_BETWEEN_VISITS_S: Final = 0.1
#: Reaped in one visit. A job may make orphans faster than they are reaped.
_MOST_A_VISIT: Final = 64


class CommandPlan(NamedTuple):
    """What a supervisor is to start and to watch.

    ``stdio`` are the command's descriptors, unless ``asked`` names streams to keep for the agent. ``script_fd`` has the
    script's text, ``jobs_fd`` is the directory of all jobs, which a script or streams need; ``oom_kills`` how many
    there were; ``cpus`` it begins with, if any.
    """

    asked: Spawn
    group: str
    place: command.Place
    stdio: tuple[int, ...]
    script_fd: int | None
    jobs_fd: int | None
    agent_uid: int
    oom_kills: int
    cpus: tuple[int, ...]

    @property
    def key(self) -> tuple[int, int, int]:
        """(job, attempt, n)."""
        return *self.asked.key, self.asked.n

    @property
    def before_exec(self) -> list[int]:
        """Descriptors that are needed until the command has been forked."""
        return [fd for fd in (*self.stdio, self.script_fd, self.jobs_fd) if fd is not None]


def supervise(plan: CommandPlan, cgroups: Cgroups, records: Records, report_fd: int) -> None:
    """Start the command, tell the guard, wait for its end, write the record. Runs in a process of its own.

    Told on ``report_fd``, a line each: {child, start_time} of the process that is to become the command; {pid} once it
    has executed it, or {error, message}; then, once the command has ended, {exited: record}.
    """
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
    os.chdir("/")
    process.set_name("cosched-superv")
    process.become_subreaper()
    streams = None
    try:
        if plan.script_fd is not None:
            path = _copy_script(plan.script_fd, plan)
            plan = plan._replace(asked=replace(plan.asked, argv=(path, *plan.asked.argv[1:])))
        if plan.asked.stream is not None:
            streams = Streams(plan.asked.stream, _directory(plan), plan.agent_uid)
            plan = plan._replace(stdio=streams.theirs)
        pid = _started(plan, cgroups, records, report_fd)
    except (Refusal, OSError) as error:
        why = error if isinstance(error, Refusal) else Refusal("failed", f"starting the command: {error.strerror}")
        if streams is not None:
            streams.give_up()
        records.drop("run", *plan.key)  # it has not ended: there is no other
        _tell(report_fd, why.fields)
        return
    _tell(report_fd, {"pid": pid})
    _attend(plan, pid, streams, cgroups, records, report_fd)
    if not cgroups.kernel_groups:
        os.close(report_fd)
        with contextlib.suppress(ChildProcessError):
            while True:  # until the last descendant has ended, so that they can be found below
                os.wait()


def _directory(plan: CommandPlan) -> int:
    """The job's own, open."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(os.path.basename(plan.place.directory), flags, dir_fd=plan.jobs_fd)


def _started(plan: CommandPlan, cgroups: Cgroups, records: Records, report_fd: int) -> int:
    """The command's pid. Raises :class:`Refusal` if it did not come to exec, OSError."""
    go_read, go_write = os.pipe()
    failed_read, failed_write = os.pipe()  # closed by exec
    pid = os.fork()
    if pid == 0:
        try:
            for fd in (go_write, failed_read, report_fd):
                os.close(fd)
            if os.read(go_read, 1):
                command.become(
                    plan.asked,
                    plan.stdio,
                    plan.place,
                    cgroups,
                    plan.group,
                    plan.cpus,
                    lambda: not _ending(plan, records),
                )
        except Refusal as error:
            _tell(failed_write, error.fields)
        except BaseException as error:
            _tell(failed_write, {"error": "failed", "message": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(127)
    for fd in {go_read, failed_write, *plan.before_exec}:
        if fd > 2:
            os.close(fd)
    own, child = process.stat_of(os.getpid()), process.stat_of(pid)
    records.write(
        {
            "boot_id": process.boot_id(),
            "supervisor": os.getpid(),
            "supervisor_start": own.start_ticks if own else -1,
            "pid": pid,
            "start_time": child.start_ticks if child else -1,
        },
        "run",
        *plan.key,
    )
    _tell(report_fd, {"child": pid, "start_time": child.start_ticks if child else -1})
    os.write(go_write, b"g")
    os.close(go_write)
    with open(failed_read, "rb") as failed:
        text = failed.read()
    if not text and ((now := process.stat_of(pid)) is None or now.executed):
        return pid
    os.waitpid(pid, 0)
    raise refusal_of(json.loads(text)) if text else Refusal("unrun", "it was ended before the command began")


def _ending(plan: CommandPlan, records: Records) -> object:
    """Why the attempt is being ended, if it is: the guard records that before it kills what is in the group."""
    return (records.read("group", *plan.asked.key) or {}).get("ending")


def _attend(
    plan: CommandPlan, pid: int, streams: Streams | None, cgroups: Cgroups, records: Records, report_fd: int
) -> None:
    """Wait for the command's end (and for orphans, which are its descendants), say how it was, and pass on the rest."""
    child = process.stat_of(pid)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, lambda *_: None)
    os.write(wake, bytes([signal.SIGCHLD]))  # it may have ended before anybody listened

    reaper = _Reaper(cgroups, lambda in_s: signal.setitimer(signal.ITIMER_REAL, in_s))

    def reap() -> int | None:
        status = reaper.reaped(pid)
        if status is None:
            return None
        record = _record(plan, pid, child.start_ticks if child else -1, status, cgroups, records)
        if status and machine.shuts_down():  # systemd ends jobs then: that end is the node's, not the command's own
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # systemd's last stage waits for what does not end by it
            while True:  # not asked again: in that stage systemd answers no question
                signal.pause()
        with contextlib.suppress(OSError):  # a full disk: the guard hears it all the same
            records.write(record, "exit", *plan.key)
        _tell(report_fd, {"exited": record})
        return status

    if streams is not None:
        streams.carry(woken, reap, lambda number: cgroups.signal(plan.group, number, group=pid))
        return
    while True:
        select.select([woken], [], [])
        os.read(woken, 64)
        if reap() is not None:
            return


class _Reaper:
    """Calls waitpid() in a control group in which its CPU is limited; a job may make orphans without end.

    The kernel lets go of a process's entries in ``/proc`` when it is reaped, and waits, computing, for whoever else is
    in the midst of that. Where these are a job's processes beside an owner who computes, they are let run for
    thousandths of the time, and a process that waits for them in the owner's own group takes the owner's processor
    meanwhile. In the idle class, in turn, a supervisor would be let run as seldom as they are, and pass on neither
    streams nor signals.

    Orphans are reaped ten times a second at most and so many at a time; the command itself at once, before them.
    """

    def __init__(self, cgroups: Cgroups, again: Callable[[float], object]) -> None:
        """``again(SECONDS)``: call :meth:`reaped` after that, for orphans that wait for the next visit."""
        self._cgroups = cgroups
        self._again = again
        self.next_s = 0.0  # no visit before that, unless the command itself has ended

    def reaped(self, pid: int) -> int | None:
        """Reap who has ended; how that process did, once it has: its status, or less than 0 a signal."""
        has_ended = _has_ended(os.P_PID, pid)
        if not has_ended:
            if not _has_ended(os.P_ALL, 0):
                return None
            if (wait_s := self.next_s - time.monotonic()) > 0:
                self._again(wait_s)
                return None
        with self._cgroups.visit():
            found, more = _reap(pid if has_ended else -1, pid)
        self.next_s = time.monotonic() + _BETWEEN_VISITS_S
        if more and found is None:
            self._again(_BETWEEN_VISITS_S)
        return found


def _reap(first: int, pid: int) -> tuple[int | None, bool]:
    """Reap that one first (-1: whoever it is), then others, up to a visit's worth: how ``pid`` did, if it was one of
    them; and whether there may be more."""
    found = None
    with contextlib.suppress(ChildProcessError):
        for which in (first, *[-1] * (_MOST_A_VISIT - 1)):
            reaped, status = os.waitpid(which, os.WNOHANG)
            if not reaped:
                return found, False
            if reaped == pid:
                found = os.waitstatus_to_exitcode(status)
        return found, True
    return found, False


def _has_ended(kind: int, which: int) -> bool:
    """Whether there is somebody to reap."""
    with contextlib.suppress(ChildProcessError):
        return os.waitid(kind, which, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return False


def _record(plan: CommandPlan, pid: int, start_ticks: int, code: int, cgroups: Cgroups, records: Records) -> Record:
    """How the command ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "job": plan.asked.job,
        "attempt": plan.asked.attempt,
        "n": plan.asked.n,
        "boot_id": process.boot_id(),
        "pid": pid,
        "start_time": start_ticks,
        "status": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "cause": _cause(code, _ending(plan, records), cgroups.usage(plan.group).oom_kills > plan.oom_kills),
        "cpu_us": round((used.ru_utime + used.ru_stime) * process.US_PER_S),
        "memory_peak_bytes": used.ru_maxrss << 10,
    }


def _cause(code: int, ending: object, out_of_memory: bool) -> str:
    """Why a command ended: by order before by itself, and for lack of memory only when it did not end well."""
    if isinstance(ending, str):
        return ending
    return "memory" if code != 0 and out_of_memory else "own"


def _copy_script(fd: int, plan: CommandPlan) -> str:
    """The job script as a file that its user may read and run, in the job's directory, which is not his."""
    place, status = plan.place, os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_SCRIPT_BYTES:
        raise OSError(22, f"the script is not a file of at most {_MAX_SCRIPT_BYTES} bytes")
    directory = _directory(plan)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open("script", flags, 0o600, dir_fd=directory), "wb", buffering=0) as copy:
        at = 0
        while piece := os.pread(fd, _PIECE_BYTES, at):
            at += copy.write(piece)
        if place.switch:
            os.fchown(copy.fileno(), place.user.uid, place.user.gid)
        os.fchmod(copy.fileno(), 0o500)
    os.close(directory)
    return f"{place.directory}/script"


def _tell(fd: int, what: Record) -> None:
    with contextlib.suppress(OSError):  # the guard has gone: the record is for its successor
        os.write(fd, json.dumps(what).encode() + b"\n")
