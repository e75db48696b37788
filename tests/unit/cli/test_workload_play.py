"""``cosched workload play`` against a real service, whose one node is a puppet that plays how each job goes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kit.command import JOBS, Call, Ended
from kit.puppet import Live, live
from kit.snapshots import Snapshot
from kit.waiting import BOUND_S, wait_for

from cosched.client.client import Client
from cosched.client.find import connect
from cosched.errors import Failed
from cosched.report.manifest import digest
from cosched.wire.api import Submission

pytestmark = pytest.mark.xdist_group("plays")

MAP = """\
programs:
  ok: {run: "true", rate: 1}
  fail: {run: "false"}
  sit: {run: sleep 1000}
jobs:
  - {executable: 2, program: fail}
  - {executable: 3, program: sit}
  - {program: ok}
"""
#: The log's five jobs in less than a second.
FAST = ("--scale", "0.02", "--map", "map.yaml", "--output", "out.parquet")
#: A limit that no job which sits comes to, nor a test.
LONG = ("--margin", "1h")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("live")) as service:
        yield service


@pytest.fixture
def call(service: Live, cosched: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.setenv("COSCHED_SERVER", str(service.socket))
    (tmp_path / "log.swf").write_text(JOBS)
    (tmp_path / "map.yaml").write_text(MAP)
    return cosched


@pytest.fixture
def client(service: Live) -> Iterator[Client]:
    with connect(str(service.socket)) as connected:
        yield connected
        end_all(connected)


def end_all(client: Client) -> None:
    """Cancel what is there, and wait for its end."""
    for job in client.jobs():
        with suppress(Failed):  # it has ended by itself
            client.cancel(job.job_id)
        client.wait(job.job_id)


def with_executables(*numbers: int) -> str:
    """The five jobs with executables of these numbers."""
    lines = JOBS.splitlines()
    jobs = []
    for line, number in zip([each for each in lines if not each.startswith(";")], numbers, strict=True):
        words = line.split()
        jobs.append(" ".join([*words[:13], str(number), *words[14:]]))
    return "\n".join([*(each for each in lines if each.startswith(";")), *jobs, ""])


def rows(path: str = "out.parquet") -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]


def begun(*options: str) -> subprocess.Popen[str]:
    """The command as a process of its own, which an interrupt reaches."""
    argv = [sys.executable, "-m", "cosched.apps.cli.main", "workload", "play", "log.swf", *FAST, *options]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def done(call: Call, *options: object) -> Ended:
    ended = call("workload", "play", "log.swf", *FAST, *options)
    assert ended.status == 0, ended.err
    return ended


def record(name: str = "out") -> list[dict[str, Any]]:
    path = Path(f"{name}.play.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kinds(name: str = "out") -> Counter[str]:
    return Counter(each["type"] for each in record(name))


def names(client: Client) -> list[str]:
    """Of all jobs of the play that the service has ever had."""
    tag = record()[0]["tag"]
    return sorted(job.name for job in (*client.jobs(), *client.history()) if tag in job.name)


def test_every_job_becomes_a_row_that_says_what_show_says(call: Call, client: Client) -> None:
    Path("log.swf").write_text(with_executables(1, 2, 1, 1, 1))
    told = json.loads(done(call, "--json").out)
    assert told["states"] == {"completed": 4, "failed": 1}
    found = rows()
    assert [row["job_id"] for row in found] == [1, 2, 3, 4, 5]
    for row in found:
        job = client.job(row["number"])
        assert row["state"] == job.state
        assert (row["wait_s"], row["run_s"], row["response_s"]) == (job.wait_s, job.run_s, job.turnaround_s)
        assert (row["submit_time"], row["start_time"], row["end_time"]) == (
            job.submit_time,
            job.start_time,
            job.end_time,
        )
        assert row["nodes"] == f"desk1:{row['tasks']}"
        assert (row["held_processes"], row["held_cpus"]) == ([row["tasks"]], [row["tasks"]])
        assert row["held_s"] == [pytest.approx(row["start_s"], abs=5)]
        assert row["held_why"] == [
            next(step.reason.why for step in job.history if step.state == "starting" and step.reason)
        ]
        assert row["late_s"] >= 0
        assert row["submit_s"] >= row["due_s"] - 0.05
        assert job.time_limit_s == row["limit_s"]
    assert [row["tasks"] for row in found] == [2, 2, 4, 1, 1]
    assert [row["due_s"] for row in found] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert [row["program"] for row in found] == ["ok", "fail", "ok", "ok", "ok"]
    assert found[1]["exit_status"] == 3
    means = told["means"]["all"]
    assert means["jobs"] == means["ran"] == 5
    assert means["wait_s"] == pytest.approx(sum(row["wait_s"] for row in found) / 5)
    assert means["slowdown"] == pytest.approx(sum(row["slowdown"] for row in found) / 5)
    assert means["work"] == found[0]["work"] + sum(row["work"] for row in found[2:])


def test_the_manifest_says_what_was_played_on_what(call: Call, service: Live) -> None:
    done(call, "--seed", 5)
    manifest = json.loads(Path("out.manifest.json").read_text())
    assert manifest["settings"] | {"scale": "0.02", "seed": "5", "estimates": "user"} == manifest["settings"]
    assert manifest["service"]["nodes"] == {"desk1": 4}
    assert manifest["service"]["policy"] == "easy"
    assert {each["name"]: each["sha256"] for each in (*manifest["inputs"], *manifest["outputs"])} == {
        name: digest(Path(name)).sha256 for name in ("log.swf", "map.yaml", "out.parquet")
    }


def test_a_job_that_the_service_refuses_is_a_row_and_the_others_go_on(call: Call) -> None:
    wide = JOBS.replace("20 -1  50 4 -1 -1 4", "20 -1  50 9 -1 -1 9").replace("MaxProcs: 4", "MaxProcs: 16")
    Path("log.swf").write_text(wide)
    ended = done(call)
    found = {row["job_id"]: row for row in rows()}
    assert found[3]["state"] == "refused"
    assert "needs more processors than the machine has" in found[3]["why"]
    assert found[3]["number"] is None
    assert [found[each]["state"] for each in (1, 2, 4, 5)] == ["completed"] * 4
    assert "job 3 is refused" in ended.err


def test_where_no_job_runs_the_status_is_1(call: Call) -> None:
    wide = JOBS.replace(" 2 -1 -1 2 ", " 9 -1 -1 9 ").replace("MaxProcs: 4", "MaxProcs: 16")
    Path("log.swf").write_text(wide)
    assert call("workload", "play", "log.swf", *FAST, "--limit", 2).status == 1
    assert [row["state"] for row in rows()] == ["refused", "refused"]


def test_a_play_that_was_killed_goes_on_and_submits_nothing_twice(call: Call, client: Client) -> None:
    # the last two come after ten minutes: none is on its way when it is killed, however late that is
    Path("log.swf").write_text(JOBS.replace(" 4  30 ", " 4 30000 ").replace(" 5  40 ", " 5 30010 "))
    began_s = time.monotonic()
    with begun() as playing:
        wait_for(lambda: kinds()["submitted"] >= 3, "three jobs to be submitted")
        playing.kill()
    before = [each for each in record() if each["type"] == "submitted"]
    # as if it had been killed after the service took the last job, and before it said so; and in the middle of a line
    before[-2]["at_s"] = 599.9  # from where the schedule goes on
    lines = [each for each in record() if each["type"] in ("begun", "part")] + before[:-1]
    Path("out.play.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines) + '{"type":"submi')
    ended = done(call, "--resume")
    took_s = time.monotonic() - began_s
    assert f"job {before[-1]['number']} is job {before[-1]['job_id']} of the service already" in ended.err
    tag = record()[0]["tag"]
    assert names(client) == [f"ok {tag}.{number}" for number in (1, 2, 3, 4, 5)]
    found = rows()
    assert [row["state"] for row in found] == ["completed"] * 5
    assert {row["number"] for row in found[: len(before)]} == {each["job_id"] for each in before}
    assert [row["part"] for row in found] == [1, 1, 1, 2, 2]
    parts = [each for each in record() if each["type"] == "part"]
    for row in found:
        part = parts[row["part"] - 1]
        of_part_s = datetime.fromisoformat(row["submit_time"]).timestamp() - part["service_s"] - part["began_s"]
        assert row["submit_s"] == pytest.approx(of_part_s, abs=0.001)
        assert -0.05 <= row["submit_s"] - row["due_s"] < BOUND_S
        assert -0.05 <= row["submit_s"] - row["due_s"] - row["late_s"] <= took_s, "it takes as long as it takes"
    again = done(call, "--resume", "--json")  # nothing is left to do
    assert json.loads(again.out)["states"] == {"completed": 5}
    assert len(names(client)) == 5
    assert [{**row, "part": 0} for row in rows()] == [{**row, "part": 0} for row in found]


@pytest.mark.slow
def test_two_cannot_play_the_same(call: Call, client: Client) -> None:
    Path("log.swf").write_text(with_executables(3, 1, 1, 1, 1))  # it cannot end before it is to
    with begun(*LONG) as playing:
        wait_for(lambda: kinds()["submitted"] >= 1, "a job to be submitted")
        for option in ("--resume", "--force"):
            ended = call("workload", "play", "log.swf", *FAST, *LONG, option)
            assert (ended.status, "another process writes it now" in ended.err) == (2, True), ended.err
        client.cancel(next(each["job_id"] for each in record() if each["type"] == "submitted"))
        out = playing.communicate(timeout=BOUND_S)[0]
    assert playing.returncode == 0, out
    assert [row["state"] for row in rows()] == ["cancelled"] + ["completed"] * 4
    assert len(names(client)) == 5


@pytest.mark.slow
def test_a_service_that_is_restarted_is_waited_for(call: Call, service: Live) -> None:
    with begun("--scale", "0.1") as playing:
        wait_for(lambda: kinds()["submitted"] >= 1, "a job to be submitted")
        service.stop()
        service.start()
        out = playing.communicate(timeout=BOUND_S)[0]
    assert playing.returncode == 0, out
    assert [row["job_id"] for row in rows()] == [1, 2, 3, 4, 5]
    assert not [row for row in rows() if row["number"] is None]
    assert kinds()["part"] == 1


@pytest.mark.slow
def test_a_service_that_stays_away_ends_a_play_and_an_interrupt_another_and_both_go_on(
    call: Call, service: Live, client: Client
) -> None:
    Path("log.swf").write_text(with_executables(3, 1, 1, 1, 1))  # it cannot end before it is to
    slow, other = ("--scale", "20"), (*LONG, "--output", "other.parquet")
    # in the first, the next is due after minutes; this one is watched
    with begun(*slow, "--patience", "100ms") as ending, begun(*other) as interrupted:
        wait_for(lambda: kinds()["submitted"] and kinds("other")["submitted"], "a job of each to be submitted")
        service.stop()
        try:
            assert interrupted.stdout is not None
            while "asking again" not in (line := interrupted.stdout.readline()):
                assert line, "it ended"
            interrupted.send_signal(signal.SIGINT)
            out = ending.communicate(timeout=BOUND_S)[0]
            told = interrupted.communicate(timeout=BOUND_S)[0]
        finally:
            service.start()
    assert (ending.returncode, interrupted.returncode) == (3, 130), out + told
    assert "--resume goes on" in out
    assert "jobs may be left" in told
    assert [row["state"] for row in rows()] == ["submitted"] + ["not submitted"] * 4
    with Path("out.play.jsonl").open("a") as kept:  # as if it had stopped when all were due
        kept.write('{"type":"stopped","at_s":800,"why":""}\n')
    end_all(client)
    for options in (slow, other):
        done(call, *options, "--resume")
    assert not [row for name in ("out", "other") for row in rows(f"{name}.parquet") if row["number"] is None]


def test_an_interrupt_cancels_the_jobs_of_the_play_alone(call: Call, client: Client) -> None:
    Path("log.swf").write_text(with_executables(1, 3, 1, 1, 3))
    other = client.submit(Submission(script="#!/bin/sh\n", name="sit", directory="/tmp", hold=True)).job_id
    with begun() as playing:
        wait_for(lambda: kinds()["submitted"] >= 2, "two jobs to be submitted")
        playing.send_signal(signal.SIGINT)
        out = playing.communicate(timeout=BOUND_S)[0]
    assert playing.returncode == 130, out
    assert "are cancelled" in out
    states = {row["job_id"]: row["state"] for row in rows()}
    assert states[2] == "cancelled"
    assert set(states.values()) <= {"completed", "cancelled", "not submitted"}
    assert [job.job_id for job in client.jobs()] == [other]


def test_jobs_that_are_left_at_an_interrupt_are_found_again(call: Call, client: Client) -> None:
    Path("log.swf").write_text(with_executables(1, 3, 1, 1, 1))
    with begun("--on-interrupt", "leave") as playing:
        wait_for(lambda: kinds()["submitted"] >= 2, "two jobs to be submitted")
        playing.send_signal(signal.SIGTERM)
        out = playing.communicate(timeout=BOUND_S)[0]
    assert playing.returncode == 130, out
    left = next(row for row in rows() if row["job_id"] == 2)
    assert left["state"] == "submitted"
    job = client.job(left["number"])
    assert job.state in ("queued", "starting", "running")
    client.cancel(job.job_id)
    assert done(call, "--resume").status == 0
    states = {row["job_id"]: row["state"] for row in rows()}
    assert states == {1: "completed", 2: "cancelled", 3: "completed", 4: "completed", 5: "completed"}
    assert len(names(client)) == 5


def test_the_prediction_is_of_the_same_jobs(call: Call) -> None:
    Path("log.swf").write_text(JOBS.replace(" 60 1 -1 -1 1 ", " 60 4 -1 -1 4 "))
    found = json.loads(done(call, "--predict", "easy", "--json").out)["prediction"]
    assert (found["policy"], found["jobs"], found["unfit"], found["nodes"]) == ("easy", 5, 0, {"desk1": 4})
    measures = {each["name"]: each for each in found["measures"]}
    assert measures["mean run s"]["predicted"] == pytest.approx(0.02 * (100 + 100 + 50 + 60 + 60) / 5)
    seen = [row["run_s"] for row in rows()]
    assert measures["mean run s"]["seen"] == pytest.approx(sum(seen) / 5, abs=1e-5)
    assert measures["mean run s"]["with_real_times"] == pytest.approx(sum(seen) / 5, abs=1e-5)
    # by hand: two jobs of two processors at 0 and 0.2, three of four after them, or somewhat later, for a submission
    # takes its time; they run two seconds, two, one, 1.2 and 1.2; the third waits for both, and then one for the other
    at = [row["submit_s"] for row in rows()]
    third = max(at[2], at[0] + 2, at[1] + 2)
    fourth = max(at[3], third + 1)
    fifth = max(at[4], fourth + 1.2)
    waits = [0, 0, third - at[2], fourth - at[3], fifth - at[4]]
    assert measures["mean wait s"]["predicted"] == pytest.approx(sum(waits) / 5, abs=0.01)


def test_any_policy_can_be_asked_for_afterwards(call: Call) -> None:
    Path("shapes.csv").write_text("job_id,class,sizes\n1,long,1-4\n3,short,pow2\n")
    done(call, "--shapes", "shapes.csv")
    for policy in ("fcfs", "conservative", "fjt1+bfm", "equipartition", "normal", "3dbf-hard"):
        found = json.loads(done(call, "--shapes", "shapes.csv", "--resume", "--predict", policy, "--json").out)
        measures = found["prediction"]["measures"]
        assert (found["prediction"]["jobs"], found["prediction"]["unfit"]) == (5, 0), policy
        for each in measures:
            assert each["predicted"] >= 0, policy
            assert each["with_real_times"] >= 0, policy
        assert next(each for each in measures if each["name"] == "mean run s")["predicted"] > 0.5, policy


def test_what_cannot_be_is_told_before_anything_is_submitted(snapshot: Snapshot, call: Call, client: Client) -> None:
    before = len(client.history())
    snapshot.replay(call)
    assert len(client.history()) == before


@pytest.mark.slow
def test_what_is_there_is_neither_replaced_nor_mixed(call: Call) -> None:
    done(call)
    kept = Path("out.parquet").read_bytes()
    ended = call("workload", "play", "log.swf", *FAST)
    assert (ended.status, "is there already" in ended.err) == (2, True)
    ended = call("workload", "play", "log.swf", *FAST, "--resume", "--scale", "0.5")
    assert (ended.status, "--resume: scale: 0.5; expected 0.02" in ended.err) == (2, True)
    Path("map.yaml").write_text(MAP.replace("rate: 1", "rate: 2"))
    ended = call("workload", "play", "log.swf", *FAST, "--resume")
    assert (ended.status, "--resume: file 2 map.yaml" in ended.err) == (2, True)
    assert Path("out.parquet").read_bytes() == kept
    done(call, "--force")
    assert [row["part"] for row in rows()] == [1] * 5


def test_a_record_that_is_none_is_told_with_its_line(call: Call) -> None:
    done(call)
    with Path("out.play.jsonl").open("a") as file:
        file.write('{"type":"walked"}\n')
    ended = call("workload", "play", "log.swf", *FAST, "--resume")
    assert ended.status == 2
    assert f"out.play.jsonl:{len(record())}: " in ended.err


def test_without_a_service_the_status_is_3(cosched: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("COSCHED_SERVER", raising=False)
    monkeypatch.delenv("COSCHED_LAB", raising=False)
    (tmp_path / "log.swf").write_text(JOBS)
    (tmp_path / "map.yaml").write_text(MAP)
    ended = cosched("workload", "play", "log.swf", *FAST)
    assert ended.status == 3
    assert "no scheduler answers" in ended.err
    assert sorted(os.listdir(tmp_path)) == ["log.swf", "map.yaml"]
