"""Rules of eligibility by name: shipped, ``module:name``, and what is said of one that cannot be had."""

from pathlib import Path

import pytest
from kit.snapshots import Snapshot, refusals

from cosched.config.cluster import ClusterConfig
from cosched.model.job import Job
from space_scheduler.eligibility.rule import Moment, Wait
from space_scheduler.plugins import rules
from space_scheduler.service.launch.sharing import eligibility_of

NIGHTLY = """
from space_scheduler.eligibility.rule import Wait
class AtNight:
    def wait(self, job, moment):
        return Wait(until_us=9, words="at night")
class NoRule: pass
class Wants:
    def __init__(self, hour): pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "nightly_rules.py").write_text(NIGHTLY)
    return str(tmp_path)


def test_rules_of_the_settings_are_had_in_their_order(folder: str) -> None:
    names = ["dependency", "nightly_rules:AtNight"]
    found = eligibility_of(ClusterConfig(name="c", policy_directory=folder, eligibility=names))
    assert [rule.name for rule in found] == names
    moment = Moment(0, lambda job_id: None, lambda: (), {})
    assert found[1].wait(Job(1, 1, 1, 0), moment) == Wait(until_us=9, words="at night")
    assert eligibility_of(ClusterConfig(name="c")) == ()


def test_rule_that_cannot_be_had_is_refused_with_its_problem(folder: str, snapshot: Snapshot) -> None:
    own = ("nightly_rules:NoRule", "nightly_rules:Wants", "nightly_rules:AtNoon", "no_such_module:X")
    names = [["dependensy"], *([each] for each in own), ["dependency", "dependency"]]
    snapshot(refusals(lambda asked: rules(asked, directory=folder), *names))
