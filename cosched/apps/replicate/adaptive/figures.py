"""Figs 7 to 10: mean response time and utilisation against the load factor, of 50 jobs and of 10 000."""

from typing import TYPE_CHECKING, Final

from cosched.apps.replicate.adaptive import claims
from cosched.apps.replicate.adaptive.runs import RESPONSE, Runs, Wanted
from cosched.apps.replicate.adaptive.setup import EQUIPARTITION, FIRST_FIT, SHORT_JOBS, Cell, Scale
from cosched.apps.replicate.claims import Measured, judge_every
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.intervals import Interval, difference_of_independent
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
_STYLES: Final = {"traditional": (COLOURS[1], "s"), "adaptive": (COLOURS[0], "o")}
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
        result.plots[f"figure{first}"] = Plot(
            lambda axes, jobs=jobs, number=first: _draw_response(axes, scale, runs, jobs, number)  # type: ignore[misc]
        )
        result.plots[f"figure{second}"] = Plot(
            lambda axes, jobs=jobs, number=second: _draw_utilisation(axes, scale, runs, jobs, number)  # type: ignore[misc]
        )
    _judge(scale, runs, result)
    _growth(scale, runs, result)


def _responses(scale: Scale, runs: Runs, jobs: int, number: int) -> Table:
    table = Table(
        f"Fig. {number}: {jobs} jobs, mean response time, s, by load factor",
        (
            "load factor",
            *(f"{system}{each}" for system in SYSTEMS for each in ("", " low", " high")),
            *("against", "low", "high", "resizes a job", "unstable"),
        ),
        notes=[
            "low, high: 95 % intervals over workloads; against: adaptive jobs' against traditional ones', paired; "
            "unstable: systems whose queue grows, whose mean says how long the run was"
        ],
    )
    for load in scale.loads:
        adaptive, rigid = pair(load, jobs)
        table.add(
            load,
            *bounds(runs.mean(rigid, RESPONSE)),
            *bounds(runs.mean(adaptive, RESPONSE)),
            *bounds(runs.relative(adaptive, rigid)),
            float(runs.values(adaptive, "resizes").mean()),
            ", ".join(system for system in SYSTEMS if _grows(runs, cell(system, load, jobs))),
        )
    return table


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
            table.add(name, load, *means, *bounds(runs.difference(adaptive, rigid, how)))
    return table


def _grows(runs: Runs, which: Cell) -> bool:
    """Whether its queue grows; so few jobs have no steady state either way."""
    return which.jobs > SHORT_JOBS and not runs.steady(which)


def bounds(interval: Interval) -> list[float | None]:
    """Mean and bounds, None where there is no interval."""
    return [interval.mean, interval.low, interval.high] if interval.degrees_of_freedom else [interval.mean, None, None]


def steady_loads(scale: Scale, runs: Runs) -> list[float]:
    """The load factors at which both systems have a steady state."""
    return [load for load in scale.loads if runs.steady(*pair(load, scale.long_jobs))]


def _judge(scale: Scale, runs: Runs, result: Result) -> None:
    short = {f"load factor {load:g}": pair(load, SHORT_JOBS) for load in scale.loads}
    long = {f"load factor {load:g}": pair(load, scale.long_jobs) for load in scale.loads}
    steady = {f"load factor {load:g}": pair(load, scale.long_jobs) for load in steady_loads(scale, runs)}
    here = "" if scale.long_jobs == 10_000 else f"of {scale.long_jobs} jobs"
    for claim, what, cases, note in (
        (claims.RESPONSE_SHORT, None, short, ""),
        (claims.UTILISATION_SHORT, "allocated", short, ""),
        (claims.USEFUL_SHORT, "useful", short, ""),
        (claims.RESPONSE_LONG, None, steady, here),
        (claims.UTILISATION_LONG, "allocated", long, here),
        (claims.USEFUL_LONG, "useful", long, here),
    ):
        found: dict[str, Measured] = {
            case: runs.difference(*both, what) if what else runs.relative(*both) for case, both in cases.items()
        }
        result.claims.append(judge_every(claim, found, note))
    result.claims.append(
        judge_every(
            claims.MORE_RESPONSE,
            {
                case: difference_of_independent(runs.relative(*steady[case]), runs.relative(*short[case]))
                for case in steady
            },
            here,
        )
    )
    result.claims.append(
        judge_every(
            claims.MORE_UTILISATION,
            {
                case: difference_of_independent(
                    runs.difference(*long[case], "allocated"), runs.difference(*short[case], "allocated")
                )
                for case in long
            },
            here,
        )
    )


