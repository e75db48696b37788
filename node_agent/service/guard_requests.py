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
    opened: list[int] = []
    try:
        match request:
            case fx.Spawn(key, n, prepare, argv, script, output, error, stream):
                if script is not None:
                    opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                    for name, elsewhere in (("stdout", output), ("stderr", error)):
                        if elsewhere is None:
                            opened.append(spool.open(*key, name))
                        else:  # the guard opens the user's own path
                            opened.append(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
                    opened.append(os.memfd_create("script", os.MFD_CLOEXEC))
                    with open(opened[-1], "wb", closefd=False) as file:
                        file.write(script)
                    os.lseek(opened[-1], 0, os.SEEK_SET)
                made, has_script = environment.of(key, prepare), script is not None
                spawn = requests.Spawn(*key, n, argv, made, prepare.directory, has_script, output, error, stream)
                yield spawn, opened
            case fx.PrepareGroup(key, order, asleep):
                asked = requests.Prepare(
                    *key,
                    order.user,
                    order.directory,
                    order.tasks,
                    order.memory_bytes,
                    order.limit_us,
                    order.grace_us,
                    order.umask,
                    order.cpus,
                    asleep,
                    order.uid,
                )
                yield asked, opened
            case fx.ResizeGroup(key, n, tasks, cpus, asleep):
                yield requests.Resize(*key, n, tasks, cpus, asleep), opened
            case fx.KillGroup(key, grace_us):
                yield requests.Kill(*key, grace_us), opened
            case fx.ForgetGroup(key):
                yield requests.Forget(*key), opened
    finally:
        for descriptor in opened:
            os.close(descriptor)
