"""Dashboards as Grafana 11.6 reads them, by its own SDK (the extra ``dashboards``): the same values, the same bytes."""

import json
from collections.abc import Callable

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from cosched.monitoring import alerts
from cosched.monitoring.dashboards.values import Dashboard, Named, Panel, Query, Variable
from cosched.monitoring.rules import Alert

_TAG = "cosched"
_SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
_ALERTS = {alert.name: alert for alert in alerts.ALL}
_ALL = dashboard.VariableOption(text="All", value="$__all")
_DESK = "/d/cosched-desk?var-datasource=${datasource}&${cluster:queryparam}&var-node=${__field.labels.node}"
_EITHER = heatmap.Panel | stat.Panel | statetimeline.Panel | table.Panel | timeseries.Panel


def text(made: Dashboard, runbooks: str) -> str:
    """The JSON of a dashboard; ``runbooks`` is the address of the page of runbooks."""
    builder = (
        builders.Dashboard(made.title)
        .uid(made.uid)
        .description(made.description)
        .tags([_TAG])
        .timezone("browser")
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(_other_dashboards())
        .with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in (_CLUSTER, *made.variables):
        builder.with_variable(_variable(variable))
    number = 0
    for row in made.rows:
        builder.with_row(builders.Row(row.title).id(number := number + 1))
        for panel in row.panels:
            builder.with_panel(_panel(panel, number := number + 1, runbooks))
    return json.dumps(builder.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


_CLUSTER = Variable("cluster", "Cluster", "label_values(cosched_accepting, cluster)")


def _variable(variable: Variable) -> builders.QueryVariable:
    return (
        builders.QueryVariable(variable.name)
        .label(variable.title)
        .query({"query": variable.query, "refId": variable.name})
        .datasource(_SOURCE)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(variable.several)
        .include_all(True)
        .all_value(".*")
        .current(_ALL)
    )


def _other_dashboards() -> builders.DashboardLink:
    return (
        builders.DashboardLink("cosched")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([_TAG])
        .include_vars(True)
        .keep_time(True)
    )


def _panel(panel: Panel, number: int, runbooks: str) -> Builder[dashboard.Panel]:
    builder = _OF_KIND[panel.kind](panel)
    (
        builder.id(number)
        .title(panel.title)
        .description(panel.description)
        .unit(panel.unit)
        .datasource(_SOURCE)
        .span(panel.width)
        .height(panel.height)
    )
    for at, query in enumerate(panel.queries):
        builder.with_target(_target(panel, query, chr(ord("A") + at)))
    if panel.alerts:
        builder.links([_runbook(_ALERTS[alert], runbooks) for alert in panel.alerts])
    if panel.opens_desk:
        builder.data_links([builders.DashboardLink("This desk").url(_DESK).type(dashboard.DashboardLinkType.LINK)])
    if panel.names:
        builder.mappings([_mapping(panel.names)])
    builder.thresholds(_thresholds(panel))
    return builder


def _runbook(alert: Alert, runbooks: str) -> builders.DashboardLink:
    link = builders.DashboardLink(f"Runbook of {alert.name}").url(f"{runbooks}#{alert.anchor}")
    return link.type(dashboard.DashboardLinkType.LINK).target_blank(True)


def _target(panel: Panel, query: Query, letter: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query.expr).ref_id(letter).legend_format(query.legend or "__auto")
    if panel.kind in ("number", "table"):
        made.instant()
    else:
        made.range()
    if panel.kind == "table":
        made.format(PromQueryFormat.TABLE)
    if panel.kind == "heat map":
        made.format(PromQueryFormat.HEATMAP)
    return made


def _mapping(names: tuple[Named, ...]) -> dashboard.ValueMap:
    return dashboard.ValueMap(
        {
            str(name.value): dashboard.ValueMappingResult(text=name.text, color=name.colour, index=at)
            for at, name in enumerate(names)
        }
    )


def _thresholds(panel: Panel) -> builders.ThresholdsConfig:
    steps = [dashboard.Threshold(None, "green" if panel.warn is not None else "text")]
    if panel.warn is not None:
        steps.append(dashboard.Threshold(panel.warn, "yellow"))
    if panel.fail is not None:
        steps.append(dashboard.Threshold(panel.fail, "red"))
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _legend() -> common_builders.VizLegendOptions:
    return (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def _graph(panel: Panel) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .legend(_legend())
        .tooltip(
            common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
        .axis_soft_min(0)
        .show_points(common.VisibilityMode.NEVER)
    )


def _stacked(panel: Panel) -> timeseries.Panel:
    return (
        _graph(panel)
        .fill_opacity(40)
        .line_width(0)
        .stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    )


def _number(panel: Panel) -> stat.Panel:
    return (
        stat.Panel()
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE)
        .text_mode(common.BigValueTextMode.VALUE if panel.names else common.BigValueTextMode.AUTO)
    )


def _states(panel: Panel) -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .merge_values(True)
        .show_value(common.VisibilityMode.AUTO)
        .row_height(0.8)
        .legend(_legend())
    )


def _table(panel: Panel) -> table.Panel:
    return table.Panel().show_header(True)


def _heat_map(panel: Panel) -> heatmap.Panel:
    return (
        heatmap.Panel()
        .calculate(False)
        .y_axis(heatmap.YAxisConfig().unit(panel.unit))
        .color(heatmap.HeatmapColorOptions().mode(heatmap_model.HeatmapColorMode.SCHEME).scheme("Oranges").steps(32))
    )


_OF_KIND: dict[str, Callable[[Panel], _EITHER]] = {
    "graph": _graph,
    "stacked": _stacked,
    "number": _number,
    "states": _states,
    "table": _table,
    "heat map": _heat_map,
}
