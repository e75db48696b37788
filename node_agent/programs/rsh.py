"""``cosched-rsh [-l USER] [-n] [OPTION…] HOST COMMAND…``: a remote shell for launchers, through the node's agent.

``mpirun`` and its like call it in place of ssh. It takes ssh's options (and does nothing for most of them), gives HOST
and COMMAND to the agent of this node, and passes on standard input, output, error, signals and the exit status. Which
job it belongs to, the agent finds out by itself. Exit status 255: it could not be run, and the message says why. When
an agent on the way is started anew, it asks again, and goes on where it was.

Run as a file by ``python -I -S``: it starts in a few milliseconds, so it imports C modules alone and repeats the few
lines of ``cosched.wire.stream`` that it needs.
"""

import _signal  # type: ignore[import-not-found]
import os
import select
import sys
import time
from _json import encode_basestring_ascii as quoted
from _socket import AF_UNIX, SO_SNDTIMEO, SOCK_CLOEXEC, SOCK_STREAM, SOL_SOCKET
from _socket import socket as Socket

REQUEST, STDIN, EOF, SIGNAL, STDOUT, STDERR, EXIT, FAIL, CHALLENGE, ATTACHED, TAKEN, ACK, HANGUP, AWAY = range(1, 15)
_FROM_AGENT = (STDOUT, STDERR, EXIT, FAIL, ATTACHED, TAKEN, AWAY)
MAX_PIECE = 64 << 10
# What a pipe that is ready takes without blocking (PIPE_BUF).
_PIECE_OUT = 4096
_FAILED = 255
#: So much of standard input may be on its way; what the other end may have on its way is its own to say.
_WINDOW = 4 * MAX_PIECE
# How long agents are waited for: that were there, and that have not been seen yet.
_PATIENCE_S, _FIRST_PATIENCE_S = 60.0, 5.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
#: For how long one attempt waits to be let in, as the kernel takes it: seconds and microseconds.
_TURN = b"".join(number.to_bytes(8, sys.byteorder) for number in (2, 0))
_WITH_VALUE = "bBcDEeFIiJlLmOopQRSWw"
_WITHOUT = "46AaCGgKkMnqsTtVvXxYy"
_REFUSED = "DfJLNORW"  # forwarding, background, other hosts: things that no launcher needs
_FORWARDED = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGUSR1, _signal.SIGUSR2)


class Unusable(Exception):
    """It cannot be done; the message is for people."""


def parsed(arguments: list[str]) -> tuple[str, str, str, bool]:
    """Host, command, user (empty: one's own) and whether standard input is left alone, from ssh's arguments."""
    user, no_input, left = "", False, [*arguments]
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        for place, letter in enumerate(word[1:], 1):
            if letter in _REFUSED:
                raise Unusable(f"option -{letter} is not supported")
            if letter in _WITH_VALUE:
                value = word[place + 1 :]
                if not value:
                    if not left:
                        raise Unusable(f"option -{letter} needs a value")
                    value = left.pop(0)
                user = value if letter == "l" else user
                break
            if letter not in _WITHOUT:
                raise Unusable(f"unknown option -{letter}")
            no_input = no_input or letter == "n"
    if not left:
        raise Unusable("a host is missing; usage: cosched-rsh [-l USER] [-n] HOST COMMAND…")
    before, sign, host = left.pop(0).rpartition("@")
    user = before if sign else user
    if not left:
        raise Unusable(f"a command to run on {host} is missing: there is no remote login")
    return host, " ".join(left), user, no_input


def check_user(user: str) -> None:
    """Refuse to be anybody else."""
    import pwd  # noqa: PLC0415 (rarely needed)

    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        uid = -1
    if uid != os.getuid():
        raise Unusable(f"a job's commands run as its own user; -l {user} is another")


def frame(kind: int, data: bytes = b"") -> bytes:
    """One frame of ``cosched.wire.stream``."""
    return kind.to_bytes(1, "big") + len(data).to_bytes(4, "big") + data


def _take_name() -> None:
    """Be ``cosched-rsh`` for the kernel too, however it was run: the guard tells it from ranks by that."""
    try:
        with open("/proc/self/comm", "wb", buffering=0) as own:
            own.write(b"cosched-rsh")
    except OSError:
        pass  # a kernel, or a sandbox, without it


