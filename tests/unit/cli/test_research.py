"""The research verbs with good input: what they print, what they write, and that a run repeats byte for byte."""

import csv
import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kit.command import Call
from kit.snapshots import Snapshot

from cosched.apps.cli.shared.outputs import event_log
from cosched.model.time import FOREVER_US
from cosched.report import plots
from cosched.workload import swf
from cosched.workload.log import Field
from space_scheduler import plugins
from space_scheduler.machine.events import Boundary
from space_scheduler.machine.instructions import Tell
from space_scheduler.reasons import Reason, Why

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
KTH = "KTH-SP2-1996-2.1-cln"
FIXED_KEYS = {"jobs", "mean_wait_s", "mean_bounded_slowdown", "utilization", "makespan_s", "wall_s", "cpu_s", "skipped"}

#: A policy that starts nothing.
LAZY = """
from space_scheduler.policy.interface import Plan
class Lazy:
    def order(self, job, rank): return (0, rank)
    def plan(self, snapshot): return Plan()
"""


def read_csv(name: str) -> list[list[str]]:
    return list(csv.reader(Path(name).read_text().splitlines()))


def test_easy_by_hand(cosched: Call, log: Path) -> None:
    """Job 3 needs all processors: it is the head from 20 s on, its shadow time 200 s by job 1's estimate.

    Job 4 fits nothing until job 1 ends at 100 s, then the shadow time is 110 s (job 2's estimate) and neither 4 nor 5
    ends by then; at 110 s job 3 runs to 160 s, then 4 and 5.
    """
    ended = cosched("simulate", log, "--policy", "easy", "--schedule", "starts.csv", "--json")
    assert ended.status == 0, ended.err
    assert read_csv("starts.csv") == [
        ["job_id", "submit", "start", "end", "procs", "requested"],
        ["1", "0", "0", "100", "2", "200"],
        ["2", "10", "10", "110", "2", "100"],
        ["3", "20", "110", "160", "4", "60"],
        ["4", "30", "160", "220", "1", "70"],
        ["5", "40", "160", "220", "1", "300"],
    ]
    found = json.loads(ended.out)
    assert found.keys() >= FIXED_KEYS
    assert found["jobs"] == 5
    assert found["mean_wait_s"] == pytest.approx((0 + 0 + 90 + 130 + 120) / 5)
    assert found["mean_bounded_slowdown"] == pytest.approx((1 + 1 + 140 / 50 + 190 / 60 + 180 / 60) / 5)
    assert found["makespan_s"] == 220
    assert found["utilization"] == pytest.approx((200 + 200 + 200 + 60 + 60) / (4 * 220))
    assert found["skipped"] == {}


@pytest.mark.usefixtures("without_plots")
def test_rules_are_options_and_options_override_a_file(cosched: Call, log: Path) -> None:
    Path("run.yaml").write_text(f"log: {log.name}\npolicies: [fcfs]\nties: batch\nseed: 7\nlaunch_delay: 5s\n")
    ended = cosched(
        "simulate", "--config", "run.yaml", "--policy", "easy", "--rules", "oracle", "--ties", "batch", "--out", "o"
    )
    assert ended.status == 0, ended.err
    configuration = json.loads(Path("o/manifest.json").read_text())["configuration"]
    assert configuration["policies"] == ["easy"]  # the option
    assert configuration["ties"] == "batch"  # the option, over the named rules
    assert configuration["negative_times"] == "unknown"  # the named rules
    assert configuration["launch_delay"] == "0s"  # the named rules, over the file
    assert configuration["seed"] == 7  # the file


