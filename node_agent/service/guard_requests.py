"""What the guard is asked for an attempt, in its own words, with the descriptors that go along."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from node_agent.core import effects as fx
from node_agent.guard import requests
from node_agent.service.environment import Environment
from node_agent.service.spool import Spool


class Requests:
    """Makes them."""

    def __init__(self, environment: Environment, spool: Spool) -> None:
        self._environment = environment
        self._spool = spool

    @contextmanager
    def made(self, request: fx.GuardRequest) -> Iterator[tuple[requests.Request, list[int]]]:
        """The request, and descriptors that stay open for as long as the context lasts. Raises OSError."""
        descriptors: list[int] = []
        try:
            if isinstance(request, fx.Spawn):
                if request.script is not None:
                    self._open(request, request.script, descriptors)
                yield self._spawn(request), descriptors
            elif isinstance(request, fx.PrepareGroup):
                yield _prepare(request), descriptors
            elif isinstance(request, fx.ResizeGroup):
                yield requests.Resize(*request.key, request.n, request.tasks, request.cpus, request.asleep), descriptors
            elif isinstance(request, fx.KillGroup):
                yield requests.Kill(*request.key, request.grace_us), descriptors
            else:
                yield requests.Forget(*request.key), descriptors
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _open(self, request: fx.Spawn, script: bytes, descriptors: list[int]) -> None:
        """Standard input, output, error, and the script."""
        descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        for stream, elsewhere in (("stdout", request.output), ("stderr", request.error)):
            if elsewhere is None:
                descriptors.append(self._spool.open(*request.key, stream))
            else:
                descriptors.append(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
        descriptors.append(_script(script))

    def _spawn(self, request: fx.Spawn) -> requests.Spawn:
        return requests.Spawn(
            job=request.key[0],
            attempt=request.key[1],
            n=request.n,
            argv=request.argv,
            env=self._environment.of(request.key, request.prepare),
            cwd=request.prepare.directory,
            script=request.script is not None,
            output=request.output,
            error=request.error,
            stream=request.stream,
        )


def _prepare(request: fx.PrepareGroup) -> requests.Prepare:
    order = request.prepare
    return requests.Prepare(
        job=request.key[0],
        attempt=request.key[1],
        user=order.user,
        directory=order.directory,
        tasks=order.tasks,
        memory_bytes=order.memory_bytes,
        limit_us=order.limit_us,
        grace_us=order.grace_us,
        umask=order.umask,
        cpus=order.cpus,
        asleep=request.asleep,
        uid=order.uid,
    )


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
