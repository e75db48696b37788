"""Maps: how many ranks of each node are enabled, and who those ranks are."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: The longest line of the channel, with its end.
MAX_LINE_BYTES = 8 << 10


class Map(NamedTuple):
    """A numbered map. Of two, the one with the higher number is the newer."""

    number: int
    shares: Mapping[str, int]


def parse_map(words: Sequence[str]) -> Map:
    """The map in ``NUMBER NODE=CPUS …``. Raises ValueError."""
    shares: dict[str, int] = {}
    for word in words[1:]:
        node, _, cpus = word.rpartition("=")
        shares[node] = _natural(cpus)
    if not shares or "" in shares or len(shares) != len(words) - 1:
        raise ValueError("a map without nodes, or with one twice")
    return Map(_natural(words[0]), shares)


def enabled_ranks(shares: Mapping[str, int], nodes: Sequence[str]) -> tuple[int, ...]:
    """The ranks that a map enables: the first of each node. ``nodes`` has the node of each rank."""
    left = dict(shares)
    enabled = []
    for rank, node in enumerate(nodes):
        if left.get(node, 0) > 0:
            left[node] -= 1
            enabled.append(rank)
    return tuple(enabled)


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"{text[:20]!r} is no number")
    return int(text)
