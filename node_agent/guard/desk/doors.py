"""The sockets at which the guard hears people, and who may keep them busy for how long.

``run/desk.sock`` is everybody's. Those who decide about this desk (root, the guard's user, ``security.desk_users``, who
is logged in at the machine) have one of their own as well, ``run/desk/UID.sock``, which the kernel lets nobody else but
root connect to: whatever strangers do at the other one, that one answers.

Each socket has its own budget of CPU: all strangers together use no more of the guard's time than one of them may. Who
connects has few places (:mod:`cosched.admission`), and has to say what he wants soon. Those who decide have places of
their own at every socket, so that strangers take none of them.
"""

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from cosched.admission import Bounds, NoPlace, Places
from cosched.linux import files, process
from cosched.linux.descriptors import short_of_descriptors
from cosched.linux.peers import peer_credentials
from node_agent.guard.base.budget import Budget
from node_agent.guard.base.loop import Loop
from node_agent.guard.base.sockets import listening

SOCKET_NAME: Final = "desk.sock"
DIRECTORY_NAME: Final = "desk"
#: Of one CPU, for each socket; and so much at once: of those who decide, for whom each pause freezes all jobs, more.
SHARE: Final = 0.01
MOST_US: Final = 50_000
MOST_OF_ONE_US: Final = 1_000_000
#: Connections that have said nothing yet at one socket: of strangers in all and of one; of those who decide.
_OF_STRANGERS: Final = Bounds(16, 2)
_OF_DECIDERS: Final = Bounds(16, 4)
_BACKLOG: Final = 128
_AT_ONCE: Final = 8
_MAX_BYTES: Final = 4096
_PATIENCE_US: Final = 5 * process.US_PER_S
_REST_US: Final = process.US_PER_S
_SO_PEERPIDFD: Final = 77  # socket(7)


class Peer(NamedTuple):
    """Who has connected: a process, as it was then, and its user. ``pid`` 0: one that cannot be seen from here.

    ``pidfd`` is its descriptor, None where it cannot be seen or had ended before it was let in.
    """

    pid: int
    uid: int
    pidfd: int | None = None

    def has_ended(self) -> bool:
        """Whether it has ended, as far as can be seen from here."""
        return self.pidfd is None or process.has_ended(self.pidfd)


Answer = Callable[[bytes, Peer], bytes]


_Places: TypeAlias = Places[int, socket.socket]


class _Guest(NamedTuple):
    """A connection that has not been answered."""

    peer: Peer
    places: _Places
    until_us: int


class _Door:
    """A listening socket, what may be spent on it, and the places of its users.

    ``path`` is absolute, or in the directory of own doors.
    """

    def __init__(self, listening: socket.socket, path: str, most_us: int, places: _Places) -> None:
        self.socket, self.path, self.places = listening, path, places
        self.budget = Budget(SHARE, most_us)


