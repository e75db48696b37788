"""A user who sits at this machine: what he says he used is what the kernel says, and he leaves nothing behind."""

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.command import Call
from kit.desks import LOCAL_LOAD, below, modules, told, user
from kit.needs import need_root
from kit.waiting import BOUND_S, wait_for

from cosched.linux.presence import KeyWatch
from local_load.profile import Distribution, Typing, find

_HELD = ("--seconds", "600", "--json", "--memory", "512MiB")


def wait_until_he_types(process: "subprocess.Popen[str]") -> dict[str, int]:
    """Come back when keys are read at his terminal; his processes by what they are."""
    found: dict[str, int] = {}

    def types() -> bool:
        found.clear()
        found.update(modules(process.pid))
        return process.poll() is not None or (
            {"user", "probe", "editor"} <= set(found) and keys_read(found["editor"]) > 2
        )

    wait_for(types, "keys to be read at his terminal")
    assert process.poll() is None, process.communicate()
    return found


def keys_read(editor: int) -> int:
    """How much a process has read; nothing when it has ended."""
    try:
        return int(Path(f"/proc/{editor}/io").read_text().split()[1])
    except OSError:
        return 0


def told_after(process: "subprocess.Popen[str]", number: signal.Signals, parts: dict[str, int]) -> dict[str, Any]:
    """What he tells when he is told to leave by this signal; all of him goes."""
    process.send_signal(number)
    document = told(process)
    assert document["sessions"] == 1
    assert document["seconds"] < 120
    assert not [pid for pid in parts.values() if Path(f"/proc/{pid}").exists()]
    return document


def test_whoever_kills_the_run_ends_all_of_it() -> None:
    with user(*_HELD) as process:
        parts = wait_until_he_types(process)
        process.kill()
        wait_for(lambda: not [pid for pid in parts.values() if Path(f"/proc/{pid}").exists()], "all of him to be gone")


def test_a_user_whose_process_is_killed_is_told_as_a_failure() -> None:
    with user(*_HELD) as process:
        os.kill(wait_until_he_types(process)["user"], signal.SIGKILL)
        out, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 1
    assert "ended with signal 9" in err
    assert json.loads(out)["problems"]


def test_he_types_at_a_terminal_of_his_own_that_keys_are_read_from() -> None:
    with user(*_HELD) as process:
        parts = wait_until_he_types(process)
        editor = parts["editor"]
        assert os.stat(f"/proc/{editor}/fd/0").st_rdev == os.stat(os.readlink(f"/proc/{editor}/fd/0")).st_rdev
        status = Path(f"/proc/{editor}/stat").read_bytes().rpartition(b")")[2].split()
        session, terminal = int(status[3]), int(status[4])
        assert session == editor
        assert terminal >> 8 & 0xFFF in range(136, 144)  # Unix98 pseudo-terminals
        before = keys_read(editor)
        wait_for(lambda: keys_read(editor) >= before + 4, "keys to be read, the last of which may not be heard of")
        document = told_after(process, signal.SIGHUP, parts)
    assert document["calls"]["key"]["count"] > 2
    assert document["lost_keys"] == 0


def test_idle_synthetic_user_keeps_emitting_presence_signs(tmp_path: Path) -> None:
    """One key, then a thought of an hour: agents take a desk for left after seconds in a lab, after a minute else."""
    once, hour = Distribution("constant", 1.0), Distribution("constant", 3600.0)
    thinker = msgspec.structs.replace(find("xwindows"), typing=Typing(word_keys=once, key_gap_s=once, think_s=hour))
    (tmp_path / "thinker.json").write_bytes(msgspec.json.encode(thinker))
    with user(*_HELD, "--profile", tmp_path / "thinker.json") as process, contextlib.closing(KeyWatch()) as watch:
        parts: dict[str, int] = {}
        wait_for(lambda: parts.update(modules(process.pid)) or keys_read(parts.get("editor", 0)) > 0, "the key")
        watch.used()
        signs: list[set[int]] = []

        def seen() -> bool:
            if used := watch.used() & terminals(parts["user"]):
                signs.append(used)
            return len(signs) >= 4

        wait_for(seen, "signs of presence without a key")
        process.terminate()
        document = told(process)
    assert document["calls"]["key"]["count"] == 1


def terminals(pid: int) -> set[int]:
    """Device numbers of the pseudo-terminals that a process has open."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(each).startswith("/dev/pts/"):
                found.add(each.stat().st_rdev)
    return found


LOGIN = """
import ctypes, os, subprocess
from kit import desks
libc = ctypes.CDLL(None)
libc.getutxent.restype = ctypes.c_void_p
def logged_in():
    libc.setutxent()
    records = iter(libc.getutxent, None)
    return [ctypes.string_at(each + 8).decode() for each in records if ctypes.c_short.from_address(each).value == 7]
