"""The replication of Feitelson & Weil 1998: its parts on small logs, its whole on the real one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.replications import outline, quiet
from kit.snapshots import Snapshot

from cosched.apps.cli.main import main
from cosched.apps.replicate import result as results
from cosched.apps.replicate import steady
from cosched.apps.replicate.backfilling import (
    figure11,
    guarantees,
    paper,
    replication,
    runs,
    situations,
    sweep,
    table2,
)
from cosched.apps.replicate.backfilling.setup import Scale, read
from cosched.apps.replicate.claims import Verdict
from cosched.apps.replicate.papers import Request
from cosched.apps.replicate.result import Result
from cosched.workload import catalogue, swf
from cosched.workload.generators.registry import generate
from cosched.workload.log import Field, Header, Log
from cosched.workload.rules import prepare
from cosched.workload.scaling import offered_load
from cosched.workload.schedule import Schedule

TINY = Scale(seeds=2, factors=(1, 4), sweep_jobs=150, sweep_loads=(0.5, 0.8), bootstrap=20, table1=False)

CLAIM_KEYS = {"id", "text", "verdict", "ours", "paper", "interval"}


@pytest.fixture(scope="module")
def small_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hundred jobs on 16 processors, requests of twice the run time, over some weeks."""
    log = generate("lublin03", 300, 16, np.random.default_rng(5), load=0.8)
    rows = log.rows.copy()
    rows[:, Field.REQUEST_S] = np.ceil(2 * rows[:, Field.RUN_S])
    path = tmp_path_factory.mktemp("log") / "small.swf"
    swf.write(log.with_rows(rows), path)
    return path


