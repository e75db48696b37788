"""What comes in at the guard's socket: who may speak, what is understood, and that nothing said does harm."""

import json
import os
import random
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.guards import RealGuard
from kit.waiting import BOUND_S, wait_for

from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardClient, GuardGone
from node_agent.guard.base.requests import MAX_PACKET_BYTES, Refusal, decode

PREPARE = {
    "job": 1, "attempt": 1, "user": "ada", "directory": "/", "tasks": 1, "memory_bytes": None, "limit_us": None,
    "grace_us": 0, "umask": 0o077, "cpus": None, "asleep": False, "uid": 1000,
}  # fmt: skip
SPAWN = {
    "job": 1, "attempt": 1, "n": 0, "argv": ["true"], "env": {}, "cwd": "/", "script": False, "output": None,
    "error": None, "stream": None,
}  # fmt: skip
REQUESTS: dict[str, dict[str, object]] = {
    "contract": {"cpu_ratio": 0.5, "memory_ratio": 1, "mpl": 2},
    "relax": {"until_us": 1, "epoch": 1},
    "arm": {},
    "keys": {},
    "prepare": PREPARE,
    "spawn": SPAWN,
    "weigh": {"job": 1, "attempt": 1, "percent": 200, "until_us": 1},
    "slots": {"begin_us": 0, "slot_us": 20_000, "rows": [[[1, 1]], [[2, 1]]], "until_us": 1},
    "resize": {"job": 1, "attempt": 1, "n": 1 << 50, "tasks": 2, "cpus": None, "asleep": False},
    "signal": {"job": 1, "attempt": 1, "n": 0, "signal": 15},
    "kill": {"job": 1, "attempt": 1, "grace_us": 0},
    "forget": {"job": 1, "attempt": 1},
    "whose": {"pid": 1},
    "accounts": {"users": {"ada": 1000, "bob": None}},
    "list": {},
    "status": {},
}


def decoded(kind: str, **fields: object) -> object:
    packet = json.dumps({"re": 1, "do": kind, **REQUESTS[kind], **fields}).encode()
    return decode(packet, 3 if kind == "spawn" else 0)[1]


