"""Files in which the agent keeps what a scheduler has said, as JSON."""

from pathlib import Path
from typing import TypeVar

import msgspec

Kind = TypeVar("Kind")


def kept(path: Path, kind: type[Kind], what: str, remedy: str) -> Kind | None:
    """What a file has; None where there is none. Raises ValueError, with the remedy, where it is not ``what``."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not {what} ({error}); {remedy}") from None
