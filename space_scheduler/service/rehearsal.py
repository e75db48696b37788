"""What a start of the service would do, tried without one: nothing of the cluster is changed, nobody is answered.

For ``cosched scheduler --check``, also beside the running service: an administrator checks new settings, then restarts.
What that service has (its journal's lock, its socket, its port) is then said instead of refused.
"""

import asyncio
import errno
import fcntl
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from msgspec import structs

from cosched.config.cluster import ClusterConfig
from cosched.errors import Failed
from cosched.identity.authority import validities
from space_scheduler.service.access import listen
from space_scheduler.service.access.members import Members
from space_scheduler.service.access.tokens import Tokens
from space_scheduler.service.app import host_of, identity_of
from space_scheduler.service.journal.copies import write_copy
from space_scheduler.service.journal.schema import (
    VERSION,
    Mark,
    check_never_was,
    check_not_older,
    connect,
    end_of,
    format_of,
    holder,
    lock_path,
    marked,
    readable,
)
from space_scheduler.service.launch.sharing import eligibility_of, policy_of


async def rehearse(config: ClusterConfig, where: str) -> list[str]:
    """What the settings come to, a line each. Raises :class:`BadInput` and :class:`Failed` where a start would.

    ``where`` is the settings' file, for what is wrong in it. The journal is recovered from a copy.
    """
    policy_of(config, f"{where}: policy")
    eligibility_of(config, f"{where}: eligibility")
    state = Path(config.state)
    journal = state / "journal.db"
    running, mark = _holder(journal)
    beside = f", where process {running} serves now" if running else ""
    members = Members(state / "members.json", config.nodes)
    Tokens(state / "tokens.json")
    lines = [f"cluster {config.name}: {len(members.nodes)} nodes may join, policy {config.policy}"]
    if config.listen.socket:
        path = listen.checked_path(Path(config.listen.socket))
        if not running:
            listen.check_unix(path)
        lines.append(f"users of this host: {path}{beside}")
    if config.listen.address:
        lines += _secured(config, running, beside)
    else:
        lines.append("no listen.address: no agent can join, and nothing will start")
    _check_writable(state)
    lines.append(f"journal: {journal}{beside}: {await _recovered(config, journal, mark)}")
    return lines


def _secured(config: ClusterConfig, running: str, beside: str) -> list[str]:
    identity = Path(config.identity)
    identity_of(config)
    address, port = config.listen.address, config.listen.port
    try:
        listen.tcp_socket(address, port).close()
        beside = ""
    except Failed as error:
        cause = error.__context__
        if not (running and isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE):
            raise
    return [
        f"agents and remote users: {address} port {port}, TLS with {identity}{beside}",
        *(f"{each.path}: valid for {each.days_left:.0f} days" for each in validities(identity)),
    ]


def _holder(journal: Path) -> tuple[str, Mark | None]:
    """The process that has the journal at this moment (empty: none), and the journal's mark. Raises :class:`Failed`."""
    try:
        lock = os.open(lock_path(journal), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return "", None
    except OSError as error:
        raise Failed(f"journal {journal}: {lock_path(journal)} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return holder(lock), marked(lock)
    else:
        return "", marked(lock)
    finally:
        os.close(lock)


def _check_writable(state: Path) -> None:
    """Raise :class:`Failed` where the state's directory is not this user's to write in, or cannot be made."""
    there = next(each for each in (state, *state.parents) if each.exists())
    if not there.is_dir():
        raise Failed(f"state: {state} cannot be made: {there} is no directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise Failed(f"state: {state} cannot be {'written' if there == state else 'made'}: not allowed in {there}")


async def _recovered(config: ClusterConfig, journal: Path, mark: Mark | None) -> str:
    """What a start would recover, by recovering a copy. Raises ``JournalRefused`` and other kinds of ``Failed``."""
    if not journal.exists():
        check_never_was(journal)
        return "none yet"
    with tempfile.TemporaryDirectory(prefix="cosched-check-") as copy:
        await asyncio.to_thread(_copy, journal, Path(copy) / journal.name, mark)
        older = format_of(journal)
        host = host_of(structs.replace(config, state=copy), lambda committed: None, lambda problem: None)
        try:
            found = str(await host.start())
            convert = f"a start keeps a copy of it beside it and brings it to format {VERSION}"
            return found if older == VERSION else f"{found}; it is of format {older}: {convert}"
        finally:
            await host.close()


def _copy(journal: Path, target: Path, mark: Mark | None) -> None:
    with readable(journal), closing(connect(journal, write=False)) as source:
        check_not_older(journal, end_of(source), mark)  # the mark was read before: a running service only goes on
        try:
            write_copy(source, target)
        except (OSError, sqlite3.OperationalError) as error:
            raise Failed(f"journal {journal}: it cannot be copied to {target.parent}: {error}") from None
