"""Login sessions: files as the system writes them, a real logind, a real X display."""

import asyncio
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.waiting import BOUND_S, wait_for

from cosched.linux import sessions
from cosched.linux.sessions import Session, reading
from cosched.linux.users import NOBODY
from node_agent.service.idle import IdleTimes


def nobody_knows(session: Session) -> None:
    del session


SESSION = "UID=1000\nUSER=ann\nACTIVE={active}\nREMOTE=0\nTYPE={kind}\nCLASS={who}\nSEAT=seat0\n"


@pytest.mark.parametrize(
    ("active", "kind", "who", "idle_s"),
    [
        ("1", "wayland", "user", 0.0),
        ("1", "x11", "user", 0.0),
        ("0", "x11", "user", float("inf")),  # another virtual console is shown
        ("1", "tty", "user", float("inf")),  # its terminal tells more
        ("1", "x11", "greeter", float("inf")),  # nobody has logged in
    ],
)
def test_an_active_graphical_session_is_somebody(
    tmp_path: Path, active: str, kind: str, who: str, idle_s: float
) -> None:
    (tmp_path / "systemd/sessions").mkdir(parents=True)
    (tmp_path / "systemd/sessions/2").write_text(SESSION.format(active=active, kind=kind, who=who))
    os.mkfifo(tmp_path / "systemd/sessions/2.ref")
    assert reading(sessions.active(tmp_path), nobody_knows) == ("sessions", idle_s, "")


def test_without_files_of_sessions_there_is_nothing_to_watch(tmp_path: Path) -> None:
    assert reading(sessions.active(tmp_path), nobody_knows) == ("sessions", None, "")


def test_sessions_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "utmp").mkdir()
    with pytest.raises(IsADirectoryError):
        sessions.active(tmp_path)


@pytest.mark.parametrize(
    ("line", "alive", "idle_s"),
    [(b":0", True, 0.0), (b":0", False, float("inf")), (b"pts/3", True, float("inf"))],
)
def test_utmp_tells_of_displays(tmp_path: Path, line: bytes, alive: bool, idle_s: float) -> None:
    pid = os.getpid() if alive else 2**22 + 1
    size = 384 if os.uname().machine == "x86_64" else 400
    record = struct.pack("=hxxi32s", 7, pid, line).ljust(size, b"\0")
    (tmp_path / "utmp").write_bytes(bytes(size) + record)
    assert reading(sessions.active(tmp_path), nobody_knows) == ("sessions", idle_s, "")


def test_a_session_known_to_be_idle_is_as_old_as_its_last_key(tmp_path: Path) -> None:
    (tmp_path / "systemd/sessions").mkdir(parents=True)
    for name in ("2", "c5"):
        (tmp_path / "systemd/sessions" / name).write_text(SESSION.format(active="1", kind="x11", who="user"))
    found = sessions.active(tmp_path)
    assert found is not None
    assert [session.id for session in found] == ["2", "c5"]
    assert reading(found, lambda session: {"2": 40.0, "c5": 300.0}[session.id]).idle_s == 40
    assert reading(found, lambda session: {"2": 40.0}.get(session.id)).idle_s == 0, "nothing is known of c5"


LOGIND = Path("/lib/systemd/systemd-logind")
ASKING = """
import asyncio, json, os, subprocess, sys, time
from cosched.linux import sessions
from node_agent.service.idle import IdleTimes

async def ask():
    idle = IdleTimes()
    (session,) = sessions.active()
    await idle.follow([session])
    before = idle.of(session)
    call = ["busctl", "--system", "call", "org.freedesktop.login1", "/org/freedesktop/login1/session/_32"]
    subprocess.run([*call, "org.freedesktop.login1.Session", "SetIdleHint", "b", "true"], check=True, timeout=60)
    await asyncio.sleep(1.2)
    later = IdleTimes()
    await later.follow([session])
    after = later.of(session)
    print(json.dumps({"id": session.id, "before": before, "after": after, "problem": later.problem}))

asyncio.run(ask())
"""


