"""``calibrate --clusters``: what it makes of runs that are there, and what it refuses."""

import csv
from pathlib import Path

import pytest
from kit.command import Call

from cosched.apps.cli.shared.link_costs import RUNS
from cosched.apps.experiments.link_cost import ONE_CLUSTER, Crossed
from cosched.apps.experiments.run_log import RunLog
from cosched.config.between import read_between
from cosched.model.components import Between


def test_kept_runs_are_made_into_tables_and_the_schedulers_files(cosched: Call, tmp_path: Path) -> None:
    kept = RunLog(tmp_path, RUNS, Crossed)
    kept.begin({}, add=False)
    for delay_us, rate in ((ONE_CLUSTER, 8.0), (500, 6.4), (5_000, 2.0)):
        kept.keep(Crossed(delay_us, "cg", rate, 0.3))
    done = cosched("calibrate", "--clusters", "--rounds", "0", "--out", tmp_path)
    assert done.status == 0, done.err
    with (tmp_path / "link.csv").open(newline="") as file:
        rows = [(row["delay_ms"], row["program"], row["kind"], float(row["slowdown"])) for row in csv.DictReader(file)]
    assert rows == [("0.5", "cg", "comm", 1.25), ("5.0", "cg", "comm", 4.0)]
    with (tmp_path / "link-waits.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    # from 0.5 to 5 ms it is slower by 2.75 of its time: 0.611 for each millisecond, of an iteration of 125 ms
    assert (row["program"], float(row["iteration_ms"])) == ("cg", 125.0)
    assert [float(row[key]) for key in ("per_ms", "waits")] == pytest.approx([2.75 / 4.5, 125 * 2.75 / 4.5])
    assert float(row["fixed"]) == pytest.approx(0.25 - 0.5 * 2.75 / 4.5)
    assert (tmp_path / "link.png").read_bytes().startswith(b"\x89PNG")
    assert read_between(tmp_path / "between-0.5ms.json") == Between({"": 250_000, "comm": 250_000})
    assert read_between(tmp_path / "between-5ms.json") == Between({"": 3_000_000, "comm": 3_000_000})
