"""The OpenAPI 3.1 document of the API, made from the routes' table and the documents' structures."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec
from aiohttp import web

import cosched
from cosched.wire import api
from space_scheduler.machine import events as ev
from space_scheduler.service.api.heavy import Handler, Heavy

JSON: Final = "application/json"


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a query. ``schema`` is its JSON schema."""

    name: str
    schema: dict[str, Any]
    text: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one address. ``name`` is the handler's; ``answers`` a structure, or a media type for anything else.

    ``posts`` is the event of the job in the path that a user or operator wishes by it, instead of a handler of its own;
    ``past`` is what the job then is, in words. ``errors`` are the statuses of the problems that are its own; every
    route may also say 400, 401, 403, 405, 429 and 500. ``heavy``: a long list or a stream, made and sent within bounds
    of their own (:mod:`~.heavy`). ``operators``: what operators alone do by it, in words. ``readable``: a read-only
    token may get it. Beside the counts of ``/metrics`` it says nothing of a person.
    """

    method: str
    path: str
    name: str
    summary: str
    takes: type[msgspec.Struct] | None = None
    answers: type[msgspec.Struct] | str
    status: int = 200
    query: Sequence[Parameter] = ()
    heavy: Literal["", "list", "stream"] = ""
    errors: Sequence[int] = ()
    operators: str = ""
    readable: bool = False
    posts: Callable[[int], ev.Event] | None = None
    past: str = ""


def _whole(least: int, most: int | None = None, default: int | None = None) -> dict[str, Any]:
    given = {"minimum": least, "maximum": most, "default": default}
    return {"type": "integer"} | {name: value for name, value in given.items() if value is not None}


_USER: Final = Parameter("user", {"type": "string"}, "only this user's jobs")
MAX_WAIT_S: Final = 300
MAX_HISTORY: Final = 1000

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/jobs",
        name="submit",
        summary="Submit a job; answered when it is in the journal",
        takes=api.Submission,
        answers=api.JobDoc,
        status=201,
        errors=(413, 422, 429, 503),
    ),
    Route(
        method="GET",
        path="/v1/jobs",
        name="jobs",
        heavy="list",
        summary="The jobs alive: what holds nodes, then the queue in its order, then what may not be queued yet",
        answers=api.JobList,
        query=(_USER, Parameter("state", {"type": "string"}, "only jobs in this state")),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        name="job",
        summary="A job, alive or ended",
        answers=api.JobDoc,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/explain",
        name="explain",
        summary="Why a job is in the state it is in, from the decision's own record",
        answers=api.Explanation,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/wait",
        name="wait",
        summary="The job as soon as it has ended, or after so long as it is then",
        answers=api.JobDoc,
        query=(
            Parameter("timeout_s", {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S, "default": 30}, "at most"),
        ),
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/output",
        name="output",
        heavy="stream",
        summary="Spooled output, from its first node; the headers Cosched-Size and Cosched-Final say how much there is",
        answers="application/octet-stream",
        query=(
            Parameter("stream", {"enum": ["stdout", "stderr"], "default": "stdout"}, "which"),
            Parameter("offset", _whole(0, default=0), "the first byte wanted"),
            Parameter("max_bytes", _whole(1), "one piece of at most so many bytes; without it, all there is by now"),
            Parameter(
                "follow", {"enum": ["0", "1"], "default": "0"}, "1: go on until the job has ended and all was sent"
            ),
        ),
        errors=(404, 409, 503),
    ),
    *(
        Route(
            method="POST",
            path=f"/v1/jobs/{{id}}/{name}",
            name=name,
            summary=summary,
            answers=api.JobDoc,
            errors=(404, 409, 503),
            posts=posts,
            past=past,
        )
        for name, posts, past, summary in (
            ("cancel", ev.JobCancelled, "cancelled", "A job is not wanted any more, wherever it is in its life"),
            ("hold", ev.JobHeld, "held", "A queued job is not to be started until released"),
            (
                *("release", ev.JobReleased, "released"),
                "A held job goes back to its place in the queue, unless it waits for something else",
            ),
        )
    ),
    Route(
        method="GET",
        path="/v1/history",
        name="history",
        heavy="list",
        summary="Ended jobs, the newest first",
        answers=api.JobList,
        query=(
            _USER,
            Parameter("limit", _whole(1, MAX_HISTORY, 100), "at most so many"),
            Parameter("before", _whole(1), "only those that ended before this job"),
        ),
    ),
    Route(method="GET", path="/v1/nodes", name="nodes", summary="All nodes", answers=api.NodeList, heavy="list"),
    Route(
        method="POST",
        path="/v1/nodes/{name}/drain",
        name="drain",
        summary="Nothing more starts on a node; what runs there goes on (operators)",
        operators="nodes are drained and resumed",
        takes=api.DrainRequest,
        answers=api.NodeDoc,
        errors=(404, 409, 503),
    ),
    Route(
        method="POST",
        path="/v1/nodes/{name}/resume",
        name="resume",
        summary="Jobs may start on a drained node again (operators)",
        operators="nodes are drained and resumed",
        answers=api.NodeDoc,
        errors=(404, 409, 503),
    ),
    Route(
        method="POST",
        path="/v1/nodes/{name}/admit",
        name="admit",
        summary="A node may join from now on (operators)",
        operators="nodes are admitted and removed",
        answers=api.MemberDoc,
        errors=(503,),
    ),
    Route(
        method="POST",
        path="/v1/nodes/{name}/remove",
        name="remove",
        summary="A node is no part of the cluster any more, its certificates count no more, its jobs end (operators)",
        operators="nodes are admitted and removed",
        takes=api.RemoveRequest,
        answers=api.MemberDoc,
        errors=(404, 503),
    ),
    Route(
        method="POST",
        path="/v1/policy",
        name="policy",
        summary="Another policy decides from now on, until the service is started again (operators)",
        operators="the policy is chosen",
        takes=api.PolicyRequest,
        answers=api.PolicyDoc,
        errors=(409, 503),
    ),
    Route(
        method="GET",
        path="/v1/set-aside",
        name="set_aside",
        heavy="list",
        summary="All that is set aside, and what brings each back; of jobs one's own (operators: all)",
        answers=api.SetAsideList,
    ),
    Route(
        method="GET",
        path="/v1/survey",
        name="survey",
        heavy="list",
        summary="What users are on each node, and what its clock says",
        answers=api.SurveyDoc,
        query=(Parameter("user", {"type": "string"}, "a user, or several with commas; himself where absent"),),
    ),
    Route(
        method="POST",
        path="/v1/tokens",
        name="create_token",
        summary="A token with which a user may ask over TLS",
        takes=api.TokenRequest,
        answers=api.NewToken,
        status=201,
        errors=(503,),
    ),
    Route(method="GET", path="/v1/tokens", name="tokens", summary="The tokens that there are", answers=api.TokenList),
    Route(
        method="POST",
        path="/v1/tokens/{token}/revoke",
        name="revoke_token",
        summary="A token is worth nothing any more",
        answers=api.TokenDoc,
        errors=(404, 503),
    ),
    Route(
        method="POST",
        path="/v1/page",
        name="page_link",
        summary="A link that opens the page in a browser: once, soon, and for whoever asks",
        answers=api.PageLink,
        status=201,
    ),
    Route(
        method="GET",
        path="/v1/certificates",
        name="certificates",
        summary="Certificates that the service knows, and until when each identity is valid (operators)",
        operators="certificates are listed and revoked",
        answers=api.CertificateList,
    ),
    Route(
        method="POST",
        path="/v1/certificates/revoke",
        name="revoke_certificates",
        summary="Certificates count no more, connections on which they were shown are ended (operators)",
        operators="certificates are listed and revoked",
        takes=api.RevokeRequest,
        answers=api.RevokedDoc,
        errors=(404, 409, 503),
    ),
    Route(
        method="GET",
        path="/v1/cluster",
        name="cluster",
        summary="The service and its cluster",
        answers=api.ClusterDoc,
        readable=True,
    ),
    Route(method="GET", path="/v1/openapi.json", name="openapi", summary="This document", answers=JSON, readable=True),
    Route(method="GET", path="/metrics", name="metrics", summary="For Prometheus", answers="text/plain", readable=True),
    Route(
        method="GET",
        path="/healthz",
        name="healthz",
        summary="Whether jobs are accepted",
        answers=JSON,
        errors=(503,),
        readable=True,
    ),
)
READABLE: Final = tuple(each.path for each in ROUTES if each.readable)


def routes(heavy: Heavy, *holders: object) -> list[web.RouteDef]:
    """Every route with its handler, a method of that name of one of the objects."""

    def handler(route: Route) -> Handler:
        name = "change" if route.posts is not None else route.name
        found = next(getattr(holder, name) for holder in holders if hasattr(holder, name))
        return found if route.posts is None else partial(found, route)

    return [
        web.route(each.method, each.path, heavy.answering(handler(each), each.heavy, each.operators)) for each in ROUTES
    ]


def document() -> dict[str, Any]:
    """The document, as plain values."""
    structures = {each for route in ROUTES for each in (route.takes, route.answers) if isinstance(each, type)}
    _, schemas = msgspec.json.schema_components(
        [api.Problem, *sorted(structures, key=lambda each: each.__name__)],
        ref_template="#/components/schemas/{name}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cosched scheduler",
            "version": cosched.__version__,
            "description": "Who asks is who the connection says: the socket's peer, the certificate, or a token.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {
            "name": part[1:-1],
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if part == "{id}" else "string"},
        }
        for part in route.path.split("/")
        if part.startswith("{")
    ]
    parameters += [
        {"name": each.name, "in": "query", "schema": each.schema, "description": each.text} for each in route.query
    ]
    answer: dict[str, Any] = (
        {route.answers: {}} if isinstance(route.answers, str) else {JSON: {"schema": _reference(route.answers)}}
    )
    problems = {
        str(status): {"description": "a problem", "content": {JSON: {"schema": _reference(api.Problem)}}}
        for status in sorted({400, 401, 403, 405, 429, 500, *route.errors})
    }
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {str(route.status): {"description": route.summary, "content": answer}, **problems},
    }
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        needed = any(field.required for field in msgspec.structs.fields(route.takes))
        operation["requestBody"] = {"required": needed, "content": {JSON: {"schema": _reference(route.takes)}}}
    return operation


def _reference(structure: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{structure.__name__}"}
