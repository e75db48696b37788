"""Same input, same bytes: the event log of a run does not depend on the run before, nor on the process."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import mutants
from kit.checks import of_each, run
from kit.drive import policy_named
from kit.loads import J, loads, workload

from cosched.workload.rules import AtLimit, Workload
from space_scheduler.policy.interface import Plan, PlannedStart, Policy, Snapshot
from space_scheduler.policy.presets import PRESETS
from space_scheduler.simulator.host import Ties

POLICIES = [*PRESETS, "backfill(4)", "conservative(none)", "conservative(anew)", "conservative(schedule)"]


def event_log(load: Workload, policy: Policy, **options: Any) -> bytes:
    """Every event with its instructions, causes and reasons, as JSON."""
    return msgspec.json.encode(run(load, policy, **options).seen)


@pytest.mark.parametrize("policy", POLICIES)
@of_each
@given(load=loads(beyond_limit=True), ties=st.sampled_from(Ties), delay_us=st.sampled_from([0, 1, 2_000_000]))
def test_two_runs_give_the_same_event_log(policy: str, load: Workload, ties: Ties, delay_us: int) -> None:
    how = {"ties": ties, "at_limit": AtLimit.RUN, "launch_delay_us": delay_us}
    chosen = policy_named(policy)
    assert (
        event_log(load, chosen, **how) == event_log(load, chosen, **how) == event_log(load, policy_named(policy), **how)
    )


BUSY = workload(4, [J(i // 2, 1 + i * 7 % 4, 1 + i * 5 % 9, 1 + i * 3 % 5 % (1 + i * 5 % 9)) for i in range(60)])


def test_it_catches_a_policy_that_remembers_the_run_before() -> None:
    assert event_log(BUSY, mutants.Rememberer()) != event_log(BUSY, mutants.Rememberer())


COMPARED = ("easy", "conservative", "by hash")
PROCESS = """
import sys
sys.path.insert(0, {tests!r})
from properties import test_same_bytes
print(*map(test_same_bytes.digest_of, {policies!r}))
"""


class ByHash(mutants.Mutant):
    """Asks the jobs in the order of a set of names, which is another in each process."""

    def plan(self, snapshot: Snapshot) -> Plan:
        starts: list[PlannedStart] = []
        free_procs = snapshot.free_procs
        for job in sorted(snapshot.queue, key=lambda job: hash(f"job {job.id}")):
            if job.procs <= free_procs:
                free_procs -= job.procs
                starts.append(PlannedStart(job, mutants.FITS))
        return Plan(starts)


def digest_of(policy: str) -> str:
    chosen = ByHash() if policy == "by hash" else policy_named(policy)
    return hashlib.sha256(event_log(BUSY, chosen)).hexdigest()


def in_another_process(hash_seed: int) -> list[str]:
    program = PROCESS.format(tests=str(Path(__file__).parents[1]), policies=COMPARED)
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return answer.stdout.split()


def test_simulation_in_another_process_gives_the_same_event_log_unless_its_policy_uses_hashes() -> None:
    *one, one_by_hash = in_another_process(1)
    *other, other_by_hash = in_another_process(2)
    assert one == other == [digest_of(policy) for policy in COMPARED[:2]]
    assert one_by_hash != other_by_hash
