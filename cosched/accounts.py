"""Accounts of this machine by name, as those who give files away need them."""

import pwd

from cosched.errors import Failed


def owner(account: str) -> tuple[int, int]:
    """Its user and its group. Raises :class:`Failed` where there is no such account."""
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise Failed(f"there is no account {account} on this machine") from None
    return entry.pw_uid, entry.pw_gid
