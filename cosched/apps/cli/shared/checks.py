"""What ``cosched doctor`` finds, and where nodes do not agree with each other: users, homes, clocks, versions."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeVar

import msgspec

from cosched.apps.cli.shared.words import lasting
from cosched.identity.names import WARN_DAYS
from cosched.wire.api import AccountDoc, NodeDoc, NodeSurvey, SurveyDoc

Level = Literal["ok", "warn", "fail"]
Key = TypeVar("Key")
Value = TypeVar("Value")
CLOCK_WARN_S: Final = 2.0
CLOCK_FAIL_S: Final = 60.0
SCHEDULERS_HOST: Final = "the scheduler's host"
_ONE_UID: Final = "one uid everywhere: on a shared file system his files are another's, and nodes refuse his jobs"
_ONE_HOME: Final = "one home everywhere: a job's directory has to be there on all of its nodes"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at; ``advice`` says what to do where it is not ok."""

    what: str
    level: Level
    found: str
    advice: str = ""


def judged(what: str, fine: bool, found: str, advice: str, bad: Level = "warn") -> Check:
    """A check whose advice is given where it is not fine alone."""
    return Check(what, "ok", found) if fine else Check(what, bad, found, advice)


def clock_level(apart_s: float) -> Level:
    """How bad it is that two clocks are so far apart."""
    apart_s = abs(apart_s)
    return "ok" if apart_s < CLOCK_WARN_S else "warn" if apart_s < CLOCK_FAIL_S else "fail"


def expiry(node: NodeDoc) -> str:
    """What is to be said of the end of a node's certificate; empty: it is far away, or not known."""
    if node.certificate_until is None:
        return ""
    until = datetime.fromisoformat(node.certificate_until)
    days = (until - datetime.now(UTC)) / timedelta(days=1)
    if days >= WARN_DAYS:
        return ""
    if days <= 0:
        return f"its certificate has expired on {until:%Y-%m-%d}: nothing more starts there ('cosched node renew')"
    return f"its certificate expires on {until:%Y-%m-%d}, in {days:.0f} days ('cosched node renew')"


def agreement(survey: SurveyDoc, users: list[str], version: str) -> Iterator[Check]:
    """Whether the nodes that answer agree on who is who, on the time, and on the software (the service's version)."""
    if survey.silent:
        advice = "their agents are connected and do not answer: an older version, or a machine that is very busy"
        yield Check("survey", "warn", f"no answer from {_names(survey.silent)}", advice)
    nodes = sorted(survey.nodes, key=lambda each: each.name)
    if not nodes:
        return
    yield from _clocks(nodes)
    others = grouped((node.software, node.name) for node in nodes if node.software != version)
    if not others:
        yield Check("versions", "ok", f"{version} on {_count(nodes)}")
    for software, names in others.items():
        found = f"{software} on {_names(names)}, the service has {version}"
        yield Check("versions", "warn", found, "upgrade the older ones; jobs go on while an agent is restarted")
    for user in users:
        yield from _user(user, nodes, survey.uids)


def _clocks(nodes: list[NodeSurvey]) -> Iterator[Check]:
    off = [node for node in nodes if clock_level(_apart_s(node)) != "ok"]
    if not off:
        widest = max(abs(node.clock_s) for node in nodes)
        yield Check("clocks", "ok", f"{_count(nodes)} within {lasting(widest)} of the scheduler's")
    for node in off:
        direction = "ahead of" if node.clock_s > 0 else "behind"
        found = f"{node.name} is {lasting(abs(node.clock_s))} {direction} the scheduler's"
        advice = f"set the clock of {node.name} by NTP (timedatectl): certificates and files' times go by it"
        yield Check("clocks", clock_level(_apart_s(node)), found, advice)


def _apart_s(node: NodeSurvey) -> float:
    """How far apart they are for certain: less than what the question's way took."""
    return max(0.0, abs(node.clock_s) - node.round_trip_s / 2)


def _user(user: str, nodes: list[NodeSurvey], uids: dict[str, int] | None) -> Iterator[Check]:
    """``uids`` are those of users on the scheduler's host; None: a service of an earlier version."""
    accounts = {node.name: node.users[user] for node in nodes if user in node.users}
    seen = {name: account for name, account in accounts.items() if account.uid >= 0}
    unseen = grouped((account.problem, name) for name, account in accounts.items() if account.uid < 0)
    missing = [node.name for node in nodes if user not in node.users]
    problems = [*_disagreements(user, seen, uids)]
    if missing:
        advice = f"make the account there, or {user}'s jobs fail on these nodes (the launch says so)"
        problems.append((f"not known on {_names(missing)}", advice))
    advice = "look at the name service there (nsswitch.conf, sssd, LDAP) and at the homes' file system, and ask again"
    problems += [(f"on {_names(names)}: {problem}", advice) for problem, names in unseen.items()]
    yield from (Check(f"user {user}", "warn", found, advice) for found, advice in problems)
    if not problems and seen:
        first = next(iter(seen.values()))
        yield Check(f"user {user}", "ok", f"uid {first.uid}, home {first.home} on {_count(nodes)}")


def _disagreements(
    user: str, accounts: dict[str, AccountDoc], uids: dict[str, int] | None
) -> Iterator[tuple[str, str]]:
    """What differs, with what to do about it."""
    here = [(uids[user], SCHEDULERS_HOST)] if uids and user in uids else []
    by_uid = grouped([*here, *((account.uid, name) for name, account in accounts.items())])
    by_home = grouped((account.home, name) for name, account in accounts.items())
    for what, found, advice in (("uid", by_uid, _ONE_UID), ("home", by_home, _ONE_HOME)):
        if len(found) > 1:
            yield f"{what} {'; '.join(f'{each} on {_names(names)}' for each, names in found.items())}", advice
    advice = "jobs of his fail on these nodes, or run without a home; mend the account, or node.toml's [security]"
    problems = grouped((account.problem, name) for name, account in accounts.items() if account.problem)
    yield from ((f"on {_names(names)}: {problem}", advice) for problem, names in problems.items())


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values of each key, in the order in which they come."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:5])} and {len(names) - 5} more"


def _count(nodes: list[NodeSurvey]) -> str:
    return "the one node that answers" if len(nodes) == 1 else f"all {len(nodes)} nodes that answer"
