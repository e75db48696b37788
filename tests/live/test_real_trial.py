"""A workload of the paper's on a lab, as 'cosched replicate cisne --real' runs it, but with few short jobs."""

import os

import pytest

from cosched.apps.experiments import cisne_trial as trial
from cosched.apps.experiments.jobs import Cannot
from cosched.model.coscheduling import Mode

pytestmark = pytest.mark.xdist_group("live")

SMALL = trial.Cluster("coscheduling", 2, 1, 4, 0.03, "S", pin=len(os.sched_getaffinity(0)) >= 2)


@pytest.mark.long
def test_a_workload_is_run_to_its_end_by_real_programs() -> None:
    said: list[str] = []
    try:
        alone = trial.rates(SMALL, said.append)
    except Cannot as error:
        pytest.skip(str(error))
    assert set(alone) == {f"{name} 2" for name in ("CG", "IS", "MG", "BT")}
    assert all(rate > 0 and start_s > 0 for rate, start_s in alone.values())
    found = trial.run(SMALL, "3dbf-light(any-owners)", Mode.CCS, "SIT", 1, alone, said.append)
    assert len(found.jobs) == 4
    for job in found.jobs:
        assert job.submit_s <= job.start_s < job.end_s
        assert len(job.nodes) == 2
    assert found.measured.makespan_s < found.took_s
