"""What the sweeps share: rows of cells at each load factor, each against a base that met the same jobs."""

from collections.abc import Mapping
from typing import NamedTuple

from cosched.apps.replicate.adaptive.runs import RESPONSE, Runs, Wanted
from cosched.apps.replicate.adaptive.setup import EQUIPARTITION, Cell, Scale, traditional
from cosched.report.intervals import three
from cosched.report.table import Table


def adaptive(scale: Scale, load: float) -> Cell:
    """The paper's adaptive jobs, as many as the sweeps have."""
    return Cell(EQUIPARTITION, adaptive=True, load=load, jobs=scale.sweep_jobs)


class Sweep(NamedTuple):
    """A table of the sweeps: ``rows`` has for each (load factor, name) a cell, and the one that it is held against."""

    caption: str
    what: str
    rows: Mapping[tuple[float, str], tuple[Cell, Cell]]

    def wanted(self, scale: Scale) -> Wanted:
        """Its cells, and the same jobs as traditional ones."""
        cells = [each for cell, base in self.rows.values() for each in (cell, base, traditional(cell))]
        return dict.fromkeys(cells, scale.sweep_seeds)

    def table(self, runs: Runs) -> Table:
        """Response times against those of the bases."""
        made = Table(
            self.caption,
            (
                *("load factor", self.what, "response", "against", "low", "high", "allocated", "useful"),
                *("resizes a job", "unstable"),
            ),
        )
        for (load, name), (cell, base) in self.rows.items():
            if stuck := runs.stuck(cell):
                made.add(load, name, *[None] * 7, f"{stuck} of {len(runs[cell])} runs stuck")
                continue
            response, *others = (
                float(runs.values(cell, how).mean()) for how in (RESPONSE, "allocated", "useful", "resizes")
            )
            against = three(runs.relative(cell, base, RESPONSE))
            made.add(load, name, response, *against, *others, "" if runs.steady(cell) else "yes")
        return made
