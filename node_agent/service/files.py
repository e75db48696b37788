"""The agent's own programs for jobs, ``cosched-rsh`` and the witness of ranks, and where they can be run."""

import sys
from pathlib import Path

from cosched.config.node import Paths
from cosched.linux.files import exec_problem
from node_agent.programs import rank_witness, rsh

_LONGEST_SHEBANG = 250
#: (Programs that an agent of version 4 of the link has left run ``rank_witness.py`` beside it, in other words.)
WITNESS = "witness.py"
#: Names beside ``cosched-rsh`` that are the agent's.
OWN_PROGRAMS = frozenset({"cosched-rsh", "rsh.py", WITNESS})
_SYSTEM_PYTHONS = (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"))


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


def witness_command(rsh: Path) -> str:
    """The beginning of a shell command that runs the witness beside an installed ``cosched-rsh``."""
    return f'"{interpreter()}" -I -S "{rsh.with_name(WITNESS)}"'


def install_rsh(place: Path) -> Path:
    """Put ``cosched-rsh`` and the witness into that directory; the path of the first. Raises OSError."""
    python = interpreter()
    source = Path(rsh.__file__).read_text(encoding="utf-8")
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o755)
    put(place / WITNESS, Path(rank_witness.__file__).read_text(encoding="utf-8"), 0o644)
    program = place / "cosched-rsh"
    if len(python) > _LONGEST_SHEBANG or " " in python:
        put(place / "rsh.py", source, 0o644)
        put(program, f'#!/bin/sh\nexec "{python}" -I -S "{place}/rsh.py" "$@"\n', 0o755)
    else:
        put(program, f"#!{python} -IS\n{source}", 0o755)
    return program


def put(path: Path, content: str | bytes, mode: int) -> None:
    """Write a whole new file: a running program keeps the one it has. Raises OSError."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    temporary.chmod(mode)
    temporary.replace(path)
