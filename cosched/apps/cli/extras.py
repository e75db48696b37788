"""Which extra of the distribution a missing module belongs to: a desk's installation has none of them."""

import importlib.metadata
import re
from typing import Final

DISTRIBUTION: Final = "cosched-testbed"
_IN_EXTRA: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


def advice(module: str) -> str:
    """What to do about a module that is not installed; empty for one that no extra brings."""
    package = _normal(module.partition(".")[0])
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        found = _IN_EXTRA.match(line)
        if found and _normal(found["name"]) == package:
            extra = found["extra"]
            return (
                f"needs {package}, which is not installed; it comes with the extra '{extra}': {DISTRIBUTION}[{extra}]"
            )
    return ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
