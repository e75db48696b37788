"""Figs 7 to 10: mean response time and utilisation against the load factor, of 50 jobs and of 10 000."""

from functools import partial
from typing import TYPE_CHECKING, Final

from cosched.apps.replicate.adaptive import claims
from cosched.apps.replicate.adaptive.runs import RESPONSE, Runs, Wanted
from cosched.apps.replicate.adaptive.setup import EQUIPARTITION, FIRST_FIT, SHORT_JOBS, Cell, Scale
from cosched.apps.replicate.claims import Measured, judge_every
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.intervals import difference_of_independent
from cosched.report.intervals import columns, crosses, framed, in_row, line, three
from cosched.report.palette import COLOURS
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The two systems: how they are called, their policy, and whether jobs are adaptive.
SYSTEMS: Final = {"traditional": (FIRST_FIT, False), "adaptive": (EQUIPARTITION, True)}
#: How utilisation is counted: measure -> what it says.
UTILISATIONS: Final = {"allocated": "as allocated", "useful": "as work done"}
#: Numbers of jobs at which the growth of the mean is looked at.
_GROWING: Final = (50, 200, 1000, 3000, 10_000)
#: Which of a plot's looks each has.
_LOOKS: Final = {"traditional": 1, "adaptive": 0}
_UNSTABLE: Final = "unstable: the queue grows"


def cell(system: str, load: float, jobs: int) -> Cell:
    """One of the two systems at a load factor."""
    policy, adaptive = SYSTEMS[system]
    return Cell(policy, adaptive, load, jobs)


def pair(load: float, jobs: int) -> tuple[Cell, Cell]:
    """Adaptive and traditional jobs at a load factor."""
    return cell("adaptive", load, jobs), cell("traditional", load, jobs)


def wanted(scale: Scale) -> Wanted:
    """Both systems at every load factor; at the highest, also with other numbers of jobs."""
    found: dict[Cell, int] = {}
    for load in scale.loads:
        for jobs, seeds in ((SHORT_JOBS, scale.short_seeds), (scale.long_jobs, scale.long_seeds)):
            found |= dict.fromkeys(pair(load, jobs), seeds)
    for jobs in _numbers(scale):
        for each in pair(scale.loads[-1], jobs):
            found.setdefault(each, scale.long_seeds)
    return found


def _numbers(scale: Scale) -> list[int]:
    return [jobs for jobs in _GROWING if jobs <= scale.long_jobs]


def report(scale: Scale, runs: Runs, result: Result) -> None:
    """Add the tables, the plots, and the claims on both systems."""
    for jobs, (first, second) in {SHORT_JOBS: (7, 8), scale.long_jobs: (9, 10)}.items():
        result.tables[f"figure{first}"] = _responses(scale, runs, jobs, first)
        result.tables[f"figure{second}"] = _utilisations(scale, runs, jobs, second)
        for draw, number in ((_draw_response, first), (_draw_utilisation, second)):
            result.plots[f"figure{number}"] = Plot(partial(draw, scale=scale, runs=runs, jobs=jobs, number=number))
    _judge(scale, runs, result)
    _growth(scale, runs, result)


def _responses(scale: Scale, runs: Runs, jobs: int, number: int) -> Table:
    table = Table(
        f"Fig. {number}: {jobs} jobs, mean response time, s, by load factor",
        (*("load factor", *columns(*SYSTEMS), "against", "low", "high", "resizes a job", "unstable"),),
        notes=[
            "low, high: 95 % intervals over workloads; against: adaptive jobs' against traditional ones', paired; "
            "unstable: systems whose queue grows, whose mean says how long the run was"
        ],
    )
    for load in scale.loads:
        adaptive, rigid = pair(load, jobs)
        unstable = ", ".join(system for system in SYSTEMS if _grows(runs, cell(system, load, jobs)))
        table.add(load, *_compared(runs, adaptive, rigid), float(runs.values(adaptive, "resizes").mean()), unstable)
    return table


def _compared(runs: Runs, adaptive: Cell, rigid: Cell) -> list[float | None]:
    """Traditional jobs' mean response time, adaptive ones', and how these differ from those, each with its bounds."""
    means = (runs.mean(rigid, RESPONSE), runs.mean(adaptive, RESPONSE), runs.relative(adaptive, rigid, RESPONSE))
    return [value for mean in means for value in three(mean)]


def _utilisations(scale: Scale, runs: Runs, jobs: int, number: int) -> Table:
    table = Table(
        f"Fig. {number}: {jobs} jobs, utilisation from the first submission to the last end, by load factor",
        ("counted", "load factor", *SYSTEMS, "more", "low", "high"),
        notes=["more: adaptive jobs' less traditional ones', with 95 % intervals, paired"],
    )
    for how, name in UTILISATIONS.items():
        for load in scale.loads:
            adaptive, rigid = pair(load, jobs)
            means = (float(runs.values(each, how).mean()) for each in (rigid, adaptive))
            table.add(name, load, *means, *three(runs.difference(adaptive, rigid, how)))
    return table


