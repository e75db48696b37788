"""Start a program as a process 1 needs it: its own session, terminal and control groups, and no waiting thread."""

import contextlib
import errno
import fcntl
import os
import shutil
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cosched.apps.lab import cgroups, kernel
from cosched.linux import files
from cosched.linux.process import die_with_parent, reset_signals

#: What a shell says of a command that is not there, and of one that cannot be executed.
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
EXIT_FAILURE: Final = 1


class CannotStart(Exception):
    """A program could not be started; ``status`` is what a shell would have said."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Program:
    """What to start. ``groups`` are the files by which it enters its control groups.

    ``streams`` become its standard input, output and error; with ``terminal``, the first is its controlling terminal.
    ``umask`` -1 is the caller's. ``mortal`` programs are killed by the kernel when the caller dies.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    directory: str
    streams: tuple[int, int, int]
    terminal: bool = False
    groups: Sequence[str] = ()
    mortal: bool = False
    umask: int = -1


def start(program: Program) -> int:
    """Start it and give its number, which is also its process group's. Raises :class:`CannotStart`."""
    told, tell = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(program, tell, parent)
    os.close(tell)
    with open(told, "rb") as file:
        problem = file.read()  # ends when the child executes or dies
    if problem:
        os.waitpid(pid, 0)
        status, _, message = problem.decode("utf-8", "replace").partition(" ")
        raise CannotStart(message, int(status))
    return pid


def _become(program: Program, tell: int, parent: int) -> None:
    """In the child: everything up to the execution. Never returns."""
    status = EXIT_FAILURE
    try:
        os.setsid()
        if program.mortal:
            die_with_parent(parent)
        for number, descriptor in enumerate(program.streams):
            os.dup2(descriptor, number)
        if program.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        cgroups.enter(program.groups)
        reset_signals()
        oom_score("0")
        os.chdir(program.directory)
        if program.umask >= 0:
            os.umask(program.umask)
        name = program.argv[0]
        found = shutil.which(name, path=program.env.get("PATH", os.defpath)) if "/" not in name else name
        if found is None or not os.path.exists(found):
            status = NOT_FOUND
            raise FileNotFoundError(errno.ENOENT, "command not found", name)
        status = NOT_EXECUTABLE
        os.execve(found, list(program.argv), dict(program.env))
    except OSError as error:
        _tell(tell, f"{status} {kernel.told(error)}")
    except BaseException as error:
        _tell(tell, f"{status} {error!r}")
    finally:
        os._exit(1)


def oom_score(text: str) -> None:
    """How the caller is chosen when memory runs out: -1000, never, to 1000, first. Only root may lower it."""
    with contextlib.suppress(OSError):
        files.write("/proc/self/oom_score_adj", text)


def _tell(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode("utf-8", "replace"))


def ended(wait_status: int) -> dict[str, int]:
    """How a process ended: ``status`` or ``signal``."""
    if os.WIFSIGNALED(wait_status):
        return {"signal": os.WTERMSIG(wait_status)}
    return {"status": os.WEXITSTATUS(wait_status)}
