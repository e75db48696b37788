"""The hand-made examples of both papers, which the plain simulators of ``reference`` are tested with, on the core.

The same tests, with the core in place of the plain simulator: every example of folding and of equipartition, to the
microsecond.
"""

from fractions import Fraction
from typing import Any

import pytest
from core.test_shapes_against_reference import outcomes, workload
from reference import equipartition, folding, shapes, test_equipartition, test_folding
from reference.shaped import Job, Outcome

from cosched.model.allocation import Allocation, Share, folded_to, on_nodes
from cosched.workload.rules import AtLimit
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import Stuck, simulate

MODULES = (test_folding, test_equipartition)
EXAMPLES = {name: example for module in MODULES for name, example in vars(module).items() if name.startswith("test_")}


def by_the_core(
    cpus: int, jobs: list[Job], policy: folding.Policy | equipartition.Policy, *, kill: bool = True
) -> dict[int, Outcome]:
    """What ``simulate`` of the plain simulators gives, by the core."""
    costs: dict[str, Any]
    if isinstance(policy, folding.Policy):
        name, costs = folding_name(policy), {"fold_cost_ppm": round(policy.fold_cost * 1_000_000)}
        if Fraction(costs["fold_cost_ppm"], 1_000_000) != policy.fold_cost:
            pytest.skip("the core counts costs in millionths")
    else:
        name, costs = equipartition_name(policy), {"resize_cost_us": policy.resize_cost}
    made, numbers = workload(shapes.Load(cpus, jobs, kill))
    try:
        ran = simulate(made, resolve(name), at_limit=AtLimit.KILL if kill else AtLimit.RUN, validate=True, **costs)
    except Stuck:
        pytest.skip("jobs that wait for each other: the core says so, and has no schedule")
    found = outcomes(ran, numbers)
    for each in found.values():
        resumed = [
            now.at for before, now in zip(each.changes, each.changes[1:], strict=False) if now.cpus and not before.cpus
        ]
        each.start = resumed[-1] if resumed else each.start
    return {job.number: found.get(job.number, Outcome()) for job in jobs}


def folding_name(policy: folding.Policy) -> str:
    if policy.remain_closes or policy.long_minimum > 1:
        pytest.skip("a parameter that the core has otherwise, or not")
    if policy.fifo:
        return "fifo"
    base = "fjt4" if policy.long_folds > 1 else "fjt1"
    if not policy.backfills:
        return f"{base}(unfold={'always' if policy.expand_beside_queue else 'idle'})"
    options = [
        f"expired={policy.expired}",
        f"candidates={policy.candidates}",
        f"window={'estimates' if policy.window == 'estimates' else 'backfilled'}",
        f"unfold={'always' if policy.expand_beside_queue else 'idle'}",
        *(["partial"] if policy.partial else []),
    ]
    return f"{base}+bfa({','.join(options)})"


def equipartition_name(policy: equipartition.Policy) -> str:
    options = [policy.strategy, policy.refused, f"threshold={policy.threshold}"]
    return f"equipartition({','.join(options + ['easy'] * (policy.admits == 'easy'))})"


@pytest.fixture(autouse=True)
def the_core_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        monkeypatch.setattr(module, "simulate", by_the_core)


globals().update(EXAMPLES)


def test_each_node_is_folded_by_itself() -> None:
    """2 + 2 processes on two nodes fold to 1 + 1 processors; one process a node cannot be folded."""
    two = on_nodes([("a", 2, 2), ("b", 2, 2)])
    assert folded_to(two, 4) == Allocation(2, (Share("a", 2, 1), Share("b", 2, 1)), 4)
    assert folded_to(two, 4).fold == 2
    one = on_nodes([("a", 1, 1), ("b", 1, 1)])
    assert folded_to(one, 4) == one
