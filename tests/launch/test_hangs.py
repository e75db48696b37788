"""What is said of MPI programs that lose their standard input or wait until the limit: the script, the error output."""

import pytest

from space_scheduler.launch import cause_of_time_out, script_notes

EATEN = "{0} takes the lines that 'while read' is to read: '{0} … </dev/null' does not"
ENDLESS = "under {} of Open MPI 5 a program never sees the end of its standard input: "

#: A script's lines after the first -> the notes about them, each up to its remedy.
SCRIPTS = {
    "printf 'a\\nb\\n' | while read x; do echo $x; mpirun -n 1 hostname; done": ["line 2: " + EATEN.format("mpirun")],
    "while IFS= read -r x\ndo\n  mpiexec.mpich \\\n    ./prog $x\ndone < list": [
        "line 4: " + EATEN.format("mpiexec.mpich")
    ],
    "while read x; do /usr/bin/mpirun ./prog 2>&1 >out; done": ["line 2: " + EATEN.format("mpirun")],
    "while read x; do for i in 1 2; do mpirun ./prog $i; done; done": ["line 2: " + EATEN.format("mpirun")],
    "while read x; do mpirun ./prog 2>&1 </dev/null; done": [],
    "while read x; do mpirun --stdin none ./prog; done": [],
    "while read -u 3 x; do mpirun ./prog; done 3<list": [],
    "while read x <&3; do mpirun ./prog; done": [],
    "while true; do mpirun ./prog; done": [],
    "while read x; do echo $x; done\nmpirun ./prog": [],
    "# while read x; do mpirun ./prog; done\nmpirun ./prog": [],
    "exec mpirun ./prog < input": ["line 2: " + ENDLESS.format("mpirun")],
    "cat input | mpiexec ./prog": ["line 2: " + ENDLESS.format("mpiexec")],
    "mpirun ./prog <<END\n1\nEND": ["line 2: " + ENDLESS.format("mpirun")],
    "exec mpirun.openmpi ./prog < input": [],
    "test -f input || mpirun ./prog <(cat input)": [],
}


@pytest.mark.parametrize("lines", SCRIPTS)
def test_scripts_that_lose_standard_input_are_noted_with_line_and_remedy(lines: str) -> None:
    found = script_notes(f"#!/bin/bash\n{lines}\n")
    assert len(found) == len(SCRIPTS[lines]), found
    for note, expected in zip(found, SCRIPTS[lines], strict=True):
        assert note.startswith(expected)


@pytest.mark.parametrize(
    "piece", ["while read ", "mpirun ", "done;", "|" + " " * 50, "mpirun \\\n", "while read;", "(< "]
)
def test_notes_of_a_script_of_one_megabyte_repeated_end(piece: str) -> None:
    script_notes(piece * ((1 << 20) // len(piece)))


RAISED = """\
Traceback (most recent call last):
  File "boom.py", line 3, in <module>
    if c.rank==1: raise ValueError("boom")
                  ^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: boom
"""
SCRIPT = "#!/bin/sh\nexec mpirun ./prog\n"
MPICH = "[mpiexec@node1] HYDT_bscu_wait_for_completion (tools/bootstrap/utils/bscu_wait.c:73): one of the processes\n"


def test_time_out_after_a_ranks_exception_names_it_and_mpi4pys_runner() -> None:
    told = cause_of_time_out(f"starting\n{RAISED}", 2, SCRIPT)
    assert told.startswith("a rank ended with ValueError: boom, and the others may have waited for it: ")
    assert "'mpirun python3 -m mpi4py PROGRAM'" in told
    assert cause_of_time_out(RAISED, 1, SCRIPT) == ""


@pytest.mark.parametrize(("error", "script"), [(MPICH, SCRIPT), ("", "#!/bin/sh\nexec mpiexec.mpich ./prog\n")])
def test_time_out_under_mpich_names_the_hang_in_finalize_and_its_remedy(error: str, script: str) -> None:
    told = cause_of_time_out(error, 4, script)
    assert "it hung in MPI_Finalize, as MPICH 4.0 may: link or preload mpich_finalize.c" in told


def test_time_out_under_a_plain_mpiexec_beside_hydras_proxy_names_mpichs_hang() -> None:
    assert "it hung in MPI_Finalize, as MPICH 4.0 may" in cause_of_time_out(
        "", 4, "#!/bin/sh\nexec mpiexec ./prog\n", {"hydra_pmi_proxy"}
    )
    assert cause_of_time_out(RAISED, 4, SCRIPT, {"hydra_pmi_proxy"}).startswith("a rank ended with"), (
        "what is certain comes first"
    )


def test_time_out_without_a_sign_of_a_hang_names_none() -> None:
    script = "#!/bin/sh\n# not mpiexec.mpich\nexec mpirun ./prog\n"
    assert cause_of_time_out("[mpirun] nothing\nValueError: no traceback\n", 4, script) == ""
