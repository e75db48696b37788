"""Bad input ends with status 2 and one message: where, what was found, what was expected, the nearest valid choice."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from kit.command import JOBS, Call

from space_scheduler.policy.presets import PRESETS

SIMULATE = ("simulate", "small.swf", "--policy", "easy")
LINE = " 6  50 -1  60 1 -1 -1 1 300 -1 1 3 1 -1 -1 -1 -1 -1\n"

#: A line of the log, the cause it is counted under, and what strict mode says.
BAD_LINES = {
    "too few fields": ("6 50 -1 60 1\n", "wrong_field_count", "small.swf:11"),
    "too many fields": (LINE.rstrip() + " 7 8\n", "wrong_field_count", "small.swf:11"),
    "not a number": (LINE.replace(" 60 ", " sixty "), "not_a_number", "small.swf:11"),
    "wider than the machine": (LINE.replace("60 1 -1 -1 1", "60 9 -1 -1 9"), "wider_than_machine", "small.swf:11"),
    "negative submission": (LINE.replace(" 50 ", " -50 "), "negative_time", "small.swf:11"),
    "negative run time": (LINE.replace(" 60 ", " -60 "), "never_ran", "small.swf:11"),
    "negative request": (LINE.replace(" 300 ", " -300 "), "negative_time", "small.swf:11"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_is_skipped_and_counted(case: str, cosched: Call, log: Path) -> None:
    line, cause, _ = BAD_LINES[case]
    log.write_text(JOBS + line)
    ended = cosched(*SIMULATE, "--json")
    assert ended.status == 0, ended.err
    assert f'"skipped":{{"{cause}":1}}' in ended.out
    assert '"jobs":5' in ended.out
    shown = cosched(*SIMULATE)
    assert f"skipped: 1 {cause.replace('_', ' ')}" in shown.out


@pytest.mark.parametrize("case", BAD_LINES)
def test_strict_stops_at_a_bad_line_and_names_it(case: str, cosched: Call, log: Path) -> None:
    line, _, where = BAD_LINES[case]
    log.write_text(JOBS + line)
    ended = cosched(*SIMULATE, "--strict")
    assert ended.status == 2
    assert where in ended.err
    assert "expected" in ended.err
    assert not ended.out


#: Command line → what the message must contain.
BAD_CALLS = {
    ("show", "9" * 5000): ["ID", "the number of a job"],
    ("bench", "contract", "--tasks", "9" * 5000): ["--tasks", "numbers from 1"],
    ("local-load", "run", "--peer", f"127.0.0.1:{'9' * 5000}"): ["--peer", "HOST:PORT"],
    ("local-load", "record", "--pid", "9" * 20): ["--pid", "a whole number from 1"],
    ("simulate", "missing.swf", "--policy", "easy"): ["missing.swf", "no such file"],
    ("simulate", ".", "--policy", "easy"): ["directory"],
    ("simulate", "--policy", "easy"): ["no log given"],
    ("simulate", "small.swf"): ["no policy given", "cosched policies"],
    ("simulate", "small.swf", "--policy", "eazy"): ["'eazy'", "did you mean 'easy'"],
    ("simulate", "small.swf", "--policy", "nosuchmodule:Policy"): ["no module 'nosuchmodule'"],
    ("simulate", "small.swf", "--policy", "json:dumpz"): ["json has no 'dumpz'", "did you mean 'dump'"],
    ("simulate", "small.swf", "--policy", "json:JSONDecoder"): ["JSONDecoder has no plan", "own-policy"],
    ("simulate", "small.swf", "--policy", "json:decoder", "--order", "sjf"): ["--order or --select"],
    ("simulate", "small.swf", "--policy", "normal", "--site", "none.yaml"): ["none.yaml", "no such file"],
    ("simulate", "small.swf", "--order", "fcsf"): ["no order 'fcsf'", "did you mean 'fcfs'"],
    ("simulate", "small.swf", "--select", "backfil(1)"): ["no selection", "did you mean 'backfill(N)'"],
    ("simulate", "small.swf", "--select", "backfill(-1)"): ["'-1' in 'backfill(-1)'", "a whole number of 0 or more"],
    ("simulate", "small.swf", "--select", "backfill(1,longest)"): ["no selection"],
    ("simulate", "small.swf", "--select", "conservative(never)"): [
        "no choice 'never'",
        "none, anew, schedule, arrival",
    ],
    ("simulate", "small.swf", "--policy", "uniform-hard", "--select", "conservative"): [
        "--select: 'conservative' with nodes chosen by uniform-hard, where an end can take away the company",
        "expected a selection without guarantees",
    ],
    ("simulate", "small.swf", "--select", f"backfill({'9' * 5000})"): ["a whole number of 0 or more"],
    ("simulate", "small.swf", "--policy", f"normal(mpl={'9' * 5000})"): ["a whole number of at least 1"],
    ("simulate", "small.swf", "--policy", "normal(mpl=0)"): ["'0' in 'normal(mpl=0)'", "at least 1"],
    (*SIMULATE, "--procs", "0"): ["--procs", "0", "at least 1"],
    (*SIMULATE, "--procs", "many"): ["--procs", "'many'", "integer"],
    (*SIMULATE, "--ties", "batched"): ["--ties", "did you mean 'batch'"],
    (*SIMULATE, "--at-limit", "kil"): ["--at-limit", "did you mean 'kill'"],
    (*SIMULATE, "--procs-from", "alocated"): ["--procs-from", "did you mean 'allocated'"],
    (*SIMULATE, "--estimates", "factor:0.5"): ["factor:0.5", "at least 1"],
    (*SIMULATE, "--estimates", "exakt"): ["'exakt'", "did you mean 'exact'"],
    (*SIMULATE, "--seed", "-3"): ["--seed", "-3"],
    (*SIMULATE, "--load", "-1"): ["--load", "above 0"],
    (*SIMULATE, "--launch-delay", "5"): ["--launch-delay", "'5'", "with its unit"],
    (*SIMULATE, "--launch-delay", "5 minutes"): ["unknown unit 'minutes'", "did you mean 'min'"],
    (*SIMULATE, "--rules", "oracel"): ["no rules 'oracel'", "did you mean 'oracle'"],
    (*SIMULATE, "--schedule", "starts.xls"): ["starts.xls", ".csv", ".parquet"],
    (*SIMULATE, "--schedule", "nowhere/starts.csv"): ["no directory nowhere"],
    (*SIMULATE, "--out", "small.swf"): ["small.swf", "a directory"],
    (*SIMULATE, "--polcy", "easy"): ["--polcy", "--policy"],
    ("simulate", "--repeat", "missing.json"): ["missing.json", "no such file"],
    ("simulate", "--repeat", "missing.json", "--policy", "easy"): ["a manifest alone"],
    ("simulate", "small.swf", "--policy", ":X"): ["':X'", "module:name"],
    ("simulate", "small.swf", "--policy", "../x:y"): ["module:name"],
    ("compare", "small.swf", "--policies", "easy,fcfs", "--select", "backfill(3)"): ["for all policies"],
    ("compare", "small.swf", "--policies", "easy"): ["at least two"],
    ("compare", "small.swf", "--policies", "easy,easy"): ["the same policy twice"],
    ("compare", "small.swf", "--policies", "easy,consrvative"): ["--policies: ", "did you mean 'conservative'"],
    ("simulat", "small.swf"): ["no command 'simulat'", "did you mean 'simulate'"],
    ("sbatch", "job.sh"): ["no command 'sbatch'", "did you mean 'submit'"],
    ("squeue", "-u", "me"): ["did you mean 'queue'"],
    ("scancel", "5"): ["did you mean 'cancel'"],
    ("sinfo",): ["did you mean 'nodes'"],
    ("sacct",): ["did you mean 'history'"],
    ("scontrol", "show", "job", "12"): ["did you mean 'show'"],
    ("workload", "generate", "lublin", "x.swf"): ["'lublin'", "lublin03"],
    ("workload", "generate", "poisson", "x.txt"): ["x.txt", ".swf"],
    ("workload", "generate", "poisson", "x.swf", "--set", "sizes"): ["--set", "KEY=VALUE"],
    ("workload", "generate", "poisson", "x.swf", "--set", "size=uniform"): ["'size'", "did you mean 'sizes'"],
    ("workload", "convert", "small.swf", "x.swf", "--load", "0.5", "--factor", "2"): ["one of the two"],
    ("workload", "fetch", "KTH-SP2-1996-2.1"): ["KTH-SP2-1996-2.1-cln"],
    ("workload", "stats", "missing.swf"): ["no such file"],
}


@pytest.mark.parametrize("arguments", BAD_CALLS, ids=" ".join)
def test_a_bad_call_says_what_was_found_and_expected(arguments: tuple[str, ...], cosched: Call, log: Path) -> None:
    before = sorted(log.parent.iterdir())
    ended = cosched(*arguments)
    assert ended.status == 2, ended
    for part in BAD_CALLS[arguments]:
        assert part in ended.err
    assert "Traceback" not in ended.err
    assert sorted(log.parent.iterdir()) == before, "bad input left something behind"


#: Configuration file → what the message must contain.
BAD_FILES = {
    "polices: [easy]": ["bad.yaml: polices", "unknown key", "did you mean 'policies'"],
    "site: {contract: {cpu: 1}}": ["bad.yaml: site.contract.cpu", "unknown key", "did you mean 'cpu_ratio'"],
    "procs: many": ["bad.yaml: procs", "found 'many'", "int"],
    "procs: 0": ["bad.yaml: procs", "found 0", "at least 1"],
    "launch_delay: 5 parsecs": ["bad.yaml: launch_delay", "unknown unit 'parsecs'"],
    "at_limit: explode": ["bad.yaml: at_limit", "found 'explode'"],
    "site: {contract: {cpu_ratio: 1.5}}": ["bad.yaml: site.contract.cpu_ratio", "found 1.5", "up to 1"],
    "site: {contract: {memory_ratio: 0}}": ["bad.yaml: site.contract.memory_ratio", "found 0", "above 0"],
    "site: {contract: {mpl: 0}}": ["bad.yaml: site.contract.mpl", "found 0", "at least 1"],
    "procs: 4\nprocs: 8": ["bad.yaml:2", "'procs' stands twice"],
    "procs: [4": ["bad.yaml:1", "not YAML"],
    "- easy": ["bad.yaml", "a list", "keys and values"],
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_configuration_names_the_key(text: str, cosched: Call, log: Path) -> None:
    (log.parent / "bad.yaml").write_text(text)
    ended = cosched(*SIMULATE, "--config", "bad.yaml")
    assert ended.status == 2, ended
    for part in BAD_FILES[text]:
        assert part in ended.err


def test_a_log_without_a_usable_job_is_refused(cosched: Call, log: Path) -> None:
    log.write_text("; MaxProcs: 4\n" + LINE.replace("60 1 -1 -1 1", "60 9 -1 -1 9"))
    ended = cosched(*SIMULATE)
    assert ended.status == 2
    assert "1 wider_than_machine" in ended.err


def test_a_policy_that_starves_ends_with_its_name_and_the_job(cosched: Call, log: Path) -> None:
    (log.parent / "lazy.py").write_text(
        "from space_scheduler.policy.interface import Plan\n"
        "class Lazy:\n"
        "    def order(self, job, rank): return (0, rank)\n"
        "    def plan(self, snapshot): return Plan()\n"
    )
    ended = cosched("simulate", "small.swf", "--policy", "lazy:Lazy")
    assert ended.status == 1
    assert "5 jobs wait and nothing can happen any more" in ended.err
    assert "job 1: it is first in the order and fits; no pass has chosen it" in ended.err
    assert "Traceback" not in ended.err


def test_a_policy_that_overcommits_is_stopped(cosched: Call, log: Path) -> None:
    (log.parent / "greedy.py").write_text(
        "from space_scheduler.policy.interface import Plan, PlannedStart\n"
        "from space_scheduler.reasons import Reason, Why\n"
        "class Greedy:\n"
        "    def order(self, job, rank): return (0, rank)\n"
        "    def plan(self, snapshot): return Plan([PlannedStart(job, Reason(Why.FITS)) for job in snapshot.queue])\n"
    )
    ended = cosched("simulate", "small.swf", "--policy", "greedy:Greedy")
    assert ended.status == 1
    assert "cannot start with" in ended.err
    assert "Traceback" not in ended.err


#: Outputs that would destroy something, or cannot be: what the message must contain.
BAD_OUTPUTS = {
    ("--schedule", "small.swf"): ["the log itself"],
    ("--events", "small.swf"): ["the log itself"],
    ("--schedule", "a.csv", "--events", "a.csv"): ["two outputs in one file"],
    ("--events", "nowhere/e.jsonl"): ["no directory nowhere"],
    ("--events", "loop/e.jsonl"): ["no directory loop"],
    ("--events", "."): ["a directory"],
}


@pytest.mark.parametrize("options", BAD_OUTPUTS, ids=" ".join)
def test_an_output_that_would_destroy_something_is_refused(options: tuple[str, ...], cosched: Call, log: Path) -> None:
    (log.parent / "loop").symlink_to("loop")
    ended = cosched(*SIMULATE, *options)
    assert ended.status == 2, ended
    for part in BAD_OUTPUTS[options]:
        assert part in ended.err
    assert log.read_text() == JOBS


#: A change to a run's manifest → what the message must contain.
TAMPERED = {
    ('"seed": 1', '"seed": -4'): ["configuration", "found -4"],
    ('"ties": "batch"', '"ties": "x"'): ["ties", "found 'x'"],
    ('"command": "simulate"', '"command": "compare"'): ["the manifest of 'compare'"],
    ('"inputs": [', '"inputs": [], "input": ['): ["input", "unknown key"],
    ("small.swf", "gone.swf"): ["gone.swf", "LOG, where it is now"],
}


@pytest.mark.usefixtures("without_plots")
def test_a_manifest_that_was_changed_is_refused(cosched: Call, log: Path) -> None:
    assert cosched(*SIMULATE, "--out", "o").status == 0
    manifest = log.parent / "o" / "manifest.json"
    written = manifest.read_text()
    for change, parts in TAMPERED.items():
        manifest.write_text(written.replace(*change))
        ended = cosched("simulate", "--repeat", "o/manifest.json")
        assert ended.status == 2, ended
        for part in parts:
            assert part in ended.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--load", "1e-300"), "--load"),
        (("--procs", "99999999999999999999999"), "--procs"),
        (("--launch-delay", "99999d"), "30 days at most"),
        (("--launch-delay", "99999999999999999999d"), "--launch-delay: '99999999999999999999d'"),
    ],
)
def test_numbers_beyond_all_measure_are_refused(
    options: tuple[str, ...], expected: str, cosched: Call, log: Path
) -> None:
    ended = cosched(*SIMULATE, *options)
    assert ended.status == 2, ended
    assert expected in ended.err


def test_times_that_do_not_fit_are_refused(cosched: Call, log: Path) -> None:
    line = " 1 0 -1 1000000000000 4 -1 -1 4 1000000000000 -1 1 1 1 -1 -1 -1 -1 -1\n"
    log.write_text("; MaxProcs: 4\n" + line * 19)
    ended = cosched(*SIMULATE)
    assert ended.status == 2
    assert "one after the other" in ended.err


@pytest.mark.parametrize("text", ["? [a, b]\n: c", "? {a: b}\n: c", "a\0b", "3: 4", "a: " + "[" * 1000])
def test_yaml_that_is_no_settings_is_refused(text: str, cosched: Call, log: Path) -> None:
    (log.parent / "bad.yaml").write_text(text)
    ended = cosched(*SIMULATE, "--config", "bad.yaml")
    assert ended.status == 2, ended
    assert "bad.yaml" in ended.err


#: The body of a user's plan() → the status and what the message must contain.
BROKEN_PLANS = {
    "raise SystemExit(0)": "SystemExit",
    "return None": "plan() gave NoneType, expected a Plan",
    "1 / 0": "ZeroDivisionError",
    "return Plan(['abc'])": "no PlannedStart",
    "return Plan(wake_us=snapshot.now_us + 0.5)": "expected whole microseconds",
    "return Plan(wake_us=snapshot.now_us + 1)": "asked 100000 times in a row to be woken",
}


@pytest.mark.parametrize("body", BROKEN_PLANS)
def test_a_broken_policy_is_named_with_its_error(
    body: str, cosched: Call, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    (log.parent / "broken.py").write_text(
        "from space_scheduler.policy.interface import Plan\n"
        "class Broken:\n"
        "    def order(self, job, rank): return (0, rank)\n"
        f"    def plan(self, snapshot):\n        {body}\n"
    )
    importlib.invalidate_caches()
    ended = cosched("simulate", "small.swf", "--policy", "broken:Broken", "--json")
    assert ended.status == 1, ended
    assert BROKEN_PLANS[body] in ended.err
    assert not ended.out
    monkeypatch.delitem(sys.modules, "broken", raising=False)


#: A site's file → what the message must contain.
BAD_SITES = {
    "nodes: 0": ["site.yaml: nodes", "found 0", "1 to 100000 nodes"],
    "nods: 4": ["site.yaml: nods", "unknown key", "did you mean 'nodes'"],
    "cpus: 0": ["cpus", "CPUs in each node"],
    "memory: 512": ["memory", "found 512"],
    "memory: 512XB": ["memory", "unknown unit 'XB'"],
    "memory: 0MiB": ["memory", "a size above 0"],
    "contract: {mpl: 0}": ["contract.mpl", "at least 1 task"],
    "contract: {cpu_ratio: 1.5}": ["contract.cpu_ratio", "a share above 0, up to 1"],
    "coscheduling: css": ["coscheduling", "'css'", "one of none, ccs, dcs, spin, gang"],
    "costs: missing.json": ["missing.json", "a file that 'cosched calibrate' wrote"],
    "owners: {desks: 2}": ["owners.desks", "a part of the desks, 0 to 1"],
    "owners: {cpu: 3}": ["owners.cpu", "0 to the node's 1"],
    "owners: {hours: 9-17}": ["owners.hours", "a time such as 08:00"],
    "owners: {hours: '09:00-17:00', days: [monday]}": ["owners.hours", "not 'monday'"],
    "tasks: {cpu: 0}": ["tasks.cpu", "above 0, up to 1"],
    "tasks: {kind: gpu}": ["tasks.kind", "cpu or comm"],
    "tasks: {programs: {cg: comm}}": ["tasks.programs", "an executable's number"],
}


@pytest.mark.parametrize("text", BAD_SITES)
def test_a_bad_site_is_told_by_its_key(text: str, cosched: Call, log: Path) -> None:
    (log.parent / "site.yaml").write_text(text + "\n")
    ended = cosched("simulate", "small.swf", "--policy", "normal", "--site", "site.yaml")
    assert ended.status == 2, ended.out
    assert not [part for part in BAD_SITES[text] if part not in ended.err], ended.err


#: Policy and selection that cannot be had where jobs share nodes → what the message must contain.
NOT_SHARED = {
    ("normal", "conservative"): "conservative(arrival) cannot be had there: it guarantees starts by predicted ends",
    ("conservative", None): "conservative(arrival) cannot be had there: it guarantees starts by predicted ends",
    ("3dbf-light", "backfill(3)"): "backfill(3) cannot be had there: its 3 reservations are made from predicted ends",
}


@pytest.mark.parametrize(("policy", "select"), NOT_SHARED)
def test_what_cannot_be_had_on_shared_nodes_says_why_and_what_can(
    policy: str, select: str | None, cosched: Call, log: Path
) -> None:
    (log.parent / "site.yaml").write_text("nodes: 4\n")
    selected = ["--select", select] if select else []
    ended = cosched("simulate", "small.swf", "--policy", policy, *selected, "--site", "site.yaml")
    assert ended.status == 2, ended
    for part in (NOT_SHARED[policy, select], "where tasks share a CPU each start moves those", "a place with mpl=1"):
        assert part in ended.err
    had = "normal(mpl=1)" if policy == "conservative" else f"{PRESETS[policy].place}(mpl=1)"
    select = select or "conservative"
    ended = cosched("simulate", "small.swf", "--policy", had, "--select", select, "--site", "site.yaml")
    assert ended.status == 0, ended


def test_a_site_with_nodes_has_as_many_processors_as_they_have(cosched: Call, log: Path) -> None:
    (log.parent / "site.yaml").write_text("nodes: 4\n")
    ended = cosched("simulate", "small.swf", "--policy", "normal", "--site", "site.yaml", "--procs", "8")
    assert (ended.status, "--procs: found 8; expected nothing beside the site's 4 nodes" in ended.err) == (2, True)


def test_a_site_has_no_rules_of_other_simulators(cosched: Call, log: Path) -> None:
    (log.parent / "site.yaml").write_text("nodes: 4\n")
    ended = cosched("simulate", "small.swf", "--policy", "normal", "--site", "site.yaml", "--rules", "oracle")
    assert (ended.status, "--ties: found 'sequential'" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("line", "cause", "told"),
    [
        (LINE.replace(" 6 ", " -6 ", 1), "negative job number", "a job number below 0"),
        (LINE.replace(" 6 ", " 5 ", 1), "duplicate job number", "a job number that an earlier line has"),
    ],
)
def test_numbers_that_name_no_one_job_are_told_of_and_strictly_refused(
    line: str, cause: str, told: str, cosched: Call, log: Path
) -> None:
    log.write_text(JOBS + line)
    shown = cosched(*SIMULATE)
    assert shown.status == 0, shown.err
    assert f"1 {cause}" in shown.out
    convert = ("workload", "convert", "small.swf", "other.swf")
    for command in (SIMULATE, convert):
        ended = cosched(*command, "--strict")
        assert ended.status == 2
        assert "small.swf:11" in ended.err
        assert told in ended.err
    assert not log.with_name("other.swf").exists()
    assert cosched(*convert).status == 0


def test_a_size_that_is_none_is_told_of_and_strictly_refused(cosched: Call, log: Path) -> None:
    text = re.sub("MaxProcs:.*", "MaxProcs: lots", JOBS)
    assert text != JOBS
    log.write_text(text)
    assert "MaxProcs: 'lots' is no size" in cosched(*SIMULATE).out
    ended = cosched(*SIMULATE, "--strict")
    assert ended.status == 2
    assert "MaxProcs: lots" in ended.err


def test_a_log_is_not_written_over(cosched: Call, log: Path) -> None:
    before = log.read_text()
    for options in ((), ("--force",)):
        ended = cosched("workload", "convert", "small.swf", "small.swf", *options)
        assert (ended.status, log.read_text()) == (2, before)
        assert "the log itself" in ended.err
    assert cosched("workload", "convert", "small.swf", "other.swf").status == 0
    for command in (("convert", "small.swf", "other.swf"), ("generate", "poisson", "other.swf", "--jobs", "3")):
        ended = cosched("workload", *command)
        assert ended.status == 2
        assert "other.swf: it is there already; expected another name, or --force" in ended.err
        assert cosched("workload", *command, "--force").status == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def plan(:\n", "broken.py:1: "),
        ("\nraise ValueError('not today')\n", "its module fails: ValueError: not today ("),
    ],
)
def test_a_policy_that_cannot_be_imported_is_told_with_its_line(
    text: str, told: str, cosched: Call, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log.parent / "broken.py").write_text(text)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    importlib.invalidate_caches()
    ended = cosched("simulate", "small.swf", "--policy", "broken:Policy")
    assert ended.status == 2
    assert told in ended.err
    assert "Traceback" not in ended.err


def test_what_policies_are_called_says_what_was_changed_about_them(cosched: Call, log: Path) -> None:
    ended = cosched("compare", "small.swf", "--policies", "easy,fcfs", "--order", "sjf")
    assert ended.status == 0, ended.err
    assert "easy sjf" in ended.out
    assert "Against easy sjf" in ended.out


def test_policies_that_choose_nodes_say_that_there_are_none(cosched: Call, log: Path) -> None:
    ended = cosched("compare", "small.swf", "--policies", "normal,3dbf-light,easy")
    assert "normal, 3dbf-light: processors are counted here" in " ".join(ended.out.split())
    assert "processors are counted here" not in cosched("compare", "small.swf", "--policies", "easy,fcfs").out


def test_a_public_log_that_is_not_here_is_fetched_by_a_command(
    cosched: Call, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosched.workload.catalogue.folders", list)
    ended = cosched("simulate", "KTH-SP2-1996-2.1-cln", "--policy", "easy")
    assert ended.status == 2
    assert "'cosched workload fetch KTH-SP2-1996-2.1-cln' first" in ended.err
