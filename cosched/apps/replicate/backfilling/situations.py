"""The paper's small examples as simulations: Figs 4, 7 (Property 1) and 8. The figures give no numbers; these are ours.

A machine of 10 processors; all jobs are submitted at the start, in the order of the list, and every schedule is printed
in full. The data are plain, so that others can run the same situations.

- **Fig. 4**: ``bottom`` ends long before its estimate. ``second``, promised a start past ``first``, is overtaken if
  backfilling is done anew, and moves earlier if the schedule is compressed, either way.
- **Fig. 7**: ``backfill`` fits beside the head and delays only the second job, as long as it likes.
- **Fig. 8**: by starting ``backfill`` at once EASY uses more of the machine in the short run, and loses it later, when
  it stands in the way of ``wide`` and of ``filler``, which conservative packs beside it.
"""

from typing import Final, NamedTuple

import numpy as np

from cosched.apps.replicate.backfilling import claims
from cosched.apps.replicate.backfilling.claims import FIG_8_SHORT_S
from cosched.apps.replicate.claims import Measured, judge, judge_every
from cosched.apps.replicate.result import Result
from cosched.model.time import US_PER_S
from cosched.report.table import Table
from cosched.workload.rules import Workload, workload_of
from cosched.workload.schedule import Schedule
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import simulate

PROCS: Final = 10


class Piece(NamedTuple):
    """A job of a situation, submitted at time 0; it runs for ``run_s``, its estimate where that is None."""

    name: str
    procs: int
    estimate_s: int
    run_s: int | None = None


FIG_4: Final = (
    Piece("top", 4, 4),
    Piece("bottom", 4, 10, 1),
    Piece("first", 8, 6),
    Piece("second", 6, 5),
)

FIG_7_LENGTHS_S: Final = (15, 20, 50, 100, 1000, 10_000, 100_000)


def fig_7(backfill_s: int) -> tuple[Piece, ...]:
    """The situation of Fig. 7 with a backfill job of that length."""
    return (
        Piece("running", 6, 10),
        Piece("head", 8, 5),
        Piece("second", 10, 5),
        Piece("backfill", 2, backfill_s),
    )


FIG_8: Final = (
    Piece("running", 6, 10),
    Piece("head", 8, 5),
    Piece("wide", 10, 10),
    Piece("backfill", 2, 30),
    Piece("filler", 8, 30),
)


def workload(pieces: tuple[Piece, ...]) -> Workload:
    """The situation as a workload; job numbers count from 1 in the order of the pieces."""
    estimate_us = np.array([piece.estimate_s for piece in pieces], np.int64) * US_PER_S
    run_us = np.array([piece.run_s or piece.estimate_s for piece in pieces], np.int64) * US_PER_S
    procs = np.array([piece.procs for piece in pieces], np.int64)
    return workload_of("situation", PROCS, np.zeros(len(pieces), np.int64), run_us, procs, estimate_us)


def play(pieces: tuple[Piece, ...], policy: str, select: str | None = None) -> Schedule:
    """Simulate a situation, walking every invariant."""
    return simulate(workload(pieces), resolve(policy, None, select), validate=True)


def starts_s(pieces: tuple[Piece, ...], schedule: Schedule) -> dict[str, float]:
    """When each job starts, by its name."""
    return {piece.name: start / US_PER_S for piece, start in zip(pieces, schedule.start_us.tolist(), strict=True)}


def utilisation(schedule: Schedule, until_s: float) -> float:
    """Share of the machine that is used in [0, until)."""
    until_us = until_s * US_PER_S
    used_us = np.clip(np.minimum(schedule.end_us, until_us) - schedule.start_us, 0, None)
    return float(np.dot(schedule.workload.procs, used_us) / (PROCS * until_us))


def report(result: Result) -> None:
    """Add the printed schedules and the claims."""
    _figure_4(result)
    _figure_7(result)
    _figure_8(result)


_COLUMNS: Final = ("policy", "job", "processors", "estimate s", "run s", "promised s", "start s", "end s")


