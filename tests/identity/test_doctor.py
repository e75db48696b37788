"""``cosched doctor`` over the nodes: what it says where they do not agree, and with real agents."""

import asyncio
import json
import subprocess
import sys
import time

import pytest
from kit.service import Agent, Cluster, running
from kit.waiting import BOUND_S

from cosched.apps.cli.shared.checks import Check, agreement
from cosched.wire import messages as wire
from cosched.wire.api import AccountDoc, NodeSurvey, SurveyDoc
from space_scheduler.service.link import link

ADA = AccountDoc(1001, 1001, "/users/ada")


def node(
    name: str, *, clock_s: float = 0.0, software: str = "1", trip_s: float = 0.01, **users: AccountDoc
) -> NodeSurvey:
    return NodeSurvey(name, software, clock_s, trip_s, users)


def problems(*nodes: NodeSurvey, users: tuple[str, ...] = ("ada",), silent: tuple[str, ...] = ()) -> list[Check]:
    found = list(agreement(SurveyDoc(list(nodes), list(silent)), list(users), "1"))
    assert all(each.advice for each in found if each.level != "ok")
    return [each for each in found if each.level != "ok"]


def test_nodes_that_agree() -> None:
    found = list(agreement(SurveyDoc([node("n2", ada=ADA), node("n1", clock_s=-0.5, ada=ADA)]), ["ada"], "1"))
    assert [(each.what, each.level) for each in found] == [("clocks", "ok"), ("versions", "ok"), ("user ada", "ok")]
    assert found[2].found == "uid 1001, home /users/ada on all 2 nodes that answer"
    assert list(agreement(SurveyDoc([]), ["ada"], "1")) == []


@pytest.mark.parametrize(
    ("other", "what", "level", "words"),
    [
        (node("n2", clock_s=30, ada=ADA), "clocks", "warn", "n2 is 30 s ahead of the scheduler's"),
        (node("n2", clock_s=-3600, ada=ADA), "clocks", "fail", "n2 is 1 h behind the scheduler's"),
        (node("n2", software="2", ada=ADA), "versions", "warn", "2 on n2, the service has 1"),
        (node("n2"), "user ada", "warn", "not known on n2"),
        (node("n2", ada=AccountDoc(1002, 1, "/users/ada")), "user ada", "warn", "uid 1001 on n1; 1002 on n2"),
        (node("n2", ada=AccountDoc(1001, 1, "/u/ada")), "user ada", "warn", "home /users/ada on n1; /u/ada on n2"),
        (
            node("n2", ada=AccountDoc(1001, 1, "/users/ada", "ada may not log in")),
            "user ada", "warn", "on n2: ada may not log in",
        ),
    ],
)  # fmt: skip
def test_a_node_that_does_not(other: NodeSurvey, what: str, level: str, words: str) -> None:
    (found,) = problems(node("n1", ada=ADA), other)
    assert (found.what, found.level, found.found) == (what, level, words)


def test_uid_that_all_nodes_have_is_compared_with_the_schedulers_host() -> None:
    survey = SurveyDoc([node("n1", ada=ADA), node("n2", ada=ADA)], uids={"ada": 1002})
    (found,) = [each for each in agreement(survey, ["ada"], "1") if each.level != "ok"]
    assert (found.what, found.found) == ("user ada", "uid 1002 on the scheduler's host; 1001 on n1, n2")
    assert "nodes refuse his jobs" in found.advice


def test_failed_lookup_is_not_reported_as_uid_mismatch() -> None:
    """Its uid -1 was compared with the others', so that root had two where a home was slow."""
    slow = AccountDoc(-1, -1, "", "cannot be looked up: the user database, or a home, does not answer")
    (found,) = problems(node("n1", ada=ADA), node("n2", ada=slow))
    assert (found.what, found.level) == ("user ada", "warn")
    assert found.found == "on n2: cannot be looked up: the user database, or a home, does not answer"
    assert "name service" in found.advice


def test_a_slow_answer_is_no_wrong_clock_and_silence_is_told() -> None:
    assert problems(node("n1", clock_s=4.0, trip_s=5.0, ada=ADA)) == []
    (found,) = problems(node("n1", ada=ADA), silent=("n2", "n3"))
    assert found.found == "no answer from n2, n3"


async def test_the_command_asks_the_nodes_and_says_what_differs(
    files: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_SURVEY_S", BOUND_S)

    class Told(Agent):
        """An agent that says something of its own about users and time."""

        uid = 0
        ahead_us = 0

        async def _answer(self, message: wire.ToAgent) -> None:
            if isinstance(message, wire.Survey):
                now_us = time.time_ns() // 1000 + self.ahead_us
                known = {user: wire.Account(self.uid, 0, "/") for user in message.users if user == "root"}
                known["slow"] = wire.Account(wire.NO_UID, wire.NO_UID, "", "cannot be looked up: nothing answers")
                await self.say(wire.Surveyed(message.request, now_us, known))
            else:
                await super()._answer(message)

    async with running(files) as service, service.dial("node", "n1") as one, service.dial("node", "n2") as two:
        agents = [Told(one, "n1", answers=True), Told(two, "n2", answers=True)]
        agents[1].uid, agents[1].ahead_us = 7, 90_000_000
        try:
            for agent in agents:
                await agent.say(agent.hello(software="0.0.0-other"))
                await agent.heard(wire.Welcome)
                await agent.beat()
            await service.until(lambda: all(service.service.book.entry(n).size for n in ("n1", "n2")), "up")
            command = [
                sys.executable, "-m", "cosched.apps.cli.main", "doctor", "--json", "--server", str(files.socket),
                "--user", "root", "--user", "stranger", "--user", "slow",
            ]  # fmt: skip
            ended = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=BOUND_S, check=False
            )
            document = json.loads(ended.stdout)
            assert (ended.returncode, document["ok"]) == (1, False), "90 s are a failure"
            said = {(each["what"], each["level"], each["found"]) for each in document["checks"]}
            assert ("user root", "warn", "uid 0 on the scheduler's host, n1; 7 on n2") in said
            assert ("user stranger", "warn", "not known on n1, n2") in said
            assert ("user slow", "warn", "on n1, n2: cannot be looked up: nothing answers") in said
            assert any(what == "versions" and "0.0.0-other on n1, n2" in found for what, _, found in said)
            assert [level for what, level, found in said if what == "clocks" and found.startswith("n2 is ")] == ["fail"]
        finally:
            for agent in agents:
                agent.close()
