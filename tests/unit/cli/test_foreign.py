"""A user of Slurm, PBS, LSF, SGE or HTCondor types what worked there: it is read, or a line says what does the same."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.command import Call
from kit.snapshots import Snapshot

from cosched.apps.cli.shared import foreign
from cosched.wire.foreign import PBS, SLURM, Switch, by_name, directive_lines, directives, time_words

ROOT = Path(__file__).resolve().parents[3]


def test_idioms_of_other_batch_systems_get_one_line_with_our_own(
    snapshot: Snapshot, cosched: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))  # no service of this machine is asked
    snapshot.replay(cosched)


#: A script's lines -> the options of ``cosched submit`` that they are.
READ = {
    "#SBATCH -n 4 -t 5": "--tasks=4 --time=5min",
    "#SBATCH -n4 --time=1-00:00:00": "--tasks=4 --time=24h",
    "#SBATCH -n 2\n#SBATCH --ntasks=8 # the later counts": "--tasks=8",
    "#SBATCH --job-name 'two words' -o out-%j.txt -e err-%A": "--name=two words --output=out-%j.txt --error=err-%A",
    "#SBATCH --mem-per-cpu=1G": "--mem=1073741824B",
    "#SBATCH --mem-per-cpu=512": "--mem=536870912B",
    "#SBATCH --ntasks-per-node=4 --mem=8G": "--mem=2147483648B",
    "#SBATCH -c 1 --no-requeue --comment=x -Q": "",
    "#SBATCH -H --requeue -D /scratch": "--hold --requeue --directory=/scratch",
    "#SBATCH --export=ALL,A=1,B": "--export=all --env=A=1 --env=B",
    "#SBATCH --export=NONE": "--export=none",
    "#SBATCH --export=A=1": "--export=none --env=A=1",
    "#PBS -N heat -l walltime=01:00:00,pmem=512mb": "--name=heat --time=1h --mem=536870912B",
    "#PBS -l walltime=90\n#PBS -l procs=6": "--time=90s --tasks=6",
    "#PBS -o $PBS_JOBID.out -j n": "--output=%j.out",
    "#PBS -V -v A=1,B -h -r y -d /scratch": "--export=all --env=A=1 --env=B --hold --requeue --directory=/scratch",
    "echo\n#SBATCH -n 5": "",
    "##SBATCH -n 5": "",
}


@pytest.mark.parametrize("lines", READ)
def test_directives_of_slurm_and_pbs_are_read_where_they_mean_the_same(lines: str) -> None:
    found = directives(f"#!/bin/sh\n{lines}\n")
    assert " ".join(word for _, word in found.words) == READ[lines]
    assert found.left() == ""


#: A script's line -> what is read of it, and why the rest is not.
NOT_READ = {
    "#SBATCH -N 2": ("", "nodes are chosen for the job"),
    "#SBATCH -N 2 --ntasks-per-node=4": ("--tasks=8", "how tasks lie on them is not kept"),
    "#SBATCH -n 6 -N 2 --ntasks-per-node=4": ("--tasks=6", "how tasks lie on them is not kept"),
    "#SBATCH --ntasks-per-node=4": ("", "alone it is not read"),
    "#SBATCH --mem=8G": ("", "of each task"),
    "#SBATCH -c 2": ("", "a task has one CPU"),
    "#SBATCH -n 4-8": ("", "a number of at least 1 is expected"),
    "#SBATCH -t 0": ("", "a time such as"),
    "#SBATCH -t": ("", "a time such as"),
    "#SBATCH -o slurm-%a.out": ("", "%a in names of files"),
    "#SBATCH --array=1-5": ("", "there are no arrays"),
    "#SBATCH --gres=gpu:1": ("", "GPUs"),
    "#SBATCH --qos=x": ("", "no counterpart"),
    "#SBATCH --bogus=x": ("", "no counterpart"),
    "#SBATCH -J 'x": ("", "no closing quotation"),
    "#PBS -l nodes=2:ppn=4+1:ppn=2": ("--tasks=10", "how tasks lie on them is not kept"),
    "#PBS -l select=2:ncpus=4:mpiprocs=4": ("--tasks=8", "how tasks lie on them is not kept"),
    "#PBS -l select=2:ncpus=4": ("", "N times M"),
    "#PBS -l nodes=head:ppn=4": ("", "N times M"),
    "#PBS -l mem=4gb": ("", "not of the job"),
    "#PBS -l walltime=x": ("", "a time such as"),
    "#PBS -j oe": ("", "exec 2>&1"),
    "#PBS -o host:/x": ("", "first node"),
    "#PBS -l =4": ("", "no counterpart"),
    "#PBS -o $HOME/x": ("", "$PBS_JOBID alone"),
    "#PBS -r x": ("", "y or n"),
    "#SBATCH --mem-per-cpu=0": ("", "a size such as"),
    f"#SBATCH -J {400 * 'x'}": ("", "longer than 400"),
    200 * "#\n" + "#SBATCH -n 4": ("", "behind line 200"),
    "#PBS -v A=1;B": ("--env=A=1;B", ""),
    "#BSUB -n 4": ("", "'#COSCHED' lines"),
}


@pytest.mark.parametrize("line", NOT_READ)
def test_directives_that_are_not_read_say_why(line: str) -> None:
    words, why = NOT_READ[line]
    found = directives(f"#!/bin/sh\n{line}\n")
    assert " ".join(word for _, word in found.words) == words
    assert [why in said for _, said in found.not_read] == ([True] if why else [])


_WORDS = st.lists(
    st.sampled_from(
        [*by_name(SLURM), *by_name(PBS), "-l", "nodes=", "select=", "=", ",", ":", "+", "4", "99999999999", "8G", "'"]
    )
    | st.text(max_size=8),
    max_size=8,
).map("".join)


@given(st.lists(st.tuples(st.sampled_from(["SBATCH", "PBS", "BSUB"]), _WORDS, _WORDS), max_size=4))
def test_any_directive_is_read_or_named(lines: list[tuple[str, str, str]]) -> None:
    script = "".join(f"#{system} -{first} -l {second}\n" for system, first, second in lines)
    found = directives(f"#!/bin/sh\n{script}")
    assert {line for line, _ in found.words} | {left.line for left, _ in found.not_read} <= {
        line for line, _ in directive_lines(f"#!/bin/sh\n{script}")
    }
    assert all(word.startswith("--") for _, word in found.words)


def test_each_directive_without_a_counterpart_is_named() -> None:
    found = directives("#!/bin/sh\n#SBATCH -p big -A mine\n#SBATCH -p small --gpus=1 --gres=gpu\n#PBS -q x -A y\n")
    assert [(left.line, left.text) for left, _ in found.not_read] == [
        (2, "-p big"), (2, "-A mine"), (3, "-p small"), (3, "--gpus=1"), (3, "--gres=gpu"), (4, "-q x"), (4, "-A y"),
    ]  # fmt: skip


def test_times_without_units_are_read_as_slurm_does() -> None:
    meant = {"5": "5min", "10:30": "630s", "00:05:00": "5min", "1:30:00": "90min", "1-00:00:00": "24h", "2-12": "60h"}
    assert {text: time_words(text) for text in meant} == meant
    assert [time_words(text) for text in ("0", "5m", "1:2:3:4", "", "-5")] == [""] * 5


def test_ranges_and_names_of_jobs_are_numbers_apart() -> None:
    assert foreign.jobs_meant("5-900") == "$(seq 5 900)"
    assert [foreign.jobs_meant(text) for text in ("9-5", "12", "five", "job_id=12", "12.head")] == [
        "",
        "",
        "",
        "12",
        "12",
    ]


def test_guide_has_the_tables_of_the_code(request: pytest.FixtureRequest) -> None:
    """``--update-snapshots`` writes them."""
    page = ROOT / "docs/guide/batch-systems.md"
    text = page.read_text()
    verbs: dict[str, list[str]] = {}
    for command, verb in foreign.VERBS.items():
        verbs.setdefault(f"`cosched {verb}`", []).append(f"`{command}`")
    for command, instead in foreign.INSTEAD.items():
        verbs.setdefault(code(instead), []).append(f"`{command}`")
    for heading, columns, rows in (
        ("### Slurm", "Line | Here", [(spelled(each), code(each.here)) for each in SLURM]),
        ("### PBS", "Line | Here", [(spelled(each), code(each.here)) for each in PBS]),
        ("## Commands", "There | Here", [(", ".join(theirs), ours) for ours, theirs in verbs.items()]),
    ):
        table = "".join(f"| {' | '.join(row)} |\n" for row in (columns.split(" | "), ("---", "---"), *rows))
        begin = text.index("| ", text.index(f"{heading}\n"))
        text = text[:begin] + table + text[begin:].partition("\n\n")[1][1:] + text[begin:].partition("\n\n")[2]
    Snapshot(page, request.config.option.update_snapshots, {})(text)


def spelled(switch: Switch) -> str:
    of_list = "" if switch.names.startswith("-") else "-l "
    return ", ".join(f"`{of_list}{name}`" for name in switch.names.split())


def code(text: str) -> str:
    """What is in quotes, and our options, as code."""
    return re.sub(r"'([^']+)'|(?<![\w`-])(--[a-z-]+(?: N)?)", lambda match: f"`{match[1] or match[2]}`", text)
