"""A guard that hangs, at each step of a job's life: nothing waits for it longer than a launch may take."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.processes import running_module
from kit.waiting import BOUND_S, wait_for
from live.conftest import ENDED, groups_of

from cosched.apps.lab import tiers
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.errors import Failed
from cosched.wire.api import JobDoc, NodeDoc, Submission

pytestmark = pytest.mark.xdist_group("faults")

_NODES = 4
#: A launch may take 30 s, a dead agent or guard is known after some seconds more; a busy machine is slower than that.
_GIVEN_UP_S = 75.0
#: What still runs when it is told to end, so that there is time to hang in.
_STUBBORN = "#!/bin/sh\ntrap 'sleep 30' TERM\nwhile :; do sleep 1; done\n"


@pytest.fixture
def lab() -> Iterator[Lab]:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    with Lab.up(nodes=_NODES, name=f"hung-{os.getpid()}") as up:
        yield up


def guard_of(lab: Lab, node: str) -> int:
    """The process of this machine that is the node's guard."""
    directory = next(each["directory"] for each in lab.state["nodes"] if each["name"] == node)
    found = running_module("node_agent.guard", directory)
    assert found, f"{node} has no guard"
    return found[0]


class Missed(Exception):
    """A moment in which a guard was to hang had passed before anybody looked, as on a busy machine."""


class Hung:
    """Guards that this test has stopped, by node, each with its keeper: whose watchdog would start another."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.by_node: dict[str, tuple[int, int]] = {}

    def hang(self, node: str) -> None:
        guard = guard_of(self.lab, node)
        status = Path(f"/proc/{guard}/status").read_text()
        keeper = int(status.partition("PPid:")[2].split()[0])
        assert keeper > 1
        self.by_node[node] = os.pidfd_open(keeper), os.pidfd_open(guard)
        for pidfd in self.by_node[node]:
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)

    def wake(self) -> None:
        for pidfds in self.by_node.values():
            for pidfd in reversed(pidfds):  # the guard before its watchdog
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGCONT)
                os.close(pidfd)
        self.by_node.clear()


@pytest.fixture
def hung(lab: Lab) -> Iterator[Hung]:
    made = Hung(lab)
    yield made
    made.wake()


@pytest.mark.slow
def test_a_hung_guard_holds_no_job_at_any_step(lab: Lab, hung: Hung) -> None:
    with lab.client() as client:
        steps = hung_at_each_step(client, hung)
        wait_for(lambda: all(drained(node) for node in client.nodes()), "all nodes to be drained")
        asked_s = time.monotonic()
        for job_id in steps.values():
            with contextlib.suppress(Exception):  # it may have been given up by itself
                client.cancel(job_id)
        told = {step: ended(client, job_id) for step, job_id in steps.items()}
        assert time.monotonic() - asked_s < _GIVEN_UP_S
        assert {step: job.state for step, job in told.items()} == dict.fromkeys(told, "cancelled")

        waits = submit(client, "#!/bin/sh\ntrue\n")
        assert client.job(waits).state in ("queued", "submitted"), "nothing starts where nobody guards"
        hung.wake()
        wait_for(
            lambda: all(node.state == "up" for node in client.nodes()), "all nodes to be back by themselves", BOUND_S
        )
        assert ended(client, waits).state == "completed"
        for job_id in steps.values():
            wait_for(lambda job_id=job_id: not groups_of(lab, job_id), "what was left to be killed")  # type: ignore[misc]


def hung_at_each_step(client: Client, hung: Hung) -> dict[str, int]:
    """A job at each step, on a node whose guard hangs since then; where a moment was missed, all is tried anew."""
    for _ in range(10):
        try:
            return hung_in_time(client, hung)
        except Missed:
            hung.wake()
            for job in reversed(client.jobs()):
                with contextlib.suppress(Failed):  # it has ended meanwhile
                    client.cancel(job.job_id)
                ended(client, job.job_id)
            wait_for(lambda: all(node.state == "up" for node in client.nodes()), "all nodes to be back")
    raise AssertionError("some moment was missed each time")


def hung_in_time(client: Client, hung: Hung) -> dict[str, int]:
    """One try. Raises :class:`Missed`."""
    steps = {"run": in_state(client, "running"), "end": in_state(client, "running")}
    node_of = {step: client.job(job).nodes[0].name for step, job in steps.items()}

    hung.hang(node_of["run"])  # while a job runs, and is then to be killed
    client.cancel(steps["end"])
    wait_for(lambda: client.job(steps["end"]).state in ("ending", *ENDED), "the end to begin")
    hung.hang(node_of["end"])  # while a job ends
    if client.job(steps["end"]).state != "ending":
        raise Missed
    steps["launch"] = caught_starting(client)
    hung.hang(client.job(steps["launch"]).nodes[0].name)  # while a job is launched
    left = {node for node in hung.lab.nodes if node not in hung.by_node}
    hung.hang(left.pop())
    assert not left
    steps["prepare"] = submit(client, _STUBBORN)  # before anything of a job is there

    def begun() -> bool:
        return client.job(steps["prepare"]).state == "starting"

    wait_for(lambda: begun() or all(drained(node) for node in client.nodes()), "a launch where nobody guards")
    if not begun():
        raise Missed
    return steps


def drained(node: NodeDoc) -> bool:
    return node.state in ("draining", "drained") and node.reason.startswith("guard: ")


def submit(client: Client, script: str) -> int:
    return client.submit(Submission(script=script, directory="/", time_limit_s=600.0)).job_id


def in_state(client: Client, state: str, script: str = _STUBBORN) -> int:
    job_id = submit(client, script)
    wait_for(lambda: client.job(job_id).state == state, f"job {job_id} to be {state}")
    return job_id


def caught_starting(client: Client) -> int:
    """A job that is being launched; one that ran before anybody looked, as on a busy machine, is ended again."""
    for _ in range(100):
        job_id = submit(client, "#!/bin/sh\nexec sleep 600\n")
        wait_for(lambda: client.job(job_id).state in ("starting", "running"), f"job {job_id} to be launched")  # noqa: B023
        if client.job(job_id).state == "starting":
            return job_id
        client.cancel(job_id)
        assert ended(client, job_id).state == "cancelled"
    raise AssertionError("no launch lasted until it was looked at")


def ended(client: Client, job_id: int) -> JobDoc:
    wait_for(lambda: client.job(job_id).state in ENDED, f"job {job_id} to end", _GIVEN_UP_S)
    return client.job(job_id)
