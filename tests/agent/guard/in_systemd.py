"""Guard and agent as systemd's own services, run where systemd is process 1 (see ``test_guard_uml``, ``uml-init``).

Not collected by itself: it makes an account and writes units to /etc/systemd/system, and starts them.
"""

import fcntl
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kit.guards import ClientByHand, alive, ordinary_user
from kit.needs import ROOT
from kit.waiting import BOUND_S, wait_for

from cosched.apps.enrol import identity, services
from cosched.apps.enrol.enrolment import answered
from cosched.config.node import NodeConfig
from cosched.errors import Failed
from cosched.identity.authority import create_authority
from cosched.install import roles
from cosched.install.layout import AGENT, UNITS, Layout
from cosched.install.settings import NodeFacts, node_settings
from cosched.install.units import PLACE, SLICE
from cosched.linux import machine
from cosched.linux.files import exec_problem
from node_agent.guard.base.client import GuardGone

GROUPS = Path("/sys/fs/cgroup")
SIDE = GROUPS / PLACE
BASE = Path("/run/node")
MIB = 1 << 20
#: The test outside says it on the kernel's command line: systemd hands down no environment.
KILLS = int(re.findall(r"\bcosched_kills=(\d+)", Path("/proc/cmdline").read_text())[0])


def python_for_all() -> str:
    """This environment's packages with an interpreter of its version that every account may run, also without homes."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    places = (Path(sys.base_prefix, "bin", version), Path("/usr/bin", version), Path("/usr/local/bin", version))
    found = next((each for each in places if each.exists() and not exec_problem(each, others=True)), None)
    assert found is not None, f"the agent's account needs a {version} outside of homes"
    made = BASE / "venv"
    subprocess.run([found, "-m", "venv", "--without-pip", made], check=True)
    site = f"lib/{version}/site-packages"
    (made / site / "cosched.pth").write_text(f"{ROOT}\n{Path(sys.prefix) / site}\n")
    return str(made / "bin" / "python")


@pytest.fixture(scope="module")
def installed() -> Iterator[tuple[NodeConfig, Layout]]:
    """This machine as a node, its guard and agent started by systemd, laid out as an enrolment does it."""
    BASE.mkdir()
    create_authority(BASE / "authority", "test")
    layout = Layout(str(BASE / "etc"), str(BASE / "state"), str(BASE / "run"), python_for_all())
    config = node_settings(
        NodeFacts("desk1", "test", "wss://127.0.0.1:9/v1/agent", "127.0.0.1", 1, 512 * MIB, 7700, placed=True), layout
    )
    etc = Path(layout.etc)
    try:
        request = identity.request(etc, "desk1")
        services.lay(config, layout, "systemd")
        identity.accept(etc, identity.answer(answered(BASE / "authority", request, "desk1", "127.0.0.1")), AGENT)
        try:
            services.start(config, layout, "systemd")
        except Failed:  # User Mode Linux is slow, and what confines the agent is many system calls
            try:
                wait_for(lambda: Path(layout.run, "agent.sock").exists(), "the agent")
            except AssertionError:
                subprocess.run(["systemctl", "status", "--no-pager", "--full", *services.NAMES], check=False)
                raise
        yield config, layout
    finally:
        services.stop(config)


def ask(config: NodeConfig, request: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
    """Ask the guard, as its agent would; that is stopped meanwhile, for the guard serves one."""

    def answered() -> dict[str, Any] | None:
        try:
            with closing(ClientByHand(f"{config.paths.run}/guard.sock")) as guard:
                guard.ask({"do": "arm"})
                return dict(guard.ask(request, fds, timeout_s=20))
        except GuardGone:
            return None

    found: dict[str, Any] = wait_for(answered, "the guard")
    return found


def systemctl(*words: str) -> str:
    return subprocess.run(
        ["systemctl", *words], capture_output=True, text=True, check=True, timeout=BOUND_S
    ).stdout.strip()


def cpu_max() -> str:
    return (SIDE / "cpu.max").read_text().split()[0]


def test_parallel_work_lies_in_a_slice_that_is_idle(installed: tuple[NodeConfig, Layout]) -> None:
    assert machine.gives_slices()
    assert (GROUPS / SLICE / "cpu.idle").read_text().strip() == "1"
    assert cpu_max() == "5000"  # armed: half of a CPU in each 10 ms
    assert systemctl("is-active", "cosched-agent", "cosched-guard", "cosched-jobs").split() == ["active"] * 3


#: What the guard enforces in Debian's User Mode Linux, which has no controller cpuset and an old kernel.
ENFORCED = (
    "cpu ceiling", "idle class", "memory limit", "job kill", "processes limit", "job weights", "protects the desk",
    "load by side", "private /tmp", "switch user",
)  # fmt: skip


def in_agents_sandbox(*argv: str) -> list[str]:
    """The command with the account, the rights and the view of the agent's unit, whose process must run."""
    pid, account = main_pid("cosched-agent"), pwd.getpwnam(AGENT)
    return ["nsenter", f"--target={pid}", "--mount", "setpriv", f"--reuid={account.pw_uid}",
            f"--regid={account.pw_gid}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs",
            *argv]  # fmt: skip


