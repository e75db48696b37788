"""A job's output through the API: in pieces, whole, followed, away, broken off."""

import asyncio
import os

import aiohttp
import pytest
from kit.service import Running

from cosched.wire import messages as wire


class TestOutput:
    async def test_in_pieces(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            job_id = await service.runs()
            agent.spool["stdout"] = b"0123456789"
            async with service.http.get(f"/v1/jobs/{job_id}/output?offset=2&max_bytes=3") as answer:
                assert await answer.read() == b"234"
                assert (answer.headers["Cosched-Size"], answer.headers["Cosched-Final"]) == ("10", "0")
            agent.final = True
            async with service.http.get(f"/v1/jobs/{job_id}/output?offset=8&max_bytes=30") as answer:
                assert await answer.read() == b"89"
                assert answer.headers["Cosched-Final"] == "1"

    async def test_all_there_is_in_many_pieces(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            job_id = await service.runs()
            agent.spool["stderr"] = os.urandom(3 * wire.MAX_CHUNK_BYTES + 17)
            async with service.http.get(f"/v1/jobs/{job_id}/output?stream=stderr") as answer:
                assert await answer.read() == agent.spool["stderr"]
            assert len(agent.heard_already(wire.ReadOutput)) == 4

    async def test_followed_to_the_end(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            job_id = await service.runs()
            agent.spool["stdout"] = b"one\n"
            async with service.http.get(f"/v1/jobs/{job_id}/output?follow=1") as answer:
                assert await answer.content.readline() == b"one\n"
                agent.spool["stdout"] += b"two\n"
                assert await answer.content.readline() == b"two\n"
                agent.spool["stdout"] += b"three\n"
                agent.final = True
                await agent.ends(job_id, wire.Exit(status=0))
                assert await answer.content.read() == b"three\n"

    async def test_followed_before_it_starts(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            job_id = await service.submit(hold=True)
            async with service.http.get(f"/v1/jobs/{job_id}/output?follow=1") as answer:
                agent.spool["stdout"] = b"at last\n"
                await service.post(f"/v1/jobs/{job_id}/release")
                assert await answer.content.readline() == b"at last\n"
                agent.final = True
                await agent.ends(job_id, wire.Exit(status=0))
                assert await answer.content.read() == b""

    async def test_of_a_job_that_never_ran(self, service: Running) -> None:
        async with service.agent("n1"):
            job_id = await service.submit(hold=True)
            await service.post(f"/v1/jobs/{job_id}/cancel")
            for query in ("", "?follow=1", "?max_bytes=5"):
                async with service.http.get(f"/v1/jobs/{job_id}/output{query}") as answer:
                    assert await answer.read() == b""
                    assert answer.headers["Cosched-Final"] == "1"

    async def test_that_is_away(self, service: Running) -> None:
        async with service.agent("n1"):
            job_id = await service.runs()
        await service.logged("agent disconnected", "n1")
        problem = await service.get(f"/v1/jobs/{job_id}/output", 503)
        assert "is on n1, which does not answer now" in problem["message"]

    async def test_that_breaks_off_says_so(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            job_id = await service.runs()
            agent.spool["stdout"] = b"x" * (2 * wire.MAX_CHUNK_BYTES)
            agent.answers = False
            reading = asyncio.create_task(_read(service, job_id))
            asked = await agent.heard(wire.ReadOutput)
            piece = agent.spool["stdout"][: asked.max_bytes]
            await agent.say(wire.OutputChunk(asked.request, piece, 2 * wire.MAX_CHUNK_BYTES, False))
            await agent.heard(wire.ReadOutput)
            await agent.connection.close()
            with pytest.raises(aiohttp.ClientPayloadError):
                await reading

    async def test_that_went_to_a_file(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            job_id = await service.runs(output="logs/../out.txt", directory="/tmp/")
            assert agent.heard_already(wire.Run)[0].output == "/tmp/out.txt"
            problem = await service.get(f"/v1/jobs/{job_id}/output", 409)
            assert problem["message"] == f"job {job_id}: its stdout goes to /tmp/out.txt on n1; read it there"


async def _read(service: Running, job_id: int) -> bytes:
    async with service.http.get(f"/v1/jobs/{job_id}/output") as answer:
        return await answer.read()
