"""The parts of an installation, and where they lie on a machine."""

import sys
from typing import Final, Literal

import msgspec

#: At the top of the file system: what ``ProtectHome=`` hides.
_HOMES: Final = frozenset({"home", "root"})

Role = Literal["node", "scheduler", "local-load"]
ROLES: Final[tuple[Role, ...]] = ("node", "scheduler", "local-load")

ROOT: Final = "root"
AGENT: Final = "cosched-agent"
SCHEDULER: Final = "cosched-scheduler"
LOCAL_LOAD: Final = "cosched-local-load"

UNITS: Final = "/etc/systemd/system"
SYSUSERS: Final = "/etc/sysusers.d"
TMPFILES: Final = "/etc/tmpfiles.d"


class Account(msgspec.Struct, frozen=True):
    """A system account without a shell, a home or a password. ``groups``: those it is in beside its own."""

    name: str
    what: str
    groups: tuple[str, ...] = ()


class Directory(msgspec.Struct, frozen=True):
    """A directory; ``mode`` is octal digits. A ``volatile`` one is gone with each boot and made again."""

    path: str
    owner: str
    mode: str
    volatile: bool = False


class File(msgspec.Struct, frozen=True):
    """A file with its whole text, or one of the identity's, whose ``text`` is empty: it is made on its machine."""

    path: str
    mode: str
    text: str
    owner: str = ROOT


class Installation(msgspec.Struct, frozen=True):
    """All that a role is on a machine. Owners name an account, and its group of the same name.

    ``identity`` are the files of keys and certificates, which no document carries; ``services`` are the units that are
    started and enabled, in that order; ``units`` all that are written, also those that others want.
    """

    role: Role
    accounts: tuple[Account, ...]
    directories: tuple[Directory, ...]
    files: tuple[File, ...]
    identity: tuple[File, ...]
    services: tuple[str, ...]
    units: tuple[str, ...]

    def text(self, path: str) -> str:
        """The text of one of its files. Raises KeyError."""
        return {file.path: file.text for file in self.files}[path]


class Layout(msgspec.Struct, frozen=True):
    """Where an installation's parts lie, and the interpreter that has cosched there."""

    etc: str = "/etc/cosched"
    state: str = "/var/lib/cosched"
    run: str = "/run/cosched"
    python: str = sys.executable

    @property
    def identity(self) -> str:
        """Keys and certificates."""
        return f"{self.etc}/identity"

    @property
    def settings(self) -> str:
        """Of a node."""
        return f"{self.etc}/node.toml"

    @property
    def cluster(self) -> str:
        """The scheduler's settings."""
        return f"{self.etc}/cluster.yaml"

    def at_home(self) -> bool:
        """Whether the interpreter is in somebody's home, which services that see no homes could not run."""
        return self.python.split("/")[1] in _HOMES
