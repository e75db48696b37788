"""The papers that can be replicated, and what a run of one is asked for."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from cosched.apps.replicate.pool import Begin
from cosched.apps.replicate.result import Result
from cosched.errors import BadInput, nearest
from cosched.workload import catalogue
from space_scheduler.simulator.experiment import find_log

#: Name -> the module that replicates it: ``replicate(request, begin) -> Result``, imported when it is asked for.
PAPERS: Final[dict[str, str]] = {
    "adaptive": "cosched.apps.replicate.adaptive.replication",
    "backfilling": "cosched.apps.replicate.backfilling.replication",
    "bfm": "cosched.apps.replicate.bfm.replication",
    "cisne": "cosched.apps.replicate.cisne.replication",
    "coallocation": "cosched.apps.replicate.coallocation.replication",
    "predictions": "cosched.apps.replicate.predictions",
}

#: Name -> the paper.
TITLES: Final[dict[str, str]] = {
    "adaptive": "Kalé et al. 2002, A malleable-job system for timeshared parallel machines",
    "backfilling": "Feitelson & Weil 1998, Utilization and predictability in scheduling the IBM SP2 with backfilling",
    "bfm": "Utrera et al. 2005, Another approach to backfilled jobs: applying virtual malleability to expired windows",
    "cisne": "Hanzich et al. 2005, What to consider for applying backfilling on non-dedicated environments",
    "coallocation": "Ngubiri & van Vliet 2006, Group-wise performance evaluation of processor co-allocation",
    "predictions": "Tsafrir et al. 2007, Backfilling using system-generated predictions",
}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. ``seeds`` None stands for the paper's own number, ``log`` None for the log the paper used.

    ``reshaped``: of adaptive, a file of ``./run bench reshape --out``; empty: what comes with cosched.
    ``kept``: a directory of answers of simulations (``cosched.apps.replicate.kept``).
    ``owners``: of CISNE's desks, "stay" from beginning to end, or "sessions" (``cisne.setup.STAYS``).
    """

    paper: str
    log: str | None = None
    quick: bool = False
    seeds: int | None = None
    workers: int = 2
    real: bool = False
    owners: str = "stay"
    reshaped: str = ""
    kept: Path | None = None


def replicate(request: Request, begin: Begin) -> Result:
    """Run a paper's experiments. Raises :class:`BadInput` for a paper that is not known here."""
    if request.paper not in PAPERS:
        near = nearest(request.paper, PAPERS)
        raise BadInput("PAPER", f"no replication {request.paper!r}", "one of " + ", ".join(PAPERS), nearest=near)
    result: Result = importlib.import_module(PAPERS[request.paper]).replicate(request, begin)
    return result


Scale = TypeVar("Scale")


def scale_of(request: Request, full: Scale, quick: Scale, *seeded: str, of_log: bool = False) -> Scale:
    """How much is run: of what is ``seeded``, as many seeds as are asked for. Raises :class:`BadInput`."""
    if request.real:
        raise BadInput("--real", "decided in simulation only: the paper has no real part")
    if request.log is not None and not of_log:
        raise BadInput("LOG", request.log, "none: the paper's workload is generated")
    scale = quick if request.quick else full
    if request.seeds is None:
        return scale
    return msgspec.structs.replace(scale, **dict.fromkeys(seeded, request.seeds))  # type: ignore[type-var]


def log_name(path: Path) -> str:
    """A log's name, by its file."""
    return path.name.removesuffix(".gz").removesuffix(".swf")


def thanks(names: Iterable[str]) -> list[str]:
    """The acknowledgements that public logs ask for."""
    known = [name for name in names if name in catalogue.LOGS]
    return [f"{n}: thanks to {catalogue.LOGS[n].provider}, and to the Parallel Workloads Archive." for n in known]


def required_log(given: str | None, name: str) -> Path:
    """The file of the log that was asked for, or of the public log that the paper used."""
    path = find_log(given or name)
    if path.exists():
        return path
    if given and given not in catalogue.LOGS:
        return path  # the reader says best what is wrong with it
    raise BadInput(
        given or name,
        "this public log is not here",
        f"its file as LOG, a folder that has it in COSCHED_TRACES, or 'cosched workload fetch {given or name}' first",
    )
