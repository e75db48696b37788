"""Who belongs to the cluster: the nodes of ``cluster.yaml``, those admitted and removed since, revoked certificates.

What an operator does by ``cosched node add`` and ``remove`` holds at once and over restarts, whatever the settings'
file says: a node that was removed stays out, also where its name is still in the file, until it is added again. A
removed node's certificates are revoked by their serial number, so that the name can come back with another key.

Certificates of nodes that stay, of users and of schedulers are revoked by ``cosched identity revoke``. They are kept in
the same list, whose owner then has its kind in front: software that does not know of them refuses them as well.

Of a node's certificates the newest that it has shown counts: it revokes the one shown before, whose key is still on the
disk of a desk that was laid out anew. ``newest.json`` keeps which that is, so that an older one that was never shown
here is refused, too. It is a file of its own, for older software reads no other field in ``members.json``.
"""

import re
from pathlib import Path
from typing import Final, get_args

import msgspec

from cosched.errors import BadInput
from cosched.identity.names import Kind
from space_scheduler.service.access import kept
from space_scheduler.service.journal.forgetting import FORGOTTEN

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


class _Newest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    serial: str
    since_s: float


class Members:
    """Nodes that may join, and certificates that count no more. Kept in ``state/members.json`` and ``newest.json``."""

    def __init__(self, path: Path, listed: list[str]) -> None:
        """``listed`` are the nodes of the settings. Raises :class:`Failed` for a file that cannot be understood."""
        self._path = path
        self._newest_path = path.with_name("newest.json")
        self._listed = listed
        self._kept = (
            kept.read(path, _Kept, "the list of members", "it says which nodes were removed: mend it") or _Kept()
        )
        self._newest = (
            kept.read(
                self._newest_path,
                dict[str, _Newest],
                "the list of nodes' newest certificates",
                "it says which older ones are refused: mend it",
            )
            or {}
        )

    @property
    def nodes(self) -> list[str]:
        """Those that may join, in the settings' order, then those that were admitted."""
        return [name for name in dict.fromkeys([*self._listed, *self._kept.admitted]) if name not in self._kept.removed]

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
        known = self._kept.admitted
        admitted = known if name in (*self._listed, *known) else (*known, name)
        self._change(admitted=admitted, removed=tuple(each for each in self._kept.removed if each != name))

    def remove(self, name: str, serials: list[str]) -> None:
        """Let it join no more, and revoke those certificates. Raises :class:`Failed`."""
        self._change(
            admitted=tuple(each for each in self._kept.admitted if each != name),
            removed=tuple(dict.fromkeys([*self._kept.removed, name])),
            revoked=self._kept.revoked | dict.fromkeys(serials, name),
        )

    def revoke(self, kind: Kind, name: str, serials: list[str]) -> None:
        """Let those certificates count no more. Raises :class:`Failed`."""
        fresh = {serial: f"{kind} {name}" for serial in serials if serial not in self._kept.revoked}
        self._change(revoked=self._kept.revoked | fresh)

    def forget(self, user: str) -> int:
        """Keep a user's revoked certificates revoked, without the name; how many there are. Raises :class:`Failed`."""
        theirs = {
            serial: f"user {FORGOTTEN}" for serial, whose in self.revocations().items() if whose == ("user", user)
        }
        self._change(revoked=self._kept.revoked | theirs)
        return len(theirs)

    def shown(self, name: str, serial: str, since_s: float) -> bool:
        """Note that a node shows a certificate, valid from ``since_s`` (seconds since 1970) on.

        Whether the one that it showed before is revoked by that. Raises :class:`BadInput` for one that is older than
        that, and :class:`Failed`.
        """
        before = self._newest.get(name)
        if before is not None and before.serial == serial:
            return False
        replaced = before if before is not None and not self.is_revoked(before.serial) else None
        if replaced is not None:
            if since_s < replaced.since_s:
                raise BadInput(
                    "certificate",
                    f"{serial}, older than {replaced.serial}, which {name} has shown",
                    f"that one, or another after 'cosched identity revoke node {name} --serial {replaced.serial}'",
                )
            self.revoke("node", name, [replaced.serial])
        newest = self._newest | {name: _Newest(serial, since_s)}
        kept.write(self._newest_path, newest)
        self._newest = newest
        return replaced is not None

    def _change(self, **changed: object) -> None:
        members = msgspec.structs.replace(self._kept, **changed)
        if members != self._kept:
            kept.write(self._path, members)
            self._kept = members


def _owner(whose: str) -> tuple[Kind, str]:
    """Kind and name of whose certificate it is."""
    for kind in get_args(Kind):
        if whose.startswith(f"{kind} "):
            return kind, whose.removeprefix(f"{kind} ")
    return "node", whose
