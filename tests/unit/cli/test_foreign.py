"""A user of Slurm, PBS, LSF, SGE or HTCondor types what worked there: one line says what does the same here."""

from pathlib import Path

import pytest
from kit.command import Call
from kit.snapshots import Snapshot

from cosched.apps.cli.shared import foreign


def test_idioms_of_other_batch_systems_get_one_line_with_our_own(
    snapshot: Snapshot, cosched: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))  # no service of this machine is asked
    snapshot.replay(cosched)


#: A script's lines -> what is said of their switches.
DIRECTIVES = {
    "#SBATCH -n 4 -t 5": "-t: --time, with its unit, such as 10min",
    "#SBATCH --job-name=x -o out\n#SBATCH --mem=4G": "--job-name: --name; -o: --output",
    "#PBS -l nodes=2\n#PBS -N x": "-l: --tasks, --time and --mem, each with its value, "
    "such as '--tasks 8 --time 1h --mem 512MB'; -N: --name",
    "#BSUB -W 10": "-W: --time, with its unit, such as 10min",
    "#$ -pe mpi 4": "-pe: --tasks",
    "#SBATCH --qos=x": "",
    "echo\n#SBATCH -t 5": "",
}


@pytest.mark.parametrize("lines", DIRECTIVES)
def test_switches_of_directives_are_told_with_our_own(lines: str) -> None:
    assert foreign.directives(f"#!/bin/sh\n{lines}\n") == DIRECTIVES[lines]


def test_times_without_units_are_read_as_slurm_does() -> None:
    meant = {"5": "5min", "10:30": "630s", "00:05:00": "5min", "1:30:00": "90min", "1-00:00:00": "24h", "2-12": "60h"}
    assert {text: foreign.time_meant(text) for text in meant} == meant
    assert [foreign.time_meant(text) for text in ("0", "5m", "1:2:3:4", "", "-5")] == [""] * 5


def test_ranges_and_names_of_jobs_are_numbers_apart() -> None:
    assert foreign.jobs_meant("5-900") == "$(seq 5 900)"
    assert [foreign.jobs_meant(text) for text in ("9-5", "12", "five", "job_id=12", "12.head")] == [
        "",
        "",
        "",
        "12",
        "12",
    ]
