"""What agents measured of a job, and which program it is of: for the core's memory of programs, and for people."""

import hashlib
from collections.abc import Mapping

from cosched.model.effort import Effort
from cosched.wire.api import Submission


def total(efforts: Mapping[str, Effort] | None) -> Effort:
    """What was seen of a job on all of its nodes."""
    found = Effort()
    for effort in (efforts or {}).values():
        found = found.plus(effort)
    return found


def program(user: str, submission: Submission) -> str:
    """The name of a user's program: a script with its arguments.

    On one node alone it is another one, since nobody is there to talk to.
    """
    several = submission.tasks > 1 or submission.several_sizes
    text = "\0".join([str(several), submission.script, *submission.arguments])
    return f"{user}:{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"
