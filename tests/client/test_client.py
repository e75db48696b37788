"""What the client makes of a service's answers, and of none."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from kit.scripted import Scripted, answer

from cosched.client import transport
from cosched.client.client import Client, NotNow
from cosched.client.transport import Transport
from cosched.errors import BadInput, Failed, NoAnswer
from cosched.identity.authority import create_authority, issue
from cosched.identity.tls import server_context
from cosched.wire.api import Problem, Submission

JOB = (
    b'{"job_id": 3, "name": "a", "user": "ada", "state": "queued", "tasks": 2, "time_limit_s": 60, "directory": "/",'
    b' "submit_time": "2026-01-01T00:00:00+00:00"}'
)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Scripted]:
    with Scripted(tmp_path / "scripted.sock") as server:
        yield server


def client(path: Path) -> Client:
    return Client(Transport(str(path)))


def test_documents_come_typed(serve: Scripted) -> None:
    with client(serve(answer(200, JOB))) as service:
        job = service.job(3)
    assert (job.job_id, job.state, job.nodes) == (3, "queued", [])
    assert serve.asked[0].startswith(b"GET /v1/jobs/3 HTTP/1.1\r\n")


def test_what_is_submitted_is_the_document(serve: Scripted) -> None:
    submission = Submission(script="#!/bin/sh\n", directory="/tmp", tasks=2, environment={"A": "é"})
    with client(serve(answer(201, JOB))) as service:
        assert service.submit(submission).job_id == 3
    head, _, body = serve.asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/jobs HTTP/1.1")
    assert msgspec.json.decode(body, type=Submission) == submission


def test_submission_omits_default_fields_for_older_schedulers(serve: Scripted) -> None:
    with client(serve(answer(201, JOB))) as service:
        service.submit(Submission(script="#!/bin/sh\n", tasks=2, directory="/"))
    body = serve.asked[0].partition(b"\r\n\r\n")[2]
    assert msgspec.json.decode(body) == {"script": "#!/bin/sh\n", "tasks": 2, "directory": "/"}


@pytest.mark.parametrize(
    ("status", "kind", "exit_status"),
    [
        *((status, BadInput, 2) for status in (400, 404, 413, 422)),
        *((status, Failed, 1) for status in (403, 409, 429, 500)),
        (503, NotNow, 1),
    ],
)
def test_a_problem_is_an_error_with_its_message(
    serve: Scripted, status: int, kind: type[Failed], exit_status: int
) -> None:
    problem = msgspec.json.encode(Problem("there is no job 3", "job", "3"))
    with client(serve(answer(status, problem))) as service, pytest.raises(kind, match=r"^there is no job 3$") as raised:
        service.job(3)
    assert raised.value.status == exit_status


def test_bad_input_has_its_parts_again(serve: Scripted) -> None:
    error = BadInput("submission: kind", "found 'cup'", "cpu or comm", nearest="cpu")
    problem = Problem(str(error), error.where, error.found, error.expected, error.nearest)
    with client(serve(answer(400, msgspec.json.encode(problem)))) as service, pytest.raises(BadInput) as raised:
        service.submit(Submission(script="", directory="/"))
    assert (raised.value.where, raised.value.nearest, str(raised.value)) == (error.where, "cpu", str(error))


@pytest.mark.parametrize(
    "said",
    [
        answer(200, b"hello"),
        answer(200, b'{"job_id": "three"}'),
        answer(500, b"<html>"),
        answer(404, b"not found"),
        answer(302, b"", "Location: /elsewhere\r\n"),
    ],
)
def test_what_is_no_scheduler_is_said(serve: Scripted, said: bytes) -> None:
    with client(serve(said)) as service, pytest.raises(Failed, match=r"not.* as a scheduler of cosched does"):
        service.job(3)


def test_output_without_its_size_is_no_scheduler_either(serve: Scripted) -> None:
    with client(serve(answer(200, b"text"))) as service, pytest.raises(Failed, match="output without size"):
        service.output(3)


def test_output_is_bytes(serve: Scripted) -> None:
    said = answer(200, b"\xff\n", "Cosched-Size: 9\r\nCosched-Final: 0\r\n")
    with client(serve(said)) as service:
        assert service.output(3, "stderr", 7, 2) == (b"\xff\n", 9, False)
    assert b"output?stream=stderr&offset=7&max_bytes=2 " in serve.asked[0]


@pytest.mark.parametrize("said", [b"SSH-2.0-hello\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", None])
def test_half_an_answer_is_none(serve: Scripted, said: bytes | None) -> None:
    with client(serve(said, said)) as service, pytest.raises(NoAnswer, match="no scheduler answers at") as raised:
        service.job(3)
    assert raised.value.status == 3


def test_a_question_is_asked_again_and_an_order_is_not(serve: Scripted) -> None:
    with client(serve(None, answer(200, JOB))) as service:
        assert service.job(3).job_id == 3
    assert len(serve.asked) == 2


def test_a_submission_is_sent_once(serve: Scripted) -> None:
    with client(serve(None, answer(201, JOB))) as service, pytest.raises(NoAnswer):
        service.submit(Submission(script="#!/bin/sh\n", directory="/"))
    assert len(serve.asked) == 1


def test_a_service_that_says_nothing_is_left(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "mute"))
        listener.listen()
        with pytest.raises(NoAnswer, match="it takes too long"):
            Transport(str(tmp_path / "mute")).request("GET", "/v1/jobs", timeout_s=0.05)


def test_an_answer_may_end_the_connection(serve: Scripted) -> None:
    last = answer(200, JOB).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    with client(serve(last, answer(200, JOB))) as service:
        assert service.job(3).job_id == service.job(3).job_id == 3


@pytest.mark.parametrize("tls", [False, True], ids=["by its socket", "by TLS"])
def test_a_service_that_is_slow_to_answer_is_named_before_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tls: bool
) -> None:
    monkeypatch.setattr(transport, "_SLOW_S", 0.5)
    listener, server, wrapped = slow_tls(tmp_path, monkeypatch) if tls else slow_socket(tmp_path)

    def answers() -> None:
        with wrapped(listener.accept()[0]) as connection:
            while not caplog.messages:
                time.sleep(0.01)
            connection.sendall(answer(200, JOB))

    with listener, ThreadPoolExecutor(1) as pool, Client(Transport(server)) as service:
        answered = pool.submit(answers)
        assert service.job(3).job_id == 3
        answered.result()
    assert caplog.messages == [f"no answer yet from {server}, asked 0.5 s ago; 'cosched doctor' says more"]


Slow = tuple[socket.socket, str, Callable[[socket.socket], socket.socket]]


def slow_socket(directory: Path) -> Slow:
    path = str(directory / "slow")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener, path, lambda connection: connection


def slow_tls(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    """It sends session tickets at once, and an answer late."""
    authority, user = directory / "authority", directory / "user"
    create_authority(authority, "test")
    issue(authority, "scheduler", "scheduler", authority, addresses=("127.0.0.1",))
    issue(authority, "user", "ada", user)
    monkeypatch.setenv("COSCHED_IDENTITY", str(user))
    context = server_context(authority)
    listener = socket.create_server(("127.0.0.1", 0))
    server = f"https://127.0.0.1:{listener.getsockname()[1]}"
    return listener, server, lambda connection: context.wrap_socket(connection, server_side=True)


def test_history_goes_on_where_a_page_ends(serve: Scripted) -> None:
    def page(numbers: range) -> bytes:
        one = msgspec.json.decode(JOB)
        return answer(200, msgspec.json.encode({"jobs": [one | {"job_id": n} for n in numbers]}))

    with client(serve(page(range(2000, 1000, -1)), page(range(1000, 990, -1)))) as service:
        jobs = service.history("ada", 1500)
    assert [job.job_id for job in jobs] == list(range(2000, 990, -1))
    assert b"GET /v1/history?user=ada&limit=1000 " in serve.asked[0]
    assert b"GET /v1/history?user=ada&limit=500&before=1001 " in serve.asked[1]


def test_a_nodes_name_is_no_path(serve: Scripted) -> None:
    with client(serve(answer(404, msgspec.json.encode(Problem("no"))))) as service, pytest.raises(BadInput):
        service.resume("../jobs")
    assert serve.asked[0].startswith(b"POST /v1/nodes/..%2Fjobs/resume HTTP/1.1")
