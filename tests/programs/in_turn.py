"""Several runs of the command in one world: ``mpirun python in_turn.py JSON`` with a list of [FAULT or "", WORD, …].

Rank 0 prints a list of each run's exit status, output and errors.
"""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

from programs.faulty import FAULTS

from cosched.programs.command import PROGRAMS, main

ended = []
for fault, *words in json.loads(sys.argv[1]):
    programs = {FAULTS[fault].name: FAULTS[fault]} if fault else PROGRAMS
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = main(words, programs)
    ended.append((status, out.getvalue(), err.getvalue()))
from mpi4py import MPI  # noqa: E402 (as late as the command itself imports it: it says which threads it wants)

if MPI.COMM_WORLD.Get_rank() == 0:
    json.dump(ended, sys.stdout)
