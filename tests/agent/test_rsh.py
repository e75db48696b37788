"""``cosched-rsh`` by itself: ssh's arguments, and its end of the stream, against an agent that is a socket."""

import contextlib
import json
import os
import pwd
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

from cosched.wire import stream
from cosched.wire.stream import MAX_PIECE, Frames, Kind, frame
from node_agent.programs import rsh

PROGRAM = [sys.executable, "-I", "-S", rsh.__file__]


def patient(seen_s: float, unseen_s: float) -> list[str]:
    """The program, which waits so long for an agent that has been there, and for one that has not been seen yet."""
    text = (
        f"import os, sys; sys.path.append({str(Path(rsh.__file__).parent)!r}); import rsh; "
        f"rsh._PATIENCE_S, rsh._FIRST_PATIENCE_S = {seen_s}, {unseen_s}; os._exit(rsh.main(sys.argv[1:]))"
    )
    return [sys.executable, "-I", "-S", "-c", text]


@pytest.mark.parametrize(
    ("arguments", "host", "command", "user", "no_input"),
    [
        (["b", "echo", "1 2"], "b", "echo 1 2", "", False),
        (["-n", "b", "true"], "b", "true", "", True),
        (["-x", "-l", "ann", "b", "true"], "b", "true", "ann", False),
        (["-lann", "b", "true"], "b", "true", "ann", False),
        (["ann@b", "true"], "b", "true", "ann", False),
        (["-o", "BatchMode=yes", "-xnT", "-p", "22", "--", "b", "ls", "-l"], "b", "ls -l", "", True),
        (["-oBatchMode=yes", "b", "-n"], "b", "-n", "", False),
    ],
)
def test_arguments_as_ssh_has_them(arguments: list[str], host: str, command: str, user: str, no_input: bool) -> None:
    assert rsh.parsed(arguments) == (host, command, user, no_input)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a host is missing"),
        (["-n"], "a host is missing"),
        (["b"], "a command to run on b is missing"),
        (["-l"], "option -l needs a value"),
        (["-L", "1:h:1", "b", "true"], "option -L is not supported"),
        (["-Z", "b", "true"], "unknown option -Z"),
    ],
)
def test_what_it_cannot_do_it_says(arguments: list[str], message: str) -> None:
    with pytest.raises(rsh.Unusable, match=message):
        rsh.parsed(arguments)


def test_it_speaks_the_frames_of_the_wire() -> None:
    assert {kind.name: getattr(rsh, kind.name) for kind in Kind} == {kind.name: kind.value for kind in Kind}
    assert rsh.MAX_PIECE == stream.MAX_PIECE
    assert rsh.frame(rsh.STDIN, b"abc") == frame(Kind.STDIN, b"abc")


@pytest.mark.parametrize(("document", "status"), [({"status": 3}, 3), ({"signal": 9}, 137), ({"status": 0}, 0)])
def test_exit_statuses(document: dict[str, int], status: int) -> None:
    assert rsh.exit_status(json.dumps(document).encode()) == status


@pytest.mark.parametrize("document", [b"", b"{}", b'{"status": null}', b"\xff"])
def test_an_end_that_is_not_known_is_never_a_success(document: bytes) -> None:
    with pytest.raises(rsh.Unusable, match="not known"):
        rsh.exit_status(document)


class Agent:
    """A socket where the agent's would be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.listener.settimeout(BOUND_S)
        self.frames = Frames()
        self.got: list[tuple[Kind, bytes]] = []
        self.connection: socket.socket | None = None

    def start(self, *arguments: str, program: Sequence[str] = PROGRAM, **more: object) -> "subprocess.Popen[bytes]":
        settings = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        environment = {"COSCHED_AGENT_SOCKET": str(self.path)}
        process = subprocess.Popen([*program, *arguments], env=environment, **settings)  # type: ignore[call-overload]
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(BOUND_S)
        return process  # type: ignore[no-any-return]

    def next(self) -> tuple[Kind, bytes]:
        assert self.connection is not None
        while not self.got:
            data = self.connection.recv(MAX_PIECE)
            assert data, "cosched-rsh has closed the connection"
            self.got += self.frames.feed(data)
        return self.got.pop(0)

    def attached(self, seen: int = 0) -> dict[str, object]:
        """Take the request, which is the answer, and have it that so many of the caller's frames have arrived."""
        kind, data = self.next()
        assert kind is Kind.REQUEST
        self.say(Kind.ATTACHED, seen.to_bytes(8, "big"))
        document: dict[str, object] = json.loads(data)
        return document

    def again(self) -> None:
        """Break the connection off, and take the next one."""
        assert self.connection is not None
        self.connection.close()
        self.frames, self.got = Frames(), []
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(BOUND_S)

    def say(self, kind: Kind, data: bytes = b"") -> None:
        assert self.connection is not None
        self.connection.sendall(frame(kind, data))

    def close(self) -> None:
        self.listener.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path / "agent.sock")
    yield made
    made.close()


