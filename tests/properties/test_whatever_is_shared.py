"""What holds wherever jobs and owners share nodes, whatever comes: limits, company, promises, work."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from kit.drive import policy_named
from kit.loads import J, workload

from cosched.model.coscheduling import Mode
from cosched.model.job import Job
from cosched.model.node import Node, Owner
from cosched.model.time import FOREVER_US, US_PER_S
from cosched.workload.rules import Tasks, Workload
from space_scheduler.machine.events import Event, JobEnded
from space_scheduler.machine.instructions import Instruction, RateChanged, Start, Tell
from space_scheduler.machine.record import Infeasible
from space_scheduler.progress import ALONE_PPM, Sharing
from space_scheduler.simulator.host import Outcome, Site, Stuck, simulate

POLICIES = ("basic", "normal", "uniform-light", "uniform-hard", "2dbf", "3dbf-light", "3dbf-hard")
COSTS = {"cpu": {"cpu": 100, "comm": 30, "owner": 50}, "comm": {"cpu": 400, "comm": 700}}
MEMORY = 100


@st.composite
def shared_loads(draw: st.DrawFn) -> Workload:
    count = draw(st.integers(1, 9))
    jobs = [
        J(draw(st.integers(0, 20)), draw(st.integers(1, 4)), run, run)
        for run in draw(st.lists(st.integers(1, 30), min_size=count, max_size=count))
    ]
    load = workload(64, sorted(jobs, key=lambda job: job.submit))
    tasks = Tasks(
        np.array(draw(st.lists(st.sampled_from([0, 10, 30, 45]), min_size=count, max_size=count))),
        np.array(draw(st.lists(st.sampled_from([300, 700, 1000]), min_size=count, max_size=count))),
        draw(st.lists(st.sampled_from(["cpu", "comm", ""]), min_size=count, max_size=count)),
    )
    return Workload(**{**vars(load), "tasks": tasks})


@st.composite
def sites(draw: st.DrawFn) -> Site:
    cpus = draw(st.sampled_from([1, 1, 2]))
    nodes = [Node(f"n{i}", 3 * cpus, MEMORY, cpus, 500, MEMORY // 2, MEMORY) for i in range(draw(st.integers(1, 4)))]
    owners = [(0, node.name, Owner(150, draw(st.sampled_from([20, 60])))) for node in nodes[1:] if draw(st.booleans())]
    sharing = Sharing(draw(st.sampled_from(list(Mode))), draw(st.sampled_from([{}, COSTS])))
    return Site(nodes, owners, sharing)


@dataclass
class Watch:
    """Books of its own: who is where, what each was promised, and how much of its work is done."""

    site: Site
    hard: bool
    on: dict[str, dict[int, tuple[Job, int]]] = field(default_factory=dict)
    promised_us: dict[int, int] = field(default_factory=dict)
    rates: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # (since, rate, done)
    done: dict[int, int] = field(default_factory=dict)

    def __call__(self, now_us: int, event: Event, instructions: list[Instruction]) -> None:
        if isinstance(event, JobEnded):
            since_us, rate, done = self.rates.pop(event.job_id)
            self.done[event.job_id] = done + (now_us - since_us) * rate
            for here in self.on.values():
                here.pop(event.job_id, None)
        for each in instructions:
            if isinstance(each, Start):
                self.start(each, now_us)
            elif isinstance(each, Tell):
                assert each.promised_us <= self.promised_us.get(each.job_id, FOREVER_US), f"moved later: {each}"
                self.promised_us[each.job_id] = each.promised_us
            elif isinstance(each, RateChanged):
                since_us, rate, done = self.rates[each.job_id]
                self.rates[each.job_id] = (now_us, each.rate_ppm, done + (now_us - since_us) * rate)

    def start(self, start: Start, now_us: int) -> None:
        assert now_us <= self.promised_us.pop(start.job.id, FOREVER_US), f"later than promised: {start}"
        self.rates[start.job.id] = (now_us, ALONE_PPM, 0)
        for share in start.allocation.nodes:
            self.on.setdefault(share.node, {})[start.job.id] = (start.job, share.tasks)
        self.limits(start)
        if self.hard:
            self.company(start)

    def limits(self, start: Start) -> None:
        owners = {name: owner for _, name, owner in self.site.owners}
        for node in self.site.nodes:
            here = self.on.get(node.name, {}).values()
            assert sum(tasks for _, tasks in here) <= node.procs, start
            held = sum(tasks * job.memory_bytes for job, tasks in here)
            owner = owners.get(node.name)
            most = MEMORY if owner is None else min(MEMORY // 2, MEMORY - owner.memory_bytes)
            assert held <= most, start

    def company(self, start: Start) -> None:
        """Hard's two rules, for the newcomer and all who share a node with it."""
        mine = [share.node for share in start.allocation.nodes]
        assert len({frozenset(self.on[name]) for name in mine}) == 1, f"not the same company: {self.on}"
        for other in self.on[mine[0]]:
            assert {name for name, here in self.on.items() if other in here} == set(mine), f"{other} is elsewhere, too"
        for name in mine:
            kinds = {job.kind or "cpu" for job, _ in self.on[name].values()}
            assert len(self.on[name]) == 1 or len(kinds) == 2, f"company of its own kind alone: {self.on[name]}"
        owned = {name for _, name, _ in self.site.owners}
        assert len({name in owned for name in mine}) == 1


