"""Inputs for ``fuzz``: out of nowhere, and good documents with some of it changed."""

import random
from typing import Any, Final

_WORDS: Final = (
    "", "a", "0", "-1", "true", "null", "\0", "\n", "\x1b[2J", "../../etc/passwd", "grüße", "\U0001f600",
    "x" * 5000, "%s%n", "{}", "1e999", "9" * 5000, "\udcff",
)  # fmt: skip
_NUMBERS: Final = (0, 1, -1, 2**31, 2**63, -(2**63), 2**64, 2**200, 0.0, -0.0, 1e-300, 1e300, 0.5)


class Unexpected(Exception):
    """An input, and what became of it."""


def value(rng: random.Random, depth: int = 3) -> Any:
    """Any value that JSON and YAML have, some of them out of all bounds."""
    kind = rng.randrange(7 if depth else 5)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice(_NUMBERS)
    if kind == 2:
        return rng.randrange(-1000, 1000)
    if kind in (3, 4):
        return rng.choice(_WORDS) if kind == 3 else "".join(chr(rng.randrange(1, 300)) for _ in range(rng.randrange(9)))
    if kind == 5:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {str(value(rng, 0)): value(rng, depth - 1) for _ in range(rng.randrange(4))}


def noise(rng: random.Random, most: int = 200) -> bytes:
    """Bytes out of nowhere."""
    return rng.randbytes(rng.randrange(most))


def changed(rng: random.Random, good: Any) -> Any:
    """A good document with one to three of its values, or keys, changed, left out, or more of."""
    document = {**good} if isinstance(good, dict) else good
    for _ in range(rng.randrange(1, 4)):
        document = _once(rng, document)
    return document


def _once(rng: random.Random, document: Any) -> Any:
    if isinstance(document, dict) and document and rng.random() < 0.9:
        key = rng.choice(list(document))
        without = {other: each for other, each in document.items() if other != key}
        more: tuple[dict[str, Any], ...] = (
            {}, {str(value(rng, 0)): value(rng), key: document[key]}, {f"{key}x": document[key]}, {key: value(rng)},
            {key: _once(rng, document[key])},
        )  # fmt: skip
        return without | rng.choice(more)
    if isinstance(document, list) and document and rng.random() < 0.7:
        at = rng.randrange(len(document))
        return [*document[:at], _once(rng, document[at]), *document[at + 1 :]]
    return value(rng)


def deep(rng: random.Random) -> bytes:
    """Nested beyond what anybody means."""
    levels = rng.choice((50, 500, 5_000, 50_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"environment":', b"}"), (b'[{"":', b"}]")))
    return opening * levels + b"1" + (closing * levels if rng.random() < 0.5 else b"")


def bitten(rng: random.Random, text: bytes) -> bytes:
    """A text with bytes changed, cut, or doubled."""
    made = bytearray(text)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(made) + 1)
        what = rng.randrange(4)
        if what == 0:
            made[at : at + 1] = bytes([rng.randrange(256)])
        elif what == 1:
            del made[at : at + rng.randrange(1, 20)]
        elif what == 2:
            made[at:at] = made[at : at + rng.randrange(1, 20)]
        else:
            made[at:at] = noise(rng, 8)
    return bytes(made)