@pytest.fixture
def no_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder has a public log."""
    monkeypatch.setattr(catalogue, "folders", lambda: [tmp_path / "nothing here"])


def tiny(log: Path, workers: int = 1) -> Result:
    return replication.replicate_at(TINY, Request(paper="backfilling", log=str(log), workers=workers), quiet)


@pytest.fixture(scope="module")
def found(small_log: Path) -> Result:
    return tiny(small_log)


def test_every_table_figure_and_claim_is_there(snapshot: Snapshot, found: Result) -> None:
    snapshot(outline(found))


def test_the_configuration_names_everything_that_decides(found: Result) -> None:
    configuration = found.configuration
    assert configuration["scale"]["seeds"] == 2
    assert configuration["rules"]["ties"] == "batch"
    assert configuration["bounded_slowdown_threshold_s"] == 10
    assert configuration["sweep"]["models"]["feitelson96"]["size_order"] == 1.5


def test_the_same_seed_gives_the_same_bytes_on_one_processor_and_on_two(
    found: Result, small_log: Path, tmp_path: Path
) -> None:
    written = list[dict[str, bytes]]()
    for each in (found, tiny(small_log, workers=2)):
        out = tmp_path / f"by-{len(written) + 1}"
        manifest = results.write(replace(each, plots={"table3": each.plots["table3"]}), out)
        names = {path.name for path in out.iterdir()}
        assert names == {output.name for output in manifest.outputs} | {"manifest.json"}
        assert {"claims.json", "table2.csv", "table2.parquet", "table3.png", "table3.svg"} <= names
        written.append({name: (out / name).read_bytes() for name in names})
    assert written[0] == written[1]


def test_json_has_the_claims_as_promised(
    small_log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replication, "QUICK", TINY)
    with pytest.raises(SystemExit) as ended:
        main(["replicate", "backfilling", str(small_log), "--quick", "--jobs", "1", "--json"])
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["paper"] == "backfilling"
    assert {"claims", "tables", "configuration", "inputs", "notes"} <= set(document)
    for claim in document["claims"]:
        assert set(claim) >= CLAIM_KEYS
        assert claim["verdict"] in ("holds", "fails", "undecided")
        assert claim["interval"] is None or len(claim["interval"]) == 2
    assert document["inputs"][0]["sha256"]
    assert document["tables"]["table3"]["rows"][0]["f"] == "1"


def test_people_get_tables_then_verdicts(
    found: Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replication, "replicate", lambda *_: found)
    with pytest.raises(SystemExit):
        main(["replicate", "backfilling", "--quick"])
    out = capsys.readouterr().out
    assert out.index("Table 2:") < out.index("Table 3:") < out.index("Claims of Feitelson & Weil 1998")
    assert "holds          guarantees.easy-head: EASY never delays the reservation of the head" in out
    assert "small_boost=2.0" in out


@pytest.mark.usefixtures("no_logs")
def test_what_cannot_be_done_says_so(snapshot: Snapshot, cosched: Call) -> None:  # noqa: F811
    """Of all papers: a log that is not here, a real part where there is none, options that do not go together."""
    snapshot.replay(cosched)


@pytest.mark.usefixtures("no_logs")
def test_table_1_is_left_out_by_name(small_log: Path) -> None:
    scale = Scale(seeds=1, factors=(1,), sweep_jobs=50, sweep_loads=(0.5,), bootstrap=5)
    found = replication.replicate_at(scale, Request(paper="backfilling", log=str(small_log), workers=1), quiet)
    assert "table1" not in found.tables
    assert any("NASA-iPSC-1993-3.1-cln, which is not here" in note for note in found.notes)


def test_months_are_compared_as_printed() -> None:
    assert table2.better(36.09, 36.44) == "tie"
    assert table2.better(35.9, 36.6) == "EASY"
    assert table2.better(103.6, 102.4) == "cons"


def test_the_histogram_counts_every_job_once() -> None:
    ratio = np.array([0.0, 0.0099, 0.01, 0.5, 0.9949, 0.999999, 1.0, 1.0, 1.2])
    bins = dict(figure11.histogram(ratio))
    assert sum(bins.values()) == len(ratio)
    assert (bins["0-1"], bins["1-2"], bins["50-51"], bins["99-100"]) == (2, 1, 1, 2)
    assert (bins["exactly 100"], bins["above 100"]) == (2, 1)


@pytest.mark.parametrize("model", sweep.MODELS)
def test_a_generated_log_has_the_load_asked_for(model: str) -> None:
    log = sweep.log_at(model, 1000, 0.8, 3)
    assert len(log) == 1000
    assert offered_load(log, procs_total=sweep.PROCS) == pytest.approx(0.8, rel=1e-6)
    other = sweep.log_at(model, 1000, 0.6, 3)
    # More time between arrivals can change which jobs come first, not what is drawn.
    assert np.isin(log.column(Field.RUN_S), other.column(Field.RUN_S)).mean() > 0.9


def machine_that_falls_behind(share: float) -> Schedule:
    """Unit jobs on one processor that arrive every second; the machine does that share of them a second."""
    count = 900
    rows = np.full((count, 18), -1.0)
    rows[:, Field.JOB] = np.arange(count)
    rows[:, Field.SUBMIT_S] = np.arange(count)
    rows[:, Field.RUN_S] = rows[:, Field.PROCS_ALLOCATED] = 1
    load = prepare(Log(Header({"MaxProcs": "1"}), rows))
    start_us = load.submit_us + ((1 / share - 1) * load.submit_us).astype(np.int64)
    return Schedule(load, start_us, start_us + load.run_us, np.full(count, -1))


def test_a_growing_queue_is_seen() -> None:
    first, middle, last = steady.backlog_thirds(machine_that_falls_behind(0.8))
    assert (middle / first, last / middle) == pytest.approx((3, 5 / 3), rel=0.1)
    assert steady.backlog_thirds(machine_that_falls_behind(1.0)) == (0, 0, 0)
    assert steady.Trend(0.5, 0.1).unstable
    assert not steady.Trend(0.2, 0.1).unstable  # it does not grow
    assert not steady.Trend(0.5, 0.001).unstable  # nothing worth the name waits


def test_fig_4_in_full() -> None:
    anew = situations.play(situations.FIG_4, "conservative", "conservative(anew)")
    assert situations.starts_s(situations.FIG_4, anew) == {"top": 0, "bottom": 0, "first": 4, "second": 10}
    arrival = situations.play(situations.FIG_4, "conservative", "conservative(arrival)")
    assert situations.starts_s(situations.FIG_4, arrival) == {"top": 0, "bottom": 0, "first": 6, "second": 1}
    assert anew.promised_us[3] == arrival.promised_us[3] == 4_000_000


@pytest.mark.slow
@pytest.mark.log("KTH-SP2-1996-2.1-cln")
def test_the_real_log(log_path: Path) -> None:
    """The months of Table 2 and Fig. 11, which speak of this log, and the promises of both policies on it."""
    log, result = read(str(log_path), TINY), Result("backfilling", "", {})
    times = {name: runs.simulate_log(log.load, *runs.RUNS[name]) for name in (runs.EASY, runs.CONSERVATIVE)}
    schedules = {
        name: Schedule(log.load, start_us, start_us + log.load.run_us, promised_us)
        for name, (start_us, promised_us) in times.items()
    }
    table2.report(log, schedules, result)
    guarantees.report(schedules, result)
    figure11.report(log, result)
    months = result.tables["table2"].as_dicts()
    assert [row["month"] for row in months] == list(paper.TABLE_2)
    assert [row["jobs"] for row in months] == [94, 2405, 1984, 2308, 2931, 2924, 2081, 2861, 4075, 2703, 2183, 1927]
    verdicts = {claim.id: claim.verdict for claim in result.claims}
    for held in (
        "table2.months-rank-easy",
        "table2.months-rank-conservative",
        "table2.difference-small",
        "guarantees.easy-head",
        "guarantees.conservative-arrival",
    ):
        assert verdicts[held] is Verdict.HOLDS, held
    at_100 = {(row["subset"], row["reading"]): row["at 100 %"] for row in result.tables["figure11"].as_dicts()}
    assert at_100["all", "exactly 100 %"] == 38
    assert at_100["all", "rounds to 100 % (99.5 to 100.5)"] == 3054
    assert "table2" in result.plots


@pytest.mark.log("KTH-SP2-1996-2.1-cln")
def test_a_part_of_the_log_keeps_its_order(log_path: Path) -> None:
    load = prepare(swf.read(log_path))
    part = table2.without_some(load, paper.JOBS, seed=1)
    assert len(part) == paper.JOBS == len(part.procs)
    assert (np.diff(part.submit_us) >= 0).all()
    assert set(part.job_id.tolist()) < set(load.job_id.tolist())