class DeskDoors:
    """The sockets. ``answer`` gets a packet and who has sent it."""

    def __init__(self, loop: Loop, run: str, answer: Answer) -> None:
        """Raises OSError where everybody's cannot be made."""
        self._loop = loop
        self._run = run
        self._answer = answer
        self._guests: dict[socket.socket, _Guest] = {}  # in the order in which they came
        self._own: dict[int, _Door] = {}
        path = os.path.abspath(os.path.join(run, SOCKET_NAME))
        self._public = _Door(listening(path, 0o111, _BACKLOG), path, MOST_US, Places(_OF_STRANGERS))
        self._deciders: _Places = Places(_OF_DECIDERS, replaces=True)  # at everybody's socket
        self._directory = _emptied(os.path.join(run, DIRECTORY_NAME))
        self._serve(self._public)

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted; None: nobody waits."""
        return next(iter(self._guests.values())).until_us if self._guests else None

    def tick(self, now_us: int) -> None:
        """Put out who has said nothing for too long."""
        while (until_us := self.due_us()) is not None and until_us <= now_us:
            self._leave(next(iter(self._guests)))

    def open_for(self, uids: set[int]) -> None:
        """Have doors for these users and no others. (Who runs a guard without rights makes his own alone.)"""
        uids = uids if os.geteuid() == 0 else uids & {os.geteuid()}
        for uid in self._own.keys() - uids:
            self._shut(self._own.pop(uid))
        if self._directory is not None:
            for uid in uids - self._own.keys():
                name = f"{uid}.sock"
                with contextlib.suppress(OSError):  # the public socket remains
                    # in a directory where the guard alone may write
                    made = listening(f"/proc/self/fd/{self._directory}/{name}", 0o177, _BACKLOG)
                    os.chown(name, uid, -1, dir_fd=self._directory, follow_symlinks=False)
                    self._own[uid] = _Door(made, name, MOST_OF_ONE_US, Places(_OF_DECIDERS, replaces=True))
                    self._serve(self._own[uid])

    def close(self) -> None:
        """Listen no more."""
        for each in list(self._guests):
            self._leave(each)
        self.open_for(set())
        self._shut(self._public)
        if self._directory is not None:
            os.close(self._directory)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(self._run, DIRECTORY_NAME))

    def _shut(self, door: _Door) -> None:
        self._loop.unwatch(door.socket.fileno())
        door.socket.close()
        with contextlib.suppress(OSError):
            os.unlink(door.path, dir_fd=self._directory)

    def _serve(self, door: _Door) -> None:
        self._loop.watch(door.socket.fileno(), lambda: self._knocked(door), budget=door.budget)

    def _knocked(self, door: _Door) -> None:
        for _ in range(_AT_ONCE):
            try:
                fresh, _ = door.socket.accept()
            except OSError as error:  # no connection waits, or the peer has closed it
                if short_of_descriptors(error):
                    self._loop.rest(door.socket.fileno(), _REST_US)  # it would be tried at once, again and again
                return
            self._admit(fresh, door)

    def _admit(self, fresh: socket.socket, door: _Door) -> None:
        """A place, beside the strangers' where the peer decides here; else it is closed."""
        fresh.setblocking(False)
        pid, uid, _ = peer_credentials(fresh)
        places = self._deciders if door is self._public and uid in self._own else door.places
        try:
            evicted = places.enter(fresh, uid)
        except NoPlace:
            fresh.close()
            return
        if evicted is not None:
            self._leave(evicted)
        self._guests[fresh] = _Guest(Peer(pid, uid, _pidfd(fresh, pid)), places, process.boottime_us() + _PATIENCE_US)
        self._loop.watch(
            fresh.fileno(), lambda: self._hear(fresh), on_failed=lambda: self._leave(fresh), budget=door.budget
        )

    def _hear(self, connection: socket.socket) -> None:
        try:
            packet = connection.recv(_MAX_BYTES)
            if packet:
                connection.send(self._answer(packet, self._guests[connection].peer))
        except BlockingIOError:
            return  # the news was of a connection that had this descriptor before
        except OSError:
            pass  # the peer has gone
        self._leave(connection)

    def _leave(self, connection: socket.socket) -> None:
        guest = self._guests.pop(connection, None)
        if guest is not None:
            guest.places.leave(connection)
            self._loop.unwatch(connection.fileno())
            connection.close()
            if guest.peer.pidfd is not None:
                os.close(guest.peer.pidfd)


def _pidfd(connection: socket.socket, pid: int) -> int | None:
    """A descriptor of who has connected; None where it has ended, or cannot be seen from here.

    From the socket where the kernel has that (6.5): else another process may have got the number by now.
    """
    if pid == 0:  # nobody could say whether it is a job's
        return None
    with contextlib.suppress(OSError):
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    with contextlib.suppress(OSError):
        return os.pidfd_open(pid)
    return None


def _emptied(path: str) -> int | None:
    """The directory of own doors, without a predecessor's; None where there can be none."""
    try:
        directory = files.own_directory(path, 0o711)  # whose doors there are is not listed: who is at the machine
    except OSError:
        return None
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
    return directory