mount = subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
open("/run/utmp", "w").close()
with desks.user("--seconds", "600", "--json", "--memory", "512MiB") as process:
    import time
    end = time.monotonic() + 60
    while not (seen := logged_in()):
        assert time.monotonic() < end, "nobody is logged in"
        time.sleep(0.05)
    parts = desks.modules(process.pid)
    print(seen[0], os.readlink(f"/proc/{parts['editor']}/fd/0").removeprefix("/dev/"))
    process.terminate()
    document = desks.told(process)
print(document["logins"], logged_in())
"""


def test_he_is_logged_in_while_he_is_there() -> None:
    """In the utmp of a /run of its own, at the terminal that he really has.

    Read as C's library does; Debian 13's ``who`` asks logind, which a synthetic user does not.
    """
    need_root()
    ended = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", LOGIN],
        env=os.environ | {"PYTHONPATH": f"{Path(__file__).parents[1]}:{Path(__file__).parents[2]}"},
        capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    seen, after = ended.stdout.splitlines()
    assert len(set(seen.split())) == 1
    assert after == "1 []"


#: In a network of its own, where nothing else moves: what the loopback's counters say, and what he says.
ALONE = """
import json, subprocess, sys
from kit import desks
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
def bytes_on_the_wire():
    lines = open("/proc/net/dev").read().splitlines()
    return int(next(line for line in lines if "lo:" in line).split(":")[1].split()[0])
with desks.user(*sys.argv[1:]) as process:
    document = desks.told(process, 400)
print(json.dumps(document | {"counted": bytes_on_the_wire()}))
"""


def alone(*arguments: str) -> dict[str, Any]:
    need_root()
    ended = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", ALONE, *arguments],
        env=os.environ | {"PYTHONPATH": f"{Path(__file__).parents[1]}:{Path(__file__).parents[2]}"},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


@pytest.mark.slow
@pytest.mark.system("iproute2")
def test_what_he_says_of_the_network_is_what_the_interface_counted() -> None:
    document = alone("--profile", "internet", "--seconds", "6", "--json", "--memory", "512MiB")
    said = document["targets"]["network"]["achieved_bytes_per_s"] * document["present_s"]
    assert said > 1_000
    assert said == pytest.approx(document["counted"], rel=0.05, abs=600)  # the connection's beginning and end


@pytest.mark.long
@pytest.mark.system("iproute2")
@pytest.mark.parametrize("seed", ["1", "2", "3"])
@pytest.mark.parametrize("profile", ["xwindows", "internet"])
def test_a_profile_is_held_for_five_minutes(profile: str, seed: str) -> None:
    """On a machine that does nothing else; ``./run bench profiles`` prints it as a table."""
    document = alone("--profile", profile, "--seed", seed, "--seconds", "300", "--json", "--memory", "1GiB")
    assert [what for what, found in document["targets"].items() if not found["held"]] == []
    assert document["probe"]["within_budget"]


@pytest.mark.slow
def test_what_he_says_of_cpu_and_memory_is_what_the_kernel_accounts() -> None:
    with user("--profile", "internet", "--seconds", "600", "--json", "--memory", "512MiB") as process:
        parts = wait_until_he_types(process)
        start_s = cpu_of(process.pid, "user", "editor")  # Python, and calibration: not what he does
        wait_for(lambda: cpu_of(process.pid, "user", "editor") > start_s + 0.6, "some CPU")
        kernel_s = cpu_of(process.pid, "user", "editor") - start_s
        held = sum(pss(pid) for pid in below(process.pid))
        document = told_after(process, signal.SIGINT, parts)
    memory = document["targets"]["memory"]
    assert memory["target_bytes"] == round(0.6 * (512 << 20))
    assert held == pytest.approx(memory["target_bytes"], rel=0.05)
    assert memory["achieved_bytes"] == pytest.approx(memory["target_bytes"], rel=0.05)
    said_s = document["targets"]["cpu"]["achieved_share"] * document["present_s"]
    # the kernel's figure may have some of the start still, and stops before his last moments
    assert 0.5 * kernel_s < said_s < kernel_s + 3.0


def cpu_of(pid: int, *names: str) -> float:
    total = 0.0
    for name, each in modules(pid).items():
        if name in names:
            fields = Path(f"/proc/{each}/stat").read_bytes().rpartition(b")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def pss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's settings: 512 MiB, of which the contract leaves half to its user."""
    path = tmp_path / "node.toml"
    path.write_text(
        'name = "here"\ncluster = "c"\nprocs = 1\nmemory_bytes = 536870912\n'
        '[scheduler]\nurl = "wss://127.0.0.1:1/v1/agent"\n[launch]\naddress = "127.0.0.1"\n'
        "[contract]\ncpu_ratio = 0.5\nmemory_ratio = 0.5\n"
    )
    return path


def test_he_takes_no_more_memory_than_the_contract_leaves_and_says_so(node: Path) -> None:
    with user("--profile", "internet", "--seconds", "600", "--json", "--node", str(node)) as process:
        parts = wait_until_he_types(process)
        wait_for(lambda: sum(pss(pid) for pid in below(process.pid)) > 240 << 20, "his memory")
        memory = told_after(process, signal.SIGTERM, parts)["targets"]["memory"]
    assert memory["target_bytes"] == round(0.6 * (512 << 20))
    assert memory["achieved_bytes"] == pytest.approx(256 << 20, rel=0.03)
    assert memory["held"] is False
    assert memory["why"] == "the contract leaves 50% (--beyond-contract takes more)"


