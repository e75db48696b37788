"""What the sweeps share: rows of cells at each load factor, each against a base that met the same jobs."""

from collections.abc import Mapping, Sequence

from cosched.apps.replicate.adaptive.figures import bounds
from cosched.apps.replicate.adaptive.runs import RESPONSE, Runs, Wanted
from cosched.apps.replicate.adaptive.setup import EQUIPARTITION, Cell, Scale, traditional
from cosched.report.table import Table


def adaptive(scale: Scale, load: float) -> Cell:
    """The paper's adaptive jobs, as many as the sweeps have."""
    return Cell(EQUIPARTITION, adaptive=True, load=load, jobs=scale.sweep_jobs)


def wanted(scale: Scale, cells: Sequence[Cell]) -> Wanted:
    """These cells and the traditional jobs that they are held against, with the seeds of the sweeps."""
    return dict.fromkeys([*cells, *map(traditional, cells)], scale.sweep_seeds)


def table(caption: str, what: str, rows: Mapping[tuple[float, str], tuple[Cell, Cell]], runs: Runs) -> Table:
    """A row for each (load factor, name): a cell, and its response time against another's."""
    made = Table(
        caption,
        ("load factor", what, "response", "against", "low", "high", "allocated", "useful", "resizes a job", "unstable"),
    )
    for (load, name), (cell, base) in rows.items():
        if stuck := runs.stuck(cell):
            made.add(load, name, *[None] * 7, f"{stuck} of {len(runs.values(cell, RESPONSE))} runs stuck")
            continue
        made.add(
            load,
            name,
            float(runs.values(cell, RESPONSE).mean()),
            *bounds(runs.relative(cell, base)),
            *(float(runs.values(cell, how).mean()) for how in ("allocated", "useful", "resizes")),
            "" if runs.steady(cell) else "yes",
        )
    return made