@pytest.mark.system("dbus")
def test_a_real_logind_is_asked_for_its_idle_hint(tmp_path: Path) -> None:
    """With a bus, a logind and a /run of their own; the session is one that logind finds after a restart."""
    if os.geteuid() != 0 or not LOGIND.exists():
        pytest.skip("needs root, and logind's own program")
    session = SESSION.format(active="1", kind="wayland", who="user").replace("UID=1000", "UID=0")
    (tmp_path / "asking.py").write_text(ASKING)
    (tmp_path / "begin").write_text(
        "set -e\nmount -t tmpfs tmpfs /run\n"
        "mkdir -p /run/dbus /run/systemd/sessions /run/systemd/seats /run/systemd/users /run/systemd/machines\n"
        "dbus-daemon --system --fork --nopidfile\n"
        "sleep 1000 & mkfifo /run/systemd/sessions/2.ref; exec 9<>/run/systemd/sessions/2.ref\n"
        f"printf '{session}STATE=active\nFIFO=/run/systemd/sessions/2.ref\nLEADER=%d\n' $! >/run/systemd/sessions/2\n"
        "printf 'NAME=root\nSTATE=active\nDISPLAY=2\nSESSIONS=2\nACTIVE_SESSIONS=2\n' >/run/systemd/users/0\n"
        f"{LOGIND} 2>/dev/null &\n"
        "for _ in $(seq 300); do busctl --system list | grep -q 'login1 .*logind' && break; sleep 0.1; done\n"
        f"{sys.executable} {tmp_path}/asking.py\n"
    )
    asked = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", tmp_path / "begin"],
        capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    told = json.loads(asked.stdout.splitlines()[-1])
    assert told["id"] == "2"
    assert told["before"] == 0, "an active session that does not say it is idle has somebody"
    assert 1 < told["after"] < 60
    assert not told["problem"]


