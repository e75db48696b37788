"""Which extra of the distribution a missing module belongs to: a desk's installation has none of them."""

import re
from contextlib import suppress
from typing import Final

DISTRIBUTION: Final = "cosched-testbed"
_IN_EXTRA: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


def advice(module: str) -> str:
    """What to do about a module that is not installed; empty for one that no extra brings.

    Of several extras that bring it, the one with the fewest packages.
    """
    package = _normal(module.partition(".")[0])
    extras = _extras()
    having = [extra for extra, packages in extras.items() if package in packages]
    if not having:
        return ""
    extra = min(having, key=lambda each: len(extras[each]))
    return f"needs {package}, which is not installed; it comes with the extra '{extra}': {DISTRIBUTION}[{extra}]"


def _extras() -> dict[str, set[str]]:
    """The packages of each extra, as this installation's metadata have them."""
    import importlib.metadata  # noqa: PLC0415 (a third of what every command would import)

    found: dict[str, set[str]] = {}
    with suppress(importlib.metadata.PackageNotFoundError):
        for matched in filter(None, map(_IN_EXTRA.match, importlib.metadata.requires(DISTRIBUTION) or [])):
            found.setdefault(matched["extra"], set()).add(_normal(matched["name"]))
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
