"""``cosched agent --check`` and how an agent that cannot start says so."""

import asyncio
import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.agents import DEADLINE_S, Cluster, until
from kit.command import Call, cosched

from cosched.config.node import load_node
from cosched.linux import files, sessions
from node_agent.guard.base.client import GuardClient
from node_agent.service import check
from node_agent.service.card import Card, card_of, listens_asleep
from node_agent.service.check import findings, known_to_itself_alone

__all__ = ["cosched"]

#: The rooms that the guard loads: its own, the programs that it starts, and rules that are pure.
PRIVILEGED = ("guard", "policy", "programs")
CARD = Card("eth9", "52:54:00:12:34:56", "10.0.0.255")


def program(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "cosched.apps.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)


async def test_everything_is_looked_at_and_named(cluster: Cluster) -> None:
    node = cluster.node("a", start=False)
    node.start_guard()
    async with cluster.scheduler():
        await until((node.run / "guard.sock").exists, "the guard")
        ended = await asyncio.to_thread(program, "agent", "--config", node.config, "--check", "--json")
    document = json.loads(ended.stdout)
    found = {each["what"]: each for each in document["findings"]}
    assert (document["node"], document["ok"], ended.returncode) == ("a", True, 0)
    for what in ("certificate", "grant key", "scheduler", "launch port", "guard", "presence: keys"):
        assert found[what]["level"] == "ok", found[what]
    for what in ("cpu ceiling", "idle class", "protects the desk"):
        assert found[what]["level"] == ("ok" if found[what]["found"] == "yes" else "warn")
    assert found["hand-offs"]["level"] == "warn"
    assert "not asked for (cgroup.decoys)" in found["hand-offs"]["found"]


async def test_check_beside_a_running_agent_has_the_guards_own_word(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tried with its own rights what the guard enforces, and warned of 13 things that were enforced."""
    node = cluster.node("a", start=False)
    node.start_guard()
    config = load_node(node.config)
    await until((node.run / "guard.sock").exists, "the guard")
    alone = [each for each in await asyncio.to_thread(lambda: [*check._enforcement(config)]) if each.what != "guard"]
    monkeypatch.setattr(check, "what_can", lambda config: pytest.fail("tried with the rights of the check"))
    with GuardClient(str(node.run / "guard.sock")):  # an agent's connection
        beside = await asyncio.to_thread(lambda: [*check._enforcement(config)])
    assert beside[0].found == f"serves this node's agent at {node.run}/guard.sock"
    assert beside[1:] == alone


@pytest.mark.parametrize(
    ("users", "mounts", "level", "words"),
    [
        ("switch", "head:/users /users nfs4 rw 0 0\n", "ok", "where the uid here is that on the scheduler's host"),
        ("by-name", "/dev/sda1 / ext4 rw 0 0\n", "ok", "whatever its uid"),
        ("by-name", "/dev/sda1 / ext4 rw 0 0\nhead:/users /users nfs4 rw 0 0\n", "warn", "files on /users (nfs4) are"),
        ("by-name", "ada@head: /mnt/x fuse.sshfs rw 0 0\nx /y fuse.glusterfs rw 0 0\n", "warn", "/y (fuse.glusterfs)"),
    ],
)
def test_uids_of_jobs_are_told_and_shared_file_systems_named(
    cluster: Cluster, users: str, mounts: str, level: str, words: str
) -> None:
    node = cluster.node("a", start=False, security=f'users = "{users}"')
    found = check.users_found(load_node(node.config), mounts)
    assert (found.level, words in found.found) == (level, True), found


def test_what_keeps_an_agent_from_serving_is_a_failure(cluster: Cluster, cosched: Call) -> None:
    node = cluster.node("a", start=False)
    (node.identity / "grant.pub").unlink()
    (node.identity / "node.key").chmod(0o644)
    ended = cosched("agent", "--config", node.config, "--check")
    assert ended.status == 1
    lines = {line[6:28].strip(): line for line in ended.out.splitlines()}
    assert lines["certificate"].startswith("fail")
    assert "mode 0644" in lines["certificate"]
    assert lines["grant key"].startswith("fail")
    assert lines["scheduler"].startswith("fail")
    assert lines["guard"].startswith("fail")


def test_who_is_not_the_agents_account_is_told_that_it_is_not_what_holds_here(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def refused(self: Path, *given: Any, **named: Any) -> Any:
        if self.name == "node.key":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(self, *given, **named)

    settings = load_node(cluster.node("a", start=False).config)
    assert next(findings(settings)).what == "certificate"
    monkeypatch.setattr(Path, "open", refused)
    first = next(findings(settings))
    assert (first.what, first.level, "ask as root" in first.found) == ("asked by", "warn", True)


def test_a_source_that_is_left_out_is_not_looked_at(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_node(cluster.node("a", start=False).config)
    settings = msgspec.structs.replace(settings, presence=msgspec.structs.replace(settings.presence, sources=["input"]))
    monkeypatch.setattr(check, "Terminals", None)  # neither can be asked
    monkeypatch.setattr(sessions, "active", None)
    found = {each.what: each.found for each in check.findings(settings)}
    for source in ("terminals", "sessions"):
        assert found[f"presence: {source}"] == "left out of presence.sources: not looked at"
    assert "left out" not in found["presence: input"]
    assert "presence: keys" not in found


@pytest.mark.parametrize(
    ("account", "options", "level", "words"),
    [
        ("", "rw,hidepid=invisible", "ok", ""),
        ("nobody", "rw,relatime", "ok", ""),
        ("nobody", "rw,hidepid=off", "ok", ""),
        ("nobody", "rw,hidepid=2", "warn", "/proc is mounted hidepid=2: no film"),
        ("nobody", "rw,gid=29,hidepid=invisible", "warn", "; gid=29, and SupplementaryGroups="),
    ],
)
def test_check_warns_agent_account_of_hidepid(
    cluster: Cluster, account: str, options: str, level: str, words: str
) -> None:
    settings = load_node(cluster.node("a", start=False, security=f'agent_user = "{account}"').config)
    found = check.processes_found(settings, f"/dev/vda / ext4 rw 0 0\nproc /proc proc {options} 0 0\n")
    assert (found.level, words in found.found) == (level, True), found


def test_state_directory_on_noexec_mount_fails_the_check(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_node(cluster.node("a", start=False).config)
    top = os.path.commonpath([settings.paths.run, settings.paths.state])
    monkeypatch.setattr(files, "_is_noexec", lambda path: path.startswith(top))
    found = {each.what: each for each in check.findings(settings)}
    assert (found["job scripts"].level, found["cosched-rsh"].level) == ("fail", "fail")
    assert found["cosched-rsh"].found == f"no place for cosched-rsh: {top} is mounted noexec"
    assert found["job scripts"].found == (
        f"{top} is mounted noexec: no job's script can be executed there; paths.state in node.toml names another place"
    )


def test_host_name_of_its_own_loopback_is_warned_of_with_the_remedy() -> None:
    """Debian's installer gives a host's name 127.0.1.1: no other agent reaches a node that listens there."""
    found = known_to_itself_alone("desk2", "127.0.1.1")
    assert found is not None
    assert (found.level, "/etc/hosts" in found.found) == ("warn", True)
    assert known_to_itself_alone("desk2", "10.0.0.2") is None
    assert known_to_itself_alone("127.0.0.1", "127.0.0.1") is None


def test_bad_settings_are_told_by_key(cluster: Cluster, cosched: Call) -> None:
    node = cluster.node("a", start=False)
    text = node.config.read_text()
    for change, words in {
        "away_after_s = 60.0": "presence.away_after_s: found 0",
        'url = "wss': "scheduler.url",
    }.items():
        node.config.write_text(text.replace(change, {"a": "away_after_s = 0", "u": 'url = "ws'}[change[0]]))
        ended = cosched("agent", "--config", node.config)
        assert (ended.status, words in ended.err) == (2, True), ended.err


def test_an_agent_whose_port_is_taken_says_so(cluster: Cluster) -> None:
    node = cluster.node("a", start=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", node.port))
        taken.listen()
        ended = program("agent", "--config", node.config)
    assert ended.returncode == 1
    assert f"127.0.0.1', {node.port}" in ended.stderr or "in use" in ended.stderr
    assert not (node.run / "agent.sock").exists()


def test_the_agent_stays_small() -> None:
    """What it imports, so that it can run on every workstation."""
    code = "import sys, node_agent.service.app, cosched.apps.cli.agent; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    loaded = set(ended.stdout.split())
    assert not loaded & {"numpy", "scipy", "aiohttp", "rich", "cryptography.x509", "space_scheduler"}


def test_what_has_privileges_loads_the_standard_library_alone() -> None:
    """A package's own file is loaded with its modules, which the import rules, that follow imports, do not see."""
    code = "import sys; before = {*sys.modules}; import node_agent.guard.main; print(*{*sys.modules} - before)"
    ended = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    loaded = ended.stdout.split()
    ours = {".".join(name.split(".")[:2]) for name in loaded if name.split(".")[0] not in sys.stdlib_module_names}
    shared = {"cosched", "cosched.admission", "cosched.linux", "node_agent"}
    assert ours == shared | {f"node_agent.{each}" for each in PRIVILEGED}


async def test_whether_the_machine_could_be_woken(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    node = cluster.node("a", start=False)
    node.start_guard()
    await until((node.run / "desk.sock").exists, "the guard")
    cases: list[tuple[bool, Card | None, bool, tuple[str, str]]] = [
        (False, None, False, ("ok", "its owner has not agreed (cosched desk wake on)")),
        (True, None, False, ("warn", "no Ethernet card has the address 127.0.0.1")),
        (True, CARD, False, ("warn", "eth9 does not listen while the machine sleeps: ethtool -s eth9 wol g")),
        (True, CARD, True, ("ok", "by eth9, 52:54:00:12:34:56, at 10.0.0.255")),
    ]
    for agreed, card, listens, expected in cases:
        if agreed and card is None:
            told = await asyncio.to_thread(program, "desk", "wake", "on", "--socket", node.run / "desk.sock")
            assert "wake: on" in told.stdout, told.stderr
        monkeypatch.setattr(check, "card_of", lambda address: card)  # noqa: B023
        monkeypatch.setattr(check, "listens_asleep", lambda card: listens)  # noqa: B023
        found = next(each for each in findings(load_node(node.config)) if each.what == "waking")
        assert (found.level, found.found) == expected


def test_what_is_no_card_is_none() -> None:
    assert card_of("127.0.0.1") is None, "the loopback interface has no Ethernet address"
    assert card_of("no-such-host.invalid") is None
    assert card_of("192.0.2.1") is None
    assert not listens_asleep(CARD)
