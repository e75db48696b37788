"""Jobs that could never start on a site are left out before anything is simulated, and counted.

Under all policies that are compared alike, so that they have the same jobs: one of them alone may refuse a job that the
others would run (Uniform-Hard, for want of company of the other kind).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cosched.errors import BadInput
from cosched.model.time import FOREVER_US
from cosched.model.width import Shape
from cosched.workload.rules import Workload
from space_scheduler.machine.events import NodeJoined
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Policy
from space_scheduler.reasons import Reason
from space_scheduler.simulator.host import site_rules
from space_scheduler.simulator.site import Site
from space_scheduler.simulator.world import Submissions

CAUSE: Final = "fits_no_nodes"


def fitting(load: Workload, policies: Sequence[Policy], site: Site, *, strict: bool = False) -> Workload:
    """The workload without the jobs that one of the policies could never start on the empty site.

    ``skipped`` counts them as :data:`CAUSE`. Raises :class:`BadInput`: ``strict``, at the first of them.
    """
    keep = np.ones(len(load), np.bool_)
    for policy in policies:
        for row, why in _refused(load, policy, site).items():
            keep[row] = False
            if strict:
                where = f"{load.name}: job {load.job_id[row]}"
                raise BadInput(where, str(why), "a job that could start on the site's nodes")
    if keep.all():
        return load
    return replace(load.only(np.flatnonzero(keep)), skipped={**load.skipped, CAUSE: int((~keep).sum())})


def _refused(load: Workload, policy: Policy, site: Site) -> dict[int, Reason]:
    """By row, why a job could never start. Jobs that ask for the same are asked about once."""
    state = SchedulerState(policy, site_rules(policy, site))
    for node in site.nodes:
        state.handle(NodeJoined(node), 0)
    known: dict[tuple[int, int, int, str, Shape | None], Reason | None] = {}
    found = {}
    submissions = Submissions(load)
    while submissions.next_us < FOREVER_US:
        row, job = submissions.done, submissions.take()
        shape = job.procs, job.memory_bytes, job.cpu_permille, job.kind, job.shape
        if shape not in known:
            known[shape] = state.refusal(job)
        if (why := known[shape]) is not None:
            found[row] = why
    return found