@pytest.mark.parametrize("kind", REQUESTS)
def test_every_request_is_understood_whole_and_not_without_a_field_or_with_one_more(kind: str) -> None:
    assert type(decoded(kind)).__name__.lower() == kind
    assert "unknown field 'more'" in str(decoded(kind, more=1))
    for name in REQUESTS[kind]:
        fields = {key: value for key, value in REQUESTS[kind].items() if key != name}
        number, refusal = decode(json.dumps({"re": 7, "do": kind, **fields}).encode(), 3 if kind == "spawn" else 0)
        assert (number, str(refusal)) == (7, f"{kind}: {name} is missing")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("prepare", {"job": True}),
        ("prepare", {"job": -1}),
        ("prepare", {"job": 1.0}),
        ("prepare", {"job": "1"}),
        ("prepare", {"job": "../../etc"}),
        ("prepare", {"attempt": 10**9}),
        ("prepare", {"user": ""}),
        ("prepare", {"user": "a/b"}),
        ("prepare", {"user": "a\nb"}),
        ("prepare", {"user": 0}),
        ("prepare", {"directory": "relative"}),
        ("prepare", {"directory": "/a\0b"}),
        ("prepare", {"directory": "/" + 5000 * "a"}),
        ("prepare", {"directory": "/\ud800"}),
        ("prepare", {"tasks": 0}),
        ("prepare", {"memory_bytes": 0}),
        ("prepare", {"limit_us": 0}),
        ("prepare", {"grace_us": -1}),
        ("prepare", {"umask": 0o1000}),
        ("prepare", {"umask": "077"}),
        ("spawn", {"argv": []}),
        ("spawn", {"argv": [""]}),
        ("spawn", {"argv": ["a\0b"]}),
        ("spawn", {"argv": "true"}),
        ("spawn", {"argv": [["true"]]}),
        ("spawn", {"env": {"A=B": "1"}}),
        ("spawn", {"env": {"": "1"}}),
        ("spawn", {"env": {"A": 1}}),
        ("spawn", {"env": {"A": "\0"}}),
        ("spawn", {"env": []}),
        ("spawn", {"cwd": "."}),
        ("spawn", {"script": 1}),
        ("spawn", {"script": True}),  # without a fourth descriptor
        ("spawn", {"output": ""}),
        ("spawn", {"n": 2**40}),
        ("signal", {"signal": 0}),
        ("signal", {"signal": 65}),
        ("contract", {"cpu_ratio": 0}),
        ("contract", {"cpu_ratio": 1.1}),
        ("contract", {"cpu_ratio": float("nan")}),
        ("contract", {"mpl": 0}),
        ("relax", {"until_us": 2**60}),
        ("whose", {"pid": 0}),
        ("weigh", {"percent": 0}),
        ("weigh", {"percent": 10_001}),
        ("slots", {"slot_us": 1}),
        ("slots", {"rows": [[[1, 1]], [[1, 1]]]}),
        ("slots", {"rows": [[1, 1]]}),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused_by_its_name(kind: str, fields: dict[str, object]) -> None:
    refusal = decoded(kind, **fields)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "unknown"
    assert next(iter(fields)) in str(refusal) or "descriptors" in str(refusal)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["/", "root", "true"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
nearly = st.sampled_from(sorted(REQUESTS)).flatmap(
    lambda kind: st.dictionaries(st.sampled_from(["re", "do", *REQUESTS[kind]]), values, max_size=3).map(
        lambda changed: json.dumps({"re": 1, "do": kind, **REQUESTS[kind], **changed}).encode("utf-8", "replace")
    )
)


@given(st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()) | nearly, st.integers(0, 5))
def test_whatever_comes_is_understood_or_refused(packet: bytes, descriptors: int) -> None:
    request: object
    try:
        number, request = decode(packet, descriptors)
    except Refusal as refusal:
        number, request = 0, refusal
    assert type(number) is int
    if isinstance(request, Refusal):
        assert (request.code, bool(str(request))) == ("unknown", True)
    else:
        assert type(request).__name__.lower() in REQUESTS


def test_deep_nesting_is_no_way_in() -> None:
    with pytest.raises(Refusal):
        decode(b"[" * 100_000, 0)


def connection(guard: RealGuard) -> socket.socket:
    guard.hang_up()
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    raw.settimeout(30)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    raw.connect(f"{guard.directory}/run/guard.sock")
    return raw


def test_noise_is_answered_and_harms_nothing(guard: RealGuard) -> None:
    guard.prepare()
    pid = guard.shell("exec sleep 1000")
    noise = random.Random(4)
    assert guard.process is not None
    before = len(os.listdir(f"/proc/{guard.process.pid}/fd"))
    with connection(guard) as raw:
        for _ in range(200):
            packet = noise.randbytes(noise.randrange(1, 3000))
            fds = [0] * noise.randrange(0, 20)  # also more than are taken
            socket.send_fds(raw, [packet], fds) if fds else raw.send(packet)
            assert json.loads(raw.recv(1 << 18))["error"] == "unknown"
        raw.send(b"x" * (MAX_PACKET_BYTES + 1))
        assert "bytes or" in json.loads(raw.recv(1 << 18))["message"]
        raw.send(json.dumps({"re": 5, "do": "prepare", **PREPARE, "job": -1}).encode())
        assert json.loads(raw.recv(1 << 18))["re"] == 5
    guard.client()
    assert len(os.listdir(f"/proc/{guard.process.pid}/fd")) == before
    assert guard.listed()["state"] == "running"
    assert Path(f"/proc/{pid}").exists()
    assert guard.errors() == ""


def test_one_agent_at_a_time_and_the_second_is_told(guard: RealGuard) -> None:
    with GuardClient(f"{guard.directory}/run/guard.sock") as second, pytest.raises(GuardGone) as caught:
        second.ask(requests.Arm())
    assert str(caught.value) == "the guard is busy: another agent is connected"
    assert guard.status()["ok"] is True


