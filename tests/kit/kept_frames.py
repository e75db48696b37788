"""Messages of the link as older code encoded them (``tests/kept/wire-N.json``), and what its decoders knew of them."""

import json
from pathlib import Path
from typing import Any

import msgspec

_KEPT = Path(__file__).parents[1] / "kept"


def kept(version: int) -> dict[str, Any]:
    """The file of a version."""
    found: dict[str, Any] = json.loads((_KEPT / f"wire-{version}.json").read_text())
    return found


def frames(version: int, side: str) -> dict[str, bytes]:
    """What a side, ``from_agent`` or ``to_agent``, said in a version, by name."""
    return {name: bytes.fromhex(frame) for name, frame in kept(version)[side].items()}


def known(version: int) -> dict[str, set[str]]:
    """By the kind of message: the fields that are in a version's frames. (Its decoders refused anything else.)"""
    found: dict[str, set[str]] = {}
    for side in ("from_agent", "to_agent"):
        for message in map(msgspec.msgpack.decode, frames(version, side).values()):
            found.setdefault(message["type"], set()).update(message)
    return found
