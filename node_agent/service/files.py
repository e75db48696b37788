"""Files on the node that jobs and their output need: host files, ``cosched-rsh`` and its like, the spool."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from cosched.config.node import Paths
from cosched.linux.files import exec_problem
from cosched.wire.hostfile import hostfile, mpich_hosts, pvm_hosts
from cosched.wire.messages import Peer
from node_agent.core.attempt import key_name
from node_agent.programs import rank_witness, rsh

_LONGEST_SHEBANG = 250
#: Becomes one rank of an MPI program, once a witness watches it that says which rank it was where it ends badly:
#: ``mpirun`` itself sometimes doesn't. The witness is nobody's child that a program could wait for.
#: Where ``mpirun`` has no input, the rank has none: Open MPI 5.0.11 never closes the pipe that rank 0 would have.
_RANK: Final = """#!/bin/sh
: "$("{python}" -I -S "{witness}" "$$" "$PPID" &)"
{{ read -r daemon <"/proc/$PPID/comm"; }} 2>/dev/null
case $daemon in mpirun* | prterun*) [ "/proc/$PPID/fd/0" -ef /dev/null ] && exec </dev/null ;; esac
exec "$@"
"""
#: Starts PVM's daemon, on other nodes as the first daemon's remote command. Of one that was killed a file is left, with
#: the path of its socket in it (``pvmtmp000123.0`` is of process 123), and another would not start.
_PVMD: Final = """#!/bin/sh
for file in "${PVM_TMP:-/tmp}/pvmd.$(id -u)"*; do
    [ -f "$file" ] || continue
    socket=$(cat "$file")
    pid=${socket##*/pvmtmp}
    pid=$(echo "${pid%%.*}" | sed 's/^0*//')
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = pvmd ] || rm -f "$file" "$socket"
done
exec "${PVM_ROOT:-/usr/lib/pvm3}/lib/pvmd" "$@"
"""
_SYSTEM_PYTHONS = (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"))


class NodeFiles:
    """``run/jobs/ID.ATTEMPT/{nodes,nodes.mpich,nodes.pvm}``: the job's nodes, readable by its user."""

    def __init__(self, run: Path, node: str) -> None:
        self._jobs = run / "jobs"
        self._node = node

    def path(self, job_id: int, attempt: int, launcher: str = "") -> Path:
        """Where the node file is, or that of ``mpich`` or ``pvm``."""
        return self._jobs / key_name(job_id, attempt) / (f"nodes.{launcher}" if launcher else "nodes")

    def write(self, job_id: int, attempt: int, peers: tuple[Peer, ...]) -> None:
        """Write them. Raises OSError."""
        texts = {
            "": hostfile(peers),
            "mpich": mpich_hosts(peers),
            "pvm": pvm_hosts(peers, self._node, os.uname().nodename),
        }
        for launcher, text in texts.items():
            path = self.path(job_id, attempt, launcher)
            for directory in (self._jobs, path.parent):
                directory.mkdir(parents=True, exist_ok=True)
                directory.chmod(0o755)
            path.write_text(text, encoding="ascii")
            path.chmod(0o644)

    def remove(self, job_id: int, attempt: int) -> None:
        """Remove them, if they are there."""
        shutil.rmtree(self.path(job_id, attempt).parent, ignore_errors=True)


def interpreter() -> str:
    """The Python that runs ``cosched-rsh`` for jobs' users.

    The one this environment was made from (it starts faster than the environment's), unless it is closed to others, in
    a home directory for instance: then the system's, if there is one.
    """
    own = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    usable = (each for each in (own, *_SYSTEM_PYTHONS) if each.exists() and not exec_problem(each, others=True))
    return str(next(usable, own))


def script_problem(paths: Paths, *, others: bool = False) -> str:
    """Why jobs' scripts, which the guard puts below ``paths.state``, cannot be executed, with the remedy, or "".

    ``others``: by other users than this one.
    """
    problem = exec_problem(f"{paths.state}/jobs", others=others)
    return problem and f"{problem}: no job's script can be executed there; paths.state in node.toml names another place"


def programs_directory(paths: Paths, *, others: bool = False) -> Path:
    """Where ``cosched-rsh`` and its like can be executed: below ``paths.run``, or where that is ``noexec`` below
    ``paths.state``. Raises OSError.
    """
    places = Path(paths.run, "bin"), Path(paths.state, "bin")
    problems = [exec_problem(place, others=others) for place in places]
    if all(problems):
        raise OSError(f"no place for cosched-rsh: {'; '.join(dict.fromkeys(problems))}")
    return places[problems.index("")]


def install_rsh(place: Path) -> Path:
    """Put ``cosched-rsh`` and its like into that directory; the path of the first. Raises OSError."""
    python = interpreter()
    source = Path(rsh.__file__).read_text(encoding="utf-8")
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o755)
    witness = place / "rank_witness.py"
    _put(witness, Path(rank_witness.__file__).read_text(encoding="utf-8"), 0o644)
    _put(place / "cosched-rank", _RANK.format(python=python, witness=witness), 0o755)
    _put(place / "cosched-pvmd", _PVMD, 0o755)
    program = place / "cosched-rsh"
    if len(python) > _LONGEST_SHEBANG or " " in python:
        _put(place / "rsh.py", source, 0o644)
        _put(program, f'#!/bin/sh\nexec "{python}" -I -S "{place}/rsh.py" "$@"\n', 0o755)
    else:
        _put(program, f"#!{python} -IS\n{source}", 0o755)
    return program


def _put(path: Path, text: str, mode: int) -> None:
    """A whole new file: a running ``cosched-rsh`` keeps the one it has."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(mode)
    temporary.replace(path)
