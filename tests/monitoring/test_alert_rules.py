"""Alerts and recordings, each by ``promtool test rules``: a case in which it fires, and one in which it is silent."""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from kit.waiting import BOUND_S

from cosched.monitoring import alerts, recordings
from cosched.monitoring.rendering import RULES, Site, rendered

pytestmark = pytest.mark.system("prometheus")
S = 'cluster="office",instance="head:7420",job="cosched"'
AT_DESK = 'cluster="office",instance="desk1:7425",job="cosched-desks"'
WAKE = "cosched_node_owner_wakeup_seconds"


class Case(NamedTuple):
    """Series (name and labels, then values) with which an alert fires at a time, and with which it does not.

    ``labels`` are the firing alert's besides its severity and the scrape's (empty: it has no such label of these),
    ``told`` is its description. Values are each ``step`` apart. Other alerts that fire with it are in ``too``.
    """

    fires: dict[str, str]
    silent: dict[str, str]
    at: str
    labels: dict[str, str]
    told: str
    step: str = "15s"
    too: tuple[str, ...] = ()


def series(name: str, **labels: str) -> str:
    """With the scrape's labels."""
    return f"{name}{{{','.join([*(f'{key}={value!r}' for key, value in labels.items()), S])}}}".replace("'", '"')


def queue(queued: str, running: str, started: str) -> dict[str, str]:
    return {
        series("cosched_jobs", state="queued"): queued,
        series("cosched_jobs", state="running"): running,
        series("cosched_jobs", state="starting"): "0x200",
        series("cosched_jobs", state="waiting"): "9x200",
        series("cosched_instructions_total", kind="Start", reason="fits"): started,
        series("cosched_instructions_total", kind="Kill", reason="cancelled"): "0+1x200",
    }


def nodes(**counts: int) -> dict[str, str]:
    """How many nodes are in each state, throughout."""
    return {series("cosched_nodes", state=state): f"{count}x200" for state, count in counts.items()}


def slow(name: str, fast: str, late: str) -> dict[str, str]:
    """A histogram whose observations are below 0.25 s or above 5 s."""
    return {
        series(f"{name}_bucket", le="0.25"): fast,
        series(f"{name}_bucket", le="5"): fast,
        series(f"{name}_bucket", le="+Inf"): late,
    }


def woken(in_time: str, all_of_them: str) -> dict[str, str]:
    return {
        series(f"{WAKE}_bucket", node="desk1", le="0.01"): in_time,
        series(f"{WAKE}_bucket", node="desk1", le="+Inf"): all_of_them,
        series(f"{WAKE}_count", node="desk1"): all_of_them,
    }


def called(in_time: str, all_of_them: str, call: str = "pipe") -> dict[str, str]:
    """Calls of the synthetic user at desk1, within 400 ms and in all."""
    name, labels = "cosched_local_response_seconds", {"node": "desk1", "profile": "xwindows", "call": call}
    return {
        series(f"{name}_bucket", le="0.4", **labels).replace(S, AT_DESK): in_time,
        series(f"{name}_bucket", le="+Inf", **labels).replace(S, AT_DESK): all_of_them,
        series(f"{name}_count", **labels).replace(S, AT_DESK): all_of_them,
    }


def expiring(days: float) -> dict[str, str]:
    return {series("cosched_certificate_expiry_timestamp_seconds", identity="node/desk1"): f"{days * 86400}x500"}


