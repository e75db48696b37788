"""What of a desk's status its strangers are told: no more than the scheduler's API tells every user of a node.

A stranger has no say about the desk, or is a process of a job (``switch``). Of the status such a user sees whether
parallel work is free, limited or not available there, the contract and its ceiling while one is in force, and the jobs
by their numbers; all of a job of the user's own. Hidden are who paused it and until when, the rest of the owner's word,
how far the ceiling is lowered because the owner waits, and whose the other jobs are and what they use: values that are
hidden are None, or empty (``docs/guide/privacy.md``; the API's rule is ``space_scheduler.service.api.privacy``).
"""

from collections.abc import Mapping
from typing import Any, Final

#: In place of the words of a pause, which name the owner.
PAUSED: Final = "its owner has paused parallel work here"
_OF_ANY_JOB: Final = frozenset({"job", "attempt", "state", "tasks", "cpus", "stopped"})


def availability(status: Mapping[str, Any]) -> str:
    """As the API has it for a node: free, limited, not_available."""
    if status["paused"]:
        return "not_available"
    return "limited" if status["armed"] else "free"


def public_status(status: Mapping[str, Any], uid: int) -> dict[str, Any]:
    """The part of a status that a stranger with that uid is told."""
    return {
        **dict.fromkeys(status),
        "availability": status["availability"],
        "paused": PAUSED if status["paused"] else "",
        "problems": [],
        "contract": status["contract"],
        "limits": {"cpus": status["contract_cpus"] if status["armed"] else None, "idle": status["limits"]["idle"]},
        "word": {},
        "jobs": [
            {key: value if each["uid"] == uid or key in _OF_ANY_JOB else None for key, value in each.items()}
            for each in status["jobs"]
        ],
    }
