"""``witness.py RANK-PID DAEMON-PID [LAUNCHER...]``: sees one rank of an MPI program end, and says which ended badly.

``cosched-rank`` starts it, waits until it closes standard output, and becomes the rank. So the rank is a child of
``mpirun`` or of its daemon on this node: Open MPI 5's deadlocks or crashes when a rank that is somebody else's child
is killed while it starts. ``mpirun`` itself does not always say which rank it was, and sometimes does not see that one
is gone; then it would wait until the job's limit, and is killed here.

Launchers are commands that are stuck where they sleep on without the rank, whatever they wait for.

It is in the rank's process group: what is ended together with its group ends this too, and nothing is said. Run as a
file by ``python -I -S``, so it imports next to nothing.
"""

import _signal  # type: ignore[import-not-found]
import contextlib
import fcntl
import os
import select
import struct
import sys
import time

#: ``struct pidfd_info`` as far as its exit code, and the ioctl that fills it in (Linux 6.15 has exit codes).
_INFO = struct.Struct("=QQ11Ii")
_PIDFD_GET_INFO = 0xC000FF0B | _INFO.size << 16
_PIDFD_INFO_EXIT = 1 << 3
#: How long a daemon may take to end the job after a rank has ended badly, and of that asleep without a pause.
_PATIENCE_S, _ASLEEP_S, _LOOK_S = 5.0, 3.0, 0.25
#: Words of who wants a job to go on without the rank: in ``mpirun``'s arguments, or set for its ranks.
_GOES_ON = (b"recover", b"continuous", b"with-ft")
_GOES_ON_SET = "OMPI_MCA_mpi_ft_enable"


def fields(pid: int) -> list[str]:
    """Of ``/proc/PID/stat``, from the state on; empty where there is no such process."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def read(path: str) -> bytes:
    """A file's bytes; none where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def exit_code(pid: int, pidfd: int) -> int | None:
    """How the process of that descriptor ended, as wait(2) has it; None where it was reaped and nobody can tell."""
    found = fields(pid)
    if found and found[0] in "ZX":
        return int(found[49])
    try:
        told = fcntl.ioctl(pidfd, _PIDFD_GET_INFO, _INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13))
    except OSError:
        return None
    mask, *_, code = _INFO.unpack(told)
    return code if mask & _PIDFD_INFO_EXIT else None


def ended(fd: int, timeout_s: float | None) -> bool:
    """Whether the process of that descriptor ends within so many seconds."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))


def is_stuck(pid: int, launchers: tuple[str, ...]) -> bool:
    """Whether a daemon is asleep as one is that will never end: in a lock, or, a launcher itself, in anything."""
    state = fields(pid)
    if not state or state[0] != "S":
        return False
    name = read(f"/proc/{pid}/comm").decode(errors="replace")
    return name.startswith(launchers) or b"futex" in read(f"/proc/{pid}/wchan")


def goes_on(daemon: int) -> bool:
    """Whether the job is meant to go on without a rank."""
    words = read(f"/proc/{daemon}/cmdline")
    return os.environ.get(_GOES_ON_SET, "0") not in ("0", "false") or any(word in words for word in _GOES_ON)


def print_words(words: str, *ways: int | str) -> None:
    """Write a line to the first way that takes it."""
    for way in ways:
        try:
            fd = way if isinstance(way, int) else os.open(way, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
            os.write(fd, f"{words}\n".encode())
            return
        except OSError:
            continue


def watch_over(daemon: int, daemon_fd: int, words: str, launchers: tuple[str, ...]) -> None:
    """Have the daemon end within its time; who is stuck is killed, and what it may have swallowed is said again."""
    began_s = awake_s = time.monotonic()
    while not ended(daemon_fd, _LOOK_S):
        now_s = time.monotonic()
        if not is_stuck(daemon, launchers):
            awake_s = now_s
        if now_s - began_s >= _PATIENCE_S and now_s - awake_s >= _ASLEEP_S and not goes_on(daemon):
            print_words(words, f"/proc/{daemon}/fd/2")
            with contextlib.suppress(OSError):
                _signal.pidfd_send_signal(daemon_fd, _signal.SIGKILL)
            return


def main(rank_pid: int, daemon: int, launchers: tuple[str, ...]) -> None:
    """Wait for the rank's end, and do what is to be done then."""
    os.closerange(3, 1024)
    try:
        daemon_fd = os.pidfd_open(daemon)
        pidfd = os.pidfd_open(rank_pid)
    except ProcessLookupError:
        pidfd = -1  # it was killed while it waited for this
    except OSError:
        return  # a kernel without such descriptors: mpirun alone can tell
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)  # now the rank may go on
    code: int | None = int(_signal.SIGKILL)
    if pidfd >= 0:
        ended(pidfd, None)
        code = exit_code(rank_pid, pidfd)
    if not code:
        return
    status = 128 + (code & 0x7F) if code & 0x7F else code >> 8
    rank = os.environ.get("PMIX_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK", "")
    words = f"cosched: rank {rank} ended with status {status}"
    print_words(words, 2)
    os.dup2(null, 2)  # the daemon may wait for the end of what a rank prints
    watch_over(daemon, daemon_fd, words, launchers)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]))