def run(policy: str, load: Workload, site: Site, **how: Any) -> tuple[Outcome, Watch]:
    watch = Watch(site, policy.endswith("hard"))
    try:
        return simulate(load, policy_named(policy), site=site, observer=watch, **how), watch
    except (Infeasible, Stuck):  # there are sites too small for a job, or with owners who leave it no memory
        return reject()


@pytest.mark.parametrize("policy", POLICIES)
@given(load=shared_loads(), site=sites())
@settings(max_examples=40)
def test_limits_company_promises_and_work_hold(policy: str, load: Workload, site: Site) -> None:
    found, watch = run(policy, load, site, validate=True)
    assert not watch.promised_us
    for index in range(len(load)):
        rate_at_most = ALONE_PPM
        assert 0 <= watch.done[index] - int(load.run_us[index]) * ALONE_PPM < rate_at_most  # to the microsecond
        assert found.end_us[index] - found.start_us[index] >= load.run_us[index]


@pytest.mark.parametrize("policy", ["basic", "2dbf"])
@given(load=shared_loads(), nodes=st.integers(4, 8))
@settings(max_examples=30)
def test_alone_on_its_nodes_a_job_takes_as_long_as_alone(policy: str, load: Workload, nodes: int) -> None:
    site = Site([Node(f"n{i}", 3, MEMORY, 1) for i in range(nodes)], (), Sharing(Mode.NONE, COSTS))
    found, _ = run(policy, load, site)
    assert (found.end_us - found.start_us).tolist() == load.run_us.tolist()


@given(load=shared_loads(), nodes=st.integers(4, 8), seconds=st.integers(0, 3))
@settings(max_examples=30)
def test_with_one_task_on_a_cpu_and_no_owners_3dbf_light_is_2dbf_is_easy(
    load: Workload, nodes: int, seconds: int
) -> None:
    estimate_us = load.estimate_us + seconds * US_PER_S
    load = Workload(**{**vars(load), "procs_total": nodes, "estimate_us": estimate_us, "tasks": None})
    one = Site([Node(f"n{i}", 1, MEMORY, 1) for i in range(nodes)])
    starts = [simulate(load, policy_named(policy), site=one).start_us.tolist() for policy in ("3dbf-light", "2dbf")]
    easy = simulate(load, policy_named("easy")).start_us.tolist()
    assert starts == [easy, easy]
