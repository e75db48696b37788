"""Tokens: what they open and what not, how long, what is kept of them, and what the client takes from which file."""

import asyncio
import json
import threading
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit.command import Ended, run_here
from kit.service import ME, Cluster, running
from kit.waiting import BOUND_S

from cosched.client.client import Client
from cosched.client.transport import Transport
from cosched.errors import BadInput, Failed
from cosched.linux.durable import write_durably
from space_scheduler.service.access import kept
from space_scheduler.service.access.tokens import MOST, NoToken, Tokens
from space_scheduler.service.api import administration
from space_scheduler.service.api.rates import Rates

DAY_S = 86_400.0
GOOD: dict[str, Any] = {"script": "#!/bin/sh\ntrue\n", "directory": "/tmp"}


class TestKept:
    def test_a_token_is_its_users_until_it_expires_or_is_revoked(self, tmp_path: Path) -> None:
        now_s = [1e9]
        tokens = Tokens(tmp_path / "tokens.json", lambda: now_s[0])
        ada, words = tokens.create("ada", "laptop", DAY_S)
        other, others = tokens.create("bob", "", DAY_S)
        assert (tokens.token_of(words).user, tokens.token_of(others).user) == ("ada", "bob")
        again = Tokens(tmp_path / "tokens.json", lambda: now_s[0])
        assert again.token_of(words).user == "ada"
        again.revoke(other.id)
        with pytest.raises(NoToken, match="not known"):
            again.token_of(others)
        now_s[0] += DAY_S
        with pytest.raises(NoToken, match=f"{ada.id} of ada has expired"):
            again.token_of(words)

    def test_the_file_has_no_secret_and_is_its_owners(self, tmp_path: Path) -> None:
        path = tmp_path / "tokens.json"
        made, words = Tokens(path).create("ada", "", DAY_S)
        text = path.read_text()
        assert made.id in text
        assert words.split("_", 2)[2] not in text
        assert path.stat().st_mode & 0o777 == 0o600

    def test_nothing_but_the_token_will_do(self, tmp_path: Path) -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        made, words = tokens.create("ada", "", DAY_S)
        mark, number, secret = words.split("_", 2)
        for wrong in (
            "", "_", "__", mark, f"{mark}_{number}_", f"{mark}_{number}_{secret[:-1]}", f"{mark}_{number}_{secret}x",
            f"{mark}_{number}_{made.digest}", f"other_{number}_{secret}", f"{mark}__{secret}", "\ud800", words * 1000,
        ):  # fmt: skip
            with pytest.raises(NoToken):
                tokens.token_of(wrong)

    def test_a_file_that_is_damaged_lets_nobody_in(self, tmp_path: Path) -> None:
        (tmp_path / "tokens.json").write_text('[{"id": "x"}]')
        with pytest.raises(Failed, match="not the list of tokens"):
            Tokens(tmp_path / "tokens.json")

    def test_one_user_has_so_many(self, tmp_path: Path) -> None:
        now_s = [0.0]
        tokens = Tokens(tmp_path / "tokens.json", lambda: now_s[0])
        for _ in range(MOST):
            tokens.create("ada", "", 10)
        with pytest.raises(Failed, match=f"ada has {MOST} tokens"):
            tokens.create("ada", "", 10)
        tokens.create("bob", "", 10)
        now_s[0] = 11.0  # expired ones do not count, and are dropped
        tokens.create("ada", "", 10)
        assert len(tokens.all()) == 1


async def ask(port: int, words: str | None, path: str, method: str = "GET", body: Any = None, **more: Any) -> Any:
    """A request over TLS without a client certificate; status and answer."""
    headers = {"Authorization": f"Bearer {words}"} if words is not None else {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method, f"https://127.0.0.1:{port}{path}", server_hostname="scheduler", headers=headers, json=body, **more
        ) as answer,
    ):
        text = await answer.text()
        return answer.status, json.loads(text) if answer.content_type == "application/json" else text


def trusting(files: Cluster) -> Any:
    """TLS that knows the authority and has nothing to show."""
    import ssl  # noqa: PLC0415

    context = ssl.create_default_context(cafile=files.identity / "ca.pem")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


