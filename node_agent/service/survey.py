"""What users are on this node, for ``cosched doctor``: whether the nodes agree on who is who."""

import asyncio
import contextlib
import json
import sys
import time

from cosched.config.node import NodeConfig
from cosched.wire.messages import Account, Survey, Surveyed

#: A directory of users on the network, or a home's file system, may not answer.
_PATIENCE_S = 3.0
_ENDS_WITHIN_S = 1.0
_PROGRAM = (sys.executable, "-I", "-m", "cosched.linux.accounts")


async def surveyed(request: Survey, config: NodeConfig) -> Surveyed:
    """The answer: users by name as this node's user database has them, those it does not know left out."""
    now_us = time.time_ns() // 1000
    security = config.security
    allowed = {"users": security.users, "min_uid": security.min_uid, "allow_root": security.allow_root}
    question = json.dumps({"users": request.users, "uids": request.uids, "security": allowed})
    # not in a thread: one that waits for a file system would keep this process from ending
    child = await asyncio.create_subprocess_exec(
        *_PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_PATIENCE_S):
            told, _ = await child.communicate(question.encode())
        found = {name: Account(*fields) for name, fields in json.loads(told).items()}
    except (TimeoutError, ValueError):
        found = {
            name: Account(-1, -1, "", "this node's user database, or a home, does not answer") for name in request.users
        }
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        with contextlib.suppress(TimeoutError):  # one that waits for a file system does not end now
            async with asyncio.timeout(_ENDS_WITHIN_S):
                await child.wait()
    return Surveyed(request.request, now_us, found)
