"""Renewed certificates and keys: taken into use by what runs, without a restart, and without an end of what runs."""

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest
from kit.agents import DEADLINE_S, Node, until
from kit.agents import Cluster as Nodes
from kit.service import Cluster, Running, running

from cosched.errors import BadInput
from cosched.identity import tls
from cosched.identity.authority import issue
from cosched.identity.renewal import Renewal
from cosched.wire import messages as wire


def put(source: Path, target: Path, *names: str) -> None:
    """Files of an identity in the place of others, each whole."""
    for name in names:
        fresh = target / f".{name}.fresh"
        shutil.copy2(source / name, fresh)
        fresh.replace(target / name)


def test_files_that_do_not_fit_change_nothing(tmp_path: Path, files: Cluster) -> None:
    mine = tmp_path / "n1"
    issue(files.identity, "node", "n1", mine)
    issue(files.identity, "node", "n1", tmp_path / "new")
    renewal = Renewal(mine, lambda: tls.agent_server_context(mine))
    before = renewal.made
    assert renewal.look() is None
    put(tmp_path / "new", mine, "node.pem")
    with pytest.raises(BadInput, match="another certificate's"):
        renewal.look()
    assert renewal.made is before
    put(tmp_path / "new", mine, "node.key")
    assert renewal.look() is renewal.made is not before
    assert renewal.look() is None
    shutil.rmtree(mine)
    with pytest.raises(BadInput, match="no such file"):
        renewal.look()


async def shown_by(service: Running) -> int:
    """The serial number of the certificate that the service shows now."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", service.service.port, ssl=service.cluster.certificate("user", "ada"), server_hostname="scheduler"
    )
    try:
        secured: ssl.SSLObject = writer.get_extra_info("ssl_object")
        return int(tls.serial_of(secured), 16)
    finally:
        writer.transport.abort()
        del reader


@pytest.mark.slow
async def test_the_scheduler_takes_its_renewed_certificate_without_a_restart(files: Cluster, tmp_path: Path) -> None:
    async with running(files) as service, service.agent("n1") as agent:
        await service.until(lambda: bool(service.service.book.entry("n1").size), "up")
        before, end = await shown_by(service), service.service.certificates.expiries()["scheduler"]
        issue(files.identity, "scheduler", "scheduler", tmp_path / "new")
        put(tmp_path / "new", files.identity, "scheduler.pem")  # with a key that is not its own, for a moment
        await service.logged("identity cannot be used", "the key is another certificate's")
        assert await shown_by(service) == before
        put(tmp_path / "new", files.identity, "scheduler.key")
        await service.logged("identity renewed")
        assert await shown_by(service) != before
        assert service.service.certificates.expiries()["scheduler"] >= end
        await agent.beat()
        await service.until(lambda: service.service.book.entry("n1").connected, "its link stays")
        assert len(agent.heard_already(wire.Welcome)) == 1


def serial_at(node: Node, identity: Path) -> str:
    """The serial number of the certificate that an agent's door shows."""
    import socket  # noqa: PLC0415

    context = tls.client_context(identity)
    with (
        socket.create_connection(("127.0.0.1", node.port), DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname=node.name) as secured,
    ):
        return tls.serial_of(secured)


async def test_an_agent_takes_its_renewed_certificate_and_its_job_runs_on(nodes: Nodes) -> None:
    node = nodes.node("a")
    other = nodes.node("b", start=False)
    async with nodes.scheduler() as scheduler:
        await scheduler.tell("a", nodes.prepare(scheduler.fence, 5, "a"))
        await scheduler.next("a", wire.Prepared)
        run = wire.Run(scheduler.fence, wire.OrderId(5, 1, 2), b"#!/bin/sh\nexec sleep 600\n", ())
        await scheduler.tell("a", run)
        await scheduler.next("a", wire.Started)
        before, link = await asyncio.to_thread(serial_at, node, other.identity), scheduler.links["a"]
        issue(nodes.authority, "node", "a", node.base / "new")
        put(node.base / "new", node.identity, "node.key", "node.pem")
        await until(lambda: scheduler.links["a"] is not link, "it to dial again")
        assert scheduler.hellos[-1].groups[0].state == "running"
        after = tls.serial_of(scheduler.links["a"].transport.get_extra_info("ssl_object"))
        assert after != before
        assert await asyncio.to_thread(serial_at, node, other.identity) == after
    assert node.agent is not None
    assert node.agent.poll() is None
    assert "was renewed" in node.log.read_text()
