"""Orders, obeyed once each: the fence first, then the number, then the deed, then the answer (``wire.messages``)."""

import asyncio
import logging
import os
from collections.abc import Callable

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from cosched.errors import BadInput
from cosched.wire.grant import verified
from cosched.wire.messages import (
    Discard,
    Forget,
    FromAgent,
    Kill,
    Order,
    OutputChunk,
    Prepare,
    Prepared,
    ReadOutput,
    Refused,
    Run,
    Started,
)
from node_agent.guard import requests
from node_agent.guard.client import GuardGone, GuardRefused
from node_agent.service.attempts import Answer, Attempt
from node_agent.service.complaints import Complaints
from node_agent.service.disk import Disk
from node_agent.service.entrance import has_descriptors
from node_agent.service.fence import EpochFile, Fenced
from node_agent.service.groups import Groups, granted
from node_agent.service.spool import STREAMS

_log = logging.getLogger("cosched.agent")
_GUARD_WAIT_S = 5.0  # an order that comes while the guard is being restarted


class OrderRefused(Exception):
    """An order cannot be obeyed; ``code`` as in ``wire.messages.Refused``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Orders:
    """Obeys them, each attempt's in the order in which they came, different attempts' side by side."""

    def __init__(
        self,
        groups: Groups,
        epochs: EpochFile,
        grant_pub: Callable[[], Ed25519PublicKey],
        complaints: Complaints,
        disk: Disk,
    ) -> None:
        """``grant_pub`` reads the key with which grants are verified. Raises :class:`BadInput`."""
        self._groups = groups
        self.attempts = groups.attempts
        self._epochs = epochs
        self._grant_pub = grant_pub
        self._complain = complaints
        self._disk = disk
        self._locks: dict[tuple[int, int], asyncio.Lock] = {}

    async def obey(self, message: Order) -> None:
        """Obey one order and tell the scheduler what came of it."""
        order = message.order
        lock = self._locks.setdefault((order.job_id, order.attempt), asyncio.Lock())
        async with lock:
            answer = await self._answered(message)
        if self.attempts.get(order.job_id, order.attempt) is None and not lock.locked():
            self._locks.pop((order.job_id, order.attempt), None)
        if answer is not None:
            self._groups.tell(answer)

    async def _answered(self, message: Order) -> FromAgent | None:
        order = message.order
        try:
            self._epochs.check(message.fence)
        except Fenced as error:
            self._complain("fenced", str(error))
            return Refused(order, "fenced", str(error))
        attempt = self.attempts.get(order.job_id, order.attempt)
        if attempt is not None and attempt.cluster_id not in ("", message.fence.cluster_id):
            return Refused(order, "busy", f"job {attempt.key} of the cluster before is still here")
        if attempt is not None and order.n <= attempt.last_order:
            return self._again(attempt, message)
        try:
            answer = await self._do(message, attempt)
        except OrderRefused as error:
            answer = Refused(order, error.code, str(error))
        except GuardRefused as error:
            answer = Refused(order, error.code, str(error))
        except (GuardGone, OSError, ValueError) as error:
            answer = Refused(order, "failed", str(error))
        if isinstance(answer, Refused) and answer.code == "failed" and not has_descriptors():
            answer = msgspec.structs.replace(answer, code="busy")  # it passes: nobody's node is at fault
        if isinstance(answer, Refused):
            _log.warning(
                "job %d.%d: %s refused: %s", order.job_id, order.attempt, type(message).__name__, answer.message
            )
        self._record(message, answer)
        return answer

    def _again(self, attempt: Attempt, message: Order) -> FromAgent | None:
        """What was answered to an order that was obeyed before."""
        if isinstance(message, Kill):
            return attempt.ended  # None: it will be told when it happens
        if (answer := attempt.answers.get(message.order.n)) is not None:
            return answer
        if isinstance(message, Forget | Discard):
            return None
        self._complain("stale", f"order {message.order}, after {attempt.last_order}")
        return Refused(message.order, "stale", f"order {attempt.last_order} was obeyed already")

    def _record(self, message: Order, answer: Answer | None) -> None:
        attempt = self.attempts.get(message.order.job_id, message.order.attempt)
        if attempt is None:
            return
        if isinstance(message, Forget) and isinstance(answer, Refused):
            return  # it may be asked again
        attempt.last_order = message.order.n
        if answer is not None:
            attempt.answers[message.order.n] = answer
        self.attempts.keep(attempt)

    async def _do(self, message: Order, attempt: Attempt | None) -> Answer | None:
        match message:
            case Prepare():
                return await self._prepare(message, attempt)
            case Run():
                return await self._run(message, attempt)
            case Kill():
                return await self._kill(message, attempt)
            case Forget():
                if attempt is not None and not attempt.forgotten:
                    await self._groups.forget(attempt)
            case Discard():
                await self._discard(message, attempt)
            case _:
                raise OrderRefused("unknown", f"no such order: {type(message).__name__}")
        return None

    async def _prepare(self, message: Prepare, attempt: Attempt | None) -> Answer:
        order = message.order
        if attempt is not None:
            raise OrderRefused("busy", f"job {attempt.key} is still here")
        try:
            grant = verified(message.grant, self._grant_pub())
        except BadInput as error:
            raise OrderRefused("failed", str(error)) from None
        if problem := granted(grant, message, self._groups.config.name):
            raise OrderRefused("failed", problem)
        await self._guard_there()
        if problem := self._disk.problem():
            raise OrderRefused("failed", problem)
        self._groups.files.write(order.job_id, order.attempt, message.peers)
        made = self.attempts.new(order.job_id, order.attempt, message.fence.cluster_id)
        try:
            await self._groups.guard.ask(
                requests.Prepare(
                    job=order.job_id,
                    attempt=order.attempt,
                    user=message.user,
                    directory=message.directory,
                    tasks=message.tasks,
                    memory_bytes=message.memory_bytes,
                    limit_us=message.limit_us,
                    grace_us=message.grace_us,
                    umask=message.umask,
                )
            )
        except (GuardGone, GuardRefused, ValueError):
            self._groups.files.remove(order.job_id, order.attempt)
            raise
        made.prepare = message
        _log.info("job %s: prepared for %s, %d tasks here", made.key, message.user, message.tasks)
        return Prepared(order)

    async def _run(self, message: Run, attempt: Attempt | None) -> Answer:
        if attempt is None or attempt.prepare is None:
            raise OrderRefused("unknown", "the job was not prepared here")
        if not attempt.open:
            raise OrderRefused("stale", f"job {attempt.key} is being killed")
        await self._guard_there()
        if attempt.ran:  # obeyed just before this agent was killed: never twice
            return Started(message.order, 0)
        attempt.elsewhere = {
            stream: path
            for stream, path in zip(STREAMS, (message.output, message.error), strict=True)
            if path is not None
        }
        descriptors: list[int] = []
        try:
            descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            descriptors.append(self._output(attempt, "stdout"))
            descriptors.append(self._output(attempt, "stderr"))
            descriptors.append(_script(message.script))
            argv = ["script", *message.arguments]
            pid = await self._groups.spawn(
                attempt, 0, argv, descriptors, script=True, output=message.output, error=message.error
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        attempt.ran = True
        _log.info("job %s: its script runs as process %d", attempt.key, pid)
        return Started(message.order, pid)

    def _output(self, attempt: Attempt, stream: str) -> int:
        if stream in attempt.elsewhere:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return self._groups.spool.open(attempt.job_id, attempt.attempt, stream)

    async def _kill(self, message: Kill, attempt: Attempt | None) -> Answer | None:
        order = message.order
        if attempt is None:  # never prepared here: nothing of it may come later either
            self._groups.never_here(self.attempts.new(order.job_id, order.attempt, message.fence.cluster_id))
            return None
        if attempt.ended:
            self._groups.tell(attempt.ended)
            return None
        try:
            await self._groups.kill(attempt, message.grace_us)
        except GuardGone as error:
            _log.warning("job %s will be killed when the guard is back: %s", attempt.key, error)
        return None

    async def _discard(self, message: Discard, attempt: Attempt | None) -> None:
        if attempt is None:
            self._groups.spool.remove(message.order.job_id, message.order.attempt)
            return
        if not attempt.forgotten:
            await self._groups.forget(attempt)
        self._groups.discard(attempt)

    async def _guard_there(self) -> None:
        try:
            async with asyncio.timeout(_GUARD_WAIT_S):
                await self._groups.guard.ready.wait()
        except TimeoutError:
            raise OrderRefused("failed", f"the node's guard is not there: {self._groups.guard.problem}") from None

    def output(self, request: ReadOutput) -> OutputChunk:
        """A piece of a job's output."""
        attempt = self.attempts.get(request.job_id, request.attempt)
        final = attempt is None or attempt.ended is not None or attempt.forgotten
        problem = ""
        if request.stream not in STREAMS:
            problem = f"no stream {request.stream!r}; there are {' and '.join(STREAMS)}"
        elif request.offset < 0 or request.max_bytes < 0:
            problem = "an offset or a size below 0"
        elif attempt is not None and request.stream in attempt.elsewhere:
            problem = f"{request.stream} was written to {attempt.elsewhere[request.stream]}"
        if problem:
            return OutputChunk(request.request, b"", 0, final, problem)
        where = (request.job_id, request.attempt, request.stream)
        try:
            data, size = self._groups.spool.read(*where, request.offset, request.max_bytes)
        except FileNotFoundError:
            gone = "its output was discarded, or it has never run here" if attempt is None else ""
            return OutputChunk(request.request, b"", 0, final, gone)
        except OSError as error:
            return OutputChunk(request.request, b"", 0, final, f"cannot be read: {error.strerror}")
        return OutputChunk(request.request, data, size, final and request.offset + len(data) >= size)


def _script(text: bytes) -> int:
    """A descriptor with the script's text, from its beginning."""
    descriptor = os.memfd_create("script", os.MFD_CLOEXEC)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