def test_an_agent_who_does_not_read_does_not_stop_the_guard(guard: RealGuard) -> None:
    with connection(guard) as raw:
        raw.setblocking(False)
        request = json.dumps({"re": 1, "do": "status"}).encode()
        sent = 0
        try:
            while sent < 20_000:
                raw.send(request)
                sent += 1
                if sent % 100 == 0:
                    raw.settimeout(1)  # let it work
        except (BlockingIOError, TimeoutError, BrokenPipeError, ConnectionResetError):
            pass
    guard.client()
    assert guard.status()["ok"] is True


def speak_as(guard: RealGuard, uid: int) -> str:
    """What the guard's socket says to a process of that user, or the system's refusal."""
    script = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "try: s.connect(sys.argv[1])\n"
        "except OSError as error: print(error.strerror)\n"
        "else:\n"
        '  try: s.send(b\'{"do": "arm", "re": 1}\')\n'
        "  except BrokenPipeError: pass\n"
        "  try: answer = s.recv(9999)\n"
        "  except ConnectionResetError: answer = s.recv(9999)\n"
        "  print(answer.decode())\n"
    )
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/usr/bin/python3", "-I", "-c", script]
    path = f"{guard.directory}/run/guard.sock"
    return subprocess.run([*command, path], capture_output=True, text=True, check=True, timeout=BOUND_S).stdout.strip()


def test_only_the_agents_user_may_speak(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard(start=False)
    guard.config["security"]["agent_user"] = guard.user
    guard.start()
    guard.hang_up()
    path = guard.directory / "run/guard.sock"
    assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, guard.account.pw_uid)
    wait_for(lambda: speak_as(guard, guard.account.pw_uid) == '{"re":1,"ok":true}', "the guard to take the agent")
    assert speak_as(guard, 65534) == "Permission denied"
    path.chmod(0o666)  # and if somebody opened it: the kernel says who is there
    wait_for(lambda: "uid 65534 may not talk to this guard" in speak_as(guard, 65534), "the refusal")


def test_the_guards_directories_are_its_own(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard(start=False)
    guard.config["security"]["agent_user"] = guard.user
    state = guard.directory / "state"
    state.mkdir()
    os.chown(state, guard.account.pw_uid, -1)
    elsewhere = guard.directory / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (state / "records").symlink_to(elsewhere)
    assert "Not a directory" in failing(guard) or "Too many levels" in failing(guard)
    (state / "records").unlink()
    (state / "records").mkdir(mode=0o755)
    os.chown(state / "records", guard.account.pw_uid, -1)
    assert f"records belongs to uid {guard.account.pw_uid}" in failing(guard)
    (state / "records").rmdir()
    guard.start()


def failing(guard: RealGuard) -> str:
    """Start a guard that must not start; its complaint."""
    with pytest.raises(AssertionError):
        guard.start()
    assert guard.process is not None
    assert guard.process.wait(BOUND_S) == 1
    guard.process = None
    return guard.errors()


def test_a_second_guard_on_the_same_state_is_refused(guard: RealGuard) -> None:
    command = [sys.executable, "-I", "-m", "node_agent.guard", "--config", str(guard.directory / "node.toml")]
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BOUND_S)
    assert second.returncode == 1
    assert "another guard runs with this state directory" in second.stderr
    assert guard.status()["ok"] is True


def test_what_a_user_leaves_behind_leads_a_removal_nowhere(guard: RealGuard) -> None:
    canary = guard.work / "canary"
    canary.mkdir()
    (canary / "file").touch()
    guard.prepare()
    deep = "import os\nos.chdir('/tmp')\nfor _ in range(3000):\n  os.mkdir('d'); os.chdir('d')"
    links = f"ln -s {canary} /tmp/link && ln -s / /tmp/root && mkdir -m 0 /tmp/closed && mkfifo /tmp/pipe"
    guard.shell(f'{links} && python3 -I -c "{deep}"')
    assert guard.event("exited")["status"] == 0, guard.output()
    guard.ask({"do": "forget", "job": 1, "attempt": 1})
    assert list(guard.directory.glob("state/jobs/*")) == []
    assert (canary / "file").exists()