async def test_a_token_is_that_user_and_no_other(files: Cluster) -> None:
    async with running(files) as service:
        port, context = service.service.port or 0, trusting(files)
        made = await service.post("/v1/tokens", {"user": "ada", "life_s": DAY_S}, 201)
        hers = made["words"]
        bobs = (await service.post("/v1/tokens", {"user": "bob", "life_s": DAY_S}, 201))["words"]
        status, job = await ask(port, hers, "/v1/jobs", "POST", GOOD | {"hold": True}, ssl=context)
        assert (status, job["user"]) == (201, "ada")
        path = f"/v1/jobs/{job['job_id']}"
        status, problem = await ask(port, bobs, f"{path}/cancel", "POST", ssl=context)
        assert (status, problem["message"]) == (403, f"job {job['job_id']} is ada's; bob may not cancel it")
        assert (await ask(port, bobs, f"{path}/output", ssl=context))[0] == 403
        assert (await ask(port, bobs, path, ssl=context))[1]["directory"] == ""
        status, problem = await ask(port, hers, "/v1/tokens", "POST", {"life_s": DAY_S}, ssl=context)
        assert (status, problem["message"].partition(":")[0]) == (403, "a token makes no further tokens")
        assert (await ask(port, hers, "/v1/tokens", ssl=context))[1]["tokens"] == [made["token"]]
        assert (await ask(port, bobs, f"/v1/tokens/{made['token']['id']}/revoke", "POST", ssl=context))[0] == 404
        assert (await ask(port, hers, f"/v1/tokens/{made['token']['id']}/revoke", "POST", ssl=context))[0] == 200
        assert (await ask(port, hers, path, ssl=context))[0] == 401


async def test_an_operators_token_is_no_operator(files: Cluster) -> None:
    async with running(files) as service:
        port, context = service.service.port or 0, trusting(files)
        words = (await service.post("/v1/tokens", {"life_s": DAY_S}, 201))["words"]
        status, problem = await ask(port, words, "/v1/nodes/n1/drain", "POST", ssl=context)
        assert (status, problem["message"]) == (403, f"nodes are drained and resumed by operators; {ME} is none")


async def test_without_certificate_and_token_there_is_nothing_to_see(files: Cluster) -> None:
    paths = ("/v1/jobs", "/v1/nodes", "/v1/cluster", "/metrics", "/healthz", "/v1/openapi.json", "/no/such")
    async with running(files) as service:
        port, context = service.service.port or 0, trusting(files)
        for words, path in product((None, "", "cosched_00_11", "é"), paths):
            status, problem = await ask(port, words, path, ssl=context)
            assert status == 401, (words, path, problem)
            assert set(problem) >= {"message", "where"}
        lines = [line for line in service.log.getvalue().splitlines() if "token refused" in line]
        assert len(lines) == 1, "said once a minute"


async def test_a_token_opens_no_agents_link_and_where_tokens_are_off_nothing(files: Cluster) -> None:
    async with running(files) as service:
        context = trusting(files)
        words = (await service.post("/v1/tokens", {"life_s": DAY_S}, 201))["words"]
        status, problem = await ask(service.service.port or 0, words, "/v1/agent", ssl=context)
        assert (status, problem["message"]) == (403, "agents come over TLS, with their node's certificate")
    from cosched.config.cluster import Listen  # noqa: PLC0415

    closed = Cluster(listen=Listen(str(files.path / "other.sock"), "127.0.0.1", 0, tokens=False))
    closed.socket = files.path / "other.sock"
    try:
        async with running(closed) as service:
            assert "takes no tokens" in (await service.post("/v1/tokens", {"life_s": 9}, 403))["message"]
            with pytest.raises((aiohttp.ClientError, OSError)):
                await ask(service.service.port or 0, words, "/v1/jobs", ssl=trusting(closed))
    finally:
        closed.close()


async def test_what_is_no_request_for_a_token(files: Cluster) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"life_s": 0}, "token: life_s: found 0"),
        ({"life_s": 1e12}, "max_token_time"),
        ({}, "life_s"),
        ({"life_s": 9, "user": "a b"}, "user name"),
        ({"life_s": 9, "user": "../x"}, "user name"),
        ({"life_s": 9, "label": "\n"}, "token: label"),
        ({"life_s": 9, "wheel": True}, "wheel"),
    ]
    async with running(files) as service:
        for body, words in cases:
            assert words in (await service.post("/v1/tokens", body, 400))["message"]
        assert (await service.get("/v1/tokens"))["tokens"] == []