def test_told_to_he_takes_what_his_profile_says(node: Path) -> None:
    with user("--profile", "internet", "--seconds", "600", "--json", "--node", node, "--beyond-contract") as process:
        wait_until_he_types(process)
        wait_for(lambda: sum(pss(pid) for pid in below(process.pid)) > 300 << 20, "his memory")
        process.terminate()
        memory = told(process)["targets"]["memory"]
    assert memory["held"] is True
    assert memory["achieved_bytes"] == pytest.approx(0.6 * (512 << 20), rel=0.03)


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group (version 1) with 160 MiB of memory, as a lab's node has one."""
    need_root()
    mount = Path("/sys/fs/cgroup/memory")
    if not mount.is_dir():
        pytest.skip("needs control groups of version 1 with memory")
    group = mount / f"local-load-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(160 << 20))
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()


def test_a_nodes_memory_is_its_control_groups(small_group: Path) -> None:
    enter = ("sh", "-c", f'echo $$ > {small_group}/cgroup.procs && exec "$@"', "enter")
    with user("--seconds", "600", "--json", "--profile", "internet", prefix=enter) as process:
        wait_until_he_types(process)
        process.terminate()
        document = told(process)
    assert document["node_memory_bytes"] == 160 << 20
    assert document["targets"]["memory"]["target_bytes"] == round(0.6 * (160 << 20))
    assert int((small_group / "memory.failcnt").read_text()) == 0


@pytest.mark.slow
def test_a_recorded_presence_is_replayed(tmp_path: Path) -> None:
    """Present for a while, away, present again: as many sessions, and only then a terminal.

    Where all stood still he may leave late, or not come at all; so there are more sessions than are looked at.
    """
    recorded = [(0.5 + 7 * turn, 5.5 + 7 * turn) for turn in range(80)]
    trace, log = tmp_path / "trace.csv", tmp_path / "log"
    rows = "".join(f"{begin_s},present\n{end_s},away\n" for begin_s, end_s in recorded)
    trace.write_text(f"at_s,presence\n0,away\n{rows}")

    def said(what: str) -> list[float]:
        text = log.read_text() if log.exists() else ""
        return [float(at_s) for at_s in re.findall(rf"^ *([0-9.]+) s  {what}\n", text, re.MULTILINE)]

    def left_in_time() -> bool:
        return any(0 <= left_s - end_s <= 1 for left_s in said("he has left") for _, end_s in recorded)

    with user(*_HELD, "--presence", trace, prefix=("sh", "-c", 'exec "$@" 2>"$0"', str(log))) as process:
        wait_for(left_in_time, "him to leave when the trace says")
        wait_for(lambda: "editor" not in modules(process.pid), "his terminal to be gone")
        wait_for(lambda: len(said("he sits down")) > 1, "him to come again")
        wait_until_he_types(process)
        process.terminate()
        document = told(process)
    sat, left = said("he sits down"), said("he has left")
    assert document["sessions"] == len(sat) == len(left)
    for sat_s, left_s in zip(sat, left, strict=True):
        begin_s, end_s = max(each for each in recorded if each[0] <= sat_s)
        assert begin_s <= sat_s <= end_s
        assert left_s >= end_s or left_s == left[-1]  # at last he was told to
    assert 0 < document["present_s"] <= sum(left) - sum(sat) + 0.1 * len(sat)
    assert document["problems"] == []


def test_called_in_a_process_it_leaves_signals_as_they_were(cosched: Call, tmp_path: Path) -> None:
    """And nobody's terminal, process or file is left; what it measured is in the directory."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    children = below(os.getpid())
    ended = cosched("local-load", "probe", "--seconds", "1", "--calls", "getpid,nanosleep", "--out", tmp_path / "o")
    assert ended.status == 0, ended.err
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before
    assert set(below(os.getpid())) <= set(children)
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["samples.parquet", "summary.json"]
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert summary["calls"]["getpid"]["count"] > 5


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    import socket  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*LOCAL_LOAD, "run", "--seconds", "5", "--listen", f"127.0.0.1:{port}"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert ended.returncode == 1
    assert f"127.0.0.1:{port}: Address already in use" in ended.stderr


def test_wire_bytes_are_read_from_where_the_kernel_has_them() -> None:
    from local_load.peer import wire_bytes_of  # noqa: PLC0415

    info = bytearray(256)
    info[5] = 1  # timestamps
    struct.pack_into("=Q", info, 128, 1000)
    struct.pack_into("=II", info, 136, 3, 4)
    struct.pack_into("=Q", info, 200, 500)
    assert wire_bytes_of(bytes(info), False) == 1500 + 7 * 66
    assert wire_bytes_of(bytes(info), True) == 1500 + 7 * 86
    assert wire_bytes_of(bytes(104), False) == 0  # an old kernel: nothing is claimed
