"""The served OpenAPI document: every route, every structure, and what is really answered fits it."""

import os
import re
from typing import Any

import msgspec
import pytest
from kit.service import ME, Running

from cosched.wire import api
from space_scheduler.service.api import openapi
from space_scheduler.service.link import link


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


async def test_it_is_served_and_whole(service: Running) -> None:
    document = await service.get("/v1/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert {name.rpartition("/")[2] for name in references(document)} == set(document["components"]["schemas"])
    for path, operations in document["paths"].items():
        for operation in operations.values():
            named = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
    submission = document["components"]["schemas"]["Submission"]
    assert submission["required"] == ["script", "directory"]
    assert submission["additionalProperties"] is False


def test_every_route_of_the_contract_is_there() -> None:
    assert api.__doc__ is not None
    said = set(re.findall(r"^    (GET|POST) +(/v1/\S+)", api.__doc__, re.MULTILINE))
    told = {
        (route.method, re.sub(r"\{(\w+)\}", lambda part: "NAME" if part[1] == "name" else "ID", route.path))
        for route in openapi.ROUTES
    }
    for method, path in said:
        bare = path.partition("?")[0]
        options = bare.rpartition("/")[2].split("|")
        for option in options:
            assert (method, bare.rpartition("/")[0] + "/" + option) in told


def test_names_are_unique() -> None:
    names = [route.name for route in openapi.ROUTES]
    assert len(names) == len(set(names))


async def test_what_is_answered_is_what_is_said(service: Running) -> None:
    async with service.agent("n1"):
        job_id = await service.submit(hold=True)
        for route in (each for each in openapi.ROUTES if each.method == "GET"):
            path = route.path.replace("{id}", str(job_id)) + ("?timeout_s=0" if route.name == "wait" else "")
            async with service.http.get(path) as answer:
                assert answer.status == route.status, path
                body = await answer.read()
                if isinstance(route.answers, str):
                    assert answer.content_type == route.answers, path
                else:
                    msgspec.json.decode(body, type=route.answers, strict=True)


async def test_a_node_that_answers_no_survey_is_named(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_SURVEY_S", 0.05)
    async with service.agent("n1", answers=False):
        assert msgspec.convert(await service.get("/v1/survey"), api.SurveyDoc) == api.SurveyDoc(
            [], ["n1"], {ME: os.geteuid()}
        )