async def test_the_command_makes_lists_and_revokes_and_the_client_uses_it(files: Cluster, tmp_path: Path) -> None:
    async with running(files) as service:
        url = f"https://127.0.0.1:{service.service.port}"
        where = tmp_path / "token"

        async def cosched(*arguments: str, **env: str) -> Ended:
            return await asyncio.to_thread(run_here, *arguments, **env)

        socket = str(files.socket)
        options = ("--user", "ada", "--life", "2d", "--into", str(where))
        made = await cosched("token", "create", *options, "--server", socket)
        assert made.status == 0, made.err
        assert sorted(each.name for each in where.iterdir()) == ["ca.pem", "token"]
        assert (where / "token").stat().st_mode & 0o777 == 0o600
        there = await cosched("nodes", "--json", "--server", url, COSCHED_IDENTITY=str(where))
        assert there.status == 0, there.err
        listed = await cosched("token", "list", "--json", "--server", url, COSCHED_IDENTITY=str(where))
        (mine,) = json.loads(listed.out)["tokens"]
        number = mine["id"]
        assert mine["user"] == "ada"
        gone = await cosched("token", "revoke", number, "--server", socket)
        assert gone.out == f"token {number} of ada revoked\n"
        refused = await cosched("nodes", "--server", url, COSCHED_IDENTITY=str(where))
        assert refused.status == 1
        assert "the token is not known here: revoked" in refused.err
        again = await cosched("token", "create", "--into", str(where), "--server", socket)
        assert again.status == 2
        assert "is there already" in again.err


def test_the_client_takes_no_token_that_others_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Cluster()
    try:
        (tmp_path / "ca.pem").write_bytes((files.identity / "ca.pem").read_bytes())
        monkeypatch.setenv("COSCHED_IDENTITY", str(tmp_path))
        token = tmp_path / "token"
        token.write_text("cosched_1_2\n")
        for mode in (0o644, 0o640, 0o604):
            token.chmod(mode)
            with pytest.raises(BadInput, match=rf"token: a secret with mode {mode:04o}: others may read it.*chmod 600"):
                Client(Transport("https://127.0.0.1:1"))
        token.chmod(0o600)
        Client(Transport("https://127.0.0.1:1")).close()
        token.write_text("two words\n")
        with pytest.raises(BadInput, match="not one word"):
            Client(Transport("https://127.0.0.1:1"))
    finally:
        files.close()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("max_token_time: 90", "max_token_time"),
        ("max_token_time: 90 days", "unknown unit 'days'"),
        ("listen: {tokens: perhaps}", "listen.tokens"),
        ("listen: {token: yes}", "did you mean 'tokens'"),
    ],
)
def test_settings_of_tokens_that_are_none(tmp_path: Path, line: str, words: str) -> None:
    from cosched.config.cluster import load_cluster  # noqa: PLC0415

    (tmp_path / "cluster.yaml").write_text(f"name: c\n{line}\n")
    with pytest.raises(BadInput, match=words):
        load_cluster(tmp_path / "cluster.yaml")


async def test_while_the_disk_is_slow_others_are_answered_and_no_token_is_lost(
    files: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, written = threading.Event(), []

    def slow(path: Path, data: bytes) -> None:
        written.append(data)
        assert go.wait(BOUND_S)
        write_durably(path, data)

    async with running(files) as service:
        monkeypatch.setattr(kept, "write_durably", slow)
        making = [
            asyncio.create_task(service.post("/v1/tokens", {"life_s": DAY_S, "label": str(at)}, 201)) for at in range(4)
        ]
        try:
            await service.until(lambda: bool(written), "a token on its way")
            for _ in range(5):
                await service.get("/v1/cluster")
            assert (len(written), [each.done() for each in making]) == (1, [False] * 4)
        finally:
            go.set()
        made = {each["token"]["id"] for each in await asyncio.gather(*making)}
        assert {each["id"] for each in (await service.get("/v1/tokens"))["tokens"]} == made
        assert {each.id for each in Tokens(files.path / "state" / "tokens.json").all()} == made


async def test_tokens_are_made_and_revoked_so_fast(files: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(administration, "Rates", lambda per_minute: Rates(per_minute, lambda: now_s[0]))
    async with running(files) as service:
        for _ in range(30):
            made = (await service.post("/v1/tokens", {"life_s": DAY_S}, 201))["token"]["id"]
            await service.post(f"/v1/tokens/{made}/revoke")
        problem = await service.post("/v1/tokens", {"life_s": DAY_S}, 429)
        assert problem["message"] == f"{ME} makes and revokes tokens too often; again in 1 s"
        now_s[0] = 1.0
        await service.post("/v1/tokens", {"life_s": DAY_S}, 201)
