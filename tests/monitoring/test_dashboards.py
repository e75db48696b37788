"""The dashboards without Grafana: what each panel must say, and that it asks for nothing that is not there."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as grafana
from grafana_foundation_sdk.models import units
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.waiting import BOUND_S

from cosched.monitoring import alerts, local, recordings, series
from cosched.monitoring.dashboards.queries import beyond
from cosched.monitoring.dashboards.render import ALL, files
from cosched.monitoring.dashboards.values import Dashboard, Panel
from cosched.monitoring.rendering import RULES, Site, rendered
from cosched.monitoring.rules import RUNBOOKS, Pace

PANELS = [pytest.param(panel, id=f"{made.uid}: {panel.title}") for made in ALL for panel in made.panels]
UNITS = {value for value in vars(units).values() if isinstance(value, str)}
ROLES = Path(__file__).resolve().parents[2] / "ansible/roles"
KEPT = ROLES / "grafana/files/dashboards"
#: Labels that Prometheus gives to what it scrapes, and to what it finds.
GIVEN = {"cluster", "job"}
#: What it gives to those of a desk's own port beside these.
AT_DESK = {"node"}
#: Series that Prometheus itself has.
ITS_OWN = {"up": {"job", "cluster"}, "ALERTS": {"alertname", "alertstate", "cluster"}}
_SELECTOR = re.compile(r"([A-Za-z_:][\w:]*)\{([^}]*)\}")


def labels_of_series() -> dict[str, set[str]]:
    """Every series that may be asked for, and the labels that it has."""
    found = dict(ITS_OWN)
    for each in (*series.ALL, *local.ALL):
        labels = set(each.label_names) | GIVEN | (AT_DESK if each in local.ALL else set())
        if each.kind == "histogram":
            found |= {f"{each.name}_bucket": labels | {"le"}, f"{each.name}_sum": labels, f"{each.name}_count": labels}
        else:
            found[each.name] = labels
    for recording in recordings.ALL:
        asked = recording.expression(Pace())
        of = next(each for each in (*series.ALL, *local.ALL) if each.name in asked)
        kept = re.search(r"sum by \(([^)]*)\)", asked)
        found[recording.name] = set(kept[1].split(", ")) if kept else set(of.label_names) | GIVEN
    return found


def plain(expr: str) -> str:
    """A query as Prometheus takes it: Grafana's variables stand for all there is, its intervals for some minutes."""
    for name in ("$__rate_interval", "$__range"):
        expr = expr.replace(name, "5m")
    return re.sub(r"\$\w+", ".*", expr)


def written() -> dict[str, dict[str, Any]]:
    """The dashboards as Grafana reads them, by their identifier."""
    texts = files("https://example.org/runbooks")
    return {name.removesuffix(".json"): json.loads(text) for name, text in texts.items()}


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows_in_which_unit(panel: Panel) -> None:
    assert panel.unit in UNITS
    assert panel.description.endswith("."), "a sentence"
    assert panel.queries
    assert panel.kind == "table" or all(query.legend for query in panel.queries)
    assert (panel.kind == "states") <= bool(panel.names)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_for_series_and_labels_that_there_are(panel: Panel) -> None:
    there = labels_of_series()
    for query in panel.queries:
        found = _SELECTOR.findall(query.expr)
        assert found, query.expr
        for name, inside in found:
            asked = set(re.findall(r"(\w+)=~?\"", inside))
            assert "cluster" in asked, f"{name} of all clusters at once"
            assert asked <= there[name], name
        shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
        by = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", query.expr) for label in labels.split(",")}
        had = {label for name, _ in found for label in there[name]}
        assert by <= had
        assert shown <= (by or had), "a legend shows what the sum has kept"
        # every name that is no function stands before its labels
        bare = re.sub(r"\{[^}]*\}|\"[^\"]*\"|\[[^\]]*\]", "", query.expr)
        assert set(re.findall(r"\b(?:cosched|process)[\w:]*", bare)) == {
            name for name, _ in found if name.startswith(("cosched", "process"))
        }


@pytest.mark.system("prometheus")
def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    queries = sorted({query.expr for made in ALL for panel in made.panels for query in panel.queries})
    rules = [{"record": f"q{at}", "expr": plain(query)} for at, query in enumerate(queries)]
    path = tmp_path / "queries.yml"

    def checked(rules: list[dict[str, str]]) -> subprocess.CompletedProcess[str]:
        path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
        return subprocess.run(
            ["promtool", "check", "rules", path], capture_output=True, text=True, check=False, timeout=BOUND_S
        )

    found = checked(rules)
    assert found.returncode == 0, found.stderr
    assert f"{len(queries)} rules found" in found.stdout
    assert checked([{"record": "broken", "expr": "sum by (a"}]).returncode != 0


