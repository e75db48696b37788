"""A user of Slurm, PBS, LSF, SGE or HTCondor types what worked there: one line says what does the same here."""

import shlex
from pathlib import Path

import pytest
from kit.command import Call

from cosched.apps.cli.shared import foreign

#: A command line -> what its one line of error says.
TYPED = {
    "sbatch -n 4 job.sh": "no command 'sbatch'; expected 'cosched submit'",
    "qsub job.sh": "'cosched submit'",
    "condor_submit job.sub": "'cosched submit'",
    "flux bulksubmit ::: a b c": "'cosched submit'",
    "hq submit cmd": "'cosched submit'",
    "srun --pty bash": "'cosched submit'",
    "salloc -n 2": "'cosched submit'",
    "squeue -u me": "'cosched queue'",
    "condor_watch_q": "'cosched queue'",
    "sinfo": "'cosched nodes'",
    "scancel 5": "'cosched cancel'",
    "sacct -S 2026-11-01 -E now": "'cosched history'",
    "sreport": "'cosched policies'",
    "sshare": "'cosched policies'",
    "top": "'cosched page'",
    "scontrol show job 12": "'cosched show'",
    "scontrol release 12": "'cosched release'",
    "scontrol hold 12": "'cosched hold'",
    "scontrol requeue 12": "no command 'scontrol requeue'; expected 'cosched cancel' and 'cosched submit' again",
    "scontrol update JobId=12 TimeLimit=10": "a submitted job keeps its options",
    "scontrol suspend 12": "'cosched hold' before a job starts",
    "scontrol create reservation": "'cosched node drain'",
    "queue -u me": "-u: an option of another batch system; expected --user",
    "queue --me": "--user me",
    "queue --start": "the column 'starts by' has the promise",
    "queue -o '%i %T'": "--json, for programs",
    "queue -t PENDING": "--json, for programs",
    "queue -j 12": "'cosched show ID'",
    "queue -l": "--wide",
    "queue -i 5": "'watch cosched queue', or 'cosched page'",
    "history -S 2026-11-01 -E now": "--last N",
    "history -u me": "--user",
    "nodes -N -l": "--json",
    "cancel 5-9": "did you mean '5 6 7 8 9'?",
    "cancel 5,7": "did you mean '5 7'?",
    "cancel -u me -t PENDING": "the numbers of jobs, apart; 'cosched queue --user me' lists yours",
    "hold 5-6": "did you mean '5 6'?",
    "show JobId=12": "did you mean '12'?",
    "show -d 12": "--json",
    "logs -f slurm-12.out": "did you mean '12'?",
    "logs -e 12": "--stderr",
    "wait -j 12": "the job's number alone",
    "submit --ntasks 4 job.sh": "--tasks",
    "submit -N 2 --ntasks-per-node=2 job.sh": "--tasks; nodes are chosen for the job",
    "submit -l nodes=2:ppn=4 job.sh": "--tasks, --time and --mem",
    "submit -t 10:00 job.sh": "--time, with its unit, such as 10min",
    "submit --time 10:00 job.sh": "did you mean '10min'?",
    "submit --mem 4096 job.sh": "did you mean '4096MB'?",
    "submit --export=ALL job.sh": "did you mean 'all'?",
    "submit -V job.sh": "--export all",
    "submit -j oe job.sh": "'exec 2>&1' in the script",
    "submit -i in.txt job.sh": "'exec <FILE' in the script",
    "submit -H job.sh": "--hold",
    "submit --pty bash": "there are no interactive jobs",
    "submit --gpus-per-node=1 job.sh": "an option of another batch system, without a counterpart here",
    "submit --comment x job.sh": "without a counterpart here",
}


@pytest.mark.parametrize("typed", TYPED)
def test_idioms_of_other_batch_systems_get_one_line_with_our_own(
    typed: str, cosched: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))  # no service of this machine is asked
    ended = cosched(*shlex.split(typed))
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert ended.err.startswith("cosched: ")
    assert TYPED[typed] in ended.err


def test_foreign_switch_in_directive_gets_the_command_lines_hint(cosched: Call, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#COSCHED -t 5\n")
    assert "job.sh:2: -t: an option of another batch system; expected --time, with" in cosched("submit", "job.sh").err


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
