"""Processes of jobs that cannot be ended on a node: what they hold of it, and when the whole node is set aside.

A process in uninterruptible sleep ends when the file system answers that it waits for. Until then its processors take
nothing new: a job that has run keeps them (it is *ending*); those of a script that never began, which is tried
elsewhere, are the node's loss (``Node.held_procs``). A user's own mount sets no node aside.
"""

from collections.abc import Collection, Mapping
from typing import Final

from cosched.model.stall import Stall
from space_scheduler.service.launch.nodes import NodeEntry
from space_scheduler.service.launch.orders import LaunchAttempt

#: What the reason of a node begins with that is drained because a file system there does not answer.
STALLED: Final = "file system: "
#: So many different users' jobs on one file system that does not answer: it is hardly one user's own.
_USERS: Final = 2

Stalls = Mapping[tuple[int, int], Stall]


def left_of(entry: NodeEntry, attempts: Mapping[int, LaunchAttempt]) -> dict[tuple[int, int], Stall]:
    """Of what cannot be ended on a node, by (job, attempt), that which no live attempt counts as its own any more, or
    need not wait for.
    """
    found = {}
    for key, stall in entry.stalls.items():
        launch = attempts.get(key[0])
        ours = launch is not None and launch.key == key and entry.name in launch.gang.node_phases
        if launch is None or not ours or launch.gang.gone(entry.name) or launch.gang.may_leave(entry.name):
            found[key] = stall
    return found


def why_aside(stalls: Collection[Stall]) -> str:
    """Why a node is set aside, by what cannot be ended there; empty where it is not.

    A file system that does not answer is the node's where guard and agent write to it, or jobs of several users wait
    for it.
    """
    users: dict[str, set[str]] = {}
    for stall in stalls:
        for each in stall.processes:
            if each.own:
                return f"{each.mount} does not answer, to which this node's guard and agent write"
            if each.device:
                users.setdefault(each.device, set()).add(stall.user)
    shared = sorted(device for device, named in users.items() if len(named) >= _USERS)
    if not shared:
        return ""
    mounts = {each.mount for stall in stalls for each in stall.processes if each.device == shared[0]}
    return f"{min(mounts)} does not answer: jobs of {' and '.join(sorted(users[shared[0]]))} wait for it"
