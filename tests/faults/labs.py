"""Two labs in simulated faults: nodes that belong to clusters, jobs of components, and a link that is cut.

Of every fourth seed, and of some of those in which shapes change. A component lies on the nodes of one lab, no two
components of a job on the same, whatever is lost, late or restarted meanwhile. A lab that cannot be reached is lost,
and what runs wholly there is waited for.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from cosched.model.job import Job
from cosched.model.width import Components, Flexible
from faults.violation import Violation
from space_scheduler.machine.instructions import Start

#: Of nodes that do not share CPUs, and of those that do.
APART = ("coalloc-fpfs(2)", "coalloc-fcfs", "easy", "conservative")
SHARING = ("3dbf-light", "normal")
_LABS = {"n1": "west", "n2": "west", "n3": "east"}


def has_labs(seed: int) -> bool:
    """Whether the nodes of this history belong to two labs."""
    return seed % 4 == 1 or seed % 16 == 3 or seed % 32 == 26


def lab_of(seed: int, name: str) -> str | msgspec.UnsetType:
    """The lab of a node, as its agent tells it; unset: it tells none."""
    return _LABS[name] if has_labs(seed) else msgspec.UNSET


def divided(job: Job, seed: int, chance: Random) -> Job:
    """The job, of two components in some histories, given by its user or chosen when it starts."""
    if not has_labs(seed) or job.procs < 2 or job.shape is not None or chance.random() < 0.4:
        return job
    first = chance.randrange(1, job.procs)
    shape = Components((first, job.procs - first)) if chance.random() < 0.7 else Flexible(job.procs, 2)
    return msgspec.structs.replace(job, shape=shape)


def judge(start: Start, lab_of_node: Callable[[str], str]) -> None:
    """Each component of a job that starts has nodes of one lab. Raises :class:`Violation`."""
    widths: Counter[str] = Counter()
    for share in start.allocation.nodes:
        widths[lab_of_node(share.node)] += share.tasks
    shape = start.job.shape
    if isinstance(shape, Components):
        fits = sorted(widths.values()) == sorted(shape.procs)
    else:
        fits = len(widths) <= (shape.most if isinstance(shape, Flexible) else 1)
    if not fits:
        raise Violation(f"C1: job {start.job.id} of {shape or start.job.procs} is started as {dict(widths)}")
