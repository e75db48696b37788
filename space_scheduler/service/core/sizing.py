"""How many tasks a job of several sizes has when it is accepted: the largest number that could ever start here.

It waits with that. What else it could have stays with it (``Job.shape``), for policies that give jobs other
shapes. A job with a minimum and a maximum is *resident* (``Range.resident``): a program of MPI cannot add processes
while it runs. A job that says its components has them; of others a cluster's settings divide the wide ones over
several clusters (``cosched.model.components``): drawn when it is accepted, and journalled with it.
"""

from random import Random
from typing import Final

import msgspec

from cosched.errors import Failed
from cosched.model.components import Dividing
from cosched.model.job import Job
from cosched.model.sizes import MAX_TASKS, parse_sizes
from cosched.model.width import Components, Range
from cosched.wire.api import Submission
from space_scheduler.machine.state import SchedulerState
from space_scheduler.reasons import Why

#: Why, for people.
NOT_RESHAPED: Final = "the policy in force gives jobs no other shapes"
#: So many sizes are tried one after the other.
_SINGLY: Final = 100


class SizesUnknown(Failed):
    """How large a job of several sizes can be is known when the first node has joined."""


def sized(job: Job, asked: Submission, state: SchedulerState) -> tuple[Job, Submission]:
    """The job in the size that it gets, and as what it was submitted then; one that says a single size is as it was.

    Its shape has the sizes that it could have on the processors that ever joined. Where none could ever start, it is in
    its smallest: the core says by which limit. Raises :class:`SizesUnknown`. ``asked`` was checked.
    """
    if not asked.several_sizes:
        return job, asked
    installed = state.machine.capacity.procs_installed
    if not installed:
        raise SizesUnknown("no node has joined yet: how large a job of several sizes can be here is not known")
    smallest, _, _ = _sizes(asked, MAX_TASKS)
    least, most, sizes = _sizes(asked, installed)
    if not least:
        return job.at(smallest), asked
    malleable = asked.sizes is None
    more = asked.evolve_tasks or 0
    shape = Range(
        least,
        most,
        sizes,
        malleable=malleable,
        resident=malleable,
        ask_more=more,
        ask_fewer=min(more, least - 1),
    )
    job = msgspec.structs.replace(job, procs=most, shape=shape)
    tasks = _largest(job, shape, state) or smallest
    return job.at(tasks), msgspec.structs.replace(asked, tasks=tasks)


def divided(job: Job, asked: Submission, state: SchedulerState, dividing: Dividing | None, seed: str) -> Job:
    """The job in its components, where it has any: as it says, or as wide ones are divided.

    It has no more than there are clusters whose nodes ever joined. ``seed`` decides what is drawn.
    """
    if asked.components is not None:
        return msgspec.structs.replace(job, shape=Components(asked.components))
    if dividing is None or asked.several_sizes:
        return job
    clusters = len({each.node.cluster for each in state.nodes()})
    within = msgspec.structs.replace(dividing, most=min(dividing.most, clusters))
    return msgspec.structs.replace(job, shape=within.shape(job.procs, Random(seed)))


def _sizes(asked: Submission, most: int) -> tuple[int, int, tuple[int, ...]]:
    """Least, most and single sizes of at most so many tasks, as ``parse_sizes`` gives them."""
    if asked.sizes is not None:
        return parse_sizes(asked.sizes, most)
    least, last = asked.min_tasks or 1, min(asked.max_tasks or most, most)
    if asked.min_tasks is None and asked.max_tasks is None:  # it asks for others while it runs
        least, last = asked.tasks, min(asked.tasks, most)
    return (least, last, ()) if least <= last else (0, 0, ())


def _largest(job: Job, shape: Range, state: SchedulerState) -> int | None:
    """The largest size that could ever start, or None.

    After a hundred sizes in vain, which a place with a rule of its own may refuse one by one, it is half of the last,
    and half of that: whoever submits has the scheduler look at so many and no more.
    """
    job = state.machine.programs.known(job)  # as the core takes it in
    size: int | None = job.procs
    tries = 0
    while size is not None and (refused := state.refusal(job.at(size))) is not None:
        if refused.why is Why.TASK_TOO_LARGE:
            return None
        fitting = refused.numbers.get("fitting_procs", size)  # no more than these, whatever else is in the way
        tries += 1
        size = shape.largest(min(size - 1 if tries < _SINGLY else size // 2, fitting))
    return size
