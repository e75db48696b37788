"""The numbers by which policies tell users apart."""

import pwd


def user_number(name: str) -> int:
    """That of a user of this host; -1 for one that this host does not know."""
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError, OSError):
        return -1
