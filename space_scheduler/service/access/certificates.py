"""Which certificates this service knows: its own, and those that were shown to it. Until when each is valid."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from cosched.identity.authority import serial, validity
from cosched.identity.names import CA_PEM, WARN_DAYS, Kind, certificate
from cosched.identity.tls import Peer
from space_scheduler.service.access import newest

_DAY_S: Final = 86_400.0


class Shown(NamedTuple):
    """A certificate that was shown, by its serial number; ``until_s`` in seconds since 1970."""

    peer: Peer
    serial: str
    until_s: float


class Certificates:
    """What is known since the service was started."""

    def __init__(self, own: Path | None, counts: Callable[[Peer, str], bool] = lambda peer, serial: True) -> None:
        """``own`` is the scheduler's directory of keys; None: it listens nowhere. Raises :class:`BadInput`.

        ``counts``: whether a certificate, by whose it is and its serial number, is one of this cluster's now.
        """
        self._own = own
        self._counts = counts
        self._told_s: dict[str, float] = {}
        self._own_until_s: dict[str, float] = {}
        #: The serial number of the certificate that the service itself shows; empty: none.
        self.own_serial = ""
        #: The ones shown last, by serial number; the last one at the end.
        self.shown: dict[str, Shown] = {}
        self.renewed()

    def renewed(self) -> None:
        """The scheduler's own are read again. Raises :class:`BadInput` with the file."""
        if self._own is None:
            return
        files = {"scheduler": certificate("scheduler", self._own)[0], "authority": self._own / CA_PEM}
        self._own_until_s = {name: validity(path).until.timestamp() for name, path in files.items()}
        self.own_serial = serial(files["scheduler"])

    def was_shown(self, peer: Peer, serial: str, until_s: float) -> None:
        """Somebody has proved who it is with that certificate."""
        newest.put(self.shown, serial, Shown(peer, serial, until_s))

    def of(self, kind: Kind, name: str) -> list[Shown]:
        """Those of one identity that were shown; the last one at the end."""
        return [each for each in self.shown.values() if each.peer == (kind, name)]

    def expiries(self) -> dict[str, float]:
        """For each identity until when it is valid, in seconds since 1970: ``scheduler``, ``authority``, ``node NAME``,
        ``user NAME``; of several certificates the one that was shown last, and none that counts no more.
        """
        return self._own_until_s | {
            f"{each.peer.kind} {each.peer.name}": each.until_s
            for each in self.shown.values()
            if self._counts(each.peer, each.serial)
        }

    def to_foretell(self, now_s: float) -> dict[str, float]:
        """Those of :meth:`expiries` that end soon, or have ended, and of which a day went by without a word."""
        found = {
            name: until_s
            for name, until_s in self.expiries().items()
            if until_s - now_s < WARN_DAYS * _DAY_S and now_s - self._told_s.get(name, -_DAY_S) >= _DAY_S
        }
        self._told_s |= dict.fromkeys(found, now_s)
        return found
