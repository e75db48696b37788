"""The path of one submission through a real service, agent and guard: the functions that hand it on.

``python -m kit.submission_path`` (in ``tests/``, as root) prints the steps of the tree it runs in, one a line.
``docs/design/submission-path.md`` defines a step and keeps two lists. In a tree without this module, copy it there.
"""

import contextlib
import functools
import json
import os
import socket
import struct
import sys
import threading
import time
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

#: Where the processes of a trace write, from the environment.
VARIABLE: Final = "COSCHED_TRACED_PATH"
_OURS: Final = ("cosched", "space_scheduler", "node_agent")
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_JOB: Final = 7_654_321
_OTHER: Final = _JOB - 1
_SCRIPT_MARK: Final = "traced-submission"
_MARKS: Final = (str(_JOB), _SCRIPT_MARK)
_PACKED: Final = struct.pack(">BI", 0xCE, _JOB)
_VARARGS: Final = 0x04
_VARKEYWORDS: Final = 0x08
_DEPTH: Final = 7
#: What of an object of ours without fields is looked into: values, and calls that it keeps.
_KEPT: Final = (int, str, types.FunctionType, functools.partial)
_MANY: Final = 64
#: Where a function of ours gives the submission to a queue, another thread, another process or a program.
_PYTHON_QUEUES: Final = {
    ("asyncio/base_events.py", "call_soon"),
    ("asyncio/base_events.py", "call_soon_threadsafe"),
    ("asyncio/base_events.py", "call_at"),
    ("asyncio/base_events.py", "create_task"),
    ("asyncio/queues.py", "put_nowait"),
    ("asyncio/connection.py", "send"),  # of websockets
    ("asyncio/selector_events.py", "sock_sendall"),
    ("asyncio/selector_events.py", "write"),
}
_C_QUEUES: Final = {"put", "send", "sendmsg", "sendall", "fork", "execve"}
_GENERATOR: Final = 0x20
_HANDLE: Final = "space_scheduler.machine.state:SchedulerState.handle"


class Seen(NamedTuple):
    """A function was entered with the submission (``queue`` is empty), or handed it on to that queue."""

    time_ns: int
    pid: int
    function: str
    queue: str


def _contains(value: Any, depth: int, seen: set[int]) -> set[int]:
    """Which jobs a value carries: the traced one, another, or both (the state of the cluster)."""
    if isinstance(value, bool) or value is None:
        return set()
    if isinstance(value, int):
        return {value} & {_JOB, _OTHER}
    if isinstance(value, str | bytes | bytearray):
        text = value if isinstance(value, str) else bytes(value).decode("latin-1")
        found = {_JOB} if any(each in text for each in _MARKS) or _PACKED.decode("latin-1") in text else set()
        return found | ({_OTHER} if str(_OTHER) in text else set())
    if depth == 0 or id(value) in seen:
        return set()
    seen.add(id(value))
    found = set()
    for part in _parts(value):
        found |= _contains(part, depth - 1, seen)
    return found


def _parts(value: Any) -> Iterable[Any]:
    """The parts of a value: of data, of a call that is bound to its arguments, of a connection (its peer)."""
    module = type(value).__module__.partition(".")[0]
    match value:
        case dict():
            return [*list(value.keys())[:_MANY], *list(value.values())[:_MANY]]
        case list() | tuple() | set() | frozenset():
            return list(value)[:_MANY]
        case _ if module in ("socket", "asyncio", "aiohttp"):
            return [_peer(value)]
        case _ if fields := _fields(value):
            return [getattr(value, name, None) for name in fields]
        case _ if module in _OURS:
            return [each for each in getattr(value, "__dict__", {}).values() if isinstance(each, _KEPT)]
    return _bound(value)


