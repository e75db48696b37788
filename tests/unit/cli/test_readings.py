"""What `simulate` says of a log's jobs that never ran, of a guessed machine, and on standard output."""

import json
from pathlib import Path

import pytest
from kit.command import JOBS, Call
from kit.snapshots import Snapshot

EASY = ("simulate", "small.swf", "--policy", "easy")
#: Cancelled while it waited: it asked for the whole machine, which is busy for 100 s.
NEVER_RAN = " 6   5 -1 0 -1 -1 -1 4 200 -1 5 1 1 -1 -1 -1 -1 -1\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_json_has_both_readings_of_jobs_that_never_ran(cosched: Call, log: Path) -> None:
    without = json.loads(cosched(*EASY, "--json").out)
    assert (without["never_ran"], without["never_ran_jobs"]) == ("drop", 0)
    assert without["mean_bounded_slowdown_all"] == without["mean_bounded_slowdown"]
    assert without["readings"]["drop"] == without["readings"]["wait"]
    log.write_text(JOBS + NEVER_RAN)
    dropped = json.loads(cosched(*EASY, "--json").out)
    waits = json.loads(cosched(*EASY, "--json", "--never-ran", "wait").out)
    assert (dropped["jobs"], waits["jobs"]) == (5, 6)
    assert dropped["mean_bounded_slowdown"] == without["mean_bounded_slowdown"]
    assert dropped["mean_bounded_slowdown_all"] == waits["mean_bounded_slowdown"] == waits["mean_bounded_slowdown_all"]
    assert dropped["mean_bounded_slowdown_all"] > dropped["mean_bounded_slowdown"]
    assert dropped["readings"] == waits["readings"]
    assert dropped["never_ran_jobs"] == waits["never_ran_jobs"] == 1
    assert dropped["skipped"] == {"never_ran": 1}
    oracle = json.loads(cosched(*EASY, "--json", "--rules", "oracle").out)
    assert (oracle["jobs"], oracle["never_ran"]) == (6, "wait")


def test_log_whose_jobs_all_never_ran_has_one_reading(cosched: Call, log: Path) -> None:
    log.write_text("; MaxProcs: 4\n" + NEVER_RAN)
    waits = json.loads(cosched(*EASY, "--json", "--never-ran", "wait").out)
    assert list(waits["readings"]) == ["wait"]
    refused = cosched(*EASY)
    assert refused.status == 2
    assert "1 never_ran" in refused.err


def test_summary_has_both_readings_above_one_percent_and_tells_the_default_once(
    snapshot: Snapshot, cosched: Call, log: Path
) -> None:
    log.with_name("never.swf").write_text(JOBS + NEVER_RAN)
    snapshot.replay(cosched)


def test_compare_and_stats_count_jobs_that_never_ran(cosched: Call, log: Path) -> None:
    log.write_text(JOBS + NEVER_RAN)
    compared = json.loads(cosched("compare", "small.swf", "--policies", "easy,fcfs", "--json").out)
    assert (compared["never_ran"], compared["never_ran_jobs"]) == ("drop", 1)
    assert compared["policies"]["easy"]["jobs"] == 5
    assert json.loads(cosched("workload", "stats", "small.swf", "--json").out)["skipped"] == {"never_ran": 1}


@pytest.mark.usefixtures("without_plots")
def test_manifest_with_the_rule_by_its_earlier_name_repeats(cosched: Call, log: Path) -> None:
    log.write_text(JOBS + NEVER_RAN)
    assert cosched(*EASY, "--never-ran", "wait", "--out", "o").status == 0
    manifest = Path("o/manifest.json")
    earlier = json.loads(manifest.read_text())
    assert earlier["configuration"].pop("never_ran") == "wait"
    earlier["configuration"]["unusable"] = "one-second"
    manifest.write_text(json.dumps(earlier))
    again = cosched("simulate", "small.swf", "--repeat", manifest)
    assert again.status == 0, again.err


def test_guesses_and_extra_columns_and_standard_output_are_told(snapshot: Snapshot, cosched: Call, log: Path) -> None:
    snapshot.replay(cosched)
    assert not Path("-").exists()
