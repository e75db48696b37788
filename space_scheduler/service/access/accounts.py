"""Users of the scheduler's host: their names, and their uids, by which policies tell them apart and desks know them."""

import pwd


def user_number(name: str) -> int:
    """The uid of a user of this host. Raises KeyError for a name that its directory does not know, or not now."""
    try:
        return pwd.getpwnam(name).pw_uid
    except (ValueError, OSError):
        raise KeyError(name) from None


def user_name(number: int) -> str:
    """The name of a uid of this host. Raises KeyError for one that its directory does not know, or not now."""
    return pwd.getpwuid(number).pw_name
