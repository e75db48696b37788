"""Films and presentations count as presence: by logind's list on a bus of the test's own, and by GNOME's helper."""

import asyncio
import itertools
import os
import pwd
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.agents import until
from kit.guards import RealGuard, alive
from kit.waiting import BOUND_S, wait_for

from cosched.config.node import PresenceSettings
from cosched.linux import sessions
from cosched.linux.inhibitors import Inhibitor, listed, on_screen
from cosched.linux.presence_reading import Reading
from cosched.linux.sessions import Session
from node_agent.service import logind
from node_agent.service.logind import Inhibitors
from node_agent.service.presence import Sources

ANN = 1000
SCREEN = Session("2", ANN, ":0", 4711, True)
POLICY = "/usr/share/dbus-1/system.d/org.freedesktop.login1.conf"
SYSTEM_PYTHON = "/usr/bin/python3"
bus = pytest.mark.system("dbus", "python3-dbusmock")


def process(proc: Path, pid: int, uid: int, *groups: str) -> None:
    place = proc / str(pid)
    place.mkdir()
    (place / "cgroup").write_text("".join(f"{n}:name=x:{group}\n" for n, group in enumerate(groups)))
    os.chown(place, uid, uid)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    if os.geteuid():
        pytest.skip("needs root: processes of other users")
    (tmp_path / "proc").mkdir()
    return tmp_path / "proc"


IN_SESSION = "/user.slice/user-1000.slice/session-2.scope"
IN_SERVICES = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-vlc.scope"


@pytest.mark.parametrize(
    ("uid", "groups", "counts"),
    [
        (ANN, (IN_SESSION,), True),
        (ANN, ("/", IN_SESSION), True),
        (ANN, (IN_SERVICES,), True),
        (ANN, ("/user.slice/user-1000.slice/session-5.scope",), False),  # the same user, by ssh
        (ANN, ("/cosched.slice/cosched-jobs.service/jobs/job-12.1",), False),  # the owner's own job
        (ANN, ("/system.slice/cosched-guard.service",), False),
        (1001, ("/user.slice/user-1001.slice/session-7.scope",), False),  # a remote user
        (1001, ("/user.slice/user-1001.slice/user@1001.service/app.slice",), False),
        (1001, (IN_SESSION,), False),
        (1001, (IN_SERVICES,), False),
    ],
)
def test_only_a_process_of_the_session_on_the_screen_counts(
    proc: Path, uid: int, groups: tuple[str, ...], counts: bool
) -> None:
    process(proc, 7, uid, *groups)
    assert on_screen([Inhibitor("idle:sleep", "block", uid, 7)], [SCREEN], proc) is counts


@pytest.mark.parametrize(
    "other",
    [
        Inhibitor("sleep", "block", ANN, 7),
        Inhibitor("idle", "delay", ANN, 7),
        Inhibitor("idle", "block", 1001, 7),
        Inhibitor("idle", "block", ANN, 8),
    ],
)
def test_what_is_no_film_or_not_his_or_gone_does_not_count(proc: Path, other: Inhibitor) -> None:
    process(proc, 7, ANN, IN_SESSION)
    assert not on_screen([other], [SCREEN], proc)
    assert on_screen([other, Inhibitor("idle", "block", ANN, 7)], [SCREEN], proc)
    assert not on_screen([Inhibitor("idle", "block", ANN, 7)], [], proc)


def test_of_a_user_who_is_not_on_the_screen_no_process_is_looked_at() -> None:
    """Anybody may have logind note thousands, and each look costs the agent's loop."""
    proc: Any = None  # not to be asked
    assert not on_screen([Inhibitor("idle", "block", 1001, pid) for pid in range(8192)], [SCREEN], proc)


@pytest.mark.parametrize(
    "says", ["head -c 67108864 /dev/zero", "sleep 1000"], ids=["more than there can be", "nothing for long"]
)
async def test_an_answer_without_bound_or_end_is_none_and_who_gives_it_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str
) -> None:
    busctl, pid = tmp_path / "busctl", tmp_path / "pid"
    busctl.write_text(f"#!/bin/sh\necho $$ >{pid}.new; mv {pid}.new {pid}\necho begun\nexec {says}\n")
    busctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if says.startswith("sleep"):
        monkeypatch.setattr(logind, "_DEADLINE_S", 0.5)
    asked = asyncio.create_task(logind.asked("call"))
    await until(asked.done, "the answer", BOUND_S)
    assert asked.result() == ""
    assert not pid.exists() or not alive(int(pid.read_text()))


