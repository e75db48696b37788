"""A profile recorded of somebody is that of such a user: here of a synthetic one, whose profile is known."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.command import Call
from kit.desks import LOCAL_LOAD, modules, user
from kit.waiting import BOUND_S, wait_for

from local_load import machine, memory
from local_load.profile import find
from local_load.record import Recorded, fitted

NODE = 512 << 20


@pytest.mark.slow
def test_who_is_recorded_is_found_again(tmp_path: Path, cosched: Call) -> None:
    """Memory, network, the rhythm of keys; CPU as the kernel has it (how much he gets is the machine's affair)."""
    with user("--profile", "internet", "--seconds", "600", "--memory", "512MiB") as process:
        wait_for(lambda: "editor" in modules(process.pid), "him to sit down")
        wait_for(lambda: memory.resident_bytes(machine.family(process.pid)) > 0.55 * NODE, "his memory")
        before_s, began_s = cpu_s(process.pid), time.monotonic()
        options = ("--pid", process.pid, "--seconds", 7, "--loopback", "--name", "again")
        ended = cosched("local-load", "record", *options, "--out", tmp_path / "p.yaml")
        used_s, took_s = cpu_s(process.pid) - before_s, time.monotonic() - began_s
        process.terminate()
        process.communicate(timeout=BOUND_S)
    assert ended.status == 0, ended.err
    found = find(str(tmp_path / "p.yaml"))
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    held = found.memory_share * whole
    assert held == pytest.approx(0.6 * NODE, rel=0.1, abs=whole / 5000)
    watched_s = float(found.about.removeprefix("recorded for ").removesuffix(" s"))
    assert 7 <= watched_s <= took_s + 0.5
    # he was watched for most of the time between the two looks at his CPU, and did not rest in the other
    off_s = max(0.3 * used_s, 0.3)
    assert found.cpu_share * watched_s - off_s < used_s < found.cpu_share * took_s + off_s
    assert found.network_bytes_per_s > 100
    assert found.name == "again"


def cpu_s(pid: int) -> float:
    total = 0.0
    for each in modules(pid).values():
        fields = Path(f"/proc/{each}/stat").read_bytes().rpartition(b")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def test_what_was_seen_becomes_the_profile() -> None:
    """Words of five keys 0.2 s apart, 2 s between words; 0.25 CPUs in bursts each 4 s."""
    keys = [word * 2.8 + key * 0.2 for word in range(20) for key in range(5)]
    looks = [(0.5, 0.5 if at % 8 in (0, 1) else 0.0) for at in range(112)]
    seen = Recorded(56.0, 14.0, 0.3 * NODE, 56_000, keys, looks)
    profile, notes = fitted(seen, "who", NODE, find("xwindows"))
    assert profile.cpu_share == 0.25
    assert profile.memory_share == 0.3
    assert profile.network_bytes_per_s == 1000
    assert profile.typing.word_keys.mean == pytest.approx(5)
    assert profile.typing.key_gap_s.mean == pytest.approx(0.2)
    assert profile.typing.think_s.mean == pytest.approx(2.0)
    assert profile.phase_s.mean == pytest.approx(4.0, rel=0.1)
    assert all("keys" not in note for note in notes)


def test_what_was_not_seen_is_said() -> None:
    seen = Recorded(10.0, 20.0, 2.0 * NODE, 0, [], [(0.5, 1.0)])
    profile, notes = fitted(seen, "who", NODE, find("internet"))
    assert (profile.cpu_share, profile.memory_share) == (0.95, 1.0)
    assert profile.typing == find("internet").typing
    assert any("only 0 keys" in note for note in notes)
    assert any("2.00 CPUs" in note for note in notes)


def test_profile_to_a_dash_is_printed(cosched: Call) -> None:
    ended = cosched("local-load", "record", "--pid", os.getpid(), "--seconds", 1, "--out", "-")
    assert ended.status == 0, ended.err
    assert "name: recorded" in ended.out
    assert not Path("-").exists()


def test_presence_needs_a_scheduler() -> None:
    command = [*LOCAL_LOAD, "presence", "--server", "/nonexistent/s.sock", "--seconds", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert ended.returncode == 3, sys.executable