def _bound(value: Any) -> Iterable[Any]:
    """What a partial, a method, a closure, a coroutine or a generator is bound to."""
    match value:
        case functools.partial():
            return [value.func, *value.args, *value.keywords.values()]
        case types.MethodType() if _fields(value.__self__) or isinstance(value.__self__, tuple):
            return [value.__self__]
        case types.FunctionType():
            return [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        case types.CoroutineType() | types.GeneratorType():
            frame = value.cr_frame if isinstance(value, types.CoroutineType) else value.gi_frame
            return [] if frame is None else [frame.f_locals.get(name) for name in _arguments(frame.f_code)]
    return []


def _fields(value: Any) -> tuple[str, ...]:
    """The names of the fields of a record: a Struct or a dataclass."""
    if isinstance(value, type):
        return ()
    return getattr(value, "__struct_fields__", ()) or tuple(getattr(value, "__dataclass_fields__", ()))


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _peer(connection: Any) -> Any:
    """The address of the other end of a socket, a transport or a request's connection; None where there is none."""
    transport = getattr(connection, "transport", connection)
    if hasattr(transport, "get_extra_info"):
        return transport.get_extra_info("peername")
    try:
        return transport.getpeername()
    except (AttributeError, OSError):
        return None


def _carries(frame: types.FrameType) -> bool:
    """Whether an argument, or a variable that a closure keeps, carries the submission and no other job."""
    code, values = frame.f_code, frame.f_locals
    return any(
        _contains(values.get(name), _DEPTH, set()) == {_JOB}
        for name in (*_arguments(code), *code.co_freevars)
        if not (name == "self" and _fields(values["self"]))
    )


def _arguments(code: types.CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    return code.co_varnames[:count]


def _is_effect(value: Any) -> bool:
    kind = type(value)
    if kind.__module__ == "space_scheduler.service.launch.values":  # beside inputs
        return all(each.__name__ != "Input" for each in kind.__mro__)
    return kind.__module__.endswith("effects")


class Tracer:
    """Writes a line for each function of ours that is entered with the submission, and for each queue it reaches."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: dict[types.CodeType, str | None] = {}
        self._written: set[tuple[Any, ...]] = set()
        self._busy = threading.local()
        self.armed = False

    def install(self) -> None:
        """Trace this thread and those that are started from now on."""
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def _name(self, code: types.CodeType) -> str | None:
        if code not in self._names:
            path = code.co_filename
            inside = path.removeprefix(f"{_ROOT}/")
            ours = path.startswith(_ROOT) and inside.split("/")[0] in _OURS and code.co_name[0] != "<"
            ours |= path.startswith(_ROOT) and inside.split("/")[0] in _OURS and code.co_name == "<lambda>"
            module = inside.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            self._names[code] = f"{module}:{code.co_qualname}" if ours else None
        return self._names[code]

    def _event(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if getattr(self._busy, "now", False) or not self.armed:
            return
        self._busy.now = True
        try:
            if event == "call":
                self._called(frame)
            elif event == "c_call" and argument.__name__ in _C_QUEUES:
                self._queued(frame, argument.__name__)
            elif event == "c_return" and argument.__name__ in ("append", "extend") and self._name(frame.f_code):
                effect = argument.__self__[-1] if argument.__self__ else None
                if _is_effect(effect) and _contains(effect, _DEPTH, set()) == {_JOB}:
                    self._queued(frame, "effects")
            elif event == "return" and frame.f_code.co_flags & _GENERATOR and self._name(frame.f_code):
                self._yielded(frame, argument)
        finally:
            self._busy.now = False

    def _yielded(self, frame: types.FrameType, effect: Any) -> None:
        if _contains(effect, _DEPTH, set()) == {_JOB}:
            self._queued(frame, "effects")

    def _called(self, frame: types.FrameType) -> None:
        code = frame.f_code
        if (name := self._name(code)) is not None:
            if _carries(frame):
                self._write(name, "")
                if name == _HANDLE:
                    self._queued(frame, "handle")
                given = [frame.f_locals.get(each) for each in _arguments(code)]
                if any(_is_effect(each[0] if isinstance(each, tuple) and each else each) for each in given):
                    self._queued(frame, "effects")
        elif ("/".join(code.co_filename.split("/")[-2:]), code.co_name) in _PYTHON_QUEUES and _carries(frame):
            self._queued(frame, code.co_name)

    def _queued(self, frame: types.FrameType, queue: str) -> None:
        at: types.FrameType | None = frame
        while at is not None:
            if (name := self._name(at.f_code)) is not None and _carries(at):
                self._write(name, queue)
            at = at.f_back

    def _write(self, function: str, queue: str) -> None:
        seen = Seen(time.time_ns(), os.getpid(), function, queue)
        if seen[1:] in self._written:
            return
        self._written.add(seen[1:])
        with contextlib.suppress(OSError):  # a job's own process may not see the file
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.write(file, json.dumps(seen).encode() + b"\n")
            os.close(file)


def steps(path: Path) -> list[str]:
    """The steps up to the program of the first rank, in the order of their first entries."""
    seen = sorted(Seen(*json.loads(line)) for line in path.read_text().splitlines())
    rank = next(each.pid for each in seen if each.queue == "execve")
    began_ns = next(each.time_ns for each in seen if each.pid == rank)
    forked_ns = max(each.time_ns for each in seen if each.queue == "fork" and each.time_ns < began_ns)
    seen = [each for each in seen if each.time_ns <= forked_ns or each.pid == rank]
    handing = {each.function for each in seen if each.queue}
    entered = dict.fromkeys(each.function for each in seen if not each.queue)
    return [each.replace(".<locals>", "") for each in entered if each in handing]


async def traced(directory: Path) -> list[str]:
    """Submit one job to a real service with one real node, in ``directory``, and return the steps. Needs root."""
    written, began = directory / "seen", directory / "began"
    group = f"cosched-test-{uuid.uuid4().hex[:12]}"
    (directory / "sitecustomize.py").write_text("import kit.submission_path\n")
    tracer = Tracer(str(written))
    cluster = Cluster(operators=[ME], heartbeat="20s")  # no heartbeat names the job
    node = None
    try:
        with mock.patch.object(journal, "last_job_id", return_value=_OTHER - 1):
            tracer.install()
            async with running(cluster) as run:
                assert run.service.port is not None
                node = Node(directory, "n1", run.service.port, cluster.identity, group)
                paths = os.pathsep.join(map(str, (directory, _ROOT, f"{_ROOT}/tests")))
                node.environment = {VARIABLE: str(written), "PYTHONPATH": paths}
                await asyncio.to_thread(node.start_guard)
                await asyncio.to_thread(node.start_agent)
                await run.until(lambda: any(each.size is not None for each in run.service.book), "joined")
                assert await run.submit(hold=True) == _OTHER
                tracer.armed = True
                await asyncio.to_thread(_post, cluster.socket, directory / _SCRIPT_MARK, began)
                await run.until(began.exists, "begun")
                tracer.armed = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        if node is not None:
            node.close()
        remove_groups(group)
        cluster.close()
    return steps(written)


def _post(at: Path, own: Path, began: Path) -> None:
    """Submit the job over a connection whose own end has a name, so that the connection can be told from others."""
    script = f"#!/bin/sh\n# {_SCRIPT_MARK}\n: > {began}\n"
    body = json.dumps({"script": script, "directory": "/tmp"}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.bind(str(own))
        connection.settimeout(BOUND_S)
        connection.connect(str(at))
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)
        answer = b""
        while piece := connection.recv(1 << 16):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 201"), answer


if path := os.environ.get(VARIABLE):
    tracer = Tracer(path)
    tracer.armed = True
    tracer.install()
else:  # the test's own process; agent and guard are traced before they import anything
    import asyncio
    import tempfile
    import uuid
    from unittest import mock

    from kit.agents import Node, remove_groups
    from kit.service import ME, Cluster, running
    from kit.waiting import BOUND_S
    from space_scheduler.service.journal import journal

    if __name__ == "__main__":
        with tempfile.TemporaryDirectory(prefix="cosched-") as made:
            Path(made).chmod(0o755)
            sys.stdout.writelines(f"{step}\n" for step in asyncio.run(traced(Path(made))))
