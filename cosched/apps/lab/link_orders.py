"""What the link between a lab's clusters is asked, and answers, whoever carries its packets.

requests, over the lab's ``link.sock``
    {do: status, pair: null}
    {do: cut, pair: [c1, c2]}, {do: mend, pair: [c1, c2]}
              answers {by, clusters, cut: [[c1, c2], …]} and what the carrier knows more, or {error}
"""

import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from cosched.apps.lab import control

_CALLER_S: Final = 0.1


class LinkOrders:
    """Takes orders at ``listener`` for the link of these clusters. ``cut`` has the pairs between which it is cut."""

    def __init__(
        self,
        by: str,
        clusters: Sequence[str],
        listener: socket.socket,
        changed: Callable[[], None] = lambda: None,
        more: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """``by``: who carries the packets; ``changed`` is called after a cut or a mend, ``more`` for each answer."""
        self.cut: set[frozenset[str]] = set()
        self.listener = listener
        self._by = by
        self._clusters = list(clusters)
        self._changed = changed
        self._more = more

    def serve(self) -> None:
        """One request, answered at once."""
        with contextlib.suppress(OSError, ValueError):
            connection, _ = self.listener.accept()
            with connection:
                connection.settimeout(_CALLER_S)
                packet = control.receive(connection)
                if packet is not None and control.may_command(connection):
                    control.send(connection, self._answer(packet[0]))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        do, pair = request.get("do"), request.get("pair")
        if do in ("cut", "mend"):
            if not isinstance(pair, list) or len(set(pair)) != 2 or not set(pair) <= set(self._clusters):
                return {"error": f"not two clusters of {', '.join(self._clusters)}: {pair}"}
            (self.cut.add if do == "cut" else self.cut.discard)(frozenset(pair))
            self._changed()
        elif do != "status":
            return {"error": f"not understood: {do}"}
        cut = sorted(sorted(each) for each in self.cut)
        return {"by": self._by, "clusters": self._clusters, "cut": cut, **self._more()}
