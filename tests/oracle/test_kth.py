"""0 of 28 476 starts differ: the schedules of an independent simulator for the KTH SP2 log, job by job.

``kth.json`` keeps what any copy of the public log can be checked against without the oracle's files: the SHA-256 of the
log (as the archive packs it, and of its text) and of each schedule's start times. Canonical form of start times: one
line ``job_id,start`` for each job, in order of job number, in whole seconds since the start of the log, each line ended
by a newline, in ASCII.

The oracle's rules: processors as allocated, a job without a positive run time runs one second, one pass per event with
submissions before ends. The estimate is the user's, or for "exact" the run time itself.
"""

import csv
import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from kit.drive import policy_named

from cosched.metrics.summary import summarise
from cosched.model.components import Dividing
from cosched.model.node import Node
from cosched.workload import swf
from cosched.workload.dividing import divided
from cosched.workload.rules import InputRules, NegativeTimes, NeverRan, ProcsFrom, Workload, prepare
from space_scheduler.plugins import resolve
from space_scheduler.policy.presets import PRESETS, compose
from space_scheduler.simulator.host import Outcome, Site, Ties, simulate
from space_scheduler.simulator.shared import clusters_of

KEPT = json.loads((Path(__file__).parent / "kth.json").read_text())
LOG = KEPT["log"]["name"]
JOBS = KEPT["log"]["jobs"]
ORACLES_RULES = InputRules(
    procs_from=ProcsFrom.ALLOCATED_ONLY, never_ran=NeverRan.WAIT, negative_times=NegativeTimes.UNKNOWN
)

pytestmark = [pytest.mark.oracle, pytest.mark.log(LOG)]


@cache
def read(path: Path) -> Workload:
    return prepare(swf.read(path), ORACLES_RULES)


@cache
def run(path: Path, preset: str, select: str = "", estimate: str = "user", ties: Ties = Ties.SEQUENTIAL) -> Outcome:
    load = read(path)
    if estimate == "exact":
        load = replace(load, estimate_us=load.run_us)
    return simulate(load, compose(PRESETS[preset].order, select or PRESETS[preset].select), ties=ties)


def group(schedule: str) -> pytest.MarkDecorator:
    """Tests that look at one schedule run in one process, where it is made once."""
    return pytest.mark.xdist_group(f"kth-{schedule}")


