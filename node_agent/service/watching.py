"""One job on this node as it is watched: how it receives, what waits in its sockets, what it has used.

Two paces. A *look* (about once a second) finds its processes, their sockets and what their threads did meanwhile. A
*poll* (every few milliseconds, while somebody could gain by it) asks the exact sockets found there, and nothing else.
"""

import socket
from collections.abc import Iterable
from typing import Final

from cosched.linux import job_signs
from cosched.linux.job_signs import MOST_SOCKETS, JobGroups, Seen, Thread, named, seen, shares_memory, threads
from cosched.linux.sock_diag import Inet, SockDiag
from cosched.model.coscheduling import Receives
from cosched.model.effort import Effort
from cosched.wire.messages import JobSigns
from cosched.wire.version_4 import with_seen
from node_agent.policy.raising import Key
from node_agent.policy.receives import LEAST_CPU_US, Counts, received, settled

#: A connection on which less comes between two looks carries no messages worth waiting for (a daemon's, say).
_LEAST_ARRIVALS: Final = 4
#: Counts of a look that is older than this say nothing of now (looks fail, or the agent was kept from them).
_FRESH_US: Final = 5_000_000
#: After its first looks a process is checked for shared memory once in so many.
_RARELY: Final = 64
_SHARED_MEMORY: Final = "shared memory on the node (not visible)"
_NOT_READABLE: Final = "others' sockets (not visible: the agent may not look at them; coscheduling.watch_messages)"


