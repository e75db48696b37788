"""EASY and EASY++ with predicted run times against a plain simulator: every start, to the microsecond."""

from dataclasses import replace

import numpy as np
import pytest
from kit.loads import J, story, workload

from cosched.workload.rules import Workload
from reference.predictions import PlainJob, starts
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import simulate

PROCS = 8


def drawn(seed: int) -> Workload:
    """Sixty jobs of three users, some of them of no known user, many of which take far less than they ask for."""
    rng = np.random.default_rng(seed)
    jobs = [
        J(int(submit), int(rng.integers(1, PROCS + 1)), int(estimate), int(rng.integers(1, estimate + 1)))
        for submit, estimate in zip(np.sort(rng.integers(0, 20_000, 60)), rng.choice([60, 600, 3600], 60), strict=True)
    ]
    return replace(workload(PROCS, jobs), user=rng.integers(1, 4, len(jobs)))


@pytest.mark.parametrize("policy", ["easy", "sjbf"])
def test_every_start_is_that_of_the_plain_simulator(policy: str) -> None:
    moved = 0
    for seed in range(40):
        load = drawn(seed)
        columns = (load.submit_us, load.run_us, load.procs, load.estimate_us, load.user)
        jobs = [PlainJob(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
        outcome = simulate(load, resolve(policy), predicted=True)
        assert outcome.start_us.tolist() == starts(jobs, PROCS, shortest=policy == "sjbf"), f"{seed}: {story(load)}"
        moved += outcome.start_us.tolist() != simulate(load, resolve(policy)).start_us.tolist()
    assert moved == 40
