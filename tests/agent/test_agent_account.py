"""An agent that is an account of its own, without any capability or new privileges, beside a guard that is root."""

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from kit.agents import Cluster, Node, until
from kit.needs import ROOT
from kit.waiting import BOUND_S

from cosched.model.node import Presence
from cosched.wire import messages as wire

ACCOUNT = pwd.getpwnam("nobody")
QUICK = {"presence": "away_after_s = 1.0\npoll_s = 0.2\nbusy_cpus = 1e6"}


@pytest.fixture
def node(cluster: Cluster, request: pytest.FixtureRequest) -> Node:
    made = cluster.node("a", start=False, **QUICK)
    made.own_account(ACCOUNT.pw_name, hidepid=getattr(request, "param", 0))
    return made


@pytest.mark.parametrize("node", [0, 2], ids=["", "hidepid"], indirect=True)
async def test_it_has_no_rights_and_serves_a_job_from_its_beginning_to_its_end(cluster: Cluster, node: Node) -> None:
    node.start_guard()
    node.start_agent()
    async with cluster.scheduler() as scheduler:
        fence = scheduler.fence
        await scheduler.tell("a", cluster.prepare(fence, 5, "a"))
        await scheduler.next("a", wire.Prepared, order=wire.OrderId(5, 1, 1))
        assert node.agent is not None
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{node.agent.pid}/status").read_text().splitlines())
        assert set(status["Uid"].split()) == {str(ACCOUNT.pw_uid)}
        assert [int(status[key], 16) for key in ("CapEff", "CapPrm", "CapAmb", "CapBnd")] == [0] * 4
        assert status["NoNewPrivs"] == "1"
        script = b'#!/bin/sh\nid -u\n"$RSH" a id -u\necho wrong >&2\nexit 3\n'
        await scheduler.order(wire.Run, 5, 2, script=script, arguments=())
        program = await scheduler.next("a", wire.ProgramEnded)
        assert (program.exit, program.error_tail) == (wire.Exit(3, None, "own"), b"wrong\n")
        assert (
            await scheduler.output("a", 5) == b"0\n0\n"
        )  # the job is its submitter's, root's here; so is its remote end
        await scheduler.order(wire.Kill, 5, 3, grace_us=100_000)
        await scheduler.next("a", wire.GroupEnded, job_id=5)
        for n, kind in ((4, wire.Forget), (5, wire.Discard)):
            await scheduler.order(kind, 5, n)
        await until(lambda: not (node.state / "spool/5.1").exists(), "the output to be discarded")
    owners = {path.name: path.stat().st_uid for path in (*node.state.iterdir(), *node.run.iterdir())}
    assert owners["records"] == 0
    assert {owners[name] for name in ("epoch", "attempts", "spool", "agent.sock", "bin")} == {ACCOUNT.pw_uid}


@pytest.mark.slow
async def test_a_key_is_seen_at_once_through_the_guard_also_after_its_restart(cluster: Cluster, node: Node) -> None:
    """The terminal is another's: who is not root is not told of it, and its times move in steps of 8 s."""
    with node.at_keyboard() as press:
        async with cluster.scheduler() as scheduler:
            for restart in (False, True):
                await until(lambda: _away(scheduler.beats.get("a")), "nobody to be there")
                if restart:
                    assert node.guard is not None
                    node.guard.kill()
                    node.guard.wait()
                    await until(lambda: scheduler.beats["a"].guard, "the guard to be missed")
                    node.start_guard()
                    await until(
                        lambda: _away(scheduler.beats["a"]) and not scheduler.beats["a"].guard, "the next guard"
                    )
                press()
                await until(lambda: scheduler.beats["a"].presence is Presence.PRESENT, "the key to be seen")
                assert scheduler.beats["a"].presence_source == "terminals"
                await until(lambda: scheduler.beats["a"].armed, "the limits")


@pytest.mark.parametrize(
    ("capabilities", "sees"),
    [((), False), (("sys_ptrace",), False), (("dac_read_search",), False), (("dac_read_search", "sys_ptrace"), True)],
)
def test_connections_of_jobs_are_seen_with_two_capabilities(
    cluster: Cluster, capabilities: tuple[str, ...], sees: bool
) -> None:
    """Of a process of another user: what an agent with ``coscheduling.watch_messages`` has, and one without it."""
    python = next(path for path in map(Path, ("/usr/bin/python3", "/usr/local/bin/python3")) if path.exists())
    lib = cluster.base / "lib"
    shutil.copytree(ROOT / "cosched" / "linux", lib / "cosched" / "linux")
    shutil.copy(ROOT / "cosched" / "__init__.py", lib / "cosched")
    program = "import sys\nfrom cosched.linux.job_signs import sockets\nprint(bool(sockets(int(sys.argv[1])).inodes))"
    rights = ",".join(["-all", *(f"+{each}" for each in capabilities)])
    carried = [f"--inh-caps={rights}", *([f"--ambient-caps={rights}"] if capabilities else [])]
    connection = socket.socket()
    seen = subprocess.run(
        ["setpriv", f"--reuid={ACCOUNT.pw_uid}", f"--regid={ACCOUNT.pw_gid}", "--clear-groups", "--no-new-privs",
         f"--bounding-set={rights}", *carried, "env", f"PYTHONPATH={lib}", python, "-c", program, str(os.getpid())],
        capture_output=True, text=True, check=False, timeout=BOUND_S,
    )  # fmt: skip
    connection.close()
    assert (seen.stdout, seen.stderr) == (f"{sees}\n", "")


def _away(beat: wire.Heartbeat | None) -> bool:
    return beat is not None and beat.presence is Presence.AWAY and not beat.armed
