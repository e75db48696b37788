"""What the link between clusters costs, from its file to the scheduler's figures."""

from pathlib import Path
from typing import Final

import msgspec

from cosched.errors import BadInput
from cosched.model.components import Between

_EXPECTED: Final = "a file that 'cosched calibrate --clusters' wrote"
_KINDS: Final = ("cpu", "comm", "")
#: A link that makes jobs a thousand times slower is none.
_MOST_PPM: Final = 1_000_000_000


def read_between(path: Path, own: str = "") -> Between:
    """The costs of a file. The cluster ``own`` is written by its name there, and has none here. Raises BadInput."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Between)
    except OSError as error:
        raise BadInput(str(path), error.strerror or str(error), _EXPECTED) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(str(path), str(error)[:200], _EXPECTED) from None
    for pair, costs in [("", found.ppm), *found.links.items()]:
        where = f"{path}: links.{pair}" if pair else f"{path}: ppm"
        for kind, ppm in costs.items():
            if kind not in _KINDS or not 0 <= ppm <= _MOST_PPM:
                raise BadInput(where, f"{kind!r}: {ppm}", "cpu, comm or '', each 0 to 1000000000 millionths")
    links = {" ".join(sorted("" if name == own else name for name in _pair(pair, path))): costs
             for pair, costs in found.links.items()}  # fmt: skip
    return msgspec.structs.replace(found, links=links)


def _pair(text: str, path: Path) -> list[str]:
    names = text.split(" ")
    if len(set(names)) != 2 or len(names) != 2:
        raise BadInput(f"{path}: links", repr(text), "two clusters' names with a space between")
    return names
