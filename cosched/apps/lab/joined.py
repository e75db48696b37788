"""Who has joined a lab, by its scheduler: asked while it is made, and of one that is up."""

from pathlib import Path
from typing import Final

import msgspec

from cosched.client.transport import Transport
from cosched.errors import NoAnswer
from cosched.wire.api import NodeDoc, NodeList

_ANSWER_S: Final = 5.0


def joined(scheduler: Path) -> list[NodeDoc]:
    """The nodes as the scheduler has them; it has a few seconds to answer. Raises :class:`NoAnswer`."""
    transport = Transport(str(scheduler))
    try:
        answer = transport.request("GET", "/v1/nodes", timeout_s=_ANSWER_S)
    finally:
        transport.close()
    if answer.status != 200:
        raise NoAnswer(f"{scheduler} answers with status {answer.status}: {answer.body[:200]!r}")
    return msgspec.json.decode(answer.body, type=NodeList).nodes
