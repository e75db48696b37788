"""An end that is asked for while a lab is made or removed."""

import os
import signal

import pytest

from cosched.apps.lab.interrupt import deferred
from cosched.errors import Failed


def interrupted(then: Exception | None = None) -> None:
    """A block that is interrupted, and fails then."""
    with deferred() as asked:
        assert not asked()
        os.kill(os.getpid(), signal.SIGINT)
        assert asked()
        if then is not None:
            raise then


def test_interrupt_is_noted_and_raised_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_failure_after_an_interrupt_is_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        interrupted(Failed("init of head does not answer"))
    assert isinstance(raised.value.__cause__, Failed)


def test_failure_without_an_interrupt_stays_a_failure() -> None:
    with pytest.raises(Failed), deferred():
        raise Failed("init of head does not answer")
