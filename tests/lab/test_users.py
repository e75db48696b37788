"""Users at the lab's desks: of the paper's kinds, coming and going as recorded, seen by the agent as anybody is."""

import json
import subprocess
from pathlib import Path

import pytest
from kit.desks import LOCAL_LOAD
from kit.labs import Bench
from kit.waiting import BOUND_S, wait_for

from cosched.apps.lab.plan import PEER_PORT, USER_PORT
from local_load.schedule import recorded


@pytest.mark.slow
@pytest.mark.system("curl")
def test_users_come_and_go_by_a_trace_hold_what_the_contract_leaves_and_talk_to_the_head(root_bench: Bench) -> None:
    bench = root_bench
    trace = bench.runtime.parent / "trace.csv"
    # who is not seen in one of his seven seconds, since all stood still, is so in later ones
    comes_and_goes = "".join(f"{at_s},present,node1\n{at_s + 7},away,node1\n" for at_s in range(4, 600, 14))
    trace.write_text(f"at_s,presence,node\n0,away,node1\n{comes_and_goes}0,present,node2\n900,away,node2\n")
    bench.up("--nodes", 2, "--users", 2, "--mem", "300MiB", "--user-profile", "internet", "--presence", trace)

    def presence() -> list[str]:
        return [node.desk for node in bench.nodes()]

    def metric(name: str, node: str = "node2") -> float:
        address = f"http://10.77.0.{node[-1]}:{USER_PORT}/metrics"
        lines = bench.output("head", "sh", "-c", f"curl -sS --max-time 5 {address} || true").splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"cosched_local_{name}{{")), 0.0)

    status = json.loads(bench.done("status", "--json"))
    assert status["scheduler"] == {"scheduler": "running", "peer": "running"}
    assert all(node["services"]["user"] == "running" for node in status["nodes"])
    wait_for(lambda: presence() == ["present", "present"], "both to be there")
    wait_for(lambda: "pts/" in bench.output("node2", "who"), "the other to be logged in")
    again = bench.runtime.parent / "again.csv"
    # who thinks for longer than the lab's three seconds is away for a moment, and still logged in
    record = [*LOCAL_LOAD, "presence", "--lab", bench.name, "--seconds", "10", "--out", str(again)]
    subprocess.run(record, env=bench.environment(), check=True, timeout=BOUND_S)
    assert [bool(recorded(again, node)) for node in ("node2", "node3")] == [True, False]
    wait_for(lambda: bench.output("node1", "who") == "", "the one to leave, as recorded")
    wait_for(lambda: presence() == ["away", "present"], "his leaving to be seen")
    # the contract leaves half of the memory; his profile asks for more
    wait_for(lambda: metric("memory_bytes") > 130 << 20, "his memory")
    assert wait_for(lambda: metric("memory_bytes"), "it again") < 160 << 20
    assert wait_for(lambda: metric("target_memory_bytes"), "what he is to hold") == round(0.6 * (300 << 20))
    wait_for(lambda: metric("network_bytes_total") > 1000, "messages")
    connections = bench.output("head", "cat", "/proc/net/tcp")
    assert f"{PEER_PORT:04X}" in connections


def test_a_user_or_a_trace_that_cannot_be_is_refused_before_anything_is_made(root_bench: Bench, tmp_path: Path) -> None:
    for arguments, told in (
        (("--user-profile", "xwindow"), "--user-profile: 'xwindow'"),
        (("--presence", tmp_path / "none.csv"), "cannot be read"),
    ):
        ended = root_bench.call("up", "--name", root_bench.name, "--users", 1, *arguments)
        assert ended.returncode == 2
        assert told in ended.stderr
        assert root_bench.left() == []