def test_a_symlink_in_place_of_a_kept_directory_is_not_followed(guard: RealGuard) -> None:
    """The user owns the job's /tmp, and so may put something else where the next command's mounts go."""
    guard.prepare()
    tmp, name = guard.directory / "state/jobs/1.1/tmp", guard.directory.name
    user = ["setpriv", f"--reuid={guard.account.pw_uid}", f"--regid={guard.account.pw_gid}", "--clear-groups"]
    subprocess.run(
        [*user, "sh", "-c", f"mv {tmp}/{name} {tmp}/away && ln -s /etc {tmp}/{name}"], check=True, timeout=BOUND_S
    )
    code, story = guard.refused(guard.spawning(["true"]), guard.null())
    assert code == "failed"
    assert story == f"private /tmp and /dev/shm: {name}: Not a directory"


def test_a_script_that_is_no_file_is_not_read(guard: RealGuard) -> None:
    guard.prepare()
    read, write = os.pipe()
    for fd in (read, guard.null()[0]):  # reading the one would wait for ever, the other is a device
        code, story = guard.refused(guard.spawning(["job.sh"], script=True), [*guard.null(), fd])
        assert code == "failed"
        assert "the script is not a file of at most" in story
    os.close(read)
    os.close(write)
    guard.ask({"do": "forget", "job": 1, "attempt": 1})


def test_an_environment_as_large_as_a_packet_goes_through(guard: RealGuard) -> None:
    guard.prepare()
    env = {f"V{index}": 1000 * "x" for index in range(150)}
    guard.spawn(["sh", "-c", 'echo "$V149"'], env=env)
    guard.event("exited", status=0)
    assert guard.output() == 1000 * "x" + "\n"
    with pytest.raises(ValueError, match="at most"):
        guard.ask(guard.spawning(["true"], n=1, env={"A": MAX_PACKET_BYTES * "x"}), guard.null())


def test_a_guard_that_cannot_fork_says_so_and_goes_on(guard: RealGuard) -> None:
    guard.prepare()
    assert guard.process is not None
    soft, hard = resource.prlimit(guard.process.pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{guard.process.pid}/fd"))
    resource.prlimit(guard.process.pid, resource.RLIMIT_NOFILE, (used + 3, hard))  # those that come along
    assert guard.refused(guard.spawning(["true"]), guard.null())[0] == "failed"
    resource.prlimit(guard.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    guard.shell("exit 0")
    guard.event("exited", status=0)


def inotify_descriptors(pid: int) -> int:
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += "inotify" in os.readlink(each)
    return found


def test_key_presses_are_reported_to_connections_that_asked_and_no_longer(make_guard: Callable[..., RealGuard]) -> None:
    """At a real pseudo-terminal, made after it was asked; what is typed is in no event."""
    guard = make_guard()
    assert guard.process is not None
    pid = guard.process.pid
    keys, program = os.openpty()
    try:
        for _ in range(2):
            before = inotify_descriptors(pid)
            guard.client()
            guard.ask({"do": "keys"})
            guard.ask({"do": "keys"})  # asked again, it listens once
            assert inotify_descriptors(pid) == before + 1
            late_keys, late = os.openpty()
            wanted = {os.fstat(program).st_rdev, os.fstat(late).st_rdev}
            told: set[int] = set()
            while not wanted <= told:
                for typed, read in ((keys, program), (late_keys, late)):
                    os.write(typed, b"secret\n")
                    os.read(read, 10)
                event = guard.event("keys")
                assert event.keys() == {"event", "terminals"}
                told |= set(event["terminals"])
            os.close(late_keys)
            os.close(late)
            guard.hang_up()
            wait_for(lambda: inotify_descriptors(pid) == before, "the guard to listen no more")  # noqa: B023
    finally:
        os.close(keys)
        os.close(program)