def test_a_run_repeats_byte_for_byte_and_a_change_is_noticed(
    cosched: Call, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cosched("simulate", log, "--policy", "conservative", "--estimates", "factor:3", "--seed", 5, "--out", "o")
    assert first.status == 0, first.err
    manifest = json.loads(Path("o/manifest.json").read_text())
    names = {output["name"] for output in manifest["outputs"]}
    assert names == {path.name for path in Path("o").iterdir()} - {"manifest.json"}
    assert {"schedule.csv", "gantt.png", "gantt.svg", "queue.svg", "utilization.svg", "slowdown.png"} <= names
    again = cosched("simulate", "--repeat", "o/manifest.json")
    assert again.status == 0, again
    assert f"{len(names)} of {len(names)} outputs are the same" in again.out

    text = Path("o/manifest.json").read_text().replace('"seed": 5', '"seed": 6')
    Path("o/manifest.json").write_text(text)
    monkeypatch.setattr(plots, "all_plots", lambda _schedules, _directory: [])  # and so they differ, too
    other = cosched("simulate", "--repeat", "o/manifest.json")
    assert other.status == 1
    assert "differs: summary.json" in other.out

    log.write_text(log.read_text() + "; changed\n")
    changed = cosched("simulate", "--repeat", "o/manifest.json")
    assert changed.status == 2
    assert "SHA-256" in changed.err


@pytest.mark.usefixtures("without_plots")
def test_a_comparison_repeats_byte_for_byte(cosched: Call, log: Path) -> None:
    assert cosched("compare", log, "--policies", "easy,fcfs", "--out", "o").status == 0
    again = cosched("compare", "--repeat", "o/manifest.json")
    assert again.status == 0, again
    assert "outputs are the same" in again.out
    assert cosched("compare", "--repeat", "o/manifest.json", "--policies", "easy,sjf").status == 2


def test_one_job_alone_has_all_outputs(cosched: Call, log: Path) -> None:
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:6]))
    ended = cosched("simulate", log, "--policy", "easy", "--out", "o", "--json")
    assert ended.status == 0, ended.err
    assert json.loads(ended.out)["jobs"] == 1
    assert Path("o/manifest.json").exists()


def test_a_run_that_fails_leaves_the_old_event_log(cosched: Call, log: Path) -> None:
    Path("e.jsonl").write_text("old\n")
    Path("lazy.py").write_text(LAZY)
    assert cosched("simulate", log, "--policy", "lazy:Lazy", "--events", "e.jsonl").status == 1
    assert Path("e.jsonl").read_text() == "old\n"
    assert not list(Path().glob(".*part"))