def test_request_input_output_and_status(agent: Agent) -> None:
    process = agent.start("b", 'echo "ä\\" $X"')
    request = agent.attached()
    name = request.pop("id")
    assert isinstance(name, str)
    assert len(name) == 32
    assert request == {"host": "b", "command": 'echo "ä\\" $X"', "stdout": 0, "stderr": 0, "again": False}
    assert process.stdin is not None
    process.stdin.write(b"in")
    process.stdin.close()
    process.stdin = None
    assert agent.next() == (Kind.STDIN, b"in")
    assert agent.next() == (Kind.EOF, b"")
    agent.say(Kind.STDERR, b"err")
    agent.say(Kind.STDOUT, b"out")
    agent.say(Kind.EXIT, b'{"status": 7}')
    assert process.communicate(timeout=BOUND_S) == (b"out", b"err")
    assert process.returncode == 7


def test_a_failure_is_255_with_its_reason(agent: Agent) -> None:
    process = agent.start("-n", "b", "true")
    agent.next()
    agent.say(Kind.FAIL, b"b cannot be reached")
    assert process.communicate(timeout=BOUND_S) == (b"", b"cosched-rsh: b: b cannot be reached\n")
    assert process.returncode == 255


def test_an_agent_that_dies_is_255(agent: Agent) -> None:
    process = agent.start("-n", "b", "true", program=patient(seen_s=1, unseen_s=1000))
    agent.next()
    agent.close()
    assert process.communicate(timeout=BOUND_S) == (b"", b"cosched-rsh: b: the agent's connection broke\n")
    assert process.returncode == 255


def test_an_agent_that_goes_before_it_has_told_of_the_command_is_awaited_as_one_that_was_there(agent: Agent) -> None:
    process = agent.start("-n", "b", "true", program=patient(seen_s=BOUND_S, unseen_s=0))
    agent.next()
    agent.again()
    assert agent.attached()["again"] is True
    agent.say(Kind.EXIT, b'{"status": 0}')
    assert process.communicate(timeout=BOUND_S) == (b"", b"")
    assert process.returncode == 0


def test_an_agent_that_says_why_it_is_not_possible_now_is_not_the_one_that_was_asked_for(
    agent: Agent,
) -> None:
    process = agent.start("-n", "b", "true", program=patient(seen_s=1000, unseen_s=0))
    agent.next()
    agent.say(Kind.AWAY, b"b cannot be reached")
    agent.close()
    assert process.communicate(timeout=BOUND_S) == (b"", b"cosched-rsh: b: b cannot be reached\n")
    assert process.returncode == 255


def test_an_agent_that_goes_again_and_again_is_not_awaited_for_ever(agent: Agent) -> None:
    process = agent.start("-n", "b", "true", program=patient(seen_s=1, unseen_s=1000))
    agent.listener.settimeout(0.1)
    while process.poll() is None:
        with contextlib.suppress(TimeoutError, ConnectionError, AssertionError):
            agent.again()
    assert process.communicate(timeout=BOUND_S)[1].startswith(b"cosched-rsh: b: the agent's connection broke")
    assert process.returncode == 255


def test_no_agent_is_255(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*patient(seen_s=1000, unseen_s=0.1), "b", "true"],
        env={"COSCHED_AGENT_SOCKET": str(tmp_path / "none")},
        capture_output=True,
        check=False,
        timeout=BOUND_S,
    )
    assert (ended.returncode, ended.stdout) == (255, b"")
    assert ended.stderr.decode() == f"cosched-rsh: b: no agent at {tmp_path}/none: No such file or directory\n"


def test_signals_are_passed_on(agent: Agent) -> None:
    process = agent.start("-n", "b", "sleep 9")
    agent.attached()
    assert agent.next() == (Kind.EOF, b"")
    process.send_signal(signal.SIGTERM)
    assert agent.next() == (Kind.SIGNAL, b"15")
    agent.say(Kind.EXIT, b'{"signal": 15}')
    process.communicate(timeout=BOUND_S)
    assert process.returncode == 143


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_descriptors_are_not_mixed_up_with_the_connection(agent: Agent, closed: str, tmp_path: Path) -> None:
    line = f"{' '.join(PROGRAM)} b true {closed}; echo $? > {tmp_path}/status"
    environment = {"COSCHED_AGENT_SOCKET": str(agent.path)}
    process = subprocess.Popen(["/bin/sh", "-c", line], env=environment)
    agent.connection, _ = agent.listener.accept()
    agent.attached()
    assert agent.next() == (Kind.EOF, b"")
    agent.say(Kind.STDOUT, b"to nobody")
    agent.say(Kind.STDERR, b"to nobody")
    agent.say(Kind.EXIT, b'{"status": 3}')
    process.wait(BOUND_S)
    assert (tmp_path / "status").read_text() == "3\n"


