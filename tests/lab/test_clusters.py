"""Labs of several clusters: each a network of its own, with a link between that delays, limits, and can be cut."""

import json
from pathlib import Path

import pytest
from kit.command import Call
from kit.labs import Bench, bench_of
from kit.waiting import wait_for

from cosched.apps.lab import wiring

DELAY_US = 5_000


def round_trips_us(bench: Bench, node: str, other: str, times: int = 5) -> list[int] | str:
    """How long connections between two nodes' agents take to be made; what is said where one cannot be."""
    address = f"10.77.0.{other.removeprefix('node')}"
    ended = bench.run(node, bench.python, "-P", "-m", "cosched.apps.lab.probe", address, 7421, times)
    return json.loads(ended.stdout) if ended.returncode == 0 else ended.stderr


def reached_us(bench: Bench, node: str, other: str, times: int = 5) -> list[int]:
    """The same, as soon as all of them can be made."""

    def reached() -> list[int]:
        found = round_trips_us(bench, node, other, times)
        return found if isinstance(found, list) else []

    return wait_for(reached, f"connections from {node} to {other}")


@pytest.mark.parametrize(("tier", "sizes"), [pytest.param(1, "2,1,1", marks=pytest.mark.slow), (2, "2,1")])
def test_clusters_are_apart_by_delay_and_rate_and_cut_one_from_another_and_leave_nothing(tier: int, sizes: str) -> None:
    with bench_of(tier) as bench:
        made = bench.call("up", "--name", bench.name, "--clusters", sizes, "--delay", "5ms", "--rate", "20Mbit")
        if tier == 2 and "/dev/net/tun" in made.stderr:
            assert "remedy: as root: chmod 666 /dev/net/tun" in made.stderr
            pytest.skip(f"no TAP devices for ordinary users: {made.stderr}")
        assert made.returncode == 0, made.stderr
        assert "c1–c2: " in made.stdout
        assert "ms there and back" in made.stdout
        told = json.loads(bench.done("status", "--name", bench.name, "--json"))
        assert [node["cluster"] for node in told["nodes"]] == ["c1", "c1", "c2", "c3"][: len(told["nodes"])]
        assert (told["link"]["clusters"], told["link"]["cut"]) == (["c1", "c2", "c3"][: sizes.count(",") + 1], [])
        by = "netem" if wiring.kernel_delays() else "relay"
        assert f"link     5 ms one way, 20 Mbit/s, by {by}" in bench.done("status", "--name", bench.name)
        across, within = reached_us(bench, "node1", "node3"), reached_us(bench, "node1", "node2", 20)
        assert min(across) >= 2 * DELAY_US > min(within)
        size = 1_000_000
        send = f"import socket; s = socket.create_server(('', 7000)); s.accept()[0].sendall(bytes({size}))"
        fetch = """if True:
            import socket, time
            while True:
                try:
                    s = socket.create_connection(("10.77.0.3", 7000))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
            began, got = time.monotonic(), 0
            while data := s.recv(1 << 16):
                got += len(data)
            print(got, time.monotonic() - began)
        """
        with bench.running("node3", bench.python, "-c", send):
            got, took_s = bench.output("node1", bench.python, "-c", fetch).split()
        assert int(got) == size
        burst = 64 << 10
        assert float(took_s) > 8 * (size - burst) / 20e6, "faster than the rate allows"
        if tier == 1:
            cut_between_two_of_three(bench)
        assert "is down" in bench.down()
        assert bench.left() == []


def cut_between_two_of_three(bench: Bench) -> None:
    """Cut and mend the link between the clusters of node3 and node4; both reach the first."""
    assert "cut: c2–c3" in bench.done("cut", "--name", bench.name, "c3", "c2")
    refused = round_trips_us(bench, "node3", "node4", 1)
    assert isinstance(refused, str)
    assert "10.77.0.4:7421: timed out" in refused
    assert reached_us(bench, "node3", "node1", 1)
    assert reached_us(bench, "node4", "node1", 1)
    assert "cut" not in bench.done("mend", "--name", bench.name, "c2", "c3").splitlines()[1]
    assert reached_us(bench, "node3", "node4", 1)
    unknown = bench.call("cut", "--name", bench.name, "c2", "c4")
    assert (unknown.returncode, "c1, c2, c3" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--clusters", "3"], "--clusters: '3' with 3 nodes; expected nodes of each cluster, 2 to 8 of them"),
        (["--clusters", "3,x"], "--clusters: '3,x'; expected"),
        (["--clusters", "3,0"], "--clusters: '3,0' with 3 nodes"),
        (["--clusters", "3,3", "--nodes", "5"], "--clusters: '3,3' with 5 nodes"),
        (["--delay", "5ms"], "given for a lab of one cluster"),
        (["--clusters", "1,1", "--delay", "2s"], "--delay: 2000000 us; expected 0us to 1000ms"),
        (["--clusters", "1,1", "--rate", "100"], "a rate with its unit (kbit, Mbit, Gbit, for each second)"),
        (["--clusters", "1,1", "--rate", "1kbit"], "--rate: 1 kbit/s; expected 64 kbit/s to 10 Gbit/s"),
    ],
)
def test_clusters_that_cannot_be_are_refused(
    cosched: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))
    ended = cosched("lab", "up", *options)
    assert ended.status == 2
    assert words in ended.err
    assert list(tmp_path.iterdir()) == []


def test_plain_processes_have_no_clusters(user_bench: Bench) -> None:
    ended = user_bench.call("up", "--name", user_bench.name, "--clusters", "1,1", "--tier", "3")
    assert ended.returncode == 1
    assert "several clusters need networks of their own: tier 3 was asked for" in ended.stderr
