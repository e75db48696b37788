"""A real Prometheus scrapes a user; the queries that the guide documents give the right numbers for a known input."""

import json
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.desks import modules, told, user
from kit.waiting import BOUND_S, wait_for

from local_load.export import Exporter
from local_load.measured import Measured, room
from local_load.profile import find

GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/local-load.md"

pytestmark = pytest.mark.system("prometheus")


class Server:
    """A Prometheus of its own, which scrapes one target each second."""

    def __init__(self, folder: Path, target: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        config = folder / "prometheus.yml"
        scrape = {"job_name": "desk", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        config.write_text(
            json.dumps({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [scrape]})
        )
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [
                "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def ask(self, query: str) -> dict[str, float]:
        """The answer to an instant query: call (or nothing) -> value."""
        address = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                document = json.load(answer)
        except OSError:
            return {}
        assert document["status"] == "success", document
        return {row["metric"].get("call", ""): float(row["value"][1]) for row in document["data"]["result"]}

    def answer(self, query: str, *calls: str) -> dict[str, float]:
        """The first answer that has these calls: there is none while a scrape is late."""
        return wait_for(lambda: found if {*calls} <= (found := self.ask(query)).keys() else {}, query)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(BOUND_S)
        self._log.close()


@pytest.fixture
def measured() -> Measured:
    return Measured(find("xwindows"), room(find("xwindows"), 1 << 30, None, beyond=False))


@pytest.fixture
def exporter(measured: Measured) -> Iterator[Exporter]:
    made = Exporter(measured, "127.0.0.1", 0)
    yield made
    made.close()


@pytest.fixture
def server(tmp_path: Path, exporter: Exporter) -> Iterator[Server]:
    made = Server(tmp_path, exporter.port)
    yield made
    made.close()


def documented() -> dict[str, str]:
    """The guide's queries, by what it says that they are."""
    text = GUIDE.read_text()
    return dict(re.findall(r"^# (p50|p95|p99|share above 400 ms): .*\n(.+)$", text, re.MULTILINE))


@pytest.mark.slow
def test_the_documented_queries_give_the_right_numbers_for_a_known_input(
    server: Server, exporter: Exporter, measured: Measured
) -> None:
    """1, 2, … 1000 ms, each once: half are below 500 ms, one in twenty above 950, one in a hundred above 990."""
    queries = documented()
    assert set(queries) == {"p50", "p95", "p99", "share above 400 ms"}
    assert all("[5m]" in query for query in queries.values())
    for call in ("pipe", "key"):  # a counter counts from the scrape at which it was first seen
        measured.add(call, 1_000_000, 1_000_000)
    wait_for(lambda: len(server.ask("cosched_local_response_seconds_count")) == 2, "a first scrape")
    with exporter.lock:
        for ms in range(1, 1001):
            measured.add("pipe", ms * 1_000_000, 1_000)
            measured.add("key", 1_500_000, 1_000)
    wait_for(lambda: server.ask("cosched_local_response_seconds_count").get("pipe") == 1001, "the input's scrape")
    wait_for(lambda: set(server.ask(queries["p50"])) == {"pipe", "key"}, "rates")
    found = {what: server.answer(query, "pipe", "key") for what, query in queries.items()}
    assert found["p50"]["pipe"] == pytest.approx(0.500, rel=0.03)
    assert found["p95"]["pipe"] == pytest.approx(0.950, rel=0.03)
    assert found["p99"]["pipe"] == pytest.approx(0.990, rel=0.03)
    assert found["share above 400 ms"]["pipe"] == pytest.approx(
        0.600, abs=0.005
    )  # it extrapolates each bucket by itself
    assert 0.001 < found["p99"]["key"] < 0.0016  # its bucket's bounds: all that a histogram knows
    assert found["share above 400 ms"]["key"] == 0
    summary = server.answer('cosched_local_response_quantile_seconds{quantile="0.95",call="pipe"}', "pipe")
    assert summary["pipe"] == pytest.approx(0.950, rel=0.04)


@pytest.mark.slow
def test_a_real_user_is_scraped_and_prometheus_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    with user("--seconds", "600", "--json", "--memory", "512MiB", "--listen", "127.0.0.1:0") as process:
        assert process.stderr
        port = int(process.stderr.readline().rpartition(":")[2])
        wait_for(lambda: "editor" in modules(process.pid), "him to sit down")
        server = Server(tmp_path, port)
        try:
            wait_for(lambda: server.ask("cosched_local_response_seconds_count").get("key", 0) > 3, "keys")
            wait_for(lambda: server.ask("cosched_local_memory_bytes").get("", 0) > 100 << 20, "his memory")
            assert server.answer("cosched_local_present", "") == {"": 1}
            assert server.answer("cosched_local_target_cpu_ratio", "") == {"": 0.15}
            series = server.answer("count({__name__=~'cosched_local.*'})", "")[""]
        finally:
            server.close()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND_S) as answer:
            text = answer.read().decode()
        process.terminate()
        told(process)
    assert series < 1500  # bounded labels: calls and one profile
    assert set(re.findall(r'(\w+)="', text)) == {"profile", "call", "le", "quantile"}
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=BOUND_S
    )
    assert checked.returncode == 0, checked.stderr
