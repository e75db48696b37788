"""A log in the Standard Workload Format (SWF, version 2.2) as it stands in the file, one row per job.

Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", JSSPP 1999. Eighteen numeric
fields; ``-1`` means unknown. What a simulation makes of them is decided later, by ``rules``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Field(IntEnum):
    """Column of each SWF field, counted from 0 (the standard counts from 1)."""

    JOB = 0
    SUBMIT_S = 1
    WAIT_S = 2
    RUN_S = 3
    PROCS_ALLOCATED = 4
    CPU_TIME_S = 5
    MEMORY_KB = 6
    PROCS_REQUESTED = 7
    REQUEST_S = 8
    MEMORY_REQUESTED_KB = 9
    STATUS = 10
    USER = 11
    GROUP = 12
    EXECUTABLE = 13
    QUEUE = 14
    PARTITION = 15
    PRECEDING_JOB = 16
    THINK_S = 17


FIELDS = len(Field)

#: Digits, in groups of three where commas stand between them: "1,024" is one number, "512, 4 each" begins with one.
#: "10k", "10 K" and "1e4" are none: how many that is is not ours to guess.
_LEADING_NUMBER = re.compile(r"([+-]?\d+(?:,\d{3}(?!\d))*)(?![\d.,]*+(?:[A-Za-z_]|\s*[kKMGT]\b))", re.ASCII)


@dataclass(frozen=True)
class Header:
    """The comment lines of a log: ``entries`` has the first value of each ``; Key: value``, ``lines`` all of them."""

    entries: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    def integer(self, key: str) -> int | None:
        """The leading integer of an entry (``MaxNodes: 1,024 (8 per board)`` is 1024), or None."""
        found = _LEADING_NUMBER.match(self.entries.get(key, ""))
        return int(found[1].replace(",", "")) if found else None


@dataclass(frozen=True)
class Log:
    """A workload as logged: ``rows`` is an (n, 18) float64 array in file order; times in seconds since the log's start.

    ``line_numbers`` (n,) tells where each row stood in the file, ``skipped`` counts the lines left out by cause.
    """

    header: Header
    rows: NDArray[np.float64]
    name: str = "log"
    line_numbers: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    skipped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, which: Field) -> NDArray[np.float64]:
        """One field of all jobs, shape (n,)."""
        column: NDArray[np.float64] = self.rows[:, which]
        return column

    def with_rows(self, rows: NDArray[np.float64]) -> "Log":
        """The same log with other rows (line numbers no longer apply)."""
        return replace(self, rows=rows, line_numbers=np.empty(0, np.int64))
