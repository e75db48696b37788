"""What a dashboard consists of, without Grafana's own words: rows of panels, each with queries and a description."""

from functools import partial
from typing import Final, Literal

import msgspec

#: A graph over time, its stacked form, a number for now, a node's states over time, a table of now, a heat map.
Kind = Literal["graph", "stacked", "number", "states", "table", "heat map"]


class Query(msgspec.Struct, frozen=True):
    """A PromQL expression, and what its series are called; ``{{label}}`` stands for a label's value."""

    expr: str
    legend: str = ""


class Named(msgspec.Struct, frozen=True):
    """What a value is called where it stands for a state, and Grafana's name of its colour."""

    value: int
    text: str
    colour: str


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One panel. ``unit`` is Grafana's identifier of it; widths are in the grid's 24 columns, heights in its rows.

    ``alerts`` names those that the panel is about; it links to their runbooks. ``warn`` and ``fail`` colour a number
    from that value on, or down from it where ``fail`` is the smaller one. ``names`` are those of states.
    ``opens_desk``: a click on a node's row opens the dashboard of that desk.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "graph"
    width: int = 12
    height: int = 8
    alerts: tuple[str, ...] = ()
    warn: float | None = None
    fail: float | None = None
    names: tuple[Named, ...] = ()
    opens_desk: bool = False


#: A panel of numbers for now, as a dashboard's first row has them.
number: Final = partial(Panel, unit="none", kind="number", height=4)


class Row(msgspec.Struct, frozen=True):
    """Panels that belong together, under a title."""

    title: str
    panels: tuple[Panel, ...]


class Variable(msgspec.Struct, frozen=True):
    """A value that the reader chooses: ``query`` is Grafana's ``label_values`` for it. ``several``: more than one."""

    name: str
    title: str
    query: str
    several: bool = True


class Dashboard(msgspec.Struct, frozen=True):
    """One dashboard; ``uid`` is its name in addresses. Data source and cluster can be chosen on all of them."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Those of all rows."""
        return tuple(panel for row in self.rows for panel in row.panels)
