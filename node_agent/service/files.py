"""Files on the node that jobs and their output need: the node file, ``cosched-rsh``, the spool."""

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Final

from cosched.wire.hostfile import hostfile
from cosched.wire.messages import MAX_CHUNK_BYTES, Peer
from node_agent import rsh

STREAMS: Final = ("stdout", "stderr")
TAIL_BYTES: Final = 4096
_LONGEST_SHEBANG = 250
#: Runs one rank of an MPI program, and says which it was where it ends badly: ``mpirun`` itself sometimes doesn't. A
#: rank that is ended together with its group takes this shell along, and nothing is said.
_RANK: Final = """#!/bin/sh
"$@"
status=$?
[ "$status" -eq 0 ] || echo "cosched: rank ${PMIX_RANK:-$OMPI_COMM_WORLD_RANK} ended with status $status" >&2
exit "$status"
"""
_SYSTEM_PYTHONS = (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"))


def key(job_id: int, attempt: int) -> str:
    """An attempt's name in paths."""
    return f"{job_id}.{attempt}"


class NodeFiles:
    """``run/jobs/ID.ATTEMPT/nodes``: the job's nodes, readable by its user."""

    def __init__(self, run: Path) -> None:
        self._jobs = run / "jobs"

    def path(self, job_id: int, attempt: int) -> Path:
        """Where it is."""
        return self._jobs / key(job_id, attempt) / "nodes"

    def write(self, job_id: int, attempt: int, peers: tuple[Peer, ...]) -> None:
        """Write it. Raises OSError."""
        path = self.path(job_id, attempt)
        for directory in (self._jobs, path.parent):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o755)
        path.write_text(hostfile(peers), encoding="ascii")
        path.chmod(0o644)

    def remove(self, job_id: int, attempt: int) -> None:
        """Remove it, if it is there."""
        shutil.rmtree(self.path(job_id, attempt).parent, ignore_errors=True)


class Spool:
    """Output of job scripts, ``spool/ID.ATTEMPT/{stdout,stderr}``; nobody but the agent reads it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, job_id: int, attempt: int, stream: str) -> int:
        """A descriptor to append to. Raises OSError."""
        directory = self._directory / key(job_id, attempt)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(directory / stream, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self, job_id: int, attempt: int, stream: str, offset: int, max_bytes: int) -> tuple[bytes, int]:
        """A piece from ``offset`` (negative: from the end), and the size there is. Raises OSError."""
        with (self._directory / key(job_id, attempt) / stream).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size + offset) if offset < 0 else min(offset, size))
            return file.read(max(0, min(max_bytes, MAX_CHUNK_BYTES))), size

    def tail(self, job_id: int, attempt: int) -> bytes:
        """The last bytes of the error output; empty where there is none."""
        try:
            return self.read(job_id, attempt, "stderr", -TAIL_BYTES, TAIL_BYTES)[0]
        except OSError:
            return b""

    def remove(self, job_id: int, attempt: int) -> None:
        """Remove an attempt's output, if there is any."""
        shutil.rmtree(self._directory / key(job_id, attempt), ignore_errors=True)


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
    """Put ``cosched-rsh`` and ``cosched-rank`` where programs are allowed; the path of the first. Raises OSError.

    ``/run`` is mounted without programs on some systems, so there is more than one place.
    """
    python = interpreter()
    source = Path(rsh.__file__).read_text(encoding="utf-8")
    refused = "no place for cosched-rsh"
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o755)
        if os.statvfs(place).f_flag & os.ST_NOEXEC:
            refused = f"{place} is mounted without programs (noexec)"
            continue
        _put(place / "cosched-rank", _RANK, 0o755)
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
