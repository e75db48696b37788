"""What is said of samples: percentiles, how two runs differ and how sure that is, a plot; on samples that are known."""

import json
from pathlib import Path

import numpy as np
import pytest
from kit.command import Call
from kit.snapshots import Snapshot

from cosched.report.table import write_parquet
from local_load.report import ALL, Difference, differences, table
from local_load.samples import SAMPLES, SUMMARY, Samples, read


def known(scale: float = 1.0, seconds: float = 60.0, seed: int = 1) -> Samples:
    """Forty calls a second, exponential with a mean of 10 ms times ``scale``, half of them pipe, half key."""
    random = np.random.default_rng(seed)
    count = round(40 * seconds)
    at_s = np.arange(count) / 40
    response_s = random.exponential(0.010 * scale, count)
    call = np.array(["pipe", "key"] * (count // 2))
    return Samples(at_s, call, response_s, np.ones(count, bool))


def written(folder: Path, samples: Samples, summary: object = None) -> Path:
    folder.mkdir()
    columns = {"at_s": samples.at_s, "call": samples.call, "response_s": samples.response_s, "made": samples.made}
    write_parquet(folder / SAMPLES, columns | {"own_s": samples.response_s})
    (folder / SUMMARY).write_text(json.dumps(summary if summary is not None else {}))
    return folder


def test_percentiles_and_the_share_above_400_ms() -> None:
    ms = np.arange(1, 1001) / 1000
    samples = Samples(np.arange(1000) / 10, np.array(["pipe"] * 1000), ms, ms < 0.99)
    shown = table(samples, "known")
    pipe = shown.as_dicts()[0]
    assert pipe["p50 ms"] == pytest.approx(500.5)
    assert pipe["p95 ms"] == pytest.approx(950.05)
    assert pipe["p99 ms"] == pytest.approx(990.01)
    assert pipe["above 400 ms"] == 0.6
    assert [row["call"] for row in shown.as_dicts()] == ["pipe", ALL]
    assert shown.notes[0].startswith("11 calls were more than a second late")


def of(found: list[Difference], call: str, what: str) -> Difference:
    return next(each for each in found if (each.call, each.what) == (call, what))


def test_a_run_that_is_slower_is_seen_to_be_and_by_how_much() -> None:
    found = differences(known(), known(scale=2.0, seed=2))
    for call in ("pipe", "key", ALL):
        p50 = of(found, call, "p50")
        assert p50.verdict == "higher"
        assert p50.difference.low < 0.010 * np.log(2) < p50.difference.high
        assert p50.difference.mean == pytest.approx(p50.second - p50.first)
    assert of(differences(known(scale=2.0), known(seed=2)), ALL, "p95").verdict == "lower"
    assert differences(known(), known(seed=2)) == differences(known(), known(seed=2))


def test_runs_that_do_not_differ_are_rarely_said_to() -> None:
    """A 95 % interval is wrong one time in twenty, and the bootstrap of a short run somewhat more often."""
    said = sum(
        of(differences(known(seed=seed), known(seed=seed + 100)), ALL, "p50").verdict != "no difference seen"
        for seed in range(5)
    )
    assert said <= 2


def test_neighbours_that_depend_on_each_other_make_intervals_wider() -> None:
    """Ten seconds in which all is slow are one event, not four hundred."""

    def slow(alternating: bool) -> Samples:
        samples = known()
        late = (np.arange(len(samples.at_s)) % 6 == 0) if alternating else samples.at_s < 10
        return Samples(samples.at_s, samples.call, samples.response_s + 0.5 * late, samples.made)

    widths = [
        of(differences(known(seed=3), slow(alternating)), ALL, "above 400 ms").difference.half_width
        for alternating in (True, False)
    ]
    assert widths[1] > 3 * widths[0]


def test_too_short_a_run_gets_no_interval() -> None:
    found = differences(known(seconds=5), known(seconds=5, seed=2))
    assert {each.verdict for each in found} == {"too short to say"}


def test_the_command_reports_compares_and_draws(tmp_path: Path, cosched: Call) -> None:
    first, second = written(tmp_path / "idle", known()), written(tmp_path / "loaded", known(2.0, seed=2))
    ended = cosched("local-load", "report", first, second, "--plot", tmp_path / "plot", "--write", tmp_path / "d.tsv")
    assert ended.status == 0, ended.err
    assert "loaded against idle" in ended.out
    assert "higher" in (tmp_path / "d.tsv").read_text()
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "400 ms" in (tmp_path / "plot.svg").read_text()
    told = json.loads(cosched("local-load", "report", first, "--json").out)
    assert told["idle"][-1]["call"] == ALL


def test_what_a_run_wrote_is_read_again(tmp_path: Path, cosched: Call) -> None:
    ended = cosched("local-load", "probe", "--seconds", "2", "--out", tmp_path / "run", "--calls", "pipe,getpid")
    assert ended.status == 0, ended.err
    summary, samples = read(tmp_path / "run")
    assert samples.calls() == ["getpid", "pipe"]
    assert len(samples.of("pipe").response_s) == summary["calls"]["pipe"]["count"]
    for call in samples.calls():
        exact = float(np.quantile(samples.of(call).response_s, 0.5, method="inverted_cdf"))
        assert summary["calls"][call]["p50_s"] == pytest.approx(exact, rel=0.035)
    assert list(samples.at_s) == sorted(samples.at_s)


def test_what_is_no_run_is_refused(tmp_path: Path, cosched: Call, snapshot: Snapshot) -> None:
    written(tmp_path / "kept", known(seconds=1))
    snapshot.replay(cosched)
