"""Rules of eligibility by name: shipped, ``module:name``, and what is said of one that cannot be had."""

from pathlib import Path

import pytest

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput
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


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("dependensy", "no rule 'dependensy'; expected one of dependency, or module:name.*dependency"),
        ("nightly_rules:NoRule", "NoRule has no wait"),
        ("nightly_rules:Wants", "it cannot be made"),
        ("nightly_rules:AtNoon", "nightly_rules has no 'AtNoon'"),
        ("no_such_module:X", "no module 'no_such_module'"),
    ],
)
def test_rule_that_cannot_be_had_is_refused_with_its_problem(folder: str, name: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        rules([name], directory=folder)


def test_rule_that_is_named_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="'dependency' twice"):
        rules(["dependency", "dependency"])
