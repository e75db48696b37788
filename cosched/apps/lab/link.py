"""The link between a lab's clusters, from the outside: how it is, how long a packet takes, cut, mended."""

import contextlib
from pathlib import Path
from typing import Any

from cosched.apps.lab import control
from cosched.apps.lab.plan import LINK_SOCKET
from cosched.errors import BadInput, Failed


def asked(directory: Path, do: str, pair: tuple[str, str] | None = None) -> dict[str, Any]:
    """What the link of the lab in that directory answers: its state, after it was cut or mended.

    ``do`` is cut, mend or status; ``pair`` the two clusters. Raises :class:`BadInput`, :class:`Failed`.
    """
    try:
        with contextlib.closing(control.connect(directory / LINK_SOCKET)) as connection:
            control.send(connection, {"do": do, "pair": list(pair) if pair else None})
            packet = control.receive(connection)
    except FileNotFoundError:
        raise BadInput("lab", "it has one cluster", "a lab made with --clusters") from None
    except (OSError, ValueError) as error:
        raise Failed(f"the link between the clusters does not answer: {error}") from None
    if packet is None:
        raise Failed("the link between the clusters does not answer")
    if "error" in packet[0]:
        raise BadInput("CLUSTER", packet[0]["error"], "two clusters of the lab")
    return packet[0]
