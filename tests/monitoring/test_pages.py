"""The guide says what there is: every series, and a runbook for every alert."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cosched.apps.cli.monitoring import command
from cosched.errors import BadInput
from cosched.monitoring import alerts
from cosched.monitoring.rendering import SETTINGS
from space_scheduler.reasons import Why

GUIDE = Path(__file__).resolve().parents[2] / "docs/guide"
METRICS, RUNBOOKS = "metrics", "runbooks"


def test_the_reference_has_every_series_as_it_is() -> None:
    printed = CliRunner().invoke(command, ["reference"])
    assert printed.exit_code == 0
    assert printed.output.count("\n| `cosched_") > 40
    assert (GUIDE / f"{METRICS}.md").read_text().endswith(printed.output), "cosched monitoring reference says otherwise"


def test_every_alert_has_a_runbook_that_says_what_it_means_what_to_look_at_and_what_to_do() -> None:
    text = (GUIDE / f"{RUNBOOKS}.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == [each.name for each in alerts.ALL]
    for name, section in sections.items():
        assert "**It means**" in section, name
        assert "**Do**" in section, name
        assert "**Look at**" in section or "as in [" in section, name


def test_a_queue_that_is_stuck_is_told_in_the_words_that_the_runbook_goes_by() -> None:
    section = (GUIDE / f"{RUNBOOKS}.md").read_text().split("## CoschedQueueStuck")[1].split("\n## ")[0]
    named = [
        words for line in re.findall(r"^- (.*?):", section, re.MULTILINE) for words in re.findall(r"\*(.+?)\*", line)
    ]
    assert len(named) >= 5
    for words in named:
        assert any(words in why.value for why in Why), words


def test_files_are_rendered_for_a_site(tmp_path: Path) -> None:
    where = ["--scheduler", "head.example:7420", "--cluster", "office", "--runbooks", "https://wiki.example/runbooks"]
    printed = CliRunner().invoke(command, ["render", "--into", str(tmp_path / "made"), *where])
    assert printed.exit_code == 0, printed.output
    settings = (tmp_path / "made/prometheus.yml").read_text()
    assert "head.example:7420" in settings
    assert "cluster: office" in settings
    assert "scrape_interval: 15s" in settings
    rules = (tmp_path / "made/cosched.rules.yml").read_text()
    assert rules.count("runbook_url: https://wiki.example/runbooks#cosched") == len(alerts.ALL)
    again = CliRunner().invoke(command, ["render", "--into", str(tmp_path / "made"), *where, "--faster", "30"])
    assert again.exit_code == 0
    assert "scrape_interval: 500ms" in (tmp_path / "made/prometheus.yml").read_text()
    assert "cosched-desks" not in (tmp_path / "made/prometheus.yml").read_text()
    refused = CliRunner().invoke(command, ["render", "--into", str(tmp_path / "made"), "--faster", "0"])
    assert refused.exit_code != 0


def test_render_scrapes_the_desks_that_run_local_load(tmp_path: Path) -> None:
    desks = ["--desk", "desk2=192.0.2.12:7425", "--desk", "desk1=[2001:db8::1]:7425"]
    printed = CliRunner().invoke(command, ["render", "--into", str(tmp_path), "--cluster", "office", *desks])
    assert printed.exit_code == 0, printed.output
    _, scrape = yaml.safe_load((tmp_path / SETTINGS).read_text())["scrape_configs"]
    assert scrape == {
        "job_name": "cosched-desks",
        "static_configs": [
            {"targets": ["[2001:db8::1]:7425"], "labels": {"cluster": "office", "node": "desk1"}},
            {"targets": ["192.0.2.12:7425"], "labels": {"cluster": "office", "node": "desk2"}},
        ],
    }


@pytest.mark.parametrize("desks", [["desk1"], ["desk1="], ["=h:1"], ["desk1=h"], ["desk1=h:x"], ["d=h:1", "d=h:2"]])
def test_render_refuses_a_desk_without_name_or_address(desks: list[str], tmp_path: Path) -> None:
    given = [word for each in desks for word in ("--desk", each)]
    with pytest.raises(BadInput, match="--desk"):
        CliRunner().invoke(command, ["render", "--into", str(tmp_path), *given], catch_exceptions=False)
    assert not list(tmp_path.iterdir())