def _growth(scale: Scale, runs: Runs, result: Result) -> None:
    """Where the queue grows: the mean response time is a function of the number of jobs."""
    load = scale.loads[-1]
    table = Table(
        f"At load factor {load:g}, by the number of jobs: mean response time, s",
        (
            "jobs",
            *(f"{system}{each}" for system in SYSTEMS for each in ("", " low", " high")),
            "against",
            "low",
            "high",
        ),
    )
    cases: dict[str, Measured] = {}
    for jobs in _numbers(scale):
        adaptive, rigid = pair(load, jobs)
        against = runs.relative(adaptive, rigid)
        table.add(jobs, *bounds(runs.mean(rigid, RESPONSE)), *bounds(runs.mean(adaptive, RESPONSE)), *bounds(against))
        cases[f"{jobs} jobs"] = against
    result.tables["growth"] = table
    result.plots["growth"] = Plot(lambda axes: _draw_growth(axes, table, load))
    if load in steady_loads(scale, runs):
        cases = {}
    result.claims.append(judge_every(claims.UNSTABLE, cases, f"load factor {load:g}"))


def _draw_response(axes: "Axes", scale: Scale, runs: Runs, jobs: int, number: int) -> None:
    """Mean response time with intervals; a cross at the top where the queue grows."""
    for at, (system, (colour, marker)) in enumerate(_STYLES.items()):
        cells = {load: cell(system, load, jobs) for load in scale.loads}
        shown = [load for load in scale.loads if not _grows(runs, cells[load])]
        _line(axes, shown, [runs.mean(cells[load], RESPONSE) for load in shown], colour, marker, system)
        gone = [load for load in scale.loads if load not in shown]
        axes.plot(gone, [0.96 - 0.05 * at] * len(gone), "x", color=colour, transform=axes.get_xaxis_transform())
    if jobs > SHORT_JOBS:
        axes.plot([], [], "x", color="grey", label=_UNSTABLE)
        axes.set_yscale("log")
        for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formatted(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set(xlabel="load factor", ylabel="mean response time (s)", xlim=(0, max(scale.loads) + 0.1))
    axes.set_title(f"Fig. {number}: {jobs} jobs", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left")


def _draw_utilisation(axes: "Axes", scale: Scale, runs: Runs, jobs: int, number: int) -> None:
    """Both systems, as allocated (solid) and as work done (dashed)."""
    for system, (colour, marker) in _STYLES.items():
        for how, style in zip(UTILISATIONS, ("-", "--"), strict=True):
            means = [runs.mean(cell(system, load, jobs), how) for load in scale.loads]
            _line(axes, scale.loads, means, colour, marker, f"{system}, {UTILISATIONS[how]}", style)
    axes.set(xlabel="load factor", ylabel="utilisation", xlim=(0, max(scale.loads) + 0.1), ylim=(0, 1.05))
    axes.set_title(f"Fig. {number}: {jobs} jobs", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)


def _draw_growth(axes: "Axes", table: Table, load: float) -> None:
    rows = table.as_dicts()
    jobs = [row["jobs"] for row in rows]
    for system, (colour, marker) in _STYLES.items():
        axes.plot(jobs, [row[system] for row in rows], color=colour, marker=marker, label=system)
        known = [row for row in rows if row[f"{system} low"] is not None]
        low, high = ([row[f"{system} {end}"] for row in known] for end in ("low", "high"))
        axes.vlines([row["jobs"] for row in known], low, high, color=colour, linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="number of jobs", ylabel="mean response time (s)")
    axes.set_xticks(jobs, [str(each) for each in jobs])
    axes.tick_params("x", which="minor", bottom=False, labelbottom=False)
    axes.set_title(f"Where the queue grows: load factor {load:g}", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left")


def _line(
    axes: "Axes",
    places: "list[float] | tuple[float, ...]",
    means: list[Interval],
    colour: str,
    marker: str,
    label: str,
    style: str = "-",
) -> None:
    """A line with an interval at each point that has one."""
    halves = [mean.half_width if mean.degrees_of_freedom else 0.0 for mean in means]
    axes.errorbar(
        places,
        [mean.mean for mean in means],
        halves,
        color=colour,
        marker=marker,
        markersize=5,
        markerfacecolor="white",
        capsize=3,
        linestyle=style,
        label=label,
    )
