"""A user's policy declares what it needs, and has it: in the simulator and where the service decides."""

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest
from kit.loads import J, workload
from kit.snapshots import Snapshot, refusals

from cosched.errors import BadInput
from cosched.model.coscheduling import Mode
from cosched.model.node import Node
from cosched.workload.rules import Tasks, Workload
from space_scheduler import plugins
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import PolicyTraits, SelfChecking, traits_of
from space_scheduler.progress import Sharing
from space_scheduler.simulator.host import Site, simulate

POLICY = """
from space_scheduler.policy.interface import Plan
from space_scheduler.policy.order import fcfs
from space_scheduler.policy.room import room_of
from space_scheduler.reasons import Reason, Why


class Mine:
    order = staticmethod(fcfs)
    shares = True
    place = "uniform-hard"
    mpl = 2
    memory_type = int
    asked = 0

    def plan(self, snapshot):
        room, starts = room_of(snapshot), []
        for job in snapshot.queue:
            if room.obstacle(job):
                break
            starts.append(room.start(job, Reason(Why.FITS)))
        return Plan(starts, (snapshot.memory or 0) + 1)

    def validate(self, snapshot):
        type(self).asked += 1
        assert snapshot.memory is None or snapshot.memory > 0


class Plain:
    order = staticmethod(fcfs)

    def plan(self, snapshot):
        return Plan()
"""


@pytest.fixture(name="module")
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"policy_in_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(POLICY)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def both_kinds() -> Workload:
    load = workload(64, [J(at, 2, 60, 60) for at in range(4)])
    tasks = Tasks(np.array([0] * 4), np.array([1000] * 4), ["cpu", "comm", "cpu", "comm"])
    return Workload(**{**vars(load), "tasks": tasks})


def test_what_it_declares_reaches_the_machine(module: str) -> None:
    policy = resolve(f"{module}:Mine")
    assert traits_of(policy) == PolicyTraits(True, "uniform-hard", 2, int)
    assert isinstance(policy, SelfChecking)
    site = Site([Node(f"n{number}", 4, 4 << 30, 1, 500) for number in range(2)], [], Sharing(Mode.NONE))
    seen = []
    outcome = simulate(
        both_kinds(), policy, site=site, validate=True, observer=lambda now_us, event, told: seen.append(now_us)
    )
    assert np.all(outcome.end_us > outcome.start_us)
    # two kinds to a node and two tasks to a CPU: two jobs at a time, so the last two have waited
    assert sorted(outcome.start_us - both_kinds().submit_us)[-2:] > [0, 0]
    assert policy._policy.asked > 0  # type: ignore[attr-defined]


def test_one_that_declares_nothing_is_refused_where_nodes_are_shared(module: str) -> None:
    policy = resolve(f"{module}:Plain")
    assert traits_of(policy) == PolicyTraits()
    assert not isinstance(policy, SelfChecking)
    with pytest.raises(BadInput, match=f"policy {module}:Plain cannot be had there.*shares = True"):
        SchedulerState(policy, MachineRules(sharing=Sharing()))


#: What a policy declares that cannot be.
BAD = ["shares = 1", "reshapes = 'yes'", "place = 'uniform-herd'", "place = 3", "mpl = 0", "place = 'normal(mpl=1)'"]
BAD += ["alone_because = 3", "mpl = True"]


def test_what_cannot_be_declared_is_told(module: str, tmp_path: Path, snapshot: Snapshot) -> None:
    classes = "".join(f"\n\nclass Bad{at}(Plain):\n    {declared}\n" for at, declared in enumerate(BAD))
    (tmp_path / f"bad_{module}.py").write_text(f"{POLICY}{classes}")
    snapshot.hidden[f"bad_{module}"] = "$MODULE"
    snapshot(refusals(lambda declared: resolve(f"bad_{module}:Bad{BAD.index(declared)}"), *BAD))


OF_0_1 = """
from cosched.model.job import JobState
from space_scheduler.policy.interface import Plan, PlannedStart
from space_scheduler.reasons import Reason, Why


class Shortest:
    held = JobState.HELD

    def order(self, job, rank):
        return (job.estimate_us, rank)

    def plan(self, snapshot):
        assert snapshot.nodes is None and snapshot.changes is not None and list(snapshot.ends) is not None
        free, starts = snapshot.free_procs, []
        for job in snapshot.queue:
            if job.procs > free:
                break
            free -= job.procs
            starts.append(PlannedStart(job, Reason(Why.FITS)))
        return Plan(starts, memory=snapshot.now_us)


made = Shortest()


def make():
    return Shortest()
"""


@pytest.mark.parametrize("attribute", ["Shortest", "made", "make"])
@pytest.mark.parametrize("installed", [False, True])
def test_policy_written_for_0_1_runs(
    attribute: str, installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"of_0_1_in_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(OF_0_1)
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = EntryPoint("shortest", f"{module}:{attribute}", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints([entry]).select(group=group))
    policy = resolve("shortest" if installed else f"{module}:{attribute}")
    outcome = simulate(workload(4, [J(0, 4, 60, 60), J(1, 4, 90, 90), J(2, 4, 30, 30)]), policy, validate=True)
    assert list(outcome.start_us // 1_000_000) == [0, 90, 60]


def test_policy_is_refused_as_a_rule_and_a_rule_as_a_policy(module: str) -> None:
    with pytest.raises(BadInput, match=r"Plain has no wait; expected an object with wait\(job, moment\)"):
        plugins.rules([f"{module}:Plain"])
    with pytest.raises(BadInput, match="has no plan and no order"):
        resolve("space_scheduler.eligibility.dependency:DEPENDENCY")
