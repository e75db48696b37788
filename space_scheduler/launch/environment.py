"""All launchers: a job's whole environment and files, and the first launcher that can explain its failure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from cosched.errors import BadInput
from cosched.model.coscheduling import Mode
from cosched.wire.api import Failure
from cosched.wire.messages import JobFile, Peer
from space_scheduler.launch import open_mpi_reports
from space_scheduler.launch.interface import Context, Launcher
from space_scheduler.launch.mpich import Mpich
from space_scheduler.launch.open_mpi_4 import OpenMpi4
from space_scheduler.launch.open_mpi_5 import OpenMpi5
from space_scheduler.launch.pvm import Pvm
from space_scheduler.launch.serial import Serial

#: All of them, the most telling diagnosis first.
LAUNCHERS: Final[tuple[Launcher, ...]] = (OpenMpi5(), OpenMpi4(), Mpich(), Pvm(), Serial())

#: Two-phase waiting as far as message libraries offer it: none blocks after spinning, they go on to yield. (Open MPI
#: yields in every empty round or never, MPICH after so many.) Processes that share a CPU need it, too.
SPIN: Final = {name: value for each in LAUNCHERS for name, value in each.spin.items()}
_NEVER_YIELDS: Final = frozenset({"", "0", "false", "no", "disabled"})

# What a submission from inside another job or batch system leaves behind: launchers would take it for their own.
_FOREIGN = re.compile(
    r"(OMPI_COMM_WORLD_|OMPI_UNIVERSE_|PMIX_|PMI_|PRTE_JOB|ORTE_|PVMSOCK|PVMEPID|PVMTMASK|PVMCTX|"
    r"SLURM_|PBS_|LSB_|LSF_|SGE_|COBALT_|COSCHED_)"
)
# A name that every shell can hand on.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LARGEST_BYTES = 128 << 10


def job_environment(context: Context) -> dict[str, str]:
    """The environment of every process of a job, the same on all nodes (``wire.messages.Prepare.environment``).

    In rising rank: what launchers set by default, what was submitted, what launchers and job require. Of what was
    submitted, variables of another job or batch system are left out.
    """
    environment: dict[str, str] = {}
    for launcher in LAUNCHERS:
        environment.update(launcher.defaults(context))
    if context.coscheduling == Mode.SPIN or context.folds:
        environment.update(SPIN)
    environment.update({name: value for name, value in context.submitted.items() if not _FOREIGN.match(name)})
    for launcher in LAUNCHERS:
        environment.update(launcher.required(context))
    return environment


def job_files(context: Context, node: str) -> tuple[JobFile, ...]:
    """The files that a job needs on one of its nodes: of all launchers, each once."""
    return tuple(dict.fromkeys(file for each in LAUNCHERS for file in each.files(context, node)))


def watched() -> tuple[str, ...]:
    """The processes of launchers of which nodes tell whether they have seen them."""
    return tuple(name for each in LAUNCHERS for name in each.watched)


def yields(submitted: Mapping[str, str]) -> bool:
    """Whether the processes of a job that may be folded yield while they wait, as far as its environment says."""
    return all(submitted.get(name, value).strip().lower() not in _NEVER_YIELDS for name, value in SPIN.items())


def diagnose(error_tail: bytes, peers: Sequence[Peer]) -> Failure | None:
    """Which rank failed, on which node, and why, by the last bytes of a job's error output; None: nobody can tell.

    ``tail`` of the answer is left empty: the caller has the lines.
    """
    error = error_tail.decode(errors="replace")
    return next((found for each in LAUNCHERS if (found := each.diagnose(error, peers))), None)


def unnoticed(error_tail: bytes, peers: Sequence[Peer]) -> Failure | None:
    """What makes a job failed although its script ended with status 0: a launcher that hid the loss of ranks."""
    return open_mpi_reports.lost_daemon(error_tail.decode(errors="replace"), peers)


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse what cannot be handed to a program: a submission's environment. Raises :class:`BadInput` with the key."""
    for name, value in environment.items():
        if not _NAME.fullmatch(name):
            raise BadInput(f"environment.{name!r}", "not a variable's name", "letters, digits and _, no digit first")
        if "\0" in value:
            raise BadInput(f"environment.{name}", "a value with a NUL character in it")
    size_bytes = sum(
        len(name.encode()) + len(value.encode(errors="replace")) + 2 for name, value in environment.items()
    )
    if size_bytes > _LARGEST_BYTES:
        raise BadInput(
            "environment", f"{size_bytes} bytes", f"at most {_LARGEST_BYTES}; name what the job needs by --export"
        )