@pytest.fixture
def display(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The name of a real X display, and the file with its cookie."""
    cookies = tmp_path / "cookies"
    number, ready = os.pipe()
    address, cookie = b"%s" % os.uname().nodename.encode(), os.urandom(16)
    fields = b"".join(struct.pack(">H", len(text)) + text for text in (address, b"", b"MIT-MAGIC-COOKIE-1", cookie))
    cookies.write_bytes(struct.pack(">H", 0xFFFF) + fields)  # any address: FamilyWild
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(ready), "-auth", cookies, "-screen", "0", "320x200x24", "-nolisten", "tcp"],
        pass_fds=[ready], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(ready)
    try:
        with os.fdopen(number) as told:
            yield f":{int(told.readline())}", cookies
    finally:
        server.terminate()
        server.wait(BOUND_S)


def ask(name: str, cookies: Path | str) -> subprocess.Popen[str]:
    """Ask for a session whose first process, here the one that asks, says where its cookies are."""
    program = f'exec "{sys.executable}" -m cosched.linux.display {name} $$ {os.getuid()}'
    return subprocess.Popen(
        ["sh", "-c", program], env=os.environ | {"XAUTHORITY": str(cookies)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.system("xvfb", "xdotool")
def test_a_real_display_tells_how_long_it_was_not_touched(display: tuple[str, Path]) -> None:
    name, cookies = display
    asking = ask(name, cookies)
    try:
        assert asking.stdout is not None
        lines = asking.stdout
        first, _, third = (int(lines.readline()) for _ in range(3))
        assert third - first >= 1800
        environment = os.environ | {"DISPLAY": name, "XAUTHORITY": str(cookies)}

        def seen() -> bool:
            """Whether a key is seen within three lines: without one they only grow.

            False where the program stood still, so that it looked too late: the key is pressed again.
            """
            subprocess.run(["xdotool", "key", "a"], env=environment, check=True, timeout=BOUND_S)
            stood = False
            for _ in range(3):
                before_s = time.monotonic()
                if int(lines.readline()) < third:
                    return True
                stood |= time.monotonic() - before_s > 1.5
            assert stood, "the key was not seen"
            return False

        wait_for(seen, "a key to be seen")
    finally:
        asking.kill()
        asking.communicate()


@pytest.mark.system("xvfb", "xdotool")
def test_a_touched_display_is_a_sign_at_once(display: tuple[str, Path]) -> None:
    name, cookies = display
    environment = os.environ | {"DISPLAY": name, "XAUTHORITY": str(cookies)}

    async def touched(session: Session) -> tuple[float | None, float]:
        """For how long nothing was touched, and how long ago a key was first going to be pressed; seconds."""
        signs: list[tuple[float | None, float]] = []
        idle = IdleTimes(lambda: signs.append((idle.of(session), time.monotonic())))
        try:
            async with asyncio.timeout(BOUND_S):
                while (idle.of(session) or 0.0) < 2.0:
                    await idle.follow([session])  # as at each look: one that a busy machine kept from it tries again
                    await asyncio.sleep(0.1)
                signs.clear()
                before_s = time.monotonic()
                while not signs:  # again only where this machine stood still: the key may be seen too late
                    looked_s = time.monotonic()
                    key = await asyncio.create_subprocess_exec("xdotool", "key", "a", env=environment)
                    assert await key.wait() == 0
                    while not signs and time.monotonic() < looked_s + 0.5:
                        looked_s = time.monotonic()
                        await asyncio.sleep(0.05)
            idle_s, seen_s = signs[0]
            return idle_s, seen_s - before_s
        finally:
            await idle.close()

    with subprocess.Popen(["sleep", "300"], env=environment) as leader:  # its environment says where the cookies are
        try:
            idle_s, ago_s = asyncio.run(touched(Session("", os.getuid(), name, leader.pid, graphical=True)))
        finally:
            leader.kill()
    assert idle_s is not None
    assert idle_s < ago_s + 1.0, "it would be longer by two seconds without the key"


@pytest.mark.system("xvfb")
def test_a_display_that_lets_nobody_in_is_named(display: tuple[str, Path], tmp_path: Path) -> None:
    name, _ = display
    (tmp_path / "none").write_bytes(b"")
    asking = ask(name, tmp_path / "none")
    _, complaint = asking.communicate(timeout=BOUND_S)
    assert asking.returncode == 1
    assert f"display {name} lets nobody in with {tmp_path}/none" in complaint


def test_who_is_at_this_machine_and_who_is_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "systemd/sessions").mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    session = SESSION.format(active="1", kind="tty", who="user")
    (tmp_path / "systemd/sessions/1").write_text(session)
    (tmp_path / "systemd/sessions/2").write_text(
        session.replace("UID=1000", "UID=1001").replace("REMOTE=0", "REMOTE=1")
    )
    (tmp_path / "systemd/sessions/3").write_text(
        session.replace("UID=1000", "UID=1002").replace("ACTIVE=1", "ACTIVE=0")
    )
    assert sessions.local_users(tmp_path, tmp_path / "dev") == {1000}
    terminal, owner = tmp_path / "dev" / "tty3", os.getuid() or 1003  # only root gives a file away
    terminal.write_text("")
    os.chown(terminal, owner, -1)
    assert sessions.local_users(tmp_path, tmp_path / "dev") == {1000, owner}
    if not os.getuid():  # as a terminal appears in a user namespace that has no number for its owner
        os.chown(terminal, NOBODY, -1)
        assert sessions.local_users(tmp_path, tmp_path / "dev") == {1000}
    terminal.unlink()
    size = 384 if os.uname().machine == "x86_64" else 400
    here = struct.pack("=hxxi32s", 7, os.getpid(), b"tty1").ljust(size, b"\0")
    afar = struct.pack("=hxxi32s36x8s", 7, 1, b"pts/3", b"10.0.0.1").ljust(size, b"\0")
    (tmp_path / "utmp").write_bytes(afar)
    assert sessions.local_users(tmp_path, tmp_path / "dev") == {1000}
    (tmp_path / "utmp").write_bytes(here)
    assert sessions.local_users(tmp_path, tmp_path / "dev") == {1000, os.getuid()}
