"""No plan of a shipped policy is refused: every preset × machine of several clusters × shapes of jobs × places.

A history draws nodes of several clusters with owners and bans, jobs of every shape, hosts that carry changes out late
or refuse them, and nodes that are drained, lost and come back.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.mutants import sleepers_anywhere
from kit.script import SIZES, Step
from msgspec import structs
from properties.test_policies_of_shapes import EQUIPARTITION, FOLDING, ShapedLife, ShapingAuthor, with_shape
from properties.test_resident_jobs import with_processes_that_stay

from cosched.model.job import Job
from cosched.model.node import Node, Owner
from cosched.model.width import Components, Flexible, Range
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.machine.rules import BadPlan, MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import traits_of
from space_scheduler.policy.place import PLACES
from space_scheduler.policy.presets import PRESETS
from space_scheduler.progress import Sharing

seeds = st.integers(0, 1 << 32)
POLICIES = (*PRESETS, *FOLDING, *EQUIPARTITION, "equipartition(in-order)", "equipartition(waterfill,easy,wait)")


def with_any_shape(job: Job, draw: Random) -> Job:
    """The job, rigid, of components, flexible, moldable over clusters, malleable, resident or evolving."""
    dice = draw.random()
    if job.procs > 1 and dice < 0.15:
        first = draw.randint(1, job.procs - 1)
        return structs.replace(job, shape=Components((first, job.procs - first)))
    if dice < 0.25:
        return structs.replace(job, shape=Flexible(job.procs, draw.randint(1, 3), near=draw.random() < 0.5))
    if dice < 0.35:
        return structs.replace(job, shape=Range(draw.randint(1, job.procs), job.procs, components=draw.randint(1, 3)))
    return with_processes_that_stay(job, draw) if dice < 0.7 else with_shape(job, draw)


class ClusterAuthor(ShapingAuthor):
    """Scripts on nodes of up to three clusters, some of which do not take everybody's jobs."""

    def begin(self) -> Iterator[Step]:
        for number in range(self.random.randint(2, 6)):
            lab, bans = self.random.choice(("", "x", "x", "y", "y")), self.random.choice(((), (), (), (7,)))
            yield self.now_us, ev.NodeJoined(Node(f"n{number}", *self.random.choice(SIZES), cluster=lab, bans=bans))
        yield self.now_us, ev.Boundary()

    def _about_nodes(self, state: SchedulerState) -> ev.Event | None:
        if self.random.random() < 0.3:
            node = self.random.choice(state.nodes())
            if node.owner is not None:
                return ev.OwnerLeft(node.node.name)
            return ev.OwnerCame(node.node.name, Owner(self.random.choice((0, 500)), self.random.choice((0, 1))))
        return super()._about_nodes(state)

    def _job(self, state: SchedulerState) -> ev.Event | None:
        event = super(ShapingAuthor, self)._job(state)
        if not isinstance(event, ev.JobSubmitted):
            return event
        procs, user, kind = (
            self.random.randint(1, 8),
            self.random.choice((1, 7)),
            self.random.choice(("", "cpu", "comm")),
        )
        plain = structs.replace(event.job, procs=procs, shape=None, user=user, kind=kind)
        job = with_any_shape(plain, self.random)
        return None if state.refusal(job) else ev.JobSubmitted(job)


@dataclass
class ClusterLife(ShapedLife):
    """A history on several clusters, under the rules that a service has with the policy."""

    author_type: type[ShapingAuthor] = ClusterAuthor

    @property
    def lab(self) -> dict[str, str]:
        """The cluster of each node."""
        return {each.node.name: each.node.cluster for each in self.state.nodes()}

    @property
    def rules(self) -> MachineRules:
        draw, traits = Random(f"rules of {self.seed}"), traits_of(self.policy)
        return MachineRules(
            sharing=Sharing() if traits.shares and draw.random() < 0.7 else None,
            mpl=traits.mpl,
            place=draw.choice([name for name, place in PLACES.items() if not place.refuses]),
            max_nodes_per_job=draw.choice((None, None, 1, 2)),
            launch_retries=1,
            resize_retry_us=draw.choice((0, 20)),
        )


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=max(8, settings().max_examples // 12))
@given(seed=seeds)
def test_no_plan_of_a_shipped_policy_is_refused(name: str, seed: int) -> None:
    life = ClusterLife(seed, "named", name=name)
    for _ in range(60):
        life.step()


def test_infeasible_placement_mutant_is_detected() -> None:
    def lives() -> None:
        for seed in range(200):
            life = ClusterLife(seed, "named", name="equipartition")
            for _ in range(60):
                life.step()

    with sleepers_anywhere(), pytest.raises(BadPlan, match="2 clusters for at most 1 components"):
        lives()


def test_histories_have_all_shapes_on_several_clusters() -> None:
    """The property above asks something."""
    expected = ("resident True", "resident False", "Components", "Flexible", "NoneType", "over clusters")
    started: Counter[str] = Counter()
    for seed in range(100):
        life = ClusterLife(seed, "named", name="equipartition")
        for _ in range(60):
            life.step()
        several = len({each.node.cluster for each in life.state.nodes()}) > 1
        for start in (each for *_, told in life.told for each in told if several and isinstance(each, Start)):
            shape = start.job.shape
            started[f"resident {shape.resident}" if isinstance(shape, Range) else type(shape).__name__] += 1
            started["over clusters"] += len({life.lab[share.node] for share in start.allocation.nodes}) > 1
        if min(started[each] for each in expected) >= 10:
            return
    pytest.fail(f"{started}")