@pytest.mark.parametrize("beside", ["root beside the agent", "the agent's sandbox", "root beside the guard alone"])
def test_check_warns_of_nothing_that_is_enforced(installed: tuple[NodeConfig, Layout], beside: str) -> None:
    _, layout = installed
    argv = [layout.python, "-m", "cosched.apps.cli.main", "agent", "--config", layout.settings, "--check", "--json"]
    if "sandbox" in beside:
        argv = in_agents_sandbox(*argv)
    if "alone" in beside:
        systemctl("stop", "cosched-agent")
    checked = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=BOUND_S)
    systemctl("start", "cosched-agent")
    found = {each["what"]: each for each in json.loads(checked.stdout)["findings"]}
    assert found["guard"]["level"] == "ok", found
    assert {what: found[what]["found"] for what in ENFORCED} == dict.fromkeys(ENFORCED, "yes")
    assert found["cgroups"] == {"what": "cgroups", "level": "ok", "found": "v2"}


def test_limits_outlast_a_reload_and_jobs_a_guard(installed: tuple[NodeConfig, Layout]) -> None:
    config, _ = installed
    systemctl("stop", "cosched-agent")
    account = ordinary_user()
    ask(config, {
        "do": "prepare", "job": 1, "attempt": 1, "user": account.pw_name, "directory": "/", "tasks": 1,
        "memory_bytes": 64 * MIB, "limit_us": None, "grace_us": 1_000_000, "umask": 0o022,
        "cpus": None, "asleep": False, "uid": account.pw_uid,
    })  # fmt: skip
    with open("/dev/null", "r+b") as null:
        fds = (null.fileno(),) * 3
        pid = int(ask(config, {
            "do": "spawn", "job": 1, "attempt": 1, "n": 0, "argv": ["sleep", "600"], "env": {}, "cwd": "/",
            "script": False, "output": None, "error": None, "stream": None,
        }, fds)["pid"])  # fmt: skip
    assert Path(f"/proc/{pid}/cgroup").read_text().strip() == f"0::/{PLACE}/job-1.1"
    systemctl("daemon-reload")
    assert (GROUPS / SLICE / "cpu.idle").read_text().strip() == "1"
    assert cpu_max() == "5000"
    systemctl("restart", "cosched-guard")
    assert alive(pid)
    (group,) = ask(config, {"do": "list"})["groups"]
    assert (group["job"], group["attempt"]) == (1, 1)
    ask(config, {"do": "kill", "job": 1, "attempt": 1, "grace_us": 0})
    wait_for(lambda: not alive(pid), "the job's end")
    systemctl("start", "cosched-agent")


@pytest.mark.usefixtures("installed")
def test_job_groups_have_every_delegated_controller_that_is_used() -> None:
    """After a reload too. A User Mode Linux has no cpuset; Debian's kernels do."""
    delegated = (SIDE.parent / "cgroup.controllers").read_text().split()
    given = (SIDE / "cgroup.subtree_control").read_text().split()
    assert set(given) == {"cpu", "cpuset", "memory", "pids"}.intersection(delegated)


def main_pid(name: str) -> int:
    return int(systemctl("show", "--property=MainPID", "--value", name))


#: What the agent's account tries, with the rights and in the view of the agent; each must be refused.
TRIES = """
import os, signal, socket
guard, etc, state, side = {guard}, {etc!r}, {state!r}, {side!r}
def refused(what, attempt):
    try:
        attempt()
    except OSError:
        return
    print(what)
open(etc + "/identity/node.key").read()
refused("signals the guard", lambda: os.kill(guard, signal.SIGTERM))
refused("writes settings", lambda: open(etc + "/node.toml", "a"))
refused("writes certificates", lambda: open(etc + "/identity/node.pem", "a"))
refused("moves its key", lambda: os.rename(etc + "/identity/node.key", etc + "/identity/other"))
refused("reads the guard's records", lambda: os.listdir(state + "/records"))
refused("writes limits", lambda: open(side + "/cpu.max", "w"))
refused("reads passwords", lambda: open("/etc/shadow"))
refused("sees homes", lambda: os.listdir({home!r}))
refused("writes to the system", lambda: open("/usr/bin/sh", "a"))
refused("becomes root", lambda: os.setuid(0))
refused("makes packets by hand", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
refused("reads the guard's memory", lambda: open(f"/proc/{{guard}}/environ"))
"""