DESK = {"node": "desk1"}
CASES = {
    "CoschedSchedulerDown": Case(
        {series("up"): "1x10 0x30"},
        {series("up"): "1x10 0x3 1x30"},
        "6m",
        {},
        "No metrics could be read from head:7420. Jobs that run go on; nothing new starts.",
    ),
    "CoschedJournalFull": Case(
        {series("cosched_accepting"): "1x10 0x30"},
        {series("cosched_accepting"): "1x10 0x2 1x30"},
        "6m",
        {},
        "The scheduler head:7420 cannot write its journal: its disk is full, read-only or broken.",
    ),
    "CoschedJournalFilling": Case(
        {series("cosched_journal_free_bytes"): "524288000x60", series("cosched_journal_bytes"): "1000000x60"},
        {series("cosched_journal_free_bytes"): "5000000000x60", series("cosched_journal_bytes"): "1000000x60"},
        "10m",
        {},
        "500MiB are free on the disk of the journal of head:7420.",
    ),
    "CoschedPolicyFails": Case(
        {series("cosched_policy_failing"): "0x4 1x30"},
        {series("cosched_policy_failing"): "0x4 1x4 0x30"},
        "5m",
        {},
        "Scheduling passes of head:7420 fail; they are tried again. Jobs that run go on.",
    ),
    "CoschedJobSetAside": Case(
        {series("cosched_jobs_set_aside"): "0x4 2x30"},
        {series("cosched_jobs_set_aside"): "0x4 2x2 0x30"},
        "5m",
        {},
        "Planning of head:7420 fails with 2 jobs, which are left out. Others start.",
    ),
    "CoschedSchedulerLag": Case(
        slow("cosched_journal_commit_seconds", "0+90x100", "0+100x100"),
        slow("cosched_journal_commit_seconds", "0+1000x100", "0+1001x100")
        | slow("cosched_pass_duration_seconds", "0x100", "0x100"),
        "20m",
        {},
        "One event in a hundred takes 5s until it is journalled or decided.",
        step="1m",
    ),
    "CoschedQueueStuck": Case(
        queue("3x200", "0x200", "7x200") | nodes(up=1, draining=0, closed=3),
        queue("3x200", "1x200", "7x200"),
        "30m",
        {},
        "3 jobs wait, none holds a node, and none was started in the last quarter of an hour.",
        step="1m",
    ),
    "CoschedAgentLost": Case(
        {series("cosched_node_state", state="lost", **DESK): "0x4 1x60"},
        {
            series("cosched_node_state", state="lost", **DESK): "0x4 1x10 0x60",
            series("cosched_node_state", state="drained", **DESK): "1x60",
        },
        "10m",
        DESK | {"state": "lost"},
        "The agent of desk1 was not heard for its lease; its jobs have ended or wait again.",
    ),
    "CoschedGuardLost": Case(
        {series("cosched_node_guard_up", **DESK): "1x4 0x60"},
        {series("cosched_node_guard_up", **DESK): "1x4 0x2 1x60"},
        "5m",
        DESK,
        "The guard of desk1 does not answer its agent: nothing new starts there.",
    ),
    "CoschedJobsCannotEnd": Case(
        {series("cosched_node_stalled_jobs", **DESK): "0x4 2x60"},
        {series("cosched_node_stalled_jobs", **DESK): "0x4 2x2 0x60"},
        "5m",
        DESK,
        "Processes of 2 jobs on desk1 hear no signal; their processors take nothing new.",
    ),
    "CoschedDeskOverContract": Case(
        {
            series("cosched_node_cpus_used", side="parallel", **DESK): "2.5x60",
            series("cosched_node_cpus_used", side="local", **DESK): "1x60",
            series("cosched_node_limited_cpus", **DESK): "2x60",
        },
        {  # within what measuring over a second may be off; an owner's own use; a desk without a ceiling
            series("cosched_node_cpus_used", side="parallel", **DESK): "2.2x60",
            series("cosched_node_cpus_used", side="local", **DESK): "4x60",
            series("cosched_node_limited_cpus", **DESK): "2x60",
            series("cosched_node_cpus_used", side="parallel", node="desk2"): "4x60",
        },
        "5m",
        DESK,
        "Jobs use 2.5 CPUs of desk1 while its ceiling is in force.",
    ),
    "CoschedOwnerLatencyFast": Case(
        woken("0+80x400", "0+100x400"),
        woken("0+50x100 5000+100x300", "0+100x400"),  # it was bad, and is well now
        "110m",
        DESK,
        "20% of wake-ups on desk1 are late: its budget is gone in two days.",
        step="1m",
        too=("CoschedOwnerLatencySlow",),
    ),
    "CoschedOwnerLatencySlow": Case(
        woken("0+92x400", "0+100x400"),
        woken("0+99x400", "0+100x400"),
        "90m",
        DESK,
        "8% of wake-ups on desk1 are late: its budget is gone in a week.",
        step="1m",
    ),
    "CoschedDeskCallsSlow": Case(
        called("0+90x100", "0+100x100") | {series("cosched_node_tasks", **DESK): "2x100"},
        # without jobs; few of many; keys, of which some are slow by the editor
        called("0+90x100", "0+100x100")
        | {series("cosched_node_tasks", **DESK): "0x100", series("cosched_node_tasks", node="desk2"): "2x100"}
        | {key.replace("desk1", "desk2"): value for key, value in called("0+995x100", "0+1000x100").items()}
        | {key.replace("desk1", "desk2"): value for key, value in called("0+1x100", "0+9x100", "key").items()},
        "10m",
        DESK | {"instance": "", "job": ""},
        "10% of the synthetic user's calls at desk1 took more than 400 ms.",
    ),
    "CoschedCertificateExpiring": Case(
        expiring(20),
        expiring(22),
        "70m",
        {"identity": "node/desk1"},
        "That of node/desk1 expires in 19d 22h 50m 0s.",
        step="1m",
    ),
    "CoschedCertificateExpired": Case(
        expiring(2),
        expiring(4),
        "70m",
        {"identity": "node/desk1"},
        "That of node/desk1 expires in 1d 22h 50m 0s.",
        step="1m",
        too=("CoschedCertificateExpiring",),
    ),
}


