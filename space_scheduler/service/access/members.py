"""Who belongs to the cluster: the nodes of ``cluster.yaml``, those admitted and removed since, revoked certificates.

What an operator does by ``cosched node add`` and ``remove`` holds at once and over restarts, whatever the settings'
file says: a node that was removed stays out, also where its name is still in the file, until it is added again. A
removed node's certificates are revoked by their serial number, so that the name can come back with another key.

Certificates of nodes that stay, of users and of schedulers are revoked by ``cosched identity revoke``. They are kept in
the same list, whose owner then has its kind in front: software that does not know of them refuses them as well.
"""

import re
from pathlib import Path
from typing import Final, get_args

import msgspec

from cosched.durable import write_durably
from cosched.errors import BadInput, Failed, NeedsRepair
from cosched.identity.names import Kind

#: A certificate's serial number in hexadecimal, as :func:`cosched.identity.tls.serial_of` gives it.
_SERIAL: Final = re.compile(r"[0-9a-f]{1,40}")
_MOST_SERIALS: Final = 1000


def checked_serials(serials: list[str], where: str) -> list[str]:
    """Serial numbers as a request has them. Raises :class:`BadInput`."""
    for serial in serials:
        if not _SERIAL.fullmatch(serial):
            raise BadInput(f"{where}: serials", f"found {serial!r}", "serial numbers in hexadecimal, lower case")
    if len(serials) > _MOST_SERIALS:
        raise BadInput(f"{where}: serials", f"{len(serials)} of them", f"at most {_MOST_SERIALS}")
    return serials


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    admitted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    revoked: dict[str, str] = {}  # serial -> whose: a node's name, or kind and name


class Members:
    """Nodes that may join, and certificates that count no more. Kept in ``state/members.json``."""

    def __init__(self, path: Path, listed: list[str]) -> None:
        """``listed`` are the nodes of the settings. Raises :class:`Failed` for a file that cannot be understood."""
        self._path = path
        self._listed = listed
        try:
            self._kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            self._kept = _Kept()
        except OSError as error:
            raise Failed(f"{path}: cannot be read: {error.strerror}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NeedsRepair(f"{path}: not the list of members ({error}); it says who was removed: mend it") from None

    @property
    def nodes(self) -> list[str]:
        """Those that may join, in the settings' order, then those that were admitted."""
        names = dict.fromkeys([*self._listed, *self._kept.admitted])
        return [name for name in names if name not in self._kept.removed]

    @property
    def revoked(self) -> tuple[str, ...]:
        """The serial numbers of certificates that agents have to refuse: all but users', which agents never take."""
        return tuple(serial for serial, whose in self._kept.revoked.items() if _owner(whose)[0] != "user")

    def revocations(self) -> dict[str, tuple[Kind, str]]:
        """All serial numbers that count no more, and whose they are."""
        return {serial: _owner(whose) for serial, whose in self._kept.revoked.items()}

    def was_removed(self, name: str) -> bool:
        """Whether that node was removed."""
        return name in self._kept.removed

    def is_revoked(self, serial: str) -> bool:
        """Whether that certificate was revoked."""
        return serial in self._kept.revoked

    def admit(self, name: str) -> None:
        """Let a node join. Raises :class:`Failed`."""
        kept = self._kept
        admitted = kept.admitted if name in (*self._listed, *kept.admitted) else (*kept.admitted, name)
        removed = tuple(each for each in kept.removed if each != name)
        self._write(_Kept(admitted, removed, kept.revoked))

    def remove(self, name: str, serials: list[str]) -> None:
        """Let it join no more, and revoke those certificates. Raises :class:`Failed`."""
        kept = self._kept
        admitted = tuple(each for each in kept.admitted if each != name)
        removed = tuple(dict.fromkeys([*kept.removed, name]))
        self._write(_Kept(admitted, removed, kept.revoked | dict.fromkeys(serials, name)))

    def revoke(self, kind: Kind, name: str, serials: list[str]) -> None:
        """Let those certificates count no more. Raises :class:`Failed`."""
        kept = self._kept
        fresh = {serial: f"{kind} {name}" for serial in serials if serial not in kept.revoked}
        self._write(_Kept(kept.admitted, kept.removed, kept.revoked | fresh))

    def _write(self, kept: _Kept) -> None:
        if kept == self._kept:
            return
        try:
            write_durably(self._path, msgspec.json.format(msgspec.json.encode(kept)))
        except OSError as error:
            raise Failed(f"{self._path} cannot be written: {error.strerror}; nothing has changed") from None
        self._kept = kept


def _owner(whose: str) -> tuple[Kind, str]:
    """Kind and name of whose certificate it is."""
    for kind in get_args(Kind):
        if whose.startswith(f"{kind} "):
            return kind, whose.removeprefix(f"{kind} ")
    return "node", whose