def test_the_agents_account_can_do_what_it_must_and_nothing_else(installed: tuple[NodeConfig, Layout]) -> None:
    config, layout = installed
    account = pwd.getpwnam(AGENT)
    wait_for(lambda: Path(layout.run, "agent.sock").exists(), "the agent, which the test before has started")
    pid = main_pid("cosched-agent")
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert set(status["Uid"].split()) == {str(account.pw_uid)}
    assert [int(status[key], 16) for key in ("CapEff", "CapPrm", "CapAmb", "CapBnd")] == [0] * 4
    assert status["NoNewPrivs"] == "1"
    assert Path(layout.run, "agent.sock").stat().st_uid == account.pw_uid  # it listens, and the guard answers it
    guard, home = main_pid("cosched-guard"), pwd.getpwuid(0).pw_dir
    text = TRIES.format(guard=guard, etc=layout.etc, state=config.paths.state, side=str(SIDE), home=home)
    argv = in_agents_sandbox(layout.python, "-c", text)
    tried = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=BOUND_S)
    assert (tried.returncode, tried.stdout, tried.stderr) == (0, "", "")


def test_files_are_as_the_installation_says(installed: tuple[NodeConfig, Layout]) -> None:
    config, layout = installed
    made = roles.node(config, layout)
    each: Any
    for each in (*made.directories, *made.files, *made.identity):
        status = os.stat(each.path)
        assert pwd.getpwuid(status.st_uid).pw_name == each.owner, each.path
        assert f"{status.st_mode & 0o7777:04o}" == each.mode, each.path


def test_a_guard_that_hangs_is_killed_and_its_successor_is_armed(installed: tuple[NodeConfig, Layout]) -> None:
    hung = main_pid("cosched-guard")
    os.kill(hung, signal.SIGSTOP)
    (SIDE / "cpu.max").write_text("max 10000")  # as if it had hung while the owner was away
    wait_for(lambda: main_pid("cosched-guard") not in (0, hung), "another guard")
    wait_for(lambda: cpu_max() == "5000", "the contract to be armed")
    assert not alive(hung)


def test_kills_in_a_row_end_in_no_start_limit(installed: tuple[NodeConfig, Layout]) -> None:
    seen = set()
    for _ in range(KILLS):
        pid = wait_for(lambda: main_pid("cosched-guard") or None, "the next guard")
        seen.add(pid)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: main_pid("cosched-guard") != pid, "its end to be seen")  # noqa: B023
    assert len(seen) == KILLS
    wait_for(lambda: systemctl("show", "--property=ActiveState", "--value", "cosched-guard") == "active", "the last")
    wait_for(lambda: cpu_max() == "5000", "the contract to be armed")


def shown(name: str, unit_property: str) -> str:
    return systemctl("show", f"--property={unit_property}", "--value", name)


def test_unusable_settings_stop_the_guard_until_they_are_mended(installed: tuple[NodeConfig, Layout]) -> None:
    _, layout = installed
    settings = Path(layout.settings)
    usable = settings.read_text()
    settings.write_text(f"{usable}\n[unheard]\n")
    try:
        os.kill(main_pid("cosched-guard"), signal.SIGKILL)
        wait_for(lambda: shown("cosched-guard", "ActiveState") == "failed", "the guard's unit to stop")
        assert shown("cosched-guard", "ExecMainStatus") == "2"
    finally:
        settings.write_text(usable)
    systemctl("restart", "cosched-guard")
    wait_for(lambda: cpu_max() == "5000", "the contract to be armed")


def test_guard_that_cannot_start_pauses_before_it_tries_again(installed: tuple[NodeConfig, Layout]) -> None:
    config, _ = installed
    systemctl("stop", "cosched-guard")
    with Path(config.paths.state, "records", "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        systemctl("start", "--no-block", "cosched-guard")
        wait_for(lambda: shown("cosched-guard", "SubState") == "stop-post", "the pause after a start that failed")
        assert shown("cosched-guard", "ExecMainStatus") == "1"
    wait_for(lambda: shown("cosched-guard", "ActiveState") == "active", "the guard to start")


def test_nothing_is_left_when_a_node_is_removed(installed: tuple[NodeConfig, Layout]) -> None:
    config, _ = installed
    services.stop(config)
    assert not list(Path(UNITS).glob("cosched*"))
    end_s = time.monotonic() + 20
    while SIDE.exists() and time.monotonic() < end_s:
        time.sleep(0.1)
    assert not SIDE.exists()