def promtool(folder: Path, tests: list[dict[str, Any]], step: str = "15s") -> str:
    """What ``promtool test rules`` complains about; empty where nothing."""
    (folder / RULES).write_text(rendered(Site())[RULES])
    given = {"rule_files": [RULES], "evaluation_interval": step, "tests": [each | {"interval": step} for each in tests]}
    (folder / "test.yml").write_text(yaml.safe_dump(given))
    ran = subprocess.run(
        ["promtool", "test", "rules", "test.yml"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=BOUND_S,
    )  # fmt: skip
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def told_at(at: str, given: dict[str, str], expected: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """One test in promtool's words: which alerts of those named fire."""
    return {
        "input_series": [{"series": each, "values": values} for each, values in given.items()],
        "alert_rule_test": [
            {"eval_time": at, "alertname": name, "exp_alerts": fire} for name, fire in expected.items()
        ],
    }


def firing(name: str) -> dict[str, Any]:
    """The alert as it is expected when it fires."""
    alert, case = next(each for each in alerts.ALL if each.name == name), CASES[name]
    labels = {"cluster": "office", "instance": "head:7420", "job": "cosched", "severity": alert.severity}
    annotations = {
        "summary": alert.summary,
        "description": case.told,
        "runbook_url": f"docs/guide/runbooks.md#{name.lower()}",
    }
    known = {label: value for label, value in (labels | case.labels).items() if value}
    return {"exp_labels": known, "exp_annotations": annotations}


@pytest.mark.parametrize("step", ["15s", "1m"])
def test_each_alert_fires_alone_in_its_case_and_is_silent_otherwise(step: str, tmp_path: Path) -> None:
    assert CASES.keys() == {each.name for each in alerts.ALL}
    there = {series("up"): "1x500"}  # its absence is an alert
    tests = []
    for name, case in CASES.items():
        if case.step == step:
            fires = {other: [firing(name)] if other == name else [] for other in CASES if other not in case.too}
            tests += [told_at(case.at, there | case.fires, fires), told_at(case.at, there | case.silent, {name: []})]
    assert promtool(tmp_path, tests, step) == ""


def test_a_scheduler_that_is_not_scraped_at_all_is_down_too(tmp_path: Path) -> None:
    expected = firing("CoschedSchedulerDown")
    expected["exp_labels"] = {"job": "cosched", "severity": "critical"}
    expected["exp_annotations"]["description"] = expected["exp_annotations"]["description"].replace("head:7420", "")
    assert promtool(tmp_path, [told_at("6m", {}, {"CoschedSchedulerDown": [expected]})]) == ""


def test_what_is_recorded_is_what_its_name_says(tmp_path: Path) -> None:
    http = {
        series("cosched_http_requests_total", route="/v1/jobs", method="GET", code="200"): "0+3x100",
        series("cosched_http_requests_total", route="/v1/nodes", method="GET", code="500"): "0+1x100",
    }
    used = {series("cosched_procs"): "8x100", series("cosched_procs_free"): "2x100"}
    slowed = {
        series("cosched_job_bounded_slowdown_sum"): "0+30x400",
        series("cosched_job_bounded_slowdown_count"): "0+10x400",
    }
    expected: dict[str, tuple[dict[str, str], str, float]] = {
        recordings.COMMIT_P99.name: (slow("cosched_journal_commit_seconds", "0+90x100", "0+100x100"), "10m", 5.0),
        recordings.PASS_P99.name: (slow("cosched_pass_duration_seconds", "0+100x100", "0+100x100"), "10m", 0.248),
        recordings.HTTP_P99.name: (slow("cosched_http_request_duration_seconds", "0+9x99", "0+9x99"), "10m", 0.248),
        recordings.HTTP_ERRORS.name: (http, "10m", 0.25),
        recordings.PROCS_USED.name: (used, "10m", 0.75),
        recordings.MEAN_SLOWDOWN.name: (slowed, "90m", 3.0),
        recordings.NOTICED.name: (called("0+90x100", "0+100x100"), "10m", 0.1),
        **{each.name: (woken("0+80x400", "0+100x400"), "90m", 0.2) for each in recordings.LATE.values()},
    }
    assert set(expected) == {each.name for each in recordings.ALL}
    given = {each: values for case, _, _ in expected.values() for each, values in case.items()}
    asked = [
        {
            "expr": f"round(sum({name}), 0.001)",
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": value}],
        }
        for name, (_, at, value) in expected.items()
    ]
    test = {
        "input_series": [{"series": each, "values": values} for each, values in given.items()],
        "promql_expr_test": asked,
    }
    assert promtool(tmp_path, [test], "1m") == ""


@pytest.mark.parametrize("faster", [1.0, 20.0, 360.0, 1000.0])
def test_the_rules_are_prometheuss_language_at_any_pace(faster: float, tmp_path: Path) -> None:
    (tmp_path / RULES).write_text(rendered(Site(faster=faster))[RULES])
    ran = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / RULES)],
        capture_output=True, text=True, check=False, timeout=BOUND_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_queue_of_a_lab_that_is_closed_is_not_stuck(tmp_path: Path) -> None:
    waits = queue("3x200", "0x200", "7x200") | {series("up"): "1x500"}
    expected = {"CoschedQueueStuck": [firing("CoschedQueueStuck")]}
    tests = [
        told_at("30m", waits | nodes(up=0, draining=0, closed=3), {"CoschedQueueStuck": []}),
        told_at("30m", waits | nodes(up=0, draining=0, closed=2, lost=1), {"CoschedQueueStuck": []}),
        told_at("30m", waits | nodes(up=0, draining=0, closed=0, drained=3), expected),
    ]
    assert promtool(tmp_path, tests, CASES["CoschedQueueStuck"].step) == ""
