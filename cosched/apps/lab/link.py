"""The link between a lab's clusters, from the outside: how it is, how long a packet takes, cut, mended."""

import contextlib
from pathlib import Path
from typing import Any, Final

from cosched.apps.lab import control
from cosched.apps.lab.plan import LINK_SOCKET
from cosched.errors import BadInput, Failed

#: A caller that is slow to ask is hung up on (``link_orders``): on a busy machine, several times in a row.
_TRIES: Final = 50


def asked(directory: Path, do: str, pair: tuple[str, str] | None = None) -> dict[str, Any]:
    """What the link of the lab in that directory answers: its state, after it was cut or mended.

    ``do`` is cut, mend or status; ``pair`` the two clusters. Raises :class:`BadInput`, :class:`Failed`.
    """
    order = {"do": do, "pair": list(pair) if pair else None}
    try:
        answers = (_answer(directory / LINK_SOCKET, order) for _ in range(_TRIES))
        answer = next(filter(None, answers), None)
    except FileNotFoundError:
        raise BadInput("lab", "it has one cluster", "a lab made with --clusters") from None
    except (OSError, ValueError) as error:
        raise Failed(f"the link between the clusters does not answer: {error}") from None
    if answer is None:
        raise Failed("the link between the clusters does not answer")
    if "error" in answer:
        raise BadInput("CLUSTER", answer["error"], "two clusters of the lab")
    return answer


def _answer(path: Path, order: dict[str, Any]) -> dict[str, Any] | None:
    """What comes of asking once; None: the link, which has packets to carry, did not wait until it was asked."""
    with contextlib.closing(control.connect(path)) as connection:
        try:
            control.send(connection, order)
            packet = control.receive(connection)
        except (BrokenPipeError, ConnectionResetError):
            return None
    return None if packet is None else packet[0]
