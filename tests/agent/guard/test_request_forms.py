"""Requests to the guard have one definition: what the agent encodes the guard decodes, in the wire's own form."""

import copy
import json
import math
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from node_agent.guard.base import requests
from node_agent.guard.base.requests import Refusal, decode, encode

STREAM = "0123456789abcdef" * 2
#: Every request, and how it travels: agents and guards of one release must not differ, so this is not to be changed.
FORMS: list[tuple[requests.Request, dict[str, Any]]] = [
    (
        requests.Contract(0.5, 0.25, 2),
        {"do": "contract", "cpu_ratio": 0.5, "memory_ratio": 0.25, "mpl": 2},
    ),
    (requests.Relax(10, epoch=7), {"do": "relax", "until_us": 10, "epoch": 7}),
    (requests.Tighten(0.5, 10), {"do": "tighten", "ratio": 0.5, "until_us": 10}),
    (requests.Arm(), {"do": "arm"}),
    (
        requests.Prepare(1, 2, "ann", "/data/ann", 3, None, 5, 6, 0o077, uid=3_000_000_000),
        {
            "do": "prepare", "job": 1, "attempt": 2, "user": "ann", "directory": "/data/ann", "tasks": 3,
            "memory_bytes": None, "limit_us": 5, "grace_us": 6, "umask": 63, "cpus": None, "asleep": False,
            "uid": 3_000_000_000,
        },
    ),
    (
        requests.Spawn(1, 2, 3, ("true", "ü"), {"A": "b"}, "/", stream=STREAM),
        {
            "do": "spawn", "job": 1, "attempt": 2, "n": 3, "argv": ["true", "ü"], "env": {"A": "b"}, "cwd": "/",
            "script": False, "output": None, "error": None, "stream": STREAM,
        },
    ),
    (
        requests.Resize(1, 2, 1 << 51, 3, 2, asleep=True),
        {"do": "resize", "job": 1, "attempt": 2, "n": 1 << 51, "tasks": 3, "cpus": 2, "asleep": True},
    ),
    (requests.Signal(1, 2, 3, 15), {"do": "signal", "job": 1, "attempt": 2, "n": 3, "signal": 15}),
    (requests.Kill(1, 2, 0), {"do": "kill", "job": 1, "attempt": 2, "grace_us": 0}),
    (requests.Forget(1, 2), {"do": "forget", "job": 1, "attempt": 2}),
    (requests.Weigh(1, 2, 100, 10), {"do": "weigh", "job": 1, "attempt": 2, "percent": 100, "until_us": 10}),
    (
        requests.Slots(-5, 20_000, (((1, 2),), ((3, 4), (5, 6))), 10),
        {"do": "slots", "begin_us": -5, "slot_us": 20_000, "rows": [[[1, 2]], [[3, 4], [5, 6]]], "until_us": 10},
    ),
    (requests.Periods(-5, 10), {"do": "periods", "begin_us": -5, "until_us": 10}),
    (requests.Whose(4), {"do": "whose", "pid": 4}),
    (requests.Accounts({"ada": 1000, "bob": None}), {"do": "accounts", "users": {"ada": 1000, "bob": None}}),
    (requests.Keys(), {"do": "keys"}),
    (requests.List(), {"do": "list"}),
    (requests.Status(), {"do": "status"}),
]  # fmt: skip
ODD: tuple[object, ...] = (
    None, True, -1, 0, 1.5, float("nan"), float("inf"), 2**60, "", "x", "/", "a\0b", "\ud800", [], [[]], [None],
    [[[1]]], [[[1, True]]], {}, {"a": 1}, {"": "x"}, {"a=b": "x"},
)  # fmt: skip


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the numbers of a plain request are."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(each, (*path, key))
    elif type(value) in (int, float):
        yield path


@pytest.mark.parametrize("form", [form for _, form in FORMS], ids=[form["do"] for _, form in FORMS])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, 2**63, 2**64, -(2**63), 10**400])
def test_numbers_of_a_request_are_finite_and_bounded(form: dict[str, Any], value: float) -> None:
    for *path, last in numbers(form):
        changed: Any = copy.deepcopy(form)
        inner = changed
        for key in path:
            inner = inner[key]
        inner[last] = value
        assert isinstance(decode(json.dumps({**changed, "re": 1}).encode(), 0)[1], Refusal), (path, last)


def test_no_request_is_left_out() -> None:
    assert [type(request) for request, _ in FORMS] == list(get_args(requests.Request))


@pytest.mark.parametrize(("request_", "form"), FORMS, ids=[form["do"] for _, form in FORMS])
def test_the_agents_request_is_the_guards(request_: requests.Request, form: dict[str, Any]) -> None:
    packet = encode(request_, 8)
    assert json.loads(packet) == form | {"re": 8}
    assert decode(packet, descriptors=0) == (8, request_)


@pytest.mark.parametrize("form", [form for _, form in FORMS], ids=[form["do"] for _, form in FORMS])
def test_every_field_of_every_request_is_checked(form: dict[str, Any]) -> None:
    for name in form.keys() - {"do"}:
        number, refused = decode(json.dumps({**form, name: {"no": ["such"]}, "re": 1}).encode(), 0)
        assert (number, isinstance(refused, Refusal)) == (1, True), name
        assert f"{form['do']}: {name}: " in str(refused)
        missing = {key: value for key, value in form.items() if key != name}
        assert f"{form['do']}: {name} is missing" in str(decode(json.dumps({**missing, "re": 1}).encode(), 0)[1])
        for value in ODD:
            _, found = decode(json.dumps({**form, name: value, "re": 1}).encode(), 0)
            if not isinstance(found, Refusal):  # a good value: then of the field's own type
                assert json.loads(encode(found, 1)) == {**form, name: value, "re": 1}