def _grows(runs: Runs, which: Cell) -> bool:
    """Whether its queue grows; so few jobs have no steady state either way."""
    return which.jobs > SHORT_JOBS and not runs.steady(which)


def steady_loads(scale: Scale, runs: Runs) -> list[float]:
    """The load factors at which both systems have a steady state."""
    return [load for load in scale.loads if runs.steady(*pair(load, scale.long_jobs))]


def _judge(scale: Scale, runs: Runs, result: Result) -> None:
    short = {f"load factor {load:g}": pair(load, SHORT_JOBS) for load in scale.loads}
    long = {f"load factor {load:g}": pair(load, scale.long_jobs) for load in scale.loads}
    steady = {f"load factor {load:g}": pair(load, scale.long_jobs) for load in steady_loads(scale, runs)}
    here = "" if scale.long_jobs == 10_000 else f"of {scale.long_jobs} jobs"
    for claim, what, cases, note in (
        (claims.RESPONSE_SHORT, RESPONSE, short, ""),
        (claims.UTILISATION_SHORT, "allocated", short, ""),
        (claims.USEFUL_SHORT, "useful", short, ""),
        (claims.RESPONSE_LONG, RESPONSE, steady, here),
        (claims.UTILISATION_LONG, "allocated", long, here),
        (claims.USEFUL_LONG, "useful", long, here),
    ):
        found = {case: runs.held(*both, what) for case, both in cases.items()}
        result.claims.append(judge_every(claim, found, note))
    for claim, what, cases in ((claims.MORE_RESPONSE, RESPONSE, steady), (claims.MORE_UTILISATION, "allocated", long)):
        more = {
            case: difference_of_independent(*(runs.held(*each[case], what) for each in (cases, short)))
            for case in cases
        }
        result.claims.append(judge_every(claim, more, here))


def _growth(scale: Scale, runs: Runs, result: Result) -> None:
    """Where the queue grows: the mean response time is a function of the number of jobs."""
    load = scale.loads[-1]
    table = Table(
        f"At load factor {load:g}, by the number of jobs: mean response time, s",
        ("jobs", *columns(*SYSTEMS), "against", "low", "high"),
    )
    cases: dict[str, Measured] = {}
    for jobs in _numbers(scale):
        adaptive, rigid = pair(load, jobs)
        table.add(jobs, *_compared(runs, adaptive, rigid))
        cases[f"{jobs} jobs"] = runs.relative(adaptive, rigid, RESPONSE)
    result.tables["growth"] = table
    result.plots["growth"] = Plot(lambda axes: _draw_growth(axes, table, load))
    if load in steady_loads(scale, runs):
        cases = {}
    result.claims.append(judge_every(claims.UNSTABLE, cases, f"load factor {load:g}"))


def _draw_response(axes: "Axes", scale: Scale, runs: Runs, jobs: int, number: int) -> None:
    """Mean response time with intervals; a cross at the top where the queue grows."""
    for at, (system, look) in enumerate(_LOOKS.items()):
        cells = {load: cell(system, load, jobs) for load in scale.loads}
        shown = [load for load in scale.loads if not _grows(runs, cells[load])]
        line(axes, {load: three(runs.mean(cells[load], RESPONSE)) for load in shown}, look, system)
        gone = [load for load in scale.loads if load not in shown]
        crosses(axes, gone, 0.96 - 0.05 * at, COLOURS[look])
    if jobs > SHORT_JOBS:
        axes.plot([], [], "x", color="grey", label=_UNSTABLE)
        axes.set_yscale("log")
        for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formatted(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "125" else "")
    else:
        axes.set_ylim(bottom=0)
    axes.set(xlim=(0, max(scale.loads) + 0.1))
    framed(axes, "load factor", "mean response time (s)", f"Fig. {number}: {jobs} jobs", loc="upper left")


def _draw_utilisation(axes: "Axes", scale: Scale, runs: Runs, jobs: int, number: int) -> None:
    """Both systems, as allocated (solid) and as work done (dashed)."""
    for system, look in _LOOKS.items():
        for how, style in zip(UTILISATIONS, ("-", "--"), strict=True):
            means = {load: three(runs.mean(cell(system, load, jobs), how)) for load in scale.loads}
            line(axes, means, look, f"{system}, {UTILISATIONS[how]}", linestyle=style)
    axes.set(xlim=(0, max(scale.loads) + 0.1), ylim=(0, 1.05))
    labels = ("load factor", "utilisation", f"Fig. {number}: {jobs} jobs")
    framed(axes, *labels, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)


def _draw_growth(axes: "Axes", table: Table, load: float) -> None:
    rows = table.as_dicts()
    jobs = [row["jobs"] for row in rows]
    for system, look in _LOOKS.items():
        line(axes, {row["jobs"]: in_row(row, system, f"{system} ") for row in rows}, look, system)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(jobs, [str(each) for each in jobs])
    axes.tick_params("x", which="minor", bottom=False, labelbottom=False)
    title = f"Where the queue grows: load factor {load:g}"
    framed(axes, "number of jobs", "mean response time (s)", title, loc="upper left")
