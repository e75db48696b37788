"""The last steps between the guard and a user's program: in a forked child, from its first instruction to exec.

The order is the point. Cgroup first, so that nothing of the job is ever outside; mounts while there are rights to make
them; then the user, for good; and all that touches the user's files after that, with his rights alone.
"""

import contextlib
import errno
import os
import resource
import stat
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from cosched.linux import files, namespaces, process, users
from cosched.linux.cgroups import Cgroups
from node_agent.guard.base.requests import Refusal, Spawn

#: Whom the kernel ends first where memory runs out: jobs that said nothing of theirs, the others, the owner's programs.
_OOM_UNBOUNDED, _OOM_BOUNDED = "1000", "500"
#: The name of a preparation's process while it waits for the user database, if it waits.
ASKS_USERS: Final = "cosched-users"
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
#: The kernel reads no more of a script to find its interpreter.
_FIRST_LINE_BYTES: Final = 256


class Place(NamedTuple):
    """Where a job's commands run. ``keep`` and ``directory`` are absolute; ``directory`` is the job's private one.

    ``bounded``: the job has a memory limit of its own. ``umask``: the submitter's.
    """

    user: users.User
    switch: bool
    private_tmp: bool
    directory: str
    keep: tuple[str, ...]
    bounded: bool
    umask: int


def settle(place: Place, directory: str) -> None:
    """See the job's mounts, become its user, be in a directory. Raises :class:`Refusal`; there is no way back."""
    try:
        if place.private_tmp:
            namespaces.enter_ipc(f"{place.directory}/ipc")
    except OSError as error:
        raise Refusal("failed", f"the job's IPC namespace: {_story(error)}") from None
    try:
        if place.private_tmp:
            namespaces.private_mounts()
            namespaces.cover({"/tmp": f"{place.directory}/tmp", "/dev/shm": f"{place.directory}/shm"}, place.keep)
    except OSError as error:
        raise Refusal("failed", f"private /tmp and /dev/shm: {_story(error)}") from None
    try:
        process.no_new_privileges()
        if place.switch:
            users.become(place.user)
    except OSError as error:
        raise Refusal("user", f"becoming {place.user.name}: {_story(error)}") from None
    process.set_name("cosched-command")
    try:
        os.chdir(directory)
    except OSError as error:
        hint = ""
        if error.errno == errno.ENOENT and place.private_tmp and namespaces.is_below(directory, "/tmp"):
            hint = " (a job's /tmp is its own)"
        raise Refusal("directory", f"{directory}: {error.strerror}, as {place.user.name} on this node{hint}") from None


def become(
    asked: Spawn,
    stdio: Sequence[int],
    place: Place,
    cgroups: Cgroups,
    name: str,
    cpus: Collection[int],
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Turn the calling process into the command. Returns never; raises :class:`Refusal`.

    ``stdio``: descriptors; paths of the request take the place of the last two.
    ``cpus``: those that it is to begin with; none: as it comes. ``wanted``: whether the job is not being ended; asked
    in its group: whatever ends it later finds the process there.
    """
    try:
        cgroups.enter(name)
        if cpus:
            os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise Refusal("failed", f"entering the job's cgroup: {_story(error)}") from None
    if not wanted():
        raise Refusal("unrun", "the job was ended before the command began")
    os.setsid()
    process.reset_signals()
    os.umask(place.umask)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    files.write("/proc/self/oom_score_adj", _OOM_BOUNDED if place.bounded else _OOM_UNBOUNDED)
    settle(place, asked.cwd)
    fds = list(stdio)
    for at, path in ((1, asked.output), (2, asked.error)):
        if path is not None:
            fds[at] = _opened(path, place.user.name)
    for at, fd in enumerate(fds):
        os.dup2(fd, at)
    env = environment(asked.env, place)
    try:
        _exec(asked.argv, env)
    except OSError as error:
        raise Refusal("failed", f"{asked.argv[0]}: {_not_executed(error)}") from None


def _not_executed(error: OSError) -> str:
    """Why a program was not executed: the kernel says "Permission denied" also where its file system is ``noexec``,
    or that of the interpreter in its first line."""
    with contextlib.suppress(OSError):
        if error.errno == errno.EACCES and error.filename:
            if problem := files.exec_problem(error.filename):
                return problem
            interpreter = _interpreter(error.filename)
            if interpreter and (problem := files.exec_problem(interpreter)):
                return f"its interpreter {interpreter}: {problem}"
    return error.strerror or str(error)


def _interpreter(program: str) -> str:
    """What a script's first line names; "" for other programs. Raises OSError; a pipe is not waited for."""
    fd = os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        line = os.read(fd, _FIRST_LINE_BYTES).partition(b"\n")[0]
    finally:
        os.close(fd)
    words = line[2:].split() if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else ""


def _opened(path: str, user: str) -> int:
    """A file or device for output, opened without ever waiting: a pipe's reader may never come.

    Where it is refused, its descriptor ends with the process.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, a socket
            raise Refusal("failed", f"{path}: neither a file nor a device such as /dev/null") from None
        raise Refusal("failed", f"{path}: {error.strerror}, as {user} on this node") from None
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISCHR(mode):
        raise Refusal("failed", f"{path}: neither a file nor a device such as /dev/null")
    os.set_blocking(fd, True)
    return fd


def environment(given: dict[str, str], place: Place) -> dict[str, str]:
    """What a command finds: what was given, and what belongs to the user on this node."""
    tmp = {} if place.private_tmp else {"TMPDIR": f"{place.directory}/tmp"}
    return {"PATH": _PATH, **tmp, **given, **place.user.environment()}


def _exec(argv: tuple[str, ...], env: dict[str, str]) -> None:
    """Execute a program, looked for in the command's own PATH; a script without ``#!`` is the shell's, as ever."""
    folders = [""] if "/" in argv[0] else [folder or "." for folder in env["PATH"].split(":")]
    denied = None
    for path in (os.path.join(folder, argv[0]) for folder in folders):
        try:
            os.execve(path, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            denied = error
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            os.execve("/bin/sh", ("/bin/sh", path, *argv[1:]), env)
    raise denied or FileNotFoundError(errno.ENOENT, "command not found" if "/" not in argv[0] else "no such program")


def _story(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
