"""What comes back for a question of the core, from the guard or about the node."""

from typing import Final

import msgspec

from cosched.wire.grant import Grant

#: The code of what the guard was asked while it was not there, or did not answer before it went: done or not.
AWAY: Final = "away"


class Done(msgspec.Struct, frozen=True):
    """It was done. ``pid``: of a command that was started; ``cpus``: by the node's numbers, those of a resized group.

    No CPUs: all that parallel work may use.
    """

    pid: int = 0
    cpus: tuple[int, ...] = ()


class Declined(msgspec.Struct, frozen=True):
    """It was not done; ``code`` as in ``wire.messages.Refused``, or :data:`AWAY`."""

    code: str
    message: str


class GrantRead(msgspec.Struct, frozen=True):
    """The scheduler has signed this."""

    grant: Grant


class ErrorTail(msgspec.Struct, frozen=True):
    """The last bytes of the error output; empty where there is none."""

    data: bytes


Reply = Done | Declined | GrantRead | ErrorTail
