"""Patterns in names of output files.

``%j`` or ``%A`` job number, ``%x`` job name, ``%u`` user, ``%N`` first node, ``%%`` a %.
"""

import re
from typing import Final

_PATTERN: Final = re.compile(r"%([jAxuN%])")


def expanded(path: str, job_id: int, name: str, user: str, node: str) -> str:
    """The path of a job's output. ``node`` is empty until the job has one.

    Slashes in a job's name become ``_``; a job without a name is ``job``.
    """
    values = {
        "j": str(job_id),
        "A": str(job_id),
        "x": name.replace("/", "_") or "job",
        "u": user,
        "N": node or "%N",
        "%": "%",
    }
    return _PATTERN.sub(lambda found: values[found[1]], path)


def has_unknown_pattern(path: str) -> bool:
    """Whether a % in the path begins none of the patterns."""
    return "%" in _PATTERN.sub("", path)