def _print(table: Table, name: str, pieces: tuple[Piece, ...], schedule: Schedule) -> None:
    rows = zip(pieces, schedule.start_us.tolist(), schedule.end_us.tolist(), schedule.promised_us.tolist(), strict=True)
    for piece, start, end, promised in rows:
        start_s, end_s = start / US_PER_S, end / US_PER_S
        promised_s = promised / US_PER_S if promised >= 0 else None
        table.add(name, piece.name, piece.procs, piece.estimate_s, end_s - start_s, promised_s, start_s, end_s)


def _figure_4(result: Result) -> None:
    table = Table(f"Fig. 4 on {PROCS} processors: a running job terminates early, and four ways to go on", _COLUMNS)
    late: dict[str, float] = {}
    for choice in ("anew", "schedule", "arrival", "none"):
        schedule = play(FIG_4, "conservative", f"conservative({choice})")
        _print(table, f"conservative({choice})", FIG_4, schedule)
        promised = schedule.promised_us >= 0
        late[choice] = float((schedule.start_us - schedule.promised_us)[promised].max()) / US_PER_S
    result.tables["figure4"] = table
    result.claims.append(judge(claims.FIG_4_ANEW, late["anew"]))
    kept: dict[str, Measured] = {choice: late[choice] for choice in ("schedule", "arrival")}
    result.claims.append(judge_every(claims.FIG_4_COMPRESS, kept))


def _figure_7(result: Result) -> None:
    table = Table(
        f"Fig. 7 on {PROCS} processors: the backfilled job's length, and who is delayed",
        ("policy", "backfill length s", "head starts s", "second starts s", "backfill starts s"),
        notes=["without the backfilled job the head starts at 10 s and the second job at 15 s under both policies"],
    )
    found: dict[str, list[dict[str, float]]] = {}
    for policy in ("easy", "conservative"):
        for length_s in FIG_7_LENGTHS_S:
            starts = starts_s(fig_7(length_s), play(fig_7(length_s), policy))
            found.setdefault(policy, []).append(starts)
            table.add(policy, length_s, starts["head"], starts["second"], starts["backfill"])
    result.tables["figure7"] = table
    alone = starts_s(fig_7(1)[:3], play(fig_7(1)[:3], "easy"))
    easy, conservative = found["easy"], found["conservative"]
    growth = (easy[-1]["second"] - easy[0]["second"]) / (FIG_7_LENGTHS_S[-1] - FIG_7_LENGTHS_S[0])
    result.claims.append(judge(claims.FIG_7_EASY, growth))
    lengths = [f"{length_s} s" for length_s in FIG_7_LENGTHS_S]
    heads: dict[str, Measured] = {n: s["head"] - alone["head"] for n, s in zip(lengths, easy, strict=True)}
    seconds: dict[str, Measured] = {
        n: s["second"] - alone["second"] for n, s in zip(lengths, conservative, strict=True)
    }
    result.claims.append(judge_every(claims.FIG_7_HEAD, heads))
    result.claims.append(judge_every(claims.FIG_7_CONSERVATIVE, seconds))


def _figure_8(result: Result) -> None:
    table = Table(f"Fig. 8 on {PROCS} processors: more now, less in the end", _COLUMNS)
    plays = {policy: play(FIG_8, policy) for policy in ("easy", "conservative")}
    used: dict[str, tuple[float, float]] = {}
    for policy, schedule in plays.items():
        _print(table, policy, FIG_8, schedule)
        end_s = float(schedule.end_us.max()) / US_PER_S
        short, long = used[policy] = utilisation(schedule, FIG_8_SHORT_S), utilisation(schedule, end_s)
        table.notes.append(
            f"{policy}: utilisation {short:.3f} in the first {FIG_8_SHORT_S} s, {long:.3f} until the end at {end_s:g} s"
        )
    result.tables["figure8"] = table
    result.claims.append(judge(claims.FIG_8_SHORT, used["easy"][0] - used["conservative"][0]))
    result.claims.append(judge(claims.FIG_8_LONG, used["easy"][1] - used["conservative"][1]))
