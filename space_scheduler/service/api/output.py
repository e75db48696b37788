"""A job's output, from the agent of its first node, in bounded pieces: the service keeps none of it."""

from typing import Final

from aiohttp import web

from cosched.wire.messages import MAX_CHUNK_BYTES, OutputChunk
from space_scheduler.service.access.problems import Refusal
from space_scheduler.service.api.waiting import Jobs
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.link.link import Link

STREAMS: Final = ("stdout", "stderr")
#: How often an agent is asked whether there is more.
_POLL_S: Final = 0.25


class Spool:
    """Reads output for one request."""

    def __init__(self, link: Link, jobs: Jobs, record: JobRecord, stream: str) -> None:
        """Raises :class:`Refusal` where the output is a file of the user's."""
        path = record.output if stream == "stdout" else record.error
        if path is not None:
            node = record.allocation.nodes[0].node if record.allocation else "its first node"
            raise Refusal(409, f"job {record.id}: its {stream} goes to {path} on {node}; read it there", found=path)
        self._link = link
        self._jobs = jobs
        self._record = record
        self._stream = stream

    async def piece(self, offset: int, max_bytes: int = MAX_CHUNK_BYTES) -> OutputChunk:
        """At most ``max_bytes`` from ``offset``. Raises :class:`Refusal`."""
        record = self._record
        if record.allocation is None or not record.attempt:
            return OutputChunk(0, b"", 0, not record.alive)  # it never ran, or not yet
        node = record.allocation.nodes[0].node
        chunk = await self._link.read_output(node, record.id, record.attempt, self._stream, offset, max_bytes)
        if chunk is None:
            raise Refusal(
                503, f"the output of job {record.id} is on {node}, which does not answer now; try again later"
            )
        if chunk.error:
            raise Refusal(404, f"job {record.id}: {node} has no {self._stream} of it: {chunk.error}")
        return chunk

    async def one(self, offset: int, max_bytes: int) -> web.Response:
        """One piece as an answer of its own."""
        chunk = await self.piece(offset, min(max_bytes, MAX_CHUNK_BYTES))
        return web.Response(body=chunk.data, headers=_headers(chunk))

    async def all(self, request: web.Request, offset: int, *, follow: bool) -> web.StreamResponse:
        """All there is, or (``follow``) all there will be. The reader's pace is the pace at which agents are asked."""
        chunk = await self.piece(offset)
        until = chunk.size
        answer = web.StreamResponse(headers=_headers(chunk))
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        while True:
            await answer.write(chunk.data)
            offset += len(chunk.data)
            if not follow and (offset >= until or not chunk.data):
                break
            if not chunk.data and (chunk.final or await self._over()):
                break
            try:
                chunk = await self.piece(offset)
            except Refusal as refusal:
                if not (follow and refusal.status == 503 and self._record.alive) or self._jobs.stopping:
                    if request.transport is not None:
                        request.transport.close()  # a body that breaks off is how HTTP says that there was more
                    return answer
                chunk = OutputChunk(0, b"", offset, False)  # the node may come back within its lease
        await answer.write_eof()
        return answer

    async def _over(self) -> bool:
        """Wait a moment for more; True when there will not be any: the job has ended, and nothing new had come."""
        record = await self._jobs.find(self._record.id)
        ended_before = not self._record.alive
        self._record = record
        if ended_before:
            return True
        if record.alive:
            await self._jobs.changed(record.id, _POLL_S)
        return self._jobs.stopping


def _headers(chunk: OutputChunk) -> dict[str, str]:
    return {
        "Content-Type": "application/octet-stream",
        "Cosched-Size": str(chunk.size),
        "Cosched-Final": str(int(chunk.final)),
    }
