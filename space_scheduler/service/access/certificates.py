"""Which certificates this service knows: its own, and those that were shown to it. Until when each is valid."""

from collections import OrderedDict
from pathlib import Path
from typing import Final, NamedTuple

from cosched.identity.authority import validity
from cosched.identity.names import CA_PEM, Kind, certificate
from cosched.identity.tls import Peer

#: Of those that were shown, the ones shown last: more would only be kept for whoever makes very many.
_MOST: Final = 10_000


class Shown(NamedTuple):
    """A certificate that was shown, by its serial number; ``until_s`` in seconds since 1970."""

    peer: Peer
    serial: str
    until_s: float


class Certificates:
    """What is known since the service was started."""

    def __init__(self, own: Path | None) -> None:
        """``own`` is the scheduler's directory of keys; None: it listens nowhere. Raises :class:`BadInput`."""
        self._own = own
        self._own_until_s: dict[str, float] = {}
        self._shown: OrderedDict[str, Shown] = OrderedDict()
        self.renewed()

    def renewed(self) -> None:
        """The scheduler's own are read again. Raises :class:`BadInput` with the file."""
        if self._own is None:
            return
        files = {"scheduler": certificate("scheduler", self._own)[0], "authority": self._own / CA_PEM}
        self._own_until_s = {name: validity(path).until.timestamp() for name, path in files.items()}

    def was_shown(self, peer: Peer, serial: str, until_s: float) -> None:
        """Somebody has proved who it is with that certificate."""
        self._shown.pop(serial, None)
        self._shown[serial] = Shown(peer, serial, until_s)
        while len(self._shown) > _MOST:
            self._shown.popitem(last=False)

    def of(self, kind: Kind, name: str) -> list[Shown]:
        """Those of one identity that were shown; the last one at the end."""
        return [each for each in self._shown.values() if each.peer == (kind, name)]

    def shown(self) -> list[Shown]:
        """All that were shown; the last one at the end."""
        return list(self._shown.values())

    def expiries(self) -> dict[str, float]:
        """For each identity until when it is valid, in seconds since 1970: ``scheduler``, ``authority``, ``node NAME``,
        ``user NAME``; of several certificates, the one that was shown last.
        """
        others = {f"{each.peer.kind} {each.peer.name}": each.until_s for each in self._shown.values()}
        return self._own_until_s | others