@pytest.mark.parametrize("answer", ["", "{}", '{"data": []}', '{"data": [[["idle"]]]}', '{"data": 3}', "[[[["])
def test_an_answer_that_is_none_is_an_error(answer: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        listed(answer)


# --- logind and GNOME, played on a bus --------------------------------------------------------------------------------

CONFIG = """<busconfig>
  <type>{kind}</type><listen>unix:path={path}</listen><auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow send_type="method_return"/><allow send_type="error"/><allow receive_type="*"/>
    {policy}
  </policy>
  <policy user="root"><allow own="*"/><allow send_destination="*"/></policy>
  {more}
</busconfig>"""


class Bus:
    """A dbus-daemon of the test's own, and objects on it that python-dbusmock plays."""

    def __init__(self, place: Path, *, system: bool) -> None:
        self.path = place / "bus"
        self.environment = os.environ | {
            f"DBUS_{kind}_BUS_ADDRESS": f"unix:path={self.path}" for kind in ("SYSTEM", "SESSION")
        }
        policy = "" if system else '<allow own="*"/><allow send_destination="*"/>'
        more = f"<include>{POLICY}</include>" if system else ""
        (place / "bus.conf").write_text(
            CONFIG.format(kind="system" if system else "session", path=self.path, policy=policy, more=more)
        )
        self.processes = [
            subprocess.Popen(["dbus-daemon", "--nofork", "--nopidfile", f"--config-file={place}/bus.conf"])
        ]
        wait_for(self.path.is_socket, "the bus")
        self.path.chmod(0o777)
        self._kind = "--system" if system else "--session"

    def play(self, name: str, path: str, interface: str) -> None:
        command = [SYSTEM_PYTHON, "-m", "dbusmock", self._kind, name, path, interface]
        self.processes.append(subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL))
        wait_for(lambda: name in self.call("list"), f"{name} on the bus")

    def method(self, name: str, path: str, interface: str, *method: str) -> None:
        self.call("call", name, path, "org.freedesktop.DBus.Mock", "AddMethod", "sssss", interface, *method)

    def call(self, *arguments: str, user: str = "") -> str:
        become = (
            ["setpriv", f"--reuid={user}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"] if user else []
        )
        which = "--system" if self._kind == "--system" else "--user"
        return subprocess.run(
            [*become, "busctl", which, "--json=short", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        ).stdout

    def close(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


@pytest.fixture
def system_bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    with tempfile.TemporaryDirectory(prefix="bus-") as place:  # where others get, unlike pytest's own
        Path(place).chmod(0o755)
        found = Bus(Path(place), system=True)
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", found.environment["DBUS_SYSTEM_BUS_ADDRESS"])
        try:
            yield found
        finally:
            found.close()


@pytest.fixture
def session_bus(tmp_path: Path) -> Iterator[Bus]:
    found = Bus(tmp_path, system=False)
    try:
        yield found
    finally:
        found.close()


LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


@bus
async def test_logind_is_asked_and_a_film_on_the_screen_is_seen(system_bus: Bus) -> None:
    system_bus.play(*LOGIND)
    film = subprocess.Popen(["sleep", "1000"])
    try:
        for rows, there in (("", False), (f'("idle", "vlc", "a film", "block", 0, {film.pid})', False)):
            system_bus.method(
                *LOGIND, "ListInhibitors", "", "a(ssssuu)", f"ret = dbus.Array([{rows}], signature='(ssssuu)')"
            )
            assert await Inhibitors().there([Session("2", 0, ":0", 1, True)]) is there
        # the film's process lies in no session of systemd's here: that is looked at above; what logind said is this
        told = system_bus.call("call", *LOGIND, "ListInhibitors")
        assert listed(told) == [Inhibitor("idle", "block", 0, film.pid)]
    finally:
        film.kill()
        film.wait()


@bus
def test_an_account_without_rights_may_ask_logind(system_bus: Bus) -> None:
    """By the policy that systemd installs: ListInhibitors is for everybody."""
    system_bus.play(*LOGIND)
    system_bus.method(
        *LOGIND,
        "ListInhibitors",
        "",
        "a(ssssuu)",
        "ret = dbus.Array([('idle', 'vlc', 'a film', 'block', 1000, 7)], signature='(ssssuu)')",
    )
    system_bus.method(*LOGIND, "CreateSession", "", "s", "ret = 'made'")
    assert listed(system_bus.call("call", *LOGIND, "ListInhibitors", user="65534")) == [
        Inhibitor("idle", "block", 1000, 7)
    ]
    assert "data" not in system_bus.call("call", *LOGIND, "CreateSession", user="65534"), "the policy is in force"


async def test_no_logind_is_no_film(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    assert await Inhibitors().there([SCREEN]) is False
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await Inhibitors().there([SCREEN]) is False


@pytest.mark.parametrize(("film", "idle_s"), [(False, 600.0), (True, 0.0)])
async def test_a_session_that_nobody_touches_is_somebody_while_a_film_runs(
    monkeypatch: pytest.MonkeyPatch, film: bool, idle_s: float
) -> None:
    def idle(*_: object) -> Reading:
        return Reading("sessions", 600.0)

    monkeypatch.setattr(sessions, "active", lambda: [SCREEN])
    monkeypatch.setattr(sessions, "reading", idle)
    made = Sources(PresenceSettings(sources=["sessions"]), set, lambda: 0.0, lambda reading: None)

    async def there(found: list[Session]) -> bool:
        return film and found == [SCREEN]

    async def follow(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(made._inhibitors, "there", there)
    monkeypatch.setattr(made._idle, "follow", follow)
    assert await made.look(300.0, forgotten_sessions=False) == [Reading("sessions", idle_s)]
    at_night = await made.look(300.0, forgotten_sessions=True)
    assert at_night == ([Reading("sessions", 0.0)] if film else []), (
        "a session that was left open is nobody, but for that"
    )
    await made.close()


GNOME = ("org.gnome.SessionManager", "/org/gnome/SessionManager", "org.gnome.SessionManager")
NOTICES = ("org.freedesktop.Notifications", "/org/freedesktop/Notifications", "org.freedesktop.Notifications")


def in_session(guard: RealGuard, bus: Bus) -> "subprocess.Popen[str]":
    """The helper, after one look of another that has told it all."""
    code = (
        "from pathlib import Path\nfrom cosched.apps.cli.shared.desk_session import Session, follow\n"
        f"path = Path({str(guard.directory)!r}) / 'run/desk.sock'\n"
        "Session(path, notify=True).look()\n"
        f"Path({str(bus.path)!r} + '.looked').touch()\n"
        "follow(path, notify=True, period_s=0.1)\n"
    )
    helper = subprocess.Popen([sys.executable, "-c", code], env=bus.environment, text=True)
    wait_for(Path(f"{bus.path}.looked").exists, "the first look")
    return helper


def at_screen(make_guard: Any, uid: int = 0) -> RealGuard:
    """A guard of a machine on whose screen that user is."""
    guard: RealGuard = make_guard(start=False)
    guard.config["security"] |= {"allow_root": True, "min_uid": 1}
    machine = guard.directory / "run-of-machine"
    (machine / "systemd/sessions").mkdir(parents=True)
    (machine / "systemd/sessions/2").write_text(f"UID={uid}\nACTIVE=1\nREMOTE=0\nCLASS=user\nTYPE=wayland\n")
    guard.within = ["unshare", "--mount", "sh", "-c", f'mount -n --bind {machine} /run && exec "$@"', "sh"]
    return guard.start()


@bus
def test_the_helper_passes_on_what_gnome_knows_and_a_film_that_ends_is_over(make_guard: Any, session_bus: Bus) -> None:
    guard = at_screen(make_guard)
    session_bus.play(*GNOME)
    session_bus.method(*GNOME, "IsInhibited", "u", "b", "ret = args[0] == 8")
    helper = in_session(guard, session_bus)
    try:
        told = guard.event("desk")
        assert told["inhibited_until_us"] > time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6
        session_bus.method(*GNOME, "IsInhibited", "u", "b", "ret = False")
        wait_for(lambda: _still(guard), "the film to be said no more")
    finally:
        helper.terminate()
        helper.wait()


def _still(guard: RealGuard) -> bool:
    before = guard.status()["inhibited_until_us"]
    time.sleep(0.6)
    return bool(guard.status()["inhibited_until_us"] == before)


@bus
def test_gnomes_word_does_not_count_while_a_job_of_that_user_is_there(make_guard: Any, session_bus: Bus) -> None:
    guard = at_screen(make_guard)
    guard.prepare(user=pwd.getpwuid(os.geteuid()).pw_name)
    session_bus.play(*GNOME)
    session_bus.method(*GNOME, "IsInhibited", "u", "b", "ret = True")
    helper = in_session(guard, session_bus)
    try:
        assert guard.status()["inhibited_until_us"] == 0
        guard.ask({"do": "kill", "job": 1, "attempt": 1, "grace_us": 0})
        guard.event("empty", job=1)
        guard.ask({"do": "forget", "job": 1, "attempt": 1})
        wait_for(lambda: guard.status()["inhibited_until_us"], "GNOME's word to count again")
    finally:
        helper.terminate()
        helper.wait()


@bus
def test_a_job_that_begins_is_notified_and_the_helper_ends_with_its_session(
    make_guard: Any, session_bus: Bus, tmp_path: Path
) -> None:
    guard = at_screen(make_guard)
    seen = tmp_path / "notices"
    session_bus.play(*NOTICES)
    session_bus.method(
        *NOTICES,
        "Notify",
        "susssasa{sv}i",
        "u",
        f"open({str(seen)!r}, 'a').write(str(args[3]) + '|' + str(args[4]) + chr(10)); ret = 1",
    )
    guard.prepare(job=1)
    helper = in_session(guard, session_bus)
    try:
        jobs = itertools.count(7)

        def told() -> bool:
            guard.prepare(job=next(jobs), memory_bytes=1 << 20)  # there is room for as many as it takes
            time.sleep(0.5)
            return seen.exists() and bool(seen.read_text())

        wait_for(told, "a notification")
        title, body = seen.read_text().splitlines()[0].split("|")
        assert title == "Parallel work runs on this computer"
        user = guard.preparation()["user"]
        assert re.match(rf"job \d+ of {user}(, job \d+ of {user})*( and \d+ more)?\.", body)
        assert not body.startswith("job 1 of"), "what was there before is no news"
        session_bus.close()
        session_bus.path.unlink(missing_ok=True)
        assert helper.wait(timeout=BOUND_S) == 0
    finally:
        helper.kill()
        helper.wait()
