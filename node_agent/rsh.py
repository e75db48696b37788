"""``cosched-rsh [-l USER] [-n] [OPTION…] HOST COMMAND…``: a remote shell for launchers, through the node's agent.

``mpirun`` and its like call it in place of ssh. It takes ssh's options (and does nothing for most of them), gives HOST
and COMMAND to the agent of this node, and passes on standard input, output, error, signals and the exit status. Which
job it belongs to, the agent finds out by itself. Exit status 255: it could not be run, and the message says why.

Run as a file by ``python -I -S``: it starts in a few milliseconds, so it imports C modules alone and repeats the few
lines of ``cosched.wire.stream`` that it needs.
"""

import _signal  # type: ignore[import-not-found]
import os
import select
import sys
from _json import encode_basestring_ascii as quoted
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_STREAM
from _socket import socket as Socket

REQUEST, STDIN, EOF, SIGNAL, STDOUT, STDERR, EXIT, FAIL = range(1, 9)
MAX_PIECE = 64 << 10
# What a pipe that is ready takes without blocking (PIPE_BUF).
_PIECE_OUT = 4096
_FAILED = 255
_WITH_VALUE = "bBcDEeFIiJlLmOopQRSWw"
_WITHOUT = "46AaCGgKkMnqsTtVvXxYy"
_REFUSED = "DfJLNORW"  # forwarding, background, other hosts: things that no launcher needs
_FORWARDED = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGUSR1, _signal.SIGUSR2)


class Unusable(Exception):
    """It cannot be done; the message is for people."""


def parsed(arguments: list[str]) -> tuple[str, str, str, bool]:
    """Host, command, user (empty: one's own) and whether standard input is left alone, from ssh's arguments."""
    user, no_input, at = "", False, 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-":
        word = arguments[at]
        at += 1
        if word == "--":
            break
        for place, letter in enumerate(word[1:], 1):
            if letter in _REFUSED:
                raise Unusable(f"option -{letter} is not supported")
            if letter in _WITH_VALUE:
                value = word[place + 1 :]
                if not value:
                    if at == len(arguments):
                        raise Unusable(f"option -{letter} needs a value")
                    value = arguments[at]
                    at += 1
                user = value if letter == "l" else user
                break
            if letter not in _WITHOUT:
                raise Unusable(f"unknown option -{letter}")
            no_input = no_input or letter == "n"
    if at == len(arguments):
        raise Unusable("a host is missing; usage: cosched-rsh [-l USER] [-n] HOST COMMAND…")
    before, sign, host = arguments[at].rpartition("@")
    user = before if sign else user
    if at + 1 == len(arguments):
        raise Unusable(f"a command to run on {host} is missing: there is no remote login")
    return host, " ".join(arguments[at + 1 :]), user, no_input


def check_user(user: str) -> None:
    """Refuse to be anybody else."""
    import pwd  # noqa: PLC0415 (rarely needed)

    try:
        if pwd.getpwnam(user).pw_uid == os.getuid():
            return
    except KeyError:
        pass
    raise Unusable(f"a job's commands run as its own user; -l {user} is another")


def frame(kind: int, data: bytes = b"") -> bytes:
    """One frame of ``cosched.wire.stream``."""
    return kind.to_bytes(1, "big") + len(data).to_bytes(4, "big") + data


def opened(path: str) -> "Socket":
    """A connection to the agent."""
    connection = Socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
    try:
        connection.connect(path)
    except OSError as error:
        raise Unusable(f"no agent at {path}: {error.strerror or error}") from None
    return connection


def main(arguments: list[str]) -> int:
    """Run it, and return the exit status."""
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
        try:
            request = f'{{"host":{quoted(host)},"command":{quoted(command)}}}'.encode("ascii")
        except UnicodeEncodeError:
            raise Unusable("a command that is not text") from None
        if len(request) > MAX_PIECE:
            raise Unusable(f"a command of {len(command)} bytes is too long")
        connection = opened(os.environ.get("COSCHED_AGENT_SOCKET") or "/run/cosched/agent.sock")
        return Session(connection, frame(REQUEST, request), no_input).run()
    except Unusable as error:
        words = f"cosched-rsh: {host}: {error}\n" if host else f"cosched-rsh: {error}\n"
        os.write(2, words.encode(errors="replace"))
        return _FAILED


