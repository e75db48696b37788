"""What users are on this node, for ``cosched doctor``: whether the nodes agree on who is who."""

import asyncio
import os
import pwd
import time

from cosched.config.node import NodeConfig
from cosched.linux import users
from cosched.wire.messages import Account, Survey, Surveyed

_PATIENCE_S = 3.0  # a directory of users on the network may not answer


async def surveyed(request: Survey, config: NodeConfig) -> Surveyed:
    """The answer: users by name as this node's user database has them, those it does not know left out."""
    now_us = time.time_ns() // 1000
    found: dict[str, Account] = {}
    try:
        async with asyncio.timeout(_PATIENCE_S):
            found = await asyncio.to_thread(_accounts, request, config)
    except TimeoutError:
        found = {name: Account(-1, -1, "", "this node's user database does not answer") for name in request.users}
    return Surveyed(request.request, now_us, found)


def _accounts(request: Survey, config: NodeConfig) -> dict[str, Account]:
    found = {}
    for name in request.users:
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            continue
        found[name] = Account(
            entry.pw_uid, entry.pw_gid, entry.pw_dir, _problem(name, entry, config, request.uids.get(name))
        )
    return found


def _problem(name: str, entry: pwd.struct_passwd, config: NodeConfig, submitter: int | None) -> str:
    """Why jobs of that user would not run here as they should; empty where they would."""
    security = config.security
    try:
        users.resolve(
            name,
            users=security.users,
            min_uid=security.min_uid,
            allow_root=security.allow_root,
            submitter=submitter,
        )
    except users.UserRefused as error:
        return str(error)
    try:
        home = os.stat(entry.pw_dir)
    except OSError as error:
        return f"home {entry.pw_dir}: {error.strerror}"
    if home.st_uid != entry.pw_uid:
        return f"home {entry.pw_dir} belongs to uid {home.st_uid}, not to {name} (uid {entry.pw_uid})"
    return ""