def test_the_same_event_log_twice(cosched: Call, log: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        assert cosched("simulate", log, "--policy", "easy", "--events", name).status == 0
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    lines = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    starts = [each for line in lines for each in line["instructions"] if each["type"] == "Start"]
    assert len(starts) == 5
    assert all(start["reason"]["why"] and start["cause"]["type"] == "Boundary" for start in starts)


def test_promise_of_nothing_is_null_in_the_event_log(tmp_path: Path) -> None:
    told = [Tell(1, at_us, Boundary(), Reason(Why.RESERVED)) for at_us in (FOREVER_US, 5)]
    with event_log(tmp_path / "e.jsonl") as write:
        assert write is not None
        write(0, Boundary(), [*told])
    line = json.loads((tmp_path / "e.jsonl").read_text())
    assert [each["promised_us"] for each in line["instructions"]] == [None, 5]
    assert [each["type"] for each in line["instructions"]] == ["Tell", "Tell"]


@pytest.mark.parametrize(
    ("numbers", "called"), [((90, 7, 41), [90, 7, 41]), ((90, 7, 90), [1, 2, 3]), ((90, -1, 41), [1, 2, 3])]
)
def test_a_job_has_one_number_in_schedule_events_and_messages(
    numbers: tuple[int, ...], called: list[int], cosched: Call
) -> None:
    job = "{} 0 -1 100 1 -1 -1 1 100 -1 1 1 1 1 -1 -1 -1 -1\n"
    Path("n.swf").write_text("; MaxProcs: 1\n" + "".join(job.format(number) for number in numbers))
    assert cosched("simulate", "n.swf", "--policy", "easy", "--events", "e.jsonl", "--schedule", "s.csv").status == 0
    lines = [json.loads(line) for line in Path("e.jsonl").read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert [event["job"]["id"] for event in events if event["type"] == "JobSubmitted"] == called
    assert [event["job_id"] for event in events if event["type"] == "JobEnded"] == called
    starts = [each for line in lines for each in line["instructions"] if each["type"] == "Start"]
    assert [start["job"]["id"] for start in starts] == called
    schedule = [int(line.split(",")[0]) for line in Path("s.csv").read_text().splitlines()[1:]]
    assert schedule == list(numbers)  # a schedule's lines are the log's

    Path("lazy.py").write_text(LAZY)
    assert f"; job {called[0]}: " in cosched("simulate", "n.swf", "--policy", "lazy:Lazy").err


@pytest.mark.parametrize("ending", [".parquet", ".swf", ".swf.gz"])
def test_the_schedule_in_other_formats(ending: str, cosched: Call, log: Path) -> None:
    target = Path(f"starts{ending}")
    assert cosched("simulate", log, "--policy", "easy", "--schedule", target).status == 0
    if ending == ".parquet":
        table = pq.read_table(target)
        assert table.column_names == ["job_id", "submit", "start", "end", "procs", "requested"]
        assert table["start"].to_pylist() == [0, 10, 110, 160, 160]
    else:
        written = swf.read(target)
        assert written.column(Field.WAIT_S).tolist() == [0, 0, 90, 130, 120]
        assert written.column(Field.RUN_S).tolist() == [100, 100, 50, 60, 60]


def test_groups(cosched: Call, log: Path) -> None:
    ended = cosched("simulate", log, "--policy", "easy", "--by", "month", "--by", "user", "--by", "class", "--json")
    groups = json.loads(ended.out)["groups"]
    assert [(row["group"], row["jobs"]) for row in groups["month"]] == [("1996-09", 5)]
    assert [(row["group"].strip(), row["jobs"]) for row in groups["user"]] == [("1", 2), ("2", 2), ("3", 1)]
    assert [(row["group"], row["jobs"]) for row in groups["class"]] == [("short narrow", 5)]


@pytest.mark.usefixtures("without_plots")
def test_groups_on_several_clusters(cosched: Call) -> None:
    assert cosched("workload", "generate", "ngubiri06", "n.swf", "--jobs", 400, "--procs", 100).status == 0
    clusters = ("simulate", "n.swf", "--policy", "coalloc-fpfs(10)", "--clusters", "20,20,20,20,20", "--threshold", 11)
    ended = cosched(*clusters, "--by", "size", "--by", "components", "--by", "widest", "--json", "--out", "o")
    assert ended.status == 0, ended.err
    groups = json.loads(ended.out)["groups"]
    assert [row["group"] for row in groups["components"]] == ["1", "2", "3", "4"]
    assert sum(row["jobs"] for row in groups["components"]) == 400
    single = groups["components"][0]["jobs"]
    assert sum(row["jobs"] for row in groups["size"]) == 400
    assert groups["size"][0]["group"].strip() == "1"
    assert int(groups["widest"][-1]["group"].split("-")[1]) <= 19
    assert 340 <= single <= 380  # 89.6 % are of at most 11 processors
    assert {"by-size.tsv", "by-components.tsv", "by-widest.tsv"} <= {path.name for path in Path("o").iterdir()}
    assert cosched("simulate", "n.swf", "--policy", "easy", "--out", "one").status == 0
    alone = {path.name for path in Path("one").iterdir()}
    assert "by-size.tsv" in alone
    assert "by-components.tsv" not in alone


def test_intervals_by_batch_means(cosched: Call, log: Path) -> None:
    short = json.loads(cosched("simulate", log, "--policy", "easy", "--intervals", "--json").out)["intervals"]
    unknown = {"low": None, "high": None, "degrees_of_freedom": None}
    assert short["mean_wait_s"]["interval"] == {"mean": 68.0, "level": 0.95} | unknown
    assert cosched("workload", "generate", "poisson", "long.swf", "--jobs", 3000, "--load", "0.6").status == 0
    found = json.loads(cosched("simulate", "long.swf", "--policy", "easy", "--intervals", "--json").out)
    interval = found["intervals"]["mean_wait_s"]["interval"]
    assert interval["low"] < found["mean_wait_s"] < interval["high"]
    assert "by batch" not in cosched("simulate", "long.swf", "--policy", "easy").out
    assert "correlation of neighbours" in cosched("simulate", "long.swf", "--policy", "easy", "--intervals").out


def test_compare_pairs_the_policies_by_job(cosched: Call, log: Path) -> None:
    ended = cosched("compare", log, "--policies", "fcfs,easy,firstfit", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert list(found["policies"]) == ["fcfs", "easy", "firstfit"]
    assert [each["policy"] for each in found["differences"]] == ["easy", "firstfit"]
    assert found["differences"][0]["starts_that_differ"] == 0
    assert found["differences"][1]["starts_that_differ"] == 3  # jobs 4 and 5 pass job 3
    single = json.loads(cosched("simulate", log, "--policy", "firstfit", "--json").out)
    assert found["policies"]["firstfit"]["mean_wait_s"] == single["mean_wait_s"]
    shown = cosched("compare", log, "--policies", "fcfs,easy", "--out", "o")
    assert "too few weeks" in shown.out
    assert {"schedule-fcfs.csv", "schedule-easy.csv", "gantt-easy.png", "slowdown.svg"} <= {
        path.name for path in Path("o").iterdir()
    }


@pytest.mark.parametrize("part", ["policies", "models"])
def test_shown(part: str, snapshot: Snapshot, cosched: Call, log: Path) -> None:
    snapshot.replay(cosched)


def test_policies_and_statistics_as_json(cosched: Call, log: Path) -> None:
    found = json.loads(cosched("policies", "--json").out)
    assert {"fcfs", "easy", "sjbf", "conservative", "fpfs"} <= {row["policy"] for row in found["policies"]}
    assert [row["order"] for row in found["orders"]] == ["fcfs", "sjf", "ljf"]
    assert [row["variant"] for row in found["variants"]][:3] == ["overcommit=X", "subset", "any-owners"]
    stats = json.loads(cosched("workload", "stats", log, "--json").out)
    assert (stats["jobs"], stats["procs_total"], stats["offered_load"]) == (5, 4, pytest.approx(4.5))


def test_the_documented_example_of_an_own_policy(cosched: Call, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/guide/own-policy.md: least work first starts 4 and 5 past job 3 as soon as job 1 has ended."""
    log.with_name("least_work.py").write_bytes((ROOT / "docs/examples/least_work.py").read_bytes())
    monkeypatch.delitem(sys.modules, "least_work", raising=False)
    ended = cosched("simulate", log, "--policy", "least_work:LeastWorkFirst", "--schedule", "s.csv")
    assert ended.status == 0, ended.err
    assert [row[2] for row in read_csv("s.csv")][1:] == ["0", "10", "160", "100", "100"]
    entry = EntryPoint("leastwork", "least_work:LeastWorkFirst", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] if group == plugins.GROUP else [])
    assert cosched("simulate", log, "--policy", "leastwork").status == 0
    assert "leastwork" in cosched("policies").out


def test_a_generated_workload_of_malleable_jobs_is_simulated(cosched: Call) -> None:
    made = ("workload", "generate", "kale02", "made.swf", "--jobs", 40, "--procs", 64, "--shapes", "made.csv")
    assert cosched(*made).status == 0
    ran = cosched(
        *("simulate", "made.swf", "--shapes", "made.csv", "--speed-up", "amdahl:0.015873016"),
        *("--policy", "equipartition", "--changes", "c.csv", "--json"),
    )
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["jobs"] == 40
    assert any(row[4] == "widened" for row in read_csv("c.csv"))
