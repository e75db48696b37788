"""The page's files, read once: what is served is what is listed here, and nothing is looked for by a browser's word."""

from importlib.resources import files
from typing import Final

#: Whatever else lies in the folder (an editor's copy) is not served.
_NAMES: Final = (
    *("index.html", "page.css", "icon.svg"),
    *("bars.js", "chart.js", "data.js", "format.js", "main.js", "story.js", "tables.js", "theme.js"),
)
_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset:
    """One file: its bytes and its media type."""

    def __init__(self, name: str, body: bytes) -> None:
        self.body = body
        self.content_type = _KINDS[name[name.rindex(".") :]]


def assets() -> dict[str, Asset]:
    """All files by name."""
    folder = files("space_scheduler.service.page").joinpath("static")
    return {name: Asset(name, folder.joinpath(name).read_bytes()) for name in _NAMES}
