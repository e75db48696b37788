"""The exporter's port against local clients that send nothing, too much, or do not read: its cost has a bound."""

import contextlib
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.waiting import BOUND_S, wait_for
from prometheus_client.parser import text_string_to_metric_families

from cosched.monitoring import local
from local_load.calls import Calls
from local_load.export import Exporter
from local_load.measured import Measured, room
from local_load.probe import CALLS
from local_load.profile import find
from local_load.scrapes import MOST_CONNECTIONS


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    measured = Measured(find("xwindows"), room(find("xwindows"), 1 << 30, None, beyond=False))
    measured.add("pipe", 1_000_000, 1_000_000)
    made = Exporter(measured, "127.0.0.1", 0)
    yield made
    made.close()


def scraped(exporter: Exporter, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}{path}", timeout=BOUND_S) as answer:
        text: str = answer.read().decode()
        assert answer.headers["Content-Length"] == str(len(text.encode()))
        return text


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextlib.contextmanager
def connections(exporter: Exporter, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", exporter.port), timeout=BOUND_S)
            made.append(stack.enter_context(connection))
            with contextlib.suppress(OSError):  # evicted meanwhile
                connection.sendall(sent)
        yield made


def test_silent_connections_make_no_threads_and_the_oldest_is_evicted(exporter: Exporter) -> None:
    threads = threading.active_count()
    before = descriptors()
    with connections(exporter, 4 * MOST_CONNECTIONS) as silent:
        assert "cosched_local_response_seconds_count" in scraped(exporter)
        assert threading.active_count() == threads
        assert silent[0].recv(1) == b""
        assert descriptors() <= before + len(silent) + MOST_CONNECTIONS + 1
        silent[-1].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert silent[-1].recv(15) == b"HTTP/1.0 200 OK"


def test_readers_that_do_not_read_delay_no_scrape(exporter: Exporter) -> None:
    with connections(exporter, MOST_CONNECTIONS, b"GET /metrics HTTP/1.1\r\nHost: desk\r\n\r\n"):
        assert "cosched_local_present" in scraped(exporter)


def test_request_longer_than_its_bound_is_closed_unanswered(exporter: Exporter) -> None:
    with connections(exporter, 1) as (one,):
        with contextlib.suppress(OSError):  # closed while it is sent
            one.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
        with contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b""


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1", b"POST /metrics HTTP/1.1", b"\x16\x03"])
def test_request_for_anything_else_is_refused(exporter: Exporter, request_line: bytes) -> None:
    with connections(exporter, 1, request_line + b"\r\n\r\n") as (one,):
        assert one.recv(100).split()[1] == b"404"


def test_request_in_pieces_is_answered_once_it_is_whole(exporter: Exporter) -> None:
    with connections(exporter, 1, b"GET /metrics HT") as (one,):
        scraped(exporter)
        one.sendall(b"TP/1.1\r\n\r\n")
        assert one.recv(15) == b"HTTP/1.0 200 OK"


def test_closed_exporter_refuses_connections_and_frees_its_descriptors() -> None:
    before = descriptors()
    made = Exporter(Measured(find("xwindows"), room(find("xwindows"), 1 << 30, None, beyond=False)), "127.0.0.1", 0)
    with connections(made, 3):
        wait_for(lambda: descriptors() > before + 3, "them to be accepted")
        made.close()
        with pytest.raises(urllib.error.URLError):
            scraped(made)
    assert descriptors() == before


def test_exported_series_are_those_that_are_listed(exporter: Exporter) -> None:
    found = {each.name: each for each in text_string_to_metric_families(scraped(exporter))}
    listed = {each.name.removesuffix("_total"): each for each in local.ALL}
    assert set(found) == set(listed)
    for name, each in listed.items():
        assert (found[name].type, found[name].documentation) == (each.kind, each.help)
        labels = {label for sample in found[name].samples for label in sample.labels} - {"le", "quantile"}
        assert labels == set(each.label_names)


def test_listed_calls_are_those_that_the_probe_makes() -> None:
    assert set(local.CALLS) == set(CALLS)
    with contextlib.closing(Calls()) as calls:
        assert set(local.SYSCALLS) == set(calls.by_name)
