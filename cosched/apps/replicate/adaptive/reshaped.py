"""Claims on the paper's runtime system, by what was measured of running jobs here (``docs/measured/reshape.md``).

``./run bench reshape --out FILE`` writes such a file; ``beside`` and ``second_job`` are of ``./run bench
adaptive_jobs``, which prints them. What comes with cosched stands in ``reshape.json``.
"""

from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from cosched.apps.replicate.adaptive import claims
from cosched.apps.replicate.claims import Claim, Measured, Predicate, Premise, Region, cannot_judge, judge_every, under
from cosched.errors import BadInput
from cosched.metrics.intervals import Interval

SHIPPED: Final = "reshape.json"
#: The fewest ranks of the paper's Tables 1 to 4, and their data, in MB a processor.
_LEAST_RANKS: Final = 8
_SMALL, _LARGE = 1, 10


class Moved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job of so many ranks with so many MB each goes to half of them and back: the leader's time, medians, in ms."""

    ranks: int
    megabytes: int
    shrink_ms: float
    expand_ms: float


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Steps a second with all ranks, half and all again; ``sleeper``: the most of a CPU that a sleeping rank used."""

    ranks: int
    before: float
    half: float
    after: float
    sleeper: float


class Beside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """So many jobs on so many processors, none resized: by which part they took longer; median and 95 % interval."""

    jobs: int
    processors: int
    longer: tuple[float, float, float]


class Reshaped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it. ``second_job``: its part of a core that the first job has left, on average; None: not measured."""

    made: str
    machine: str
    cores: int
    moves: list[Moved]
    speeds: list[Speed]
    beside: list[Beside] = []
    second_job: float | None = None


def read(path: Path | None = None) -> Reshaped:
    """What a file has, or what comes with cosched. Raises :class:`BadInput`."""
    where = str(path or SHIPPED)
    try:
        data = path.read_bytes() if path else files("cosched.apps.replicate.adaptive").joinpath(SHIPPED).read_bytes()
        return msgspec.json.decode(data, type=Reshaped)
    except OSError as error:
        raise BadInput(where, error.strerror or str(error), "a file of './run bench reshape --out'") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(where, str(error)[:200], "a file of './run bench reshape --out'") from None


def judged(found: Reshaped) -> list[Claim]:
    """A verdict for each of :data:`claims.REAL`; a size rests on a core for each processor, as the paper has it."""
    time_ms = {
        (each.ranks, each.megabytes, way): ms
        for each in found.moves
        for way, ms in (("shrink", each.shrink_ms), ("expand", each.expand_ms))
    }
    ranks = max((each.ranks for each in found.moves), default=0) / found.cores
    on_cores = Premise("ranks for each core", ranks, Region(high=1))
    parts = max((each.processors for each in found.beside), default=0) / found.cores
    cases: dict[str, dict[str, Measured]] = {
        f"tables-{tables}": {
            f"{way}, {count} ranks": ms
            for (count, of, way), ms in time_ms.items()
            if of == megabytes and count >= _LEAST_RANKS
        }
        for tables, megabytes in (("1-3", _SMALL), ("2-4", _LARGE))
    }
    cases["figure-2"] = {
        f"{way}, {count} ranks": ms / time_ms[count, _SMALL, way]
        for (count, megabytes, way), ms in time_ms.items()
        if megabytes == _LARGE and (count, _SMALL, way) in time_ms
    }
    cases["figure-3"] = {f"{each.ranks} ranks": each.sleeper for each in found.speeds}
    cases["figure-4"] = {} if found.second_job is None else {"the second job": found.second_job}
    cases["figure-5"] = {f"{each.ranks} ranks": each.after / each.before - 1 for each in found.speeds}
    cases["table-5"] = {f"{each.jobs} jobs": Interval(*each.longer) for each in found.beside}
    rests = {
        "tables-1-3": [on_cores],
        "tables-2-4": [on_cores],
        "table-5": [Premise("processors for each core", parts, Region(high=1))],
    }
    return [_claim(each, cases[name], rests.get(name, [])) for each in claims.REAL if (name := each.id[len("real.") :])]


def _claim(predicate: Predicate, cases: dict[str, Measured], premises: list[Premise]) -> Claim:
    if not cases:
        return cannot_judge(predicate, "not measured: ./run bench reshape, ./run bench adaptive_jobs")
    return under(premises, judge_every(predicate, cases))
