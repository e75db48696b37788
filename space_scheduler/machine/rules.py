"""What holds on a machine, and the error of a plan that does not fit it."""

from typing import Final

import msgspec

from cosched.errors import Failed
from cosched.model.components import Between
from cosched.model.coscheduling import Mode
from space_scheduler.policy.place import PLACES
from space_scheduler.progress import ALONE_PPM, Sharing

#: Of how decisions are made on shared nodes. 1, of journals that name none: surplus tasks of a uniform set go to its
#: first nodes, sets are ranked by the sum of what is used, one scan is made without a look at the head, and rates
#: are those of floats.
EDITION: Final = 2


class MachineRules(msgspec.Struct, frozen=True):
    """What holds on this machine.

    ``kill_at_limit``: a job ends at its estimate at the latest (the nodes see to it). ``release_at_limit``: at that
    very instant its processors count as free, even before its end is handled (half-open intervals, sequential ties).
    Where nodes have names, a job may use ``max_nodes_per_job`` of them (None: any number), and its tasks are laid on
    them by ``place``, a name in :data:`space_scheduler.policy.place.PLACES`. A job whose launch has failed is tried
    again on other nodes ``launch_retries`` times. ``sharing``: how jobs advance that share nodes (None: as if alone);
    ``mpl``: how many tasks may share a CPU (None: as many as nodes offer). ``coscheduling``: the mode of jobs that have
    none of their own, by which it is decided who takes turns (None: nobody does).

    ``fold_cost_ppm``: by how many millionths of its rate a folded job is slower than n / ⌈n/c⌉ says.
    ``resize_cost_us``: how long a running job does nothing after a change of the number of its processes.
    ``resize_retry_us``: for how long a job whose nodes have refused a change is left as it is. ``between``: what
    communication costs a job that lies on several clusters (None: nothing). ``edition``: see :data:`EDITION`.
    """

    kill_at_limit: bool = True
    release_at_limit: bool = False
    max_nodes_per_job: int | None = None
    place: str = "first-fit"
    awaits_nodes: bool = False
    launch_retries: int = 0
    sharing: Sharing | None = None
    mpl: int | None = None
    coscheduling: Mode | None = None
    fold_cost_ppm: int = 0
    resize_cost_us: int = 0
    resize_retry_us: int = 0
    between: Between | None = None
    edition: int = EDITION

    def __post_init__(self) -> None:
        names = [name for name, place in PLACES.items() if not place.refuses]
        if self.place not in names:  # who refuses a place must choose jobs, too: that is a policy
            raise ValueError(f"no way of placing is called {self.place!r}; there are {', '.join(names)}")
        if self.max_nodes_per_job is not None and self.max_nodes_per_job < 1:
            raise ValueError(f"a job cannot lie on {self.max_nodes_per_job} nodes: at least 1")
        if not 0 <= self.fold_cost_ppm < ALONE_PPM or self.resize_cost_us < 0:
            raise ValueError(f"no fold costs {self.fold_cost_ppm} millionths, and no resize {self.resize_cost_us} µs")


class BadPlan(Failed):
    """A policy planned what cannot be: nothing of the plan was applied. ``job_id``: the job that it is about, if any.

    Other errors of policies may have such an attribute, too.
    """

    def __init__(self, message: str, job_id: int | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
