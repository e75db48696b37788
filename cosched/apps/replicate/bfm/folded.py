"""The claim on folded MPI jobs, by what ``./run bench folding`` measured here (``docs/measured/folding.md``)."""

from importlib.resources import files
from typing import Final

import msgspec

from cosched.apps.replicate.bfm import claims
from cosched.apps.replicate.claims import Claim, judge_every
from cosched.metrics.intervals import Interval

_MEASURED: Final = "folding.json"
#: Ranks that poll are not folded here.
_FOLDED: Final = ("block", "yield")


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """So many ranks on so many CPUs, against two on two: how many times slower, the median, the lowest, the highest."""

    ranks: int
    cpus: int
    receive: str
    slower: tuple[float, float, float]


class Folding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it."""

    made: str
    machine: str
    rows: list[Row]


def read() -> Folding:
    """What comes with cosched."""
    data = files("cosched.apps.replicate.bfm").joinpath(_MEASURED).read_bytes()
    return msgspec.json.decode(data, type=Folding)


def judged(found: Folding) -> Claim:
    """The rate over the ideal one of each row whose ranks sleep or yield while they wait."""
    cases = {
        f"{row.ranks} ranks on {row.cpus}, {row.receive}": _of_ideal(row)
        for row in found.rows
        if row.receive in _FOLDED
    }
    return judge_every(claims.REAL_FOLD, cases, "real: ./run bench folding; ranks that poll are not folded")


def _of_ideal(row: Row) -> Interval:
    ideal, (median, low, high) = -(-row.ranks // row.cpus), row.slower
    return Interval(ideal / median, ideal / high, ideal / low)
