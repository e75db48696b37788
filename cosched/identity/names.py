"""Kinds of identity, the names they may have, the files they are in, and the accounts that these belong to."""

import pwd
import re
from pathlib import Path
from typing import Final, Literal

from cosched.config.hosts import MAX_NODE_NAME, is_host
from cosched.errors import BadInput, Failed

Kind = Literal["scheduler", "node", "user"]

#: Every scheduler's certificate has this name beside its addresses: agents and clients expect it at any address.
SCHEDULER: Final = "scheduler"

CA_PEM: Final = "ca.pem"
CA_KEY: Final = "ca.key"
GRANT_KEY: Final = "grant.key"
GRANT_PUB: Final = "grant.pub"
TOKEN: Final = "token"
#: Beside ca.key: every certificate that was made, a line each (serial number, kind, name, last day).
ISSUED: Final = "issued"

#: So long before its end an identity's expiry is worth a warning.
WARN_DAYS: Final = 30.0

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def checked_name(kind: Kind, name: str) -> str:
    """The name, if a certificate of that kind may carry it. Raises :class:`BadInput`."""
    fits, expected = bool(_USER.fullmatch(name)), "a user's login name"
    if kind != "user":
        fits, expected = is_host(name), "a host's name: letters, digits, - and dots"
    if len(name) > MAX_NODE_NAME or not fits or ".." in name or name.endswith("."):
        raise BadInput(f"{kind} name", f"{name!r}", f"{expected}, at most {MAX_NODE_NAME} characters")
    if kind == "node" and name.casefold() == SCHEDULER:
        raise BadInput("node name", f"{name!r}, which is the scheduler's own", "another name")
    return name


def certificate(kind: Kind, directory: Path) -> tuple[Path, Path]:
    """The files of a certificate of that kind and of its key."""
    return directory / f"{kind}.pem", directory / f"{kind}.key"


def private(path: Path) -> Path:
    """The path of a key, if the key is there and nobody but its owner may read it. Raises :class:`BadInput`."""
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        raise BadInput(str(path), "no such file", "a key, as 'request' makes it") from None
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise BadInput(str(path), f"a secret with mode {mode:04o}: others may read it", f"mode 0600 (chmod 600 {path})")
    return path


def owner(account: str) -> tuple[int, int]:
    """The user and the group of an account, to which files are given. Raises :class:`Failed` where there is none."""
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise Failed(f"there is no account {account} on this machine") from None
    return entry.pw_uid, entry.pw_gid
