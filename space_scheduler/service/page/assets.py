"""The page's files, read once: what is served is what is listed here, and nothing is looked for by a browser's word."""

from importlib.resources import files
from pathlib import PurePath
from typing import Final, NamedTuple

#: Whatever else lies in the folder (an editor's copy) is not served.
_NAMES: Final = (
    *("index.html", "page.css", "icon.svg"),
    *("bars.js", "chart.js", "data.js", "format.js", "main.js", "story.js", "tables.js", "theme.js"),
)
_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """One file: its bytes and its media type."""

    body: bytes
    content_type: str


def assets() -> dict[str, Asset]:
    """All files by name."""
    folder = files("space_scheduler.service.page").joinpath("static")
    return {name: Asset(folder.joinpath(name).read_bytes(), _KINDS[PurePath(name).suffix]) for name in _NAMES}
