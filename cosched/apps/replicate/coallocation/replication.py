"""The whole replication: what is simulated, in one go, and what is then told of it."""

from typing import Any, Final

from cosched.apps.replicate import steady
from cosched.apps.replicate.coallocation import beyond, cells, figures, judging, setup, shares
from cosched.apps.replicate.coallocation.runs import carried_out
from cosched.apps.replicate.coallocation.setup import FULL, QUICK, Scale
from cosched.apps.replicate.papers import TITLES, Request, scale_of
from cosched.apps.replicate.pool import Begin
from cosched.apps.replicate.result import Result
from cosched.errors import BadInput
from cosched.metrics import sequential

PAPER: Final = "coallocation"


def replicate(request: Request, begin: Begin) -> Result:
    """Run all experiments, full or quick."""
    if request.seeds is not None:
        raise BadInput("--seeds", str(request.seeds), "none: one stream of jobs, as long as the precision wants")
    return replicate_at(scale_of(request, FULL, QUICK), request, begin)


def replicate_at(scale: Scale, request: Request, begin: Begin) -> Result:
    """Run them at a given scale."""
    runs = carried_out(cells.every(scale), scale, request, begin)
    result = Result(PAPER, TITLES[PAPER], _configuration(scale, request))
    shares.report(result)
    figures.report(scale, runs, result)
    beyond.report(scale, runs, result)
    result.claims += judging.judged(scale, runs)
    result.notes += _notes(scale)
    return result


def _configuration(scale: Scale, request: Request) -> dict[str, Any]:
    """Everything that decides the outcome."""
    return {
        "quick": request.quick,
        "seed": setup.SEED,
        "scale": {**scale._asdict(), "lengths": scale.lengths._asdict()},
        "clusters": shares.CLUSTERS,
        "cluster_procs": shares.CLUSTER_PROCS,
        "threshold": shares.THRESHOLD,
        "phased_bounds": list(shares.PHASED_BOUNDS),
        "size_bounds": list(shares.SIZE_BOUNDS),
        "widest_bounds": list(shares.WIDEST_BOUNDS),
        "divisions": {name: [partition.value, most] for name, (partition, most) in cells.DIVISIONS.items()},
        "controls": list(setup.CONTROLS),
        "batches": {
            "long": sequential.BATCHES,
            "short": sequential.SHORT_BATCHES,
            "correlated_from": sequential.CORRELATED,
            "block": sequential.BLOCK,
        },
        "unstable": {"growth_above": steady.GROWTH_LIMIT, "and_backlog_above_jobs": setup.WAITING_JOBS},
    }


def _notes(scale: Scale) -> list[str]:
    """Rules, what the paper leaves open, and what is not there."""
    wanted = f"{100 * scale.lengths.precision:g} %"
    return [
        "Open in the paper, chosen here before the runs: maxJumps and thres of its figures; the widths of W1 to W4 "
        "(quartiles); that the last component takes the whole remainder, as its formula has it.",
        f"Each run is as long as half of each group's 95 % interval is at most {wanted} of its mean, of at most "
        f"{scale.lengths.most} jobs, under FCFS {scale.most_fcfs}; what is less precise is told of in the table of "
        "runs. thres of 14 and more under FCFS is outside of that.",
        "The transient is deleted by MSER-5; batches by Law & Carson's rule of correlation; means are corrected by the "
        f"waits of single servers with loads of {', '.join(f'{each:g}' for each in setup.CONTROLS)}, which are known.",
        "All policies meet the same jobs. Fairness is S4's mean response over S1's, and Jain's index of S1 to S4.",
    ]
