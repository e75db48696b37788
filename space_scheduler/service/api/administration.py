"""The API's part for who belongs to the cluster: nodes, users' tokens and accounts, certificates; and its policy."""

import asyncio
import time
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiohttp import web

from cosched.config.cluster import ClusterConfig
from cosched.config.hosts import check_spellings
from cosched.errors import BadInput
from cosched.identity.names import CA_PEM, Kind, checked_name
from cosched.linux.users import NO_ACCOUNT
from cosched.model.time import US_PER_S, humanised
from cosched.wire import api as docs
from cosched.wire.messages import NO_UID
from space_scheduler.plugins import resolve
from space_scheduler.service.access.callers import Caller, Callers
from space_scheduler.service.access.certificates import Certificates
from space_scheduler.service.access.members import Members, checked_serials
from space_scheduler.service.access.problems import Refusal, answer
from space_scheduler.service.access.tokens import Token, Tokens
from space_scheduler.service.api import queries
from space_scheduler.service.api.bodies import Bodies
from space_scheduler.service.api.rates import Rates
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.launch.sharing import policy_of, resizes, rules_of, shares_nodes
from space_scheduler.service.link.link import Link
from space_scheduler.service.log import Log

_MOST_USERS: Final = 1000
_LONGEST_LABEL: Final = 100
#: That one user may make and revoke: each is written to disk.
_TOKENS_PER_MINUTE: Final = 60
_WRITES: Final = "makes and revokes tokens"