def starts_s(outcome: Outcome) -> dict[int, int]:
    """Start in whole seconds by the log's job number."""
    assert not (outcome.start_us % 1_000_000).any()
    return dict(zip(outcome.workload.job_id.tolist(), (outcome.start_us // 1_000_000).tolist(), strict=True))


def digest_of_starts(starts: dict[int, int]) -> str:
    text = "".join(f"{job_id},{start_s}\n" for job_id, start_s in sorted(starts.items()))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def differing(one: dict[int, int], other: dict[int, int]) -> list[int]:
    assert one.keys() == other.keys()
    return [job_id for job_id, start_s in one.items() if other[job_id] != start_s]


def oracles_starts(folder: Path, file: str) -> dict[int, int]:
    with gzip.open(folder / file, "rt", encoding="ascii", newline="") as lines:
        return {int(row["job_id"]): int(row["start"]) for row in csv.DictReader(lines)}


@pytest.fixture(
    params=[pytest.param(kept, id=kept["name"], marks=group(kept["name"])) for kept in KEPT["schedules"]],
    scope="module",
)
def kept(request: pytest.FixtureRequest) -> dict[str, object]:
    """One schedule of the oracle: its policy, and what is kept of it."""
    found: dict[str, object] = request.param
    return found


def test_this_log_is_the_public_one(log_path: Path) -> None:
    content = log_path.read_bytes()
    text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    assert hashlib.sha256(text).hexdigest() == KEPT["log"]["sha256_text"]
    assert len(read(log_path)) == JOBS == 28_476
    assert read(log_path).procs_total == 100


def test_the_sum_of_the_packed_log_is_that_of_the_archives_file(log_path: Path) -> None:
    content = log_path.read_bytes()
    if not content.startswith(b"\x1f\x8b"):
        pytest.skip("needs the log as the archive packs it: this copy is unpacked")
    if (packed := hashlib.sha256(content).hexdigest()) != KEPT["log"]["sha256_gz"]:
        assert hashlib.sha256(gzip.decompress(content)).hexdigest() == KEPT["log"]["sha256_text"]
        pytest.skip(f"needs the log as the archive packs it: this copy was packed anew ({packed})")


@pytest.mark.slow
def test_the_starts_have_the_digest_kept(kept: dict[str, str], log_path: Path) -> None:
    outcome = run(log_path, kept["preset"], estimate=kept["estimate"])
    assert digest_of_starts(starts_s(outcome)) == kept["sha256_starts"]


def test_no_start_differs_from_the_oracles(kept: dict[str, str], log_path: Path, oracle_dir: Path) -> None:
    ours = starts_s(run(log_path, kept["preset"], estimate=kept["estimate"]))
    theirs = oracles_starts(oracle_dir, kept["file"])
    assert len(theirs) == JOBS
    assert differing(ours, theirs) == []
    assert digest_of_starts(theirs) == kept["sha256_starts"]  # so the digests kept are the oracle's


def test_wait_and_slowdown_are_the_oracles_to_three_decimals(kept: dict[str, float], log_path: Path) -> None:
    summary = summarise(run(log_path, kept["preset"], estimate=kept["estimate"]))
    assert round(summary.mean_wait_s, 3) == kept["mean_wait_s"]
    assert round(summary.mean_bounded_slowdown, 3) == kept["mean_bounded_slowdown"]
    assert round(summary.utilization, 5) == kept["utilization"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "select", "ties", "differ", "bounded_slowdown"),
    [
        # our default: all events of an instant first, then one pass
        pytest.param("easy", "", Ties.BATCH, 487, 92.987, marks=group("easy")),
        pytest.param("conservative", "", Ties.BATCH, 718, 88.260, marks=group("conservative")),
        # all reservations dropped and made again in order, instead of compressed one by one
        pytest.param(
            "conservative", "conservative(anew)", Ties.SEQUENTIAL, 10_797, 102.191, marks=group("conservative")
        ),
    ],
)
def test_how_much_each_choice_moves(
    log_path: Path, preset: str, select: str, ties: Ties, differ: int, bounded_slowdown: float
) -> None:
    oracles = starts_s(run(log_path, preset))
    outcome = run(log_path, preset, select, ties=ties)
    assert len(differing(starts_s(outcome), oracles)) == differ
    assert round(summarise(outcome).mean_bounded_slowdown, 3) == bounded_slowdown


def test_the_log_normalised_gives_the_same_workload(find_log: Callable[[str], Path], log_path: Path) -> None:
    """The rules above are those that made the normalised copy of the log."""
    ours, normalised = read(log_path), prepare(swf.read(find_log(f"{LOG}.normalised")))
    for column in ("job_id", "submit_us", "run_us", "procs", "estimate_us"):
        assert getattr(ours, column).tolist() == getattr(normalised, column).tolist(), column


@group("easy")
def test_one_start_moved_by_a_second_changes_the_digest(log_path: Path) -> None:
    starts = starts_s(run(log_path, "easy"))
    starts[max(starts)] += 1
    assert digest_of_starts(starts) != next(k["sha256_starts"] for k in KEPT["schedules"] if k["name"] == "easy")


@pytest.mark.parametrize("jobs", [600, pytest.param(JOBS, marks=pytest.mark.long)])
def test_on_nodes_of_one_cpu_without_owners_3dbf_light_and_2dbf_are_easy(
    find_log: Callable[[str], Path], jobs: int
) -> None:
    """With one task on a CPU all rates are 1: predicted states are predicted ends."""
    log = swf.read(find_log(LOG))
    load = prepare(log.with_rows(log.rows[:jobs]), ORACLES_RULES, procs_total=read(find_log(LOG)).procs_total)
    site = Site([Node(f"n{i}", 1, 1 << 30, 1) for i in range(load.procs_total)])
    easy = simulate(load, policy_named("easy"))
    for policy in ("3dbf-light", "2dbf"):
        found = simulate(load, policy_named(policy), site=site)
        assert (found.start_us != easy.start_us).sum() == 0


@pytest.mark.parametrize("jobs", [1500, pytest.param(JOBS, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("over_clusters", "counted"), [("coalloc-fpfs(0)", "fcfs"), ("coalloc-fcfs", "fcfs"), ("easy", "easy")]
)
def test_one_cluster_with_a_threshold_of_its_size_is_a_machine_as_any(
    over_clusters: str, counted: str, jobs: int, find_log: Callable[[str], Path]
) -> None:
    log = swf.read(find_log(LOG))
    load = prepare(log.with_rows(log.rows[:jobs]), ORACLES_RULES, procs_total=read(find_log(LOG)).procs_total)
    undivided = divided(load, Dividing(threshold=load.procs_total), seed=1)
    assert not undivided.divided
    one = simulate(undivided, resolve(over_clusters), site=clusters_of([load.procs_total], None))
    assert (one.start_us != simulate(load, resolve(counted)).start_us).sum() == 0
