"""What comes back for a question of the core, from the guard or about the node."""

import msgspec

from cosched.wire.grant import Grant


class Done(msgspec.Struct, frozen=True):
    """It was done. ``pid`` is that of a command that was started."""

    pid: int = 0


class GroupResized(msgspec.Struct, frozen=True):
    """The guard has given a job these CPUs, by the node's numbers; none: all that parallel work may use."""

    cpus: tuple[int, ...]


class Declined(msgspec.Struct, frozen=True):
    """The guard does not do it; ``code`` as in ``wire.messages.Refused``."""

    code: str
    message: str


class NoGuard(msgspec.Struct, frozen=True):
    """The guard is not there, or has gone before it answered: nobody knows whether it was done."""

    message: str


class Failed(msgspec.Struct, frozen=True):
    """It could not be done, or could not even be asked."""

    message: str


class GrantRead(msgspec.Struct, frozen=True):
    """The scheduler has signed this."""

    grant: Grant


class ErrorTail(msgspec.Struct, frozen=True):
    """The last bytes of the error output; empty where there is none."""

    data: bytes


Reply = Done | GroupResized | Declined | NoGuard | Failed | GrantRead | ErrorTail
