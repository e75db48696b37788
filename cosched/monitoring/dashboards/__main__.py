"""Writes the dashboards that an installation gets: ``python -m cosched.monitoring.dashboards DIR``, a developer's."""

import sys
from pathlib import Path

from cosched.monitoring.dashboards.render import files


def main(directory: Path) -> None:
    """Write all of them into ``directory``. Raises OSError."""
    for name, text in files().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