class Administration:
    """The handlers. ``cut`` ends the connections on which certificates of those serial numbers were shown."""

    def __init__(
        self,
        config: ClusterConfig,
        host: CoreHost,
        link: Link,
        members: Members,
        tokens: Tokens,
        certificates: Certificates,
        callers: Callers,
        bodies: Bodies,
        log: Log,
    ) -> None:
        self._config = config
        self._host = host
        self._link = link
        self._members = members
        self._tokens = tokens
        self._certificates = certificates
        self._callers = callers
        self._bodies = bodies
        self._log = log
        self._rates = Rates(_TOKENS_PER_MINUTE)
        self.cut: Callable[[Container[str]], int] = lambda serials: 0

    # nodes

    async def admit(self, request: web.Request, caller: Caller) -> web.Response:
        """A node may join."""
        name = checked_name("node", request.match_info["name"])
        check_spellings([*self._members.nodes, name], "node name")
        self._members.admit(name)
        self._link.book.admit(name)
        self._log.info("node admitted", node=name, by=caller.user)
        return self._membership()

    async def remove(self, request: web.Request, caller: Caller) -> web.Response:
        """A node belongs to the cluster no more."""
        name = request.match_info["name"]
        asked = await self._bodies.document(request, caller.user, docs.RemoveRequest, "remove")
        entry = queries.node(request, self._link.book)
        serials = [*checked_serials(asked.serials, "remove"), *([entry.serial] if entry.serial else [])]
        self._members.remove(name, serials)
        self._link.remove(name)
        self._log.info("node removed", node=name, by=caller.user, certificates=len(serials))
        return self._membership()

    # the policy

    async def policy(self, request: web.Request, caller: Caller) -> web.Response:
        """Another policy decides from now on."""
        asked = await self._bodies.document(request, caller.user, docs.PolicyRequest, "policy")
        config, before = self._config, self._host.policy_name
        if ":" in asked.policy and asked.policy != config.policy:  # its code would run with the service's rights
            raise BadInput(
                "policy", f"found {asked.policy!r}", "an installed policy; modules are for cluster.yaml to name"
            )
        policy = resolve(asked.policy, asked.order, where="policy", directory=config.policy_directory)
        what, own = "", policy_of(config)
        if (shares := shares_nodes(policy)) != shares_nodes(own):
            what = "has jobs share nodes" if shares else "has each node for one job alone"
        elif (changes := resizes(policy)) != resizes(own):
            what = "changes the shapes of jobs" if changes else "leaves jobs the shapes that they ask for"
        if what:
            raise Refusal(
                409,
                f"{asked.policy} {what}, and {config.policy} does not: agents keep other limits then; "
                "write policy in cluster.yaml and start the scheduler again",
                where="policy",
                found=asked.policy,
            )
        await self._host.choose(policy, asked.policy, asked.order, rules_of(config, policy))
        self._log.info("policy chosen", policy=asked.policy, order=asked.order, before=before, by=caller.user)
        return answer(docs.PolicyDoc(asked.policy, asked.order, before, config.policy))

    def _membership(self) -> web.Response:
        return answer(docs.MemberDoc(self._members.nodes, len(self._members.revoked)))

    async def survey(self, request: web.Request, caller: Caller) -> web.Response:
        """What users are on each node."""
        users = tuple(dict.fromkeys(filter(None, request.query.get("user", caller.user).split(","))))
        if len(users) > _MOST_USERS:
            raise BadInput("user", f"{len(users)} of them", f"at most {_MOST_USERS}")
        if not caller.operator and set(users) - {caller.user}:
            raise Refusal(403, f"who others are on the nodes is for operators to ask; {caller.user} is none")
        there = [entry.name for entry in self._link.book if entry.connected]
        uids = dict(zip(users, await asyncio.gather(*map(self._callers.uid_of, users)), strict=True))
        found = await asyncio.gather(*(self._surveyed(name, uids) for name in there))
        silent = [name for name, each in zip(there, found, strict=True) if each is None]
        return answer(
            docs.SurveyDoc(
                [each for each in found if each is not None],
                silent,
                {user: uid for user, uid in uids.items() if uid != NO_ACCOUNT},
            )
        )

    async def _surveyed(self, name: str, uids: Mapping[str, int]) -> docs.NodeSurvey | None:
        asked_s, wall_s = time.monotonic(), time.time()
        said = await self._link.survey(name, uids)
        entry = self._link.book.get(name)
        if said is None or entry is None or entry.hello is None:
            return None
        trip_s = time.monotonic() - asked_s
        apart_s = said.time_us / US_PER_S - (wall_s + trip_s / 2)
        return docs.NodeSurvey(
            name,
            entry.hello.software,
            round(apart_s, 6),
            round(trip_s, 6),
            {
                user: docs.AccountDoc(_uid(known.uid), _uid(known.gid), known.home, known.problem)
                for user, known in said.users.items()
            },
        )

    # tokens

    async def create_token(self, request: web.Request, caller: Caller) -> web.Response:
        """A token for a user."""
        asked = await self._bodies.document(request, caller.user, docs.TokenRequest, "token")
        if caller.by_token:
            raise Refusal(403, "a token makes no further tokens: ask on the scheduler's host, or with a certificate")
        user = checked_name("user", asked.user if asked.user is not None else caller.user)
        if user != caller.user and not caller.operator:
            raise Refusal(403, f"{caller.user} may make tokens for himself, not for {user}", found=caller.user)
        if not caller.named and not caller.operator:
            raise Refusal(403, f"{caller.user} has no user name on the scheduler's host")
        if not self._config.listen.tokens or not self._config.listen.address:
            raise Refusal(403, "this service takes no tokens (listen.tokens and listen.address in cluster.yaml)")
        longest_us = self._config.time_us("max_token_time")
        if not 1 <= asked.life_s * US_PER_S <= longest_us:
            raise BadInput(
                "token: life_s",
                f"found {asked.life_s:g}",
                f"more than 0, at most {longest_us / US_PER_S:g} ({humanised(longest_us)}: max_token_time)",
            )
        if len(asked.label) > _LONGEST_LABEL or not asked.label.isprintable():
            raise BadInput("token: label", "too long, or not printable", f"at most {_LONGEST_LABEL} characters")
        self._rates.take(caller.user, _WRITES)
        made, words = await asyncio.to_thread(
            self._tokens.create, user, asked.label, asked.life_s, read_only=asked.read_only
        )
        self._log.info("token made", id=made.id, user=user, by=caller.user)
        authority = (Path(self._config.identity) / CA_PEM).read_text(encoding="ascii")
        return answer(docs.NewToken(_token(made), words, authority), 201)

    async def tokens(self, request: web.Request, caller: Caller) -> web.Response:
        """The caller's tokens; all of them for an operator."""
        user = None if caller.operator else caller.user
        return answer(docs.TokenList([_token(each) for each in self._tokens.all(user)]))

    async def revoke_token(self, request: web.Request, caller: Caller) -> web.Response:
        """A token is worth nothing any more."""
        number = request.match_info["token"]
        found = self._tokens.get(number)
        if found is None or not (caller.operator or found.user == caller.user):  # others' are not even confirmed
            raise Refusal(404, f"{caller.user} has no token {number!r} (see: cosched token list)", found=number)
        self._rates.take(caller.user, _WRITES)
        await asyncio.to_thread(self._tokens.revoke, number)
        self._log.info("token revoked", id=number, user=found.user, by=caller.user)
        return answer(_token(found))

    # certificates

    async def certificates(self, request: web.Request, caller: Caller) -> web.Response:
        """Those that were shown, and those that were revoked."""
        revoked = self._members.revocations()
        found = {
            each.serial: _certificate(each.serial, each.peer.kind, each.peer.name, each.until_s, each.serial in revoked)
            for each in self._certificates.shown.values()
        }
        unseen = [
            _certificate(serial, kind, name, None, True)
            for serial, (kind, name) in revoked.items()
            if serial not in found
        ]
        expiries = self._certificates.expiries().items()
        return answer(
            docs.CertificateList([*found.values(), *unseen], {name: _time(until_s) for name, until_s in expiries})
        )

    async def revoke_certificates(self, request: web.Request, caller: Caller) -> web.Response:
        """Certificates count no more."""
        asked = await self._bodies.document(request, caller.user, docs.RevokeRequest, "revoke")
        name = checked_name(asked.kind, asked.name)
        shown = [] if asked.only else [each.serial for each in self._certificates.of(asked.kind, name)]
        serials = list(dict.fromkeys([*checked_serials(asked.serials, "revoke"), *shown]))
        if not serials:
            message = f"no certificate of {asked.kind} {name!r} is known here: name its serial number"
            raise Refusal(404, message, where="revoke: serials", found=name)
        own = self._certificates.own_serial
        if own in serials and not asked.only:
            message = f"{own} is the certificate that this scheduler shows, and all agents would leave it"
            raise Refusal(409, f"{message}: renew it first, or name it alone (--serial)", where="revoke: serials")
        self._members.revoke(asked.kind, name, serials)
        if asked.kind != "user":
            self._link.tell_revoked()
        closed = self.cut(frozenset(serials))
        self._log.info(
            "certificates revoked", whose=f"{asked.kind} {name}", serials=serials, closed=closed, by=caller.user
        )
        return answer(docs.RevokedDoc(serials, closed))


def _uid(number: int) -> int:
    """A uid or gid of the wire's as documents have it: -1 where it could not be looked up."""
    return -1 if number == NO_UID else number


def _token(token: Token) -> docs.TokenDoc:
    return docs.TokenDoc(
        token.id,
        token.user,
        token.label,
        _time(token.created_s),
        _time(token.expires_s),
        token.expires_s <= time.time(),
        token.read_only,
    )


def _certificate(serial: str, kind: Kind, name: str, until_s: float | None, revoked: bool) -> docs.CertificateDoc:
    return docs.CertificateDoc(serial, kind, name, _time(until_s) if until_s is not None else None, revoked)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
