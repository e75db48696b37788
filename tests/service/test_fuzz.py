"""The bounded part of ``./run campaign fuzz``: what users may say, and what files of settings may hold."""

import random

import pytest
from campaigns.fuzz import TARGETS


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_no_input_is_answered_by_a_fault(target: str) -> None:
    outcomes = TARGETS[target](random.Random(7), 400, 400)
    assert sum(outcomes.values()) == 800
    assert len(outcomes) > 1, "some are taken, some are refused"
