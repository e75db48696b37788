"""Documents as JSON files of the state directory."""

from pathlib import Path
from typing import TypeVar

import msgspec

from cosched.errors import Failed, NeedsRepair
from cosched.linux.durable import write_durably

Document = TypeVar("Document")


def read(path: Path, kind: type[Document], what: str, remedy: str) -> Document | None:
    """The document in a file; None where there is none. Raises :class:`Failed`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NeedsRepair(f"{path}: not {what} ({error}); {remedy}") from None


def write(path: Path, document: object) -> None:
    """Write one durably. Raises :class:`Failed`."""
    try:
        write_durably(path, msgspec.json.format(msgspec.json.encode(document)))
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}; nothing has changed") from None