class Watching:
    """What is known of one attempt at a job. ``cpus``: how many its tasks can use here at most.

    ``watched``: names of processes, as the kernel has them, of which it is told whether they were there.
    """

    def __init__(self, key: Key, groups: JobGroups, cpus: int = 1, watched: Iterable[str] = ()) -> None:
        self.key = key
        self.cpus = cpus
        self.receives = Receives.UNKNOWN
        self.raises = 0
        self.cpu_us = 0
        self._name = f"job-{key[0]}.{key[1]}"
        self._groups = groups
        self.effort = Effort()
        self.ran_us = self.queued_us = 0  # of all threads that were there at two looks
        self._hidden = False  # whether there are processes and their threads may not be looked at
        self._looked_us = -_FRESH_US
        self._threads: dict[int, Thread] = {}
        self._kernel_us: dict[int, int] = {}  # of the busiest threads
        self._inet_before: dict[int, Inet] = {}
        self._polled: dict[int, int] = {}  # the same, at the last poll
        self._inet: tuple[Inet, ...] = ()
        self._unix: tuple[int, ...] = ()
        self._looks: dict[int, int] = {}  # by process: at how many looks it was there
        self._sharing: set[int] = set()  # processes that have been seen to share memory
        self._transports: tuple[str, ...] = ()
        self._watched = frozenset(watched)
        self._named: set[str] = set()  # of these, which have been seen

    def count_cpu(self) -> int:
        """What the job has used here so far, asked of the kernel and kept in ``cpu_us``."""
        self.cpu_us = self._groups.cpu_us(self._name)
        return self.cpu_us

    def signs(self, now_us: int) -> JobSigns:
        """For the scheduler. What threads have run is told only where it was looked at lately and could be seen."""
        known = not self._hidden and now_us - self._looked_us <= _FRESH_US
        used_us = (self.ran_us, self.queued_us) if known else (-1, -1)
        signs = JobSigns(*self.key, self.receives.value, self.raises, self._transports, self.effort, *used_us)
        return with_seen(signs, self._named) if self._named else signs

    def waiting(self, diag: SockDiag) -> bool:
        """Whether bytes wait to be read by the job now, or (of TCP) have come since this was asked. Raises OSError.

        Who receives all the time is seen to at each look, not only where it happens to find something unread.
        """
        came = False
        for now in diag.inet_now(self._inet) if self._inet else ():
            if now is not None:
                came = came or now.waiting_bytes > 0 or now.arrivals > self._polled.get(now.inode, now.arrivals)
                self._polled[now.inode] = now.arrivals
        return came or (bool(self._unix) and any(count > 0 for count in diag.unix_waiting(self._unix)))

    def look(self, inet: dict[int, Inet], now_us: int) -> None:
        """See how the job has received since the last look. ``inet``: a dump of all sockets, by inode."""
        self.count_cpu()
        pids = self._groups.pids(self._name)
        found = seen(pids, inet)
        busy = {pid: sum(map(self._came, sockets)) >= _LEAST_ARRIVALS for pid, sockets in found.inet.items()}
        now = threads(pids)
        how = self._judged(found, now, busy)
        self.receives = settled(self.receives, how)
        self._count(found, now, busy, how, now_us)
        self._hidden = bool(pids) and not now
        for thread in now:
            before = self._threads.get(thread.tid, thread)
            self.ran_us += max(0, thread.cpu_us - before.cpu_us)
            self.queued_us += max(0, thread.queued_us - before.queued_us)
        self._threads, self._looked_us = {thread.tid: thread for thread in now}, now_us
        self._inet_before = {each.inode: each for sockets in found.inet.values() for each in sockets}
        talking = [each for pid, sockets in found.inet.items() for each in sockets if busy[pid] or _is_udp(each)]
        self._inet = tuple(talking[:MOST_SOCKETS])
        self._polled = {each.inode: self._polled[each.inode] for each in self._inet if each.inode in self._polled}
        # who talks over TCP has Unix sockets to its launcher alone
        local = [] if any(busy.values()) else [inode for inodes in found.unix.values() for inode in inodes]
        self._unix = tuple(local[:MOST_SOCKETS])
        self._tell_transports(pids, found, busy)
        self._named |= named(pids, self._watched - self._named)

    def _judged(self, found: Seen, now: list[Thread], busy: dict[int, bool]) -> Receives:
        """By the busiest thread of those that get messages; else by the busiest that sleeps beside a Unix socket."""
        seen_last = [thread for thread in now if thread.tid in self._threads]
        seen_last.sort(key=self._ran_us, reverse=True)
        for thread in seen_last:
            if busy.get(thread.pid):
                return received(_counts(self._threads[thread.tid]), _counts(thread), messages=True)
        local = [thread for thread in seen_last if thread.pid in found.unix]
        ways = (received(_counts(self._threads[each.tid]), _counts(each), messages=True) for each in local)
        if Receives.BLOCKS in ways:
            return Receives.BLOCKS
        return Receives.NOTHING if seen_last else Receives.UNKNOWN

    def _ran_us(self, thread: Thread) -> int:
        """On a CPU since the last look; 0 for a thread that is new."""
        return thread.cpu_us - self._threads.get(thread.tid, thread).cpu_us

    def _count(self, found: Seen, now: list[Thread], busy: dict[int, bool], how: Receives, now_us: int) -> None:
        """Add what each process's busiest thread has done since the last look.

        What one does in the kernel, or asleep, while no message comes is no communication: it reads files, or waits for
        its children.
        """
        busiest: dict[int, Thread] = {}
        for thread in sorted(now, key=self._ran_us, reverse=True):
            busiest.setdefault(thread.pid, thread)
        before_us, self._kernel_us = self._kernel_us, {}
        for pid, thread in busiest.items():
            try:
                kernel_us = self._kernel_us[thread.tid] = job_signs.kernel_us(thread)
            except OSError:
                continue
            before = self._threads.get(thread.tid)
            if before is None or thread.tid not in before_us or thread.cpu_us - before.cpu_us < LEAST_CPU_US:
                continue
            ran_us, queued_us = thread.cpu_us - before.cpu_us, thread.queued_us - before.queued_us
            if not (busy.get(pid) or (how is Receives.BLOCKS and pid in found.unix)):
                self.effort = self.effort.plus(Effort(ran_us))
                continue
            asleep_us = max(0, now_us - self._looked_us - ran_us - queued_us)
            sockets = found.inet.get(pid, ())
            came = sum(map(self._came, sockets)), sum(map(self._came_bytes, sockets))
            self.effort = self.effort.plus(
                Effort(ran_us, max(0, min(ran_us, kernel_us - before_us[thread.tid])), asleep_us, *came)
            )

    def _came(self, connection: Inet) -> int:
        """How often data has come since the last look; nothing is known of a connection that is new.

        A number that has gone down is another connection's: it has the inode now.
        """
        return max(0, connection.arrivals - self._inet_before.get(connection.inode, connection).arrivals)

    def _came_bytes(self, connection: Inet) -> int:
        """How much that was."""
        return max(0, connection.received_bytes - self._inet_before.get(connection.inode, connection).received_bytes)

    def _tell_transports(self, pids: list[int], found: Seen, busy: dict[int, bool]) -> None:
        self._looks = {pid: self._looks.get(pid, 0) + 1 for pid in pids}
        checked = {pid for pid, looks in self._looks.items() if _is_checked(looks)} - self._sharing
        self._sharing = (self._sharing & self._looks.keys()) | {pid for pid in checked if shares_memory(pid)}
        there = {
            "tcp": any(busy.values()),
            "udp": any(_is_udp(each) for sockets in found.inet.values() for each in sockets),
            "unix": bool(self._unix) and self.receives is Receives.BLOCKS,
            _NOT_READABLE: not found.readable,
            _SHARED_MEMORY: len(self._sharing) > 1,
        }
        self._transports = tuple(sorted(name for name, is_there in there.items() if is_there))


def _counts(thread: Thread) -> Counts:
    return Counts(thread.cpu_us, thread.voluntary, thread.involuntary)


def _is_checked(looks: int) -> bool:
    """Whether a process is checked for shared memory at its so-manieth look.

    A rank has none before ``MPI_Init``, which on a loaded machine comes many looks after its start. To read a map of
    memory is dear, so that checks get rarer: at looks 1, 2, 4, 8 and so on, and at each 64th.
    """
    return looks & (looks - 1) == 0 or looks % _RARELY == 0


def _is_udp(connection: Inet) -> bool:
    return connection.protocol == socket.IPPROTO_UDP