def main(arguments: list[str]) -> int:
    """Run it, and return the exit status."""
    _take_name()
    for number in (0, 1, 2):  # one that is closed would become the connection's
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    host = ""
    try:
        host, command, user, no_input = parsed(arguments)
        if user:
            check_user(user)
        asked = f'"host":{quoted(host)},"command":{quoted(command)}'
        if len(asked) > MAX_PIECE - 200:
            raise Unusable(f"a command of {len(command)} bytes is too long")
        path = os.environ.get("COSCHED_AGENT_SOCKET")
        patience_s = _FIRST_PATIENCE_S if path else 0.0  # outside a job nobody need be there
        return Session(path or "/run/cosched/agent.sock", asked, no_input, patience_s).run()
    except Unusable as error:
        words = f"cosched-rsh: {host}: {error}\n" if host else f"cosched-rsh: {error}\n"
        if str(error):  # nothing to tell: the job is being killed, and this command with it
            os.write(2, words.encode(errors="replace"))
        return _FAILED


class Session:
    """One remote command, from here on nothing but bytes to and fro, over as many connections as it takes.

    The other end is the command's supervisor. What it has not taken yet is kept here; what has not arrived here is kept
    there (``cosched.wire.stream``). So an agent in between may be started anew, and the command notices nothing.
    """

    def __init__(self, path: str, asked: str, no_input: bool, patience_s: float) -> None:
        """``asked`` is the request's host and command as JSON; the agent is waited for that long."""
        self.path, self.asked = path, asked
        self.id = os.urandom(16).hex()
        self.connection: Socket | None = None
        self.problem = ""
        self.attached = False
        self.seen = False  # an agent on the way took a call and went without a word: it was there, and comes again
        self.away = False  # on this connection the agent said why it is not possible now
        self.calls = 0
        self.pause_s = _PAUSE_S
        self.next_call_s = 0.0
        self.give_up_s = time.monotonic() + patience_s
        self.outgoing = bytearray()
        self.incoming = bytearray()
        self.received, self.written, self.told = [0, 0], [0, 0], 0  # bytes of standard output and error
        self.done = 0  # frames of ours that the other end has done with; ``kept`` come after those
        self.kept: list[bytes] = []
        self.kept_bytes = 0
        self.writing: tuple[int, bytes] | None = None  # to which descriptor, what is left of a piece
        self.input_open = not no_input
        if no_input:
            self.say(EOF)
        self.woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in _FORWARDED:
            if _signal.getsignal(number) is not _signal.SIG_IGN:  # nohup stays in force
                _signal.signal(number, lambda *_: None)

    def run(self) -> int:
        """Until the command has ended."""
        while True:
            if self.connection is None and time.monotonic() >= self.next_call_s:
                self.call()
            status = self.step(self.wait())
            if status is not None:
                return status

    def wait(self) -> dict[int, int]:
        """What is ready, by descriptor."""
        poll = select.poll()
        poll.register(self.woken, select.POLLIN)
        if self.connection is not None:
            wanted = (select.POLLOUT if self.outgoing else 0) | (0 if self.writing else select.POLLIN)
            if wanted:  # else a connection that was closed would wake us again and again
                poll.register(self.connection.fileno(), wanted)
        if self.input_open and self.kept_bytes < _WINDOW:
            poll.register(0, select.POLLIN)
        if self.writing:
            poll.register(self.writing[0], select.POLLOUT)
        idle_s = None if self.connection is not None else max(0.0, self.next_call_s - time.monotonic())
        return dict(poll.poll(None if idle_s is None else idle_s * 1000 + 1))

    def step(self, ready: dict[int, int]) -> int | None:
        """Do what is possible now; the exit status once there is one."""
        if self.woken in ready:
            for number in os.read(self.woken, 64):
                self.say(SIGNAL, str(number).encode())
        if self.input_open and 0 in ready:
            self.read_input()
        connection = self.connection
        connected = ready.get(connection.fileno(), 0) if connection is not None else 0
        if connection is not None and connected & select.POLLOUT:
            self.send(connection)
        if self.writing and self.writing[0] in ready:
            self.write(*self.writing)
        elif connection is not None and connected & ~select.POLLOUT and not self.writing:
            self.receive(connection)
        return self.handle()

    def call(self) -> None:
        """Ask the agent for the command, or for the rest of it."""
        connection = Socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
        try:  # in turn with others who want in: without waiting, whoever tries most often would be first
            connection.setsockopt(SOL_SOCKET, SO_SNDTIMEO, _TURN)
            connection.connect(self.path)
            connection.setblocking(False)
        except OSError as error:
            connection.close()
            self.lost(f"no agent at {self.path}: {error.strerror or error}")
            return
        self.connection, self.away = connection, False
        stands = f'"id":"{self.id}","stdout":{self.received[0]},"stderr":{self.received[1]}'
        again = "true" if self.calls else "false"
        self.outgoing = bytearray(frame(REQUEST, f'{{{self.asked},{stands},"again":{again}}}'.encode("ascii")))
        self.calls += 1
        self.incoming.clear()

    def lost(self, why: str) -> None:
        """No connection any more: another one soon, unless that has been tried for long enough."""
        self.problem = self.problem or why
        now_s = time.monotonic()
        if self.attached or (self.connection is not None and not self.away and not self.seen):
            self.give_up_s = now_s + _PATIENCE_S
            self.seen = True
        if now_s >= self.give_up_s:
            raise Unusable(self.problem)
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self.attached = False
        self.outgoing.clear()
        self.next_call_s = now_s + self.pause_s
        self.pause_s = min(2 * self.pause_s, _LONGEST_PAUSE_S)

    def say(self, kind: int, data: bytes = b"") -> None:
        """A frame that must arrive once: kept until it is done with."""
        self.kept.append(frame(kind, data))
        self.kept_bytes += len(self.kept[-1])
        if self.attached:
            self.outgoing += self.kept[-1]

    def send(self, connection: Socket) -> None:
        """To the agent, what it takes."""
        try:
            sent = connection.send(self.outgoing)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self.outgoing)  # what it had to say before it closed is still to be read
        del self.outgoing[:sent]

    def read_input(self) -> None:
        """A piece of standard input."""
        try:
            data = os.read(0, MAX_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.input_open = bool(data)
        self.say(STDIN if data else EOF, data)

    def receive(self, connection: Socket) -> None:
        """What the agent sent."""
        data, why = b"", "the agent's connection broke"
        try:
            data = connection.recv(MAX_PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            why = f"{why}: {error.strerror or error}"
        if data:
            self.incoming += data
        else:
            self.lost(why)

    def write(self, number: int, data: bytes) -> None:
        """To standard output or error, as much as they take without blocking."""
        try:
            written = os.write(number, data[:_PIECE_OUT])
        except BlockingIOError:
            return
        except OSError:
            if number == 1:
                raise SystemExit(_FAILED) from None  # nobody reads it: as if SIGPIPE had come
            written = len(data)
        self.writing = (number, data[written:]) if written < len(data) else None
        self.written[number - 1] += written
        if self.attached and not self.writing and sum(self.written) - self.told >= MAX_PIECE:
            self.told = sum(self.written)
            self.outgoing += frame(ACK, b"".join(count.to_bytes(8, "big") for count in self.written))

    def handle(self) -> int | None:
        """The frames that are complete, until one of them has to be written out."""
        while not self.writing and len(self.incoming) >= 5:
            kind, end = self.incoming[0], 5 + int.from_bytes(self.incoming[1:5], "big")
            if kind not in _FROM_AGENT or end > 5 + MAX_PIECE:
                raise Unusable("the agent said what is not a frame")
            if len(self.incoming) < end:
                return None
            data = bytes(self.incoming[5:end])
            del self.incoming[:end]
            if kind == FAIL:
                raise Unusable(data.decode(errors="replace"))
            if kind == EXIT:
                return exit_status(data)
            if kind == AWAY:
                self.away = True
                self.problem = data.decode(errors="replace")
            elif kind in (ATTACHED, TAKEN):
                self.taken(int.from_bytes(data, "big"), first=kind == ATTACHED)
            elif data:
                number = 1 if kind == STDOUT else 2
                self.received[number - 1] += len(data)
                self.writing = (number, data)
        return None

    def taken(self, count: int, *, first: bool) -> None:
        """So many of our frames are done with; or on a new connection, have arrived there, and it goes on from here."""
        if not self.done <= count <= self.done + len(self.kept):
            raise Unusable("the agent counts what was not sent")
        if first:
            self.attached, self.problem, self.pause_s = True, "", _PAUSE_S
            self.outgoing += b"".join(self.kept[count - self.done :])
        else:
            self.kept_bytes -= sum(map(len, self.kept[: count - self.done]))
            del self.kept[: count - self.done]
            self.done = count


def exit_status(document: bytes) -> int:
    """From ``{"status": 3}``, or ``{"signal": 9}`` as a shell has it: 128 and the number."""
    words = document.replace(b"{", b" ").replace(b"}", b" ").replace(b":", b" ").split()
    try:
        number = int(words[words.index(b'"status"') + 1 if b'"status"' in words else words.index(b'"signal"') + 1])
    except (ValueError, IndexError):
        raise Unusable("how the command ended is not known") from None
    return (number if b'"status"' in words else 128 + number) & 0xFF


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
