"""Directives of other batch systems in a job script, such as ``#SBATCH -n 4``: found, and not understood."""

import re
from itertools import takewhile
from typing import Final

_DIRECTIVE: Final = re.compile(r"#(SBATCH|PBS|BSUB|MSUB|OAR|HQ|FLUX:|\$)\s+-")
#: What a cluster's settings or a submission may want done about them.
CHOICES: Final = ("warn", "refuse")


def directive_lines(script: str) -> list[tuple[int, str]]:
    """The directives before the script's first command, each with the number of its line."""
    header = takewhile(lambda line: line.lstrip()[:1] in ("", "#"), script.splitlines())
    return [(number, line.strip()) for number, line in enumerate(header, 1) if _DIRECTIVE.match(line)]


def foreign_directives(script: str) -> str:
    """The first directive before the script's first command, with its line, and how many more; empty: none."""
    found = directive_lines(script)
    if not found:
        return ""
    (number, line), more = found[0], len(found) - 1
    others = f" and {more} line{'s' if more > 1 else ''} more of that kind" if more else ""
    return f"line {number}, {line[:60]!r}{others}"
