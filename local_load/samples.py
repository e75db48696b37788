"""A run's raw samples: from the probe's binary records to a Parquet file, and back for reports.

Columns: ``at_s`` (when the call was due, after the run's start), ``call``, ``response_s`` (from then to its end),
``own_s`` (from its real start), ``made`` (false: too late to be made any more, ``response_s`` is a lower bound).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cosched.errors import BadInput
from cosched.report.table import write_parquet
from local_load.probe import CALLS, SAMPLE

SAMPLES: Final = "samples.parquet"
SUMMARY: Final = "summary.json"
_RECORD: Final = np.dtype(
    [("call", "u1"), ("skipped", "u1"), ("", "V6"), ("at", "<i8"), ("response", "<i8"), ("own", "<i8")]
)


@dataclass(frozen=True)
class Samples:
    """Samples in the order in which they were due; all arrays of shape (n,)."""

    at_s: NDArray[np.float64]
    call: NDArray[np.str_]
    response_s: NDArray[np.float64]
    made: NDArray[np.bool_]

    def of(self, call: str) -> "Samples":
        """Those of one call."""
        chosen = self.call == call
        return Samples(self.at_s[chosen], self.call[chosen], self.response_s[chosen], self.made[chosen])

    def calls(self) -> list[str]:
        """The calls that there are, in the order of :data:`local_load.probe.CALLS`."""
        found = set(np.unique(self.call).tolist())
        return [call for call in CALLS if call in found]


def to_parquet(raw: Path, path: Path) -> int:
    """Write the records of ``raw`` to ``path``; how many they are. Raises :class:`BadInput` without pyarrow."""
    assert _RECORD.itemsize == SAMPLE.size
    records = np.fromfile(raw, _RECORD)
    records = records[np.argsort(records["at"], kind="stable")]
    columns = {
        "at_s": records["at"] / 1e9,
        "call": np.array(CALLS)[records["call"]],
        "response_s": records["response"] / 1e9,
        "own_s": records["own"] / 1e9,
        "made": records["skipped"] == 0,
    }
    write_parquet(path, columns)
    return len(records)


def need_parquet(path: Path) -> None:
    """Refuse a run whose samples could not be written, before it begins. Raises :class:`BadInput`."""
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415 (an extra)
    except ImportError:
        raise BadInput(str(path), "Parquet needs the package pyarrow", "the extra 'results' to be installed") from None


def read(directory: Path) -> tuple[dict[str, Any], Samples]:
    """Summary and samples that a run left in a directory. Raises :class:`BadInput`."""
    need_parquet(directory)
    import pyarrow  # noqa: PLC0415 (an extra)
    import pyarrow.parquet as pq  # noqa: PLC0415

    for name in (SUMMARY, SAMPLES):
        if not (directory / name).is_file():
            raise BadInput(f"{directory / name}", "no such file", "a directory that 'local-load run --out' wrote")
    try:
        summary = json.loads((directory / SUMMARY).read_bytes())
        table = pq.read_table(directory / SAMPLES)
        columns = {name: table[name].to_numpy() for name in ("at_s", "call", "response_s", "made")}
    except (OSError, ValueError, KeyError, pyarrow.ArrowInvalid) as error:
        raise BadInput(str(directory), f"cannot be read: {error}", "what 'local-load run --out' wrote") from None
    if not isinstance(summary, dict):
        raise BadInput(f"{directory / SUMMARY}", "no keys and values", "what 'local-load run --out' wrote")
    columns["call"] = columns["call"].astype(str)
    return summary, Samples(**columns)
