"""The API's client: a method for each address, documents of :mod:`cosched.wire.api` in and out.

An error's :class:`~cosched.wire.api.Problem` becomes :class:`BadInput` where the input was at fault (400, 404, 413,
422) and :class:`Failed` where it was good and still could not be done; no answer at all is :class:`NoAnswer`.
"""

from typing import Final, Literal, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from cosched.client.transport import ANSWER_S, Answer, Transport
from cosched.errors import BadInput, Failed
from cosched.wire.api import (
    CertificateList,
    ClusterDoc,
    DrainRequest,
    Explanation,
    JobDoc,
    JobList,
    MemberDoc,
    NewToken,
    NodeDoc,
    NodeList,
    PageLink,
    PolicyDoc,
    PolicyRequest,
    Problem,
    RemoveRequest,
    RevokedDoc,
    RevokeRequest,
    SetAsideList,
    Submission,
    SurveyDoc,
    TokenDoc,
    TokenList,
    TokenRequest,
)

_BAD_INPUT: Final = frozenset({400, 404, 413, 422})
_NOT_NOW: Final = frozenset({429, 503})
#: How long one request to wait lasts; a longer wait is several.
_WAIT_S: Final = 30.0
_PIECE_BYTES: Final = 256 << 10
#: The longest list that one request may ask for.
_PAGE: Final = 1000

Document = TypeVar("Document")
Stream = Literal["stdout", "stderr"]


class NotNow(Failed):
    """The service cannot do it at the moment: a node does not answer, its disk is full, or as many wait as may."""


class Piece(NamedTuple):
    """A piece of a job's output; ``size`` is what there is by now, ``final`` that it will not grow any more."""

    data: bytes
    size: int
    final: bool


