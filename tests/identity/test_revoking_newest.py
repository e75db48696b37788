"""Revoking leaves who is in use: the scheduler's own certificate, and the newest of a node, unless these are meant."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kit.command import Ended, called
from kit.service import Cluster, running

from cosched.identity.authority import issue, serials_of
from cosched.identity.names import Kind

Revoke = Callable[..., Coroutine[Any, Any, Ended]]


@pytest.fixture
def revoke(files: Cluster, capfd: pytest.CaptureFixture[str]) -> Revoke:
    """Call ``identity revoke`` with the authority's list."""

    async def call(*arguments: str) -> Ended:
        place = ("--server", str(files.socket), "--authority", str(files.identity))
        return await called(capfd, "identity", "revoke", *arguments, *place)

    return call


def issued(files: Cluster, kind: Kind, name: str, times: int) -> list[str]:
    for number in range(times):
        issue(files.identity, kind, name, files.path / f"{kind}-{name}-{number}")
    return serials_of(files.identity, kind, name)


async def revoked(service: Any) -> set[str]:
    found = (await service.get("/v1/certificates"))["certificates"]
    return {each["serial"] for each in found if each["revoked"]}


async def test_the_scheduler_refuses_to_revoke_what_it_shows_unless_it_is_named(files: Cluster, revoke: Revoke) -> None:
    (own,) = serials_of(files.identity, "scheduler", "scheduler")
    async with running(files) as service, service.agent("n1") as agent:
        await service.until(lambda: bool(service.service.book.entry("n1").size), "up")
        await agent.beat()
        never_accepted = issued(files, "scheduler", "scheduler", 2)[1:]
        for arguments in ((), ("--all",)):
            ended = await revoke("scheduler", "scheduler", *arguments)
            assert (ended.status != 0, f"{own} is the certificate that this scheduler shows" in ended.err) == (
                True,
                True,
            )
        body = {"kind": "scheduler", "name": "scheduler", "serials": [own]}
        problem = await service.post("/v1/certificates/revoke", body, 409)
        assert "--serial" in problem["message"]
        assert await revoked(service) == set()
        ended = await revoke("scheduler", "scheduler", "--serial", never_accepted[0])
        assert ended.status == 0, ended.err
        assert await revoked(service) == {never_accepted[0]}
        assert (await revoke("scheduler", "scheduler", "--serial", own)).status == 0
        assert await revoked(service) == {never_accepted[0], own}


async def test_all_of_a_scheduler_but_the_newest_when_that_is_in_force(files: Cluster, revoke: Revoke) -> None:
    (own,) = serials_of(files.identity, "scheduler", "scheduler")
    listed = files.identity / "issued"
    listed.write_text(f"ab scheduler scheduler 2030-01-01\n{listed.read_text()}")
    async with running(files) as service:
        ended = await revoke("scheduler", "scheduler")
        assert (ended.status, ended.err) == (0, "")
        assert f"the newest counts on: {own}" in ended.out
        assert await revoked(service) == {"ab"}


async def test_a_nodes_newest_is_left_unless_it_is_meant(files: Cluster, revoke: Revoke) -> None:
    serials = issued(files, "node", "n1", 3)
    async with running(files) as service:
        ended = await revoke("node", "n1")
        assert (ended.status, ended.err) == (0, "")
        assert f"the newest counts on: {serials[-1]}" in ended.out
        assert await revoked(service) == set(serials[:-1])
        assert (await revoke("node", "n1", "--all")).status == 0
        assert await revoked(service) == set(serials)


async def test_the_only_one_of_a_node_is_revoked_when_it_is_meant(files: Cluster, revoke: Revoke) -> None:
    (serial,) = issued(files, "node", "n1", 1)
    async with running(files) as service:
        ended = await revoke("node", "n1")
        assert (ended.status, f"{serial}, the newest, alone" in ended.err) == (2, True)
        assert await revoked(service) == set()
        assert (await revoke("node", "n1", "--serial", serial)).status == 0
        assert await revoked(service) == {serial}


async def test_what_a_node_shows_counts_where_no_list_is_at_hand(
    files: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running(files) as service, service.agent("n1"):
        await service.until(lambda: bool(service.service.certificates.of("node", "n1")), "n1 is known")
        newest = service.service.certificates.of("node", "n1")[-1].serial
        ended = await called(capfd, "identity", "revoke", "node", "n1", "--server", str(files.socket))
        assert (ended.status, f"{newest}, the newest, alone" in ended.err) == (2, True)
        ended = await called(capfd, "identity", "revoke", "node", "n1", "--all", "--server", str(files.socket))
        assert (ended.status, newest in ended.out) == (0, True)
