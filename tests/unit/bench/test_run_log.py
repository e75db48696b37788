"""Runs are kept as they are made; another call adds to them, if it measures in the same way."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from cosched.apps.cli.bench import RUNS, show
from cosched.apps.experiments.matrix import ALONE, COMPANIES, WORKS, Run
from cosched.apps.experiments.run_log import RunLog
from cosched.apps.lab import cgroups
from cosched.errors import BadInput
from cosched.report.table import Table

HOW = {"seconds": 2.0, "nodes": 2}


def run(mode: str, seconds: float) -> Run:
    return Run(WORKS[0].name, COMPANIES[0].name, mode, seconds, 0.5)


def campaign(out: Path, *runs: Run, add: bool = False) -> RunLog[Run]:
    kept = RunLog(out, RUNS, Run)
    kept.begin(HOW, add=add)
    for each in runs:
        kept.keep(each)
    return kept


def test_another_campaign_adds_to_what_is_there(tmp_path: Path) -> None:
    campaign(tmp_path / "new", run(ALONE, 2.0), run("ccs", 4.0))
    kept = campaign(tmp_path / "new", run(ALONE, 3.0), add=True)
    assert kept.campaigns == [[run(ALONE, 2.0), run("ccs", 4.0)], [run(ALONE, 3.0)]]
    assert RunLog(tmp_path / "new", RUNS, Run).campaigns == kept.campaigns
    assert [how.items() >= HOW.items() for how in kept.hows] == [True, True]
    assert "Linux" in kept.hows[0]["machine"]


def test_campaign_records_cgroup_version_commit_and_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = cgroups.Hierarchy(tmp_path, 2, frozenset())
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [tree])
    how = campaign(tmp_path, run(ALONE, 2.0), run("ccs", 4.0)).hows[0]
    assert how["cgroups"] == 2
    assert re.fullmatch(r"[0-9a-f]{8,}(-dirty)?|[0-9]+\.[0-9.]+", how["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", how["date"])
    found = CliRunner().invoke(show, [str(tmp_path)], standalone_mode=False)
    told = f"{how['machine']}, control groups of version 2, commit {how['commit']}, {how['date']}"
    assert told in " ".join(found.output.split())


def test_log_without_a_cgroup_version_is_of_version_1_and_can_be_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps(msgspec.to_builtins(run(ALONE, 2.0)))
    (tmp_path / f"{RUNS}.jsonl").write_text(json.dumps({"how": {**HOW, "machine": "Linux 6"}}) + f"\n{line}\n")
    monkeypatch.setattr(cgroups, "hierarchies", list)
    kept = campaign(tmp_path, run("ccs", 4.0), add=True)
    assert [how["cgroups"] for how in kept.hows] == [1, 0]
    first, second = kept.noted(Table("", ())).notes
    assert first == "Linux 6, control groups of version 1"
    assert "no control groups" in second


def test_json_document_lists_campaigns_and_cells(tmp_path: Path) -> None:
    kept = campaign(tmp_path, run("ccs", 4.0))
    told = json.loads(kept.document([run("ccs", 4.0)], refused={"x": "why"}))
    assert told["how"][0].items() >= HOW.items()
    assert told["cells"] == [msgspec.to_builtins(run("ccs", 4.0))]
    assert told["refused"] == {"x": "why"}


def test_half_a_line_is_of_somebody_who_was_interrupted(tmp_path: Path) -> None:
    campaign(tmp_path, run(ALONE, 2.0))
    path = tmp_path / f"{RUNS}.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-20:-1])
    kept = campaign(tmp_path, run("ccs", 4.0), add=True)
    assert kept.campaigns == [[run(ALONE, 2.0)], [run("ccs", 4.0)]]
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 4


def test_nothing_is_kept_without_a_directory() -> None:
    kept: RunLog[Run] = RunLog(None, RUNS, Run)
    kept.begin(HOW, add=False)
    kept.keep(run(ALONE, 2.0))
    assert kept.campaigns == [[run(ALONE, 2.0)]]


def test_an_afternoons_runs_are_not_written_over(tmp_path: Path) -> None:
    campaign(tmp_path, run(ALONE, 2.0))
    with pytest.raises(BadInput, match="has runs already; expected another directory, or --add"):
        campaign(tmp_path)
    with pytest.raises(BadInput, match=r"--add: seconds 3.0; expected 2.0"):
        RunLog(tmp_path, RUNS, Run).begin({**HOW, "seconds": 3.0}, add=True)
    assert RunLog(tmp_path, RUNS, Run).campaigns == [[run(ALONE, 2.0)]]


def test_a_call_that_could_not_begin_is_in_nobodys_way(tmp_path: Path) -> None:
    campaign(tmp_path)
    kept = RunLog(tmp_path, RUNS, Run)
    kept.begin({**HOW, "seconds": 3.0}, add=False)
    kept.keep(run(ALONE, 2.0))
    assert RunLog(tmp_path, RUNS, Run).campaigns == [[], [run(ALONE, 2.0)]]


def test_what_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--add: without --out"):
        RunLog(None, RUNS, Run).begin(HOW, add=True)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(BadInput, match=f"--out: {file}: "):
        RunLog(file, RUNS, Run).begin(HOW, add=False)
    (tmp_path / f"{RUNS}.jsonl").write_text('{"how": {}}\n{"seconds": "many"}\n')
    with pytest.raises(BadInput, match=f"{RUNS}.jsonl:2: "):
        RunLog(tmp_path, RUNS, Run)


def test_a_directorys_runs_are_shown_again(tmp_path: Path) -> None:
    campaign(tmp_path, *[run(ALONE, 2.0), run("ccs", 4.0), run("plain", 4.4)] * 3)
    found = CliRunner().invoke(show, [str(tmp_path)], standalone_mode=False)
    assert found.return_value == 0, found.output
    assert [path.name for path in tmp_path.iterdir()] == [f"{RUNS}.jsonl"]
    found = CliRunner().invoke(show, [str(tmp_path), "--out", str(tmp_path / "out")], standalone_mode=False)
    (told,) = json.loads((tmp_path / "out/coscheduling.json").read_text())["how"]
    assert told["nodes"] == 2
    assert "2.00 [2.00, 2.00]" in found.output
    none = CliRunner().invoke(show, [str(tmp_path / "none")], standalone_mode=False)
    assert isinstance(none.exception, BadInput)