def test_output_that_nobody_reads_holds_the_agent_back(agent: Agent) -> None:
    """The reader sleeps: the agent cannot get rid of more than a few buffers. Then everything arrives, in order."""
    process = agent.start("-n", "b", "cat")
    agent.attached()
    assert agent.connection is not None
    agent.connection.setblocking(False)
    piece = os.urandom(MAX_PIECE)
    whole = b"".join(frame(Kind.STDOUT, piece) for _ in range(64)) + frame(Kind.EXIT, b'{"status": 0}')
    left = memoryview(whole)
    while select.select([], [agent.connection], [], 0.5)[1]:
        left = left[agent.connection.send(left) :]
    assert len(whole) - len(left) < 32 * MAX_PIECE
    agent.connection.setblocking(True)
    assert process.stdout is not None
    received = 0
    os.set_blocking(process.stdout.fileno(), False)
    agent.connection.setblocking(False)
    while process.poll() is None or received < 64 * MAX_PIECE:
        ready = select.select([process.stdout], [agent.connection] if left else [], [], BOUND_S)
        assert ready[0] or ready[1]
        if ready[1]:
            left = left[agent.connection.send(left) :]
        if ready[0]:
            data = process.stdout.read(MAX_PIECE) or b""
            at = received % MAX_PIECE
            assert (piece * 2)[at : at + len(data)] == data
            received += len(data)
            if not data:
                break
    assert received == 64 * MAX_PIECE
    assert process.wait(BOUND_S) == 0
    process.communicate()


def test_when_nobody_will_ever_read_it_ends(agent: Agent) -> None:
    process = agent.start("-n", "b", "yes")
    agent.next()
    assert process.stdout is not None
    process.stdout.close()
    agent.say(Kind.STDOUT, b"y\n")
    with contextlib.suppress(ConnectionError):  # the first may have been enough
        agent.say(Kind.STDOUT, b"y\n")
    assert process.wait(BOUND_S) == 255
    process.stdout = None
    process.communicate()


def test_it_goes_on_where_it_was_with_another_agent(agent: Agent) -> None:
    """Input that has not arrived is sent again, output that has is not asked for again, who is away is awaited."""
    process = agent.start("b", "cat")
    first = agent.attached()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"one")
    process.stdin.flush()
    assert agent.next() == (Kind.STDIN, b"one")
    agent.say(Kind.TAKEN, (1).to_bytes(8, "big"))
    agent.say(Kind.STDOUT, b"ONE")
    assert process.stdout.read1(10) == b"ONE"  # type: ignore[attr-defined]
    process.stdin.write(b"two")
    process.stdin.flush()
    assert agent.next() == (Kind.STDIN, b"two")
    process.send_signal(signal.SIGUSR1)
    assert agent.next() == (Kind.SIGNAL, b"10")
    assert agent.connection is not None
    agent.connection.sendall(frame(Kind.STDOUT, b"whole frames only")[:9])
    agent.again()
    request = agent.attached(seen=2)
    assert request == {**first, "stdout": 3, "again": True}
    assert agent.next() == (Kind.SIGNAL, b"10")
    agent.say(Kind.STDOUT, b"TWO")
    agent.again()
    agent.next()
    agent.say(Kind.AWAY, b"b is being started anew")
    agent.again()
    assert agent.attached(seen=3)["stdout"] == 6
    process.stdin.close()
    process.stdin = None
    assert agent.next() == (Kind.EOF, b"")
    agent.say(Kind.EXIT, b'{"status": 0}')
    assert process.communicate(timeout=BOUND_S) == (b"TWO", b"")
    assert process.returncode == 0


def test_a_renewed_call_in_a_job_that_is_being_killed_ends_quietly(agent: Agent) -> None:
    process = agent.start("-n", "b", "cat")
    agent.attached()
    agent.again()
    agent.next()
    agent.say(Kind.FAIL)
    assert process.communicate(timeout=BOUND_S) == (b"", b"")
    assert process.returncode == 255


def test_input_that_nobody_takes_is_held_back(agent: Agent) -> None:
    process = agent.start("b", "sleep 9", stdin=subprocess.PIPE)
    agent.attached()
    assert process.stdin is not None
    pipe = process.stdin.fileno()
    os.set_blocking(pipe, False)
    sent = 0
    while select.select([], [pipe], [], 0.5)[1]:
        sent += os.write(pipe, b"x" * MAX_PIECE)
    assert sent < 12 * MAX_PIECE
    agent.say(Kind.EXIT, b'{"status": 0}')
    assert process.wait(BOUND_S) == 0
    process.communicate()


def test_one_is_never_somebody_else(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    rsh.check_user(me)
    with pytest.raises(rsh.Unusable, match="-l nobody-like-this is another"):
        rsh.check_user("nobody-like-this")


def test_a_command_that_is_too_long_is_refused(tmp_path: Path) -> None:
    ended = subprocess.run([*PROGRAM, "b", "x" * 70_000], capture_output=True, check=False, timeout=BOUND_S, env={})
    assert ended.returncode == 255
    assert ended.stderr == b"cosched-rsh: b: a command of 70000 bytes is too long\n"