class Session:
    """One remote command, from here on nothing but bytes to and fro."""

    def __init__(self, connection: "Socket", request: bytes, no_input: bool) -> None:
        self.connection = connection
        self.outgoing = bytearray(request)
        self.incoming = bytearray()
        self.writing: tuple[int, bytes] | None = None  # to which descriptor, what is left of a piece
        self.input_open = not no_input
        if no_input:
            self.outgoing += frame(EOF)
        self.woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in _FORWARDED:
            if _signal.getsignal(number) is not _signal.SIG_IGN:  # nohup stays in force
                _signal.signal(number, lambda *_: None)

    def run(self) -> int:
        """Until the command has ended."""
        connection = self.connection.fileno()
        self.connection.setblocking(False)
        while True:
            poll = select.poll()
            poll.register(self.woken, select.POLLIN)
            wanted = (select.POLLOUT if self.outgoing else 0) | (0 if self.writing else select.POLLIN)
            if wanted:  # else a connection that was closed would wake us again and again
                poll.register(connection, wanted)
            if self.input_open and not self.outgoing:
                poll.register(0, select.POLLIN)
            if self.writing:
                poll.register(self.writing[0], select.POLLOUT)
            ready = dict(poll.poll())
            status = self.step(ready, connection)
            if status is not None:
                return status

    def step(self, ready: dict[int, int], connection: int) -> int | None:
        """Do what is possible now; the exit status once there is one."""
        if self.woken in ready:
            for number in os.read(self.woken, 64):
                self.outgoing += frame(SIGNAL, str(number).encode())
        if ready.get(connection, 0) & select.POLLOUT:
            self.send()
        if self.input_open and 0 in ready:
            self.read_input()
        if self.writing and self.writing[0] in ready:
            self.write()
        elif ready.get(connection, 0) & ~select.POLLOUT and not self.writing:
            self.receive()
        return self.handle()

    def send(self) -> None:
        """To the agent, what it takes."""
        try:
            sent = self.connection.send(self.outgoing)
        except BlockingIOError:
            return
        except OSError:
            self.outgoing.clear()  # what it had to say before it closed is still to be read
            self.input_open = False
            return
        del self.outgoing[:sent]

    def read_input(self) -> None:
        """A piece of standard input."""
        try:
            data = os.read(0, MAX_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.outgoing += frame(STDIN, data)
        else:
            self.input_open = False
            self.outgoing += frame(EOF)

    def receive(self) -> None:
        """What the agent sent."""
        try:
            data = self.connection.recv(MAX_PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            raise Unusable(f"the agent's connection broke: {error.strerror or error}") from None
        if not data:
            raise Unusable("the agent's connection broke")
        self.incoming += data

    def write(self) -> None:
        """To standard output or error, as much as they take without blocking."""
        assert self.writing
        number, data = self.writing
        try:
            written = os.write(number, data[:_PIECE_OUT])
        except BlockingIOError:
            return
        except OSError:
            if number == 1:
                raise SystemExit(_FAILED) from None  # nobody reads it: as if SIGPIPE had come
            written = len(data)
        self.writing = (number, data[written:]) if written < len(data) else None

    def handle(self) -> int | None:
        """The frames that are complete, until one of them has to be written out."""
        while not self.writing and len(self.incoming) >= 5:
            kind, end = self.incoming[0], 5 + int.from_bytes(self.incoming[1:5], "big")
            if kind not in (STDOUT, STDERR, EXIT, FAIL) or end > 5 + MAX_PIECE:
                raise Unusable("the agent said what is not a frame")
            if len(self.incoming) < end:
                return None
            data = bytes(self.incoming[5:end])
            del self.incoming[:end]
            if kind == FAIL:
                raise Unusable(data.decode(errors="replace"))
            if kind == EXIT:
                return exit_status(data)
            if data:
                self.writing = (1 if kind == STDOUT else 2, data)
        return None


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
