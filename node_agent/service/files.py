"""Files on the node that jobs and their output need: host files, ``cosched-rsh`` and its like, the spool."""

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Final

from cosched.linux.files import is_noexec
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


def open_to_all(path: Path) -> bool:
    """Whether every user of this machine may run that file."""
    try:
        return all(os.stat(each).st_mode & stat.S_IXOTH for each in (path, *path.parents))
    except OSError:
        return False


def interpreter() -> str:
    """The Python that runs ``cosched-rsh`` for jobs' users.

    The one this environment was made from (it starts faster than the environment's), unless it is closed to others, in
    a home directory for instance: then the system's, if there is one.
    """
    own = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    return str(next((each for each in (own, *_SYSTEM_PYTHONS) if open_to_all(each)), own))


def install_rsh(places: tuple[Path, ...]) -> Path:
    """Put ``cosched-rsh`` and its like where programs are allowed; the path of the first. Raises OSError.

    ``/run`` is mounted without programs on some systems, so there is more than one place.
    """
    python = interpreter()
    source = Path(rsh.__file__).read_text(encoding="utf-8")
    refused = "no place for cosched-rsh"
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o755)
        if is_noexec(place):
            refused = f"{place} is mounted without programs (noexec)"
            continue
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
    raise OSError(refused)


def _put(path: Path, text: str, mode: int) -> None:
    """A whole new file: a running ``cosched-rsh`` keeps the one it has."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(mode)
    temporary.replace(path)