def test_who_asks_for_a_bound_that_no_bucket_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no bucket that ends at 7"):
        beyond(7, series.JOB_PREDICTION_ERROR)


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.uid)
def test_panels_lie_side_by_side_and_fill_their_rows(made: Dashboard) -> None:
    panels = written()[made.uid]["panels"]
    assert len(panels) == len(made.panels) + len(made.rows)
    places: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & places, panel["title"]
        places |= cells
    assert sorted(panel["id"] for panel in panels) == list(range(1, len(panels) + 1))


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.uid)
def test_a_dashboard_has_its_variables_links_and_runbooks(made: Dashboard) -> None:
    found = written()[made.uid]
    variables = {each["name"]: each for each in found["templating"]["list"]}
    assert list(variables)[:2] == ["datasource", "cluster"]
    assert all(each["allValue"] == ".*" for name, each in variables.items() if name != "datasource")
    asked = {name for panel in made.panels for query in panel.queries for name in re.findall(r"\$(\w+)", query.expr)}
    assert asked - {"__rate_interval", "__range"} == set(variables) - {"datasource"}, "each variable is used"
    assert found["links"][0]["tags"] == found["tags"] == ["cosched"]
    assert found["links"][0]["includeVars"]
    shown = [panel for panel in found["panels"] if panel["type"] != "row"]
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in shown)
    for panel, value in zip(shown, made.panels, strict=True):
        runbooks = [link["url"] for link in panel.get("links", [])]
        assert runbooks == [f"https://example.org/runbooks#{alert.lower()}" for alert in value.alerts]


def test_dashboards_are_told_apart() -> None:
    assert len({made.uid for made in ALL}) == len({made.title for made in ALL}) == len(ALL) == 5


def test_grafana_s_own_types_read_what_was_written() -> None:
    for found in written().values():
        again = json.loads(json.dumps(grafana.Dashboard.from_json(found), cls=JSONEncoder))
        assert again["panels"] == found["panels"]
        assert again["templating"] == found["templating"]


def test_what_an_installation_gets_is_what_is_made_of_the_values_now() -> None:
    """Made anew by ``cosched monitoring render --dashboards --into DIR``."""
    assert {path.name for path in KEPT.iterdir()} == set(files())
    assert {name: (KEPT / name).read_text() for name in files()} == files()
    assert (ROLES / "prometheus/files" / RULES).read_text() == rendered(Site())[RULES]


def test_roles_replace_the_address_of_the_runbooks_that_is_in_the_files() -> None:
    assert RUNBOOKS in (ROLES / "prometheus/files" / RULES).read_text()
    for role, file in (("prometheus", "files.yml"), ("grafana", "configure.yml")):
        assert f"replace('{RUNBOOKS}', {role}_runbooks)" in (ROLES / role / "tasks" / file).read_text()


def test_the_command_writes_the_dashboards_where_they_are_asked_for(cosched: Call, tmp_path: Path) -> None:  # noqa: F811
    asked = ("monitoring", "render", "--into", tmp_path, "--runbooks", "https://example.org/runbooks")
    assert cosched(*asked).status == 0
    assert {path.name for path in tmp_path.iterdir()} == set(rendered(Site()))
    assert cosched(*asked, "--dashboards").status == 0
    assert {path.name for path in tmp_path.iterdir()} == set(rendered(Site())) | set(files())
    assert json.loads((tmp_path / "cosched-cluster.json").read_text()) == written()["cosched-cluster"]


def test_the_command_prints_the_same_for_programs(cosched: Call) -> None:  # noqa: F811
    printed = cosched("monitoring", "render", "--json", "--cluster", "office")
    assert json.loads(printed.out) == rendered(Site(cluster="office"))
    refused = cosched("monitoring", "render")
    assert refused.status == 2
    assert refused.err == "cosched: --into: none; expected a directory, or --json\n"


def test_every_alert_has_a_panel_that_shows_why_it_fires() -> None:
    assert {alert for made in ALL for panel in made.panels for alert in panel.alerts} == {
        each.name for each in alerts.ALL
    }
