"""However a lab ends, nothing is left: interrupted while it is made, its holder killed, its maker killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit.labs import ROOT, Bench
from kit.waiting import BOUND_S, wait_for

Tiered = tuple[Bench, int]
#: How far ``lab up`` has come when it is interrupted: it has told the tier, or this file of the lab's is there.
STAGES = (
    ("the tier", signal.SIGINT),
    ("cluster.yaml", signal.SIGTERM),
    ("nodes/node1/guard.log", signal.SIGINT),
    ("nodes/node2/agent.log", signal.SIGTERM),
)


def comes_to(bench: Bench, making: "subprocess.Popen[str]", stage: str) -> str:
    """Wait for a stage of ``lab up``; its first line."""
    assert making.stdout is not None
    said = making.stdout.readline()
    wait_for(lambda: stage == "the tier" or (bench.directory / stage).exists(), stage)
    return said


def gone(bench: Bench) -> bool:
    return bench.left() == []


@pytest.mark.slow
def test_an_up_that_is_interrupted_at_any_of_its_stages_leaves_nothing(tiered_bench: Tiered) -> None:
    """An interruption is deferred, and asked for between the steps: the stages are all there is.

    The first ones have made nothing of a tier's own.
    """
    bench, tier = tiered_bench
    for stage, number in STAGES if tier == 1 else STAGES[2:]:
        with bench.begun(
            "up", "--name", bench.name, "--nodes", 2, "--tier", tier, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as making:  # fmt: skip
            said = comes_to(bench, making, stage)
            making.send_signal(number)
            said += making.communicate(timeout=BOUND_S)[0]
        if "is up: " in said:  # it was too late
            bench.down()
        assert bench.left() == []


@pytest.mark.parametrize(
    ("tiered_bench", "stage"),
    [("tier 1", "nodes/node2/agent.log"), ("tier 2", "the tier"), ("tier 3", "nodes/node2/agent.log")],
    indirect=["tiered_bench"],
)
def test_a_lab_whose_maker_is_killed_cleans_up(tiered_bench: Tiered, stage: str) -> None:
    bench, tier = tiered_bench
    making = bench.begun("up", "--name", bench.name, "--nodes", 2, "--tier", tier, stdout=subprocess.PIPE)
    with making:
        comes_to(bench, making, stage)  # the holder waits for the plan, or for the agents to join
        making.kill()
    wait_for(lambda: not [left for left in bench.left() if left.startswith("process")], "the holder to end")
    told = json.loads(bench.done("status", "--json", "--name", bench.name))
    assert told["state"] == "crashed"
    assert gone(bench)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tiered_bench", "after"), [("tier 2", "status"), ("tier 3", "down")], indirect=["tiered_bench"]
)
def test_a_holder_that_is_killed_takes_all_with_it_and_any_command_cleans_up(tiered_bench: Tiered, after: str) -> None:
    bench, tier = tiered_bench
    crash(bench, tier)
    assert "had crashed; what it left is removed" in bench.done(after, "--name", bench.name)
    wait_for(lambda: gone(bench), f"nothing to be left, was {bench.left()}")


def crash(bench: Bench, tier: int) -> None:
    """Kill the holder of a lab while a command runs at a desk."""
    bench.up("--nodes", 2, "--tier", tier)
    holder = json.loads(bench.done("status", "--json"))["holder"]
    with bench.running("node1", "sh", "-c", "(setsid sleep 606 &) ; echo here; sleep 606") as running:
        assert running.stdout.readline() == "here\n"
        os.kill(holder, signal.SIGKILL)


@pytest.mark.slow
def test_several_labs_one_after_a_crash_live_side_by_side_and_all_go_down(root_bench: Bench) -> None:
    crash(root_bench, 1)
    names = [root_bench.name, f"{root_bench.name}-b"]
    ups = [root_bench.done("up", "--name", name, "--nodes", 1) for name in names]
    assert ["had crashed" in said for said in ups] == [True, False]
    assert root_bench.call("run", "node1", "--", "true").returncode == 2  # which one?
    assert [root_bench.done("run", "-q", "--name", name, "node1", "--", "hostname") for name in names] == [
        "node1\n"
    ] * 2
    root_bench.done("down", "--all")
    assert gone(root_bench)


def test_a_service_that_dies_at_once_is_told_with_its_log_and_nothing_is_left(root_bench: Bench) -> None:
    """Its policy loads where the lab is begun, and not in the service."""
    directory = root_bench.runtime.parent
    (directory / "moody.py").write_text(
        "import sys\n"
        "from space_scheduler.policy.presets import compose\n"
        "if 'up' not in sys.argv:\n"
        "    raise RuntimeError('not in a service')\n"
        "policy = lambda: compose('fcfs', 'backfill(1)', '', None)\n"
    )
    ended = root_bench.call(
        "up", "--name", root_bench.name, "--nodes", 1, "--policy", "moody:policy", cwd=directory
    )  # fmt: skip
    assert ended.returncode == 1
    assert "scheduler of head ended with status" in ended.stderr
    assert "moody" in ended.stderr
    assert "not in a service" in ended.stderr
    assert gone(root_bench)


@pytest.mark.slow
def test_a_checkout_under_tmp_with_spaces_in_its_path_works(root_bench: Bench) -> None:
    checkout = root_bench.runtime.parent / "a checkout with spaces"
    checkout.mkdir()
    for room in ("cosched", "node_agent", "space_scheduler", "local_load"):
        shutil.copytree(ROOT / room, checkout / room)
    root_bench.env["PYTHONPATH"] = str(checkout)
    root_bench.up("--nodes", 1, "--users", 1, cwd=checkout)
    where = "import cosched; print(cosched.__file__)"
    ran = root_bench.run("node1", sys.executable, "-P", "-c", where, cwd=checkout)
    assert ran.stdout.strip() == str(checkout / "cosched" / "__init__.py")
    assert root_bench.run("node1", "pwd", cwd=checkout).stdout.strip() == str(checkout)
    assert root_bench.output("node1", "ls", Path("/tmp", root_bench.runtime.parent.name)).splitlines() == [
        checkout.name,
        "run",
    ]
    told = json.loads(root_bench.done("status", "--json"))
    assert told["nodes"][0]["services"] == {"guard": "running", "agent": "running", "user": "running"}