class Client:
    """A service that was found. Not for several threads at a time."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport  # for what is no document

    @property
    def server(self) -> str:
        """Where it is: the path of its socket, or its URL."""
        return self.transport.server

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, submission: Submission) -> JobDoc:
        """POST /v1/jobs."""
        return self._document("POST", "/v1/jobs", JobDoc, submission)

    def jobs(self, user: str | None = None) -> list[JobDoc]:
        """GET /v1/jobs: those alive, what runs first, then the queue in its order."""
        return self._document("GET", "/v1/jobs" + _query(user=user), JobList).jobs

    def history(self, user: str | None = None, limit: int = 100) -> list[JobDoc]:
        """GET /v1/history: those that have ended, the newest first; in several requests where there are many."""
        found: list[JobDoc] = []
        before = None
        while len(found) < limit:
            page = min(_PAGE, limit - len(found))
            path = "/v1/history" + _query(user=user, limit=page, before=before)
            jobs = self._document("GET", path, JobList).jobs
            found += jobs
            if len(jobs) < page:
                break
            before = jobs[-1].job_id
        return found

    def job(self, job_id: int) -> JobDoc:
        """GET /v1/jobs/ID."""
        return self._document("GET", f"/v1/jobs/{job_id}", JobDoc)

    def explain(self, job_id: int) -> Explanation:
        """GET /v1/jobs/ID/explain."""
        return self._document("GET", f"/v1/jobs/{job_id}/explain", Explanation)

    def wait(self, job_id: int, timeout_s: float = _WAIT_S) -> JobDoc:
        """GET /v1/jobs/ID/wait: the job when it has ended, or as it is after ``timeout_s``."""
        path = f"/v1/jobs/{job_id}/wait" + _query(timeout_s=f"{timeout_s:g}")
        return self._document("GET", path, JobDoc, timeout_s=timeout_s + ANSWER_S)

    def cancel(self, job_id: int) -> JobDoc:
        """POST /v1/jobs/ID/cancel."""
        return self._document("POST", f"/v1/jobs/{job_id}/cancel", JobDoc)

    def hold(self, job_id: int) -> JobDoc:
        """POST /v1/jobs/ID/hold."""
        return self._document("POST", f"/v1/jobs/{job_id}/hold", JobDoc)

    def release(self, job_id: int) -> JobDoc:
        """POST /v1/jobs/ID/release."""
        return self._document("POST", f"/v1/jobs/{job_id}/release", JobDoc)

    def output(self, job_id: int, stream: Stream = "stdout", offset: int = 0, max_bytes: int = _PIECE_BYTES) -> Piece:
        """GET /v1/jobs/ID/output: at most ``max_bytes`` from ``offset``."""
        path = f"/v1/jobs/{job_id}/output" + _query(stream=stream, offset=offset, max_bytes=max_bytes)
        answer = self._asked("GET", path)
        try:
            size = int(answer.headers.get("Cosched-Size", ""))
        except ValueError:
            raise Failed(
                f"{self.server} does not answer as a scheduler of cosched does (output without size)"
            ) from None
        return Piece(answer.body, size, answer.headers.get("Cosched-Final") == "1")

    def nodes(self) -> list[NodeDoc]:
        """GET /v1/nodes."""
        return self._document("GET", "/v1/nodes", NodeList).nodes

    def drain(self, name: str, reason: str = "") -> NodeDoc:
        """POST /v1/nodes/NAME/drain: nothing more starts there."""
        return self._document("POST", f"/v1/nodes/{quote(name, safe='')}/drain", NodeDoc, DrainRequest(reason))

    def resume(self, name: str) -> NodeDoc:
        """POST /v1/nodes/NAME/resume: jobs may start there again."""
        return self._document("POST", f"/v1/nodes/{quote(name, safe='')}/resume", NodeDoc)

    def choose_policy(self, request: PolicyRequest) -> PolicyDoc:
        """POST /v1/policy: another one decides from now on."""
        return self._document("POST", "/v1/policy", PolicyDoc, request)

    def admit(self, name: str) -> MemberDoc:
        """POST /v1/nodes/NAME/admit: it may join from now on."""
        return self._document("POST", f"/v1/nodes/{quote(name, safe='')}/admit", MemberDoc)

    def remove(self, name: str, serials: list[str]) -> MemberDoc:
        """POST /v1/nodes/NAME/remove: it belongs to the cluster no more, nor do certificates of those numbers."""
        return self._document("POST", f"/v1/nodes/{quote(name, safe='')}/remove", MemberDoc, RemoveRequest(serials))

    def set_aside(self) -> SetAsideList:
        """GET /v1/set-aside: nodes, jobs, launches and policies that are set aside."""
        return self._document("GET", "/v1/set-aside", SetAsideList)

    def survey(self, users: list[str]) -> SurveyDoc:
        """GET /v1/survey: what users are on each node."""
        return self._document("GET", "/v1/survey" + _query(user=",".join(users) or None), SurveyDoc)

    def page_link(self) -> PageLink:
        """POST /v1/page: a link that opens the page once."""
        return self._document("POST", "/v1/page", PageLink)

    def create_token(self, request: TokenRequest) -> NewToken:
        """POST /v1/tokens."""
        return self._document("POST", "/v1/tokens", NewToken, request)

    def tokens(self) -> list[TokenDoc]:
        """GET /v1/tokens: the newest first."""
        return self._document("GET", "/v1/tokens", TokenList).tokens

    def revoke_token(self, number: str) -> TokenDoc:
        """POST /v1/tokens/ID/revoke."""
        return self._document("POST", f"/v1/tokens/{quote(number, safe='')}/revoke", TokenDoc)

    def certificates(self) -> CertificateList:
        """GET /v1/certificates: those that were shown or revoked, and until when each identity is valid."""
        return self._document("GET", "/v1/certificates", CertificateList)

    def revoke_certificates(self, request: RevokeRequest) -> RevokedDoc:
        """POST /v1/certificates/revoke: they count no more."""
        return self._document("POST", "/v1/certificates/revoke", RevokedDoc, request)

    def cluster(self, timeout_s: float = ANSWER_S) -> ClusterDoc:
        """GET /v1/cluster, for at most so long."""
        return self._document("GET", "/v1/cluster", ClusterDoc, timeout_s=timeout_s)

    def metrics(self) -> str:
        """GET /metrics: what Prometheus scrapes."""
        return self._asked("GET", "/metrics").body.decode()

    def _document(
        self,
        method: str,
        path: str,
        kind: type[Document],
        body: msgspec.Struct | None = None,
        *,
        timeout_s: float = ANSWER_S,
    ) -> Document:
        answer = self._asked(method, path, body, timeout_s)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            raise Failed(f"{self.server} does not answer as a scheduler of cosched does ({error})") from None

    def _asked(self, method: str, path: str, body: msgspec.Struct | None = None, timeout_s: float = ANSWER_S) -> Answer:
        sent = msgspec.json.encode(body) if body is not None else (b"" if method == "POST" else None)
        answer = self.transport.request(method, path, sent, timeout_s=timeout_s)
        if answer.status < 300:
            return answer
        raise _problem(answer, self.server)


def _query(**given: object) -> str:
    said = {key: value for key, value in given.items() if value is not None}
    return "?" + urlencode(said) if said else ""


def _problem(answer: Answer, server: str) -> BadInput | Failed:
    try:
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.DecodeError:
        return Failed(f"{server} answers with HTTP status {answer.status}, and not as a scheduler of cosched does")
    if answer.status in _NOT_NOW:
        return NotNow(problem.message)
    if answer.status not in _BAD_INPUT:
        return Failed(problem.message)
    error = BadInput(problem.where, problem.found, problem.expected, nearest=problem.nearest)
    return error if str(error) == problem.message else BadInput("", problem.message)
