"""What the end of a job is, and of which cause: said once, as a whole, where the cause is found."""

import signal
from typing import Final, NamedTuple

from cosched.model.job import JobState
from cosched.wire.messages import Exit

#: What stands for the word of a desk's owner: the cause of an exit, and the code of an end.
BY_OWNER: Final = "owner"
#: The code of a refusal by a node whose user database does not answer.
SLOW_USERS: Final = "slow-users"


class Verdict(NamedTuple):
    """An outcome, why in words, the node where it came about (None: of no one), and its code where it has one."""

    outcome: JobState
    message: str = ""
    node: str | None = None
    code: str = ""


_CAUSES: Final = {
    "limit": (JobState.TIMED_OUT, "it ran past its time limit"),
    "memory": (JobState.FAILED, "it needed more memory than it asked for"),
    BY_OWNER: (JobState.NODE_LOST, "the owner of its first node has ended it there"),
    "unknown": (JobState.FAILED, "how it ended is not known: its record is lost"),
}


def judged(how: Exit, node: str) -> Verdict:
    """What the end of a job is whose script has ended like this on a node."""
    return Verdict(*_outcome(how), node, BY_OWNER if how.cause == BY_OWNER else "")


def _outcome(how: Exit) -> tuple[JobState, str]:
    """The outcome, and what to tell about it."""
    if how.cause in _CAUSES:
        return _CAUSES[how.cause]
    if how.signal is not None:
        return JobState.FAILED, f"the script was ended by signal {_signal_name(how.signal)}"
    if how.status is None:
        return _CAUSES["unknown"]
    if how.cause == "killed":
        return JobState.FAILED, "it was killed on its node"
    if how.status:
        return JobState.FAILED, f"the script ended with status {how.status}"
    return JobState.COMPLETED, "the script ended with status 0"


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
