"""A desk of a lab sleeps, as its logind says; a job that needs it has it called by a packet on its own network."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.buses import LOGIND, LOGIND_PATH, MANAGER, caller, logind, private_bus
from kit.needs import need_root
from kit.processes import running_module, standing_still
from kit.waiting import wait_for
from live.conftest import Jobs

from cosched.apps.lab import tiers
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client

pytestmark = [pytest.mark.xdist_group("two labs"), pytest.mark.slow]

COSCHED = [sys.executable, "-P", "-m", "cosched.apps.cli.main"]
#: What the card of a machine that sleeps does: it has an address, and prints the first packet that comes.
CARD = """
import socket
card = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
card.settimeout(120)
card.bind(("", 9))
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as frames:
    frames.bind(("eth0", 0))
    print(frames.getsockname()[4].hex(), flush=True)
print(card.recv(1000).hex(), flush=True)
"""


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A bus with a logind for both desks of a lab."""
    tmp_path.chmod(0o755)
    with private_bus(tmp_path) as environment, logind(environment):
        yield environment


def test_a_desk_that_sleeps_is_woken_for_a_job_that_needs_it_and_runs_it(
    tmp_path: Path, bus: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    need_root()
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    for name, value in bus.items():
        monkeypatch.setenv(name, value)
    with Lab.up(nodes=2, name=f"wake-{os.getpid()}", keep=[tmp_path]) as lab, lab.client() as client:
        said = lab.run("node2", [*COSCHED, "desk", "wake", "on"])
        assert b"wake: on" in said.stdout, said
        said_by_logind(bus, sleeps=True)
        wait_for(lambda: {state(client, each) for each in lab.nodes} == {"asleep"}, "both to be asleep")
        agent = running_module("node_agent", lab.directory / "nodes" / "node2")
        with card(lab, "node2") as (mac, heard), standing_still(agent):
            said_by_logind(bus, sleeps=False)  # to the other desk: this one's agent is stopped, as its machine is
            wait_for(lambda: state(client, "node1") == "up", "the other desk to be awake")
            job_id = Jobs(client, {}).submit("hostname", tasks=2)
            assert heard() == "ff" * 6 + mac * 16
            assert client.job(job_id).state == "queued"
        job = Jobs(client, {}).ended(job_id)
        assert job.state == "completed", job
        assert {share.name for share in job.nodes} == {"node1", "node2"}


@contextmanager
def card(lab: Lab, node: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """The address of a node's card, and what waits for a packet that comes to it while the block lasts."""
    with lab.popen(node, [sys.executable, "-c", CARD], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        output = listener.stdout
        try:
            yield output.readline().strip(), lambda: output.readline().strip()
        finally:
            listener.kill()


def said_by_logind(bus: dict[str, str], *, sleeps: bool) -> None:
    asyncio.run(_signalled(bus, sleeps))


async def _signalled(bus: dict[str, str], sleeps: bool) -> None:
    from dbus_fast import Variant  # noqa: PLC0415 (an extra)

    async with caller(bus) as ask:
        values = [Variant("b", sleeps)]
        mock = "org.freedesktop.DBus.Mock"
        reply = await ask(
            LOGIND, LOGIND_PATH, mock, "EmitSignal", "sssav", MANAGER, "PrepareForSleep", "b", values
        )  # fmt: skip
        assert not reply.error_name, reply.body


def state(client: Client, node: str) -> str:
    return next(each.state for each in client.nodes() if each.name == node)
