"""What the guard is asked for an attempt, in its own words, with the descriptors that go along."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from node_agent.core import effects as fx
from node_agent.guard.base import requests
from node_agent.service.environment import Environment
from node_agent.service.spool import Spool


@contextmanager
def guard_request(
    request: fx.GuardRequest, environment: Environment, spool: Spool
) -> Iterator[tuple[requests.Request, list[int]]]:
    """A request, and descriptors that stay open for as long as the context lasts. Raises OSError."""
    descriptors: list[int] = []
    try:
        if isinstance(request, fx.Spawn):
            if request.script is not None:  # standard input, output, error, and the script
                descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                for stream, elsewhere in (("stdout", request.output), ("stderr", request.error)):
                    if elsewhere is None:
                        descriptors.append(spool.open(*request.key, stream))
                    else:
                        descriptors.append(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
                descriptors.append(_script(request.script))
            yield (
                requests.Spawn(
                    *request.key,
                    request.n,
                    request.argv,
                    environment.of(request.key, request.prepare),
                    request.prepare.directory,
                    request.script is not None,
                    request.output,
                    request.error,
                    request.stream,
                ),
                descriptors,
            )
        elif isinstance(request, fx.PrepareGroup):
            order = request.prepare
            yield (
                requests.Prepare(
                    *request.key,
                    order.user,
                    order.directory,
                    order.tasks,
                    order.memory_bytes,
                    order.limit_us,
                    order.grace_us,
                    order.umask,
                    order.cpus,
                    request.asleep,
                    order.uid,
                ),
                descriptors,
            )
        elif isinstance(request, fx.ResizeGroup):
            yield requests.Resize(*request.key, request.n, request.tasks, request.cpus, request.asleep), descriptors
        elif isinstance(request, fx.KillGroup):
            yield requests.Kill(*request.key, request.grace_us), descriptors
        else:
            yield requests.Forget(*request.key), descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


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
