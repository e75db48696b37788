"""How an attempt that is here changes: a grant that is renewed for other nodes, and another share of this node.

The newest grant is kept and older ones are refused, whatever the order that brings them. What an attempt's Prepare says
of places, peers and grant is then as it was changed: commands that are started later go by it.
"""

import msgspec

from cosched.wire.grant import Grant
from cosched.wire.messages import Prepare, Prepared, Resize, Resized
from cosched.wire.version_4 import files_of
from node_agent.core import effects as fx
from node_agent.core.attempt import Attempt
from node_agent.core.memory import Memory
from node_agent.core.replies import Done, GrantRead
from node_agent.core.works import GuardWait, Refusal, Steps
from node_agent.policy.cases import first_true


def opened(attempt: Attempt | None, name: str = "the job") -> tuple[Attempt, Prepare]:
    """An attempt in which something may begin or change, with what it was prepared for. Raises :class:`Refusal`."""
    if attempt is None or attempt.prepare is None:
        raise Refusal("unknown", f"{name} was not prepared here")
    if not attempt.open:
        raise Refusal("stale", f"job {attempt.key} is being killed")
    return attempt, attempt.prepare


def fitting_grant(node: str, message: Prepare | Resize, user: str) -> Steps[Grant]:
    """The grant of an order, if it is the scheduler's and goes with it. Raises :class:`Refusal`."""
    read: GrantRead = yield fx.ReadGrant(message.grant)
    if problem := misfit(read.grant, message, user, node):
        raise Refusal("failed", problem)
    return read.grant


def renewed(memory: Memory, message: Prepare, attempt: Attempt) -> Steps[Prepared]:
    """An attempt is here, and is to know other nodes: nothing else of it may be other than it was prepared for."""
    if attempt.prepare is None or not attempt.open or not _same_apart_from_nodes(message, attempt.prepare):
        raise Refusal("busy", f"job {attempt.key} is still here")
    yield from _newer(memory, message, attempt.prepare)
    yield from _told(memory, message, attempt.prepare)
    attempt, _ = opened(memory.get(attempt.id))
    memory.change(attempt, prepare=message)
    memory.effects.append(fx.Say("info", f"job {attempt.key}: prepared anew, for {_names(message)}"))
    return Prepared(message.order)


def reshaped(memory: Memory, message: Resize, attempt: Attempt | None) -> Steps[Resized]:
    """Another share of this node, and other nodes: all of it, or nothing."""
    attempt, prepare = opened(attempt)
    yield from _newer(memory, message, prepare)
    yield GuardWait()
    attempt, prepare = opened(memory.get(attempt.id))
    yield from _told(memory, message, prepare)
    done: Done = yield fx.ResizeGroup(attempt.id, message.order.n, message.tasks, message.cpus, message.asleep)
    attempt, prepare = opened(memory.get(attempt.id))
    nodes = {"peers": message.peers, "grant": message.grant, "files": message.files}
    changed = msgspec.structs.replace(prepare, tasks=message.tasks, cpus=message.cpus, **nodes)
    memory.change(attempt, prepare=changed, asleep=message.asleep)
    where = f"CPUs {', '.join(map(str, done.cpus))}" if done.cpus else "no CPU" if message.cpus == 0 else "all CPUs"
    memory.effects.append(
        fx.Say("info", f"job {attempt.key}: {message.tasks} tasks on {where} here, of {_names(message)}")
    )
    return Resized(message.order, done.cpus)


def misfit(grant: Grant, message: Prepare | Resize, user: str, node: str) -> str:
    """Why a grant is not the one that goes with an order for this node; empty when it is."""
    order, fence = message.order, message.fence
    strangers = {peer.name for peer in message.peers} - set(grant.nodes)
    is_strange = grant.cluster_id != fence.cluster_id or grant.epoch > fence.epoch
    is_other = (grant.job_id, grant.attempt) != (order.job_id, order.attempt)
    problems = [
        (f"the grant is for job {grant.job_id}.{grant.attempt}", is_other),
        (f"the grant is of epoch {grant.epoch} of another cluster or scheduler", is_strange),
        (f"the grant is for user {grant.user!r}, the order for {user!r}", grant.user != user),
        (f"the grant does not name {node}", node not in grant.nodes),
        (f"the grant does not name {', '.join(sorted(strangers))}", strangers),
    ]
    return first_true(problems, "")


def _newer(memory: Memory, message: Prepare | Resize, prepare: Prepare) -> Steps[None]:
    """Refuse a grant that is older than what is kept."""
    grant = yield from fitting_grant(memory.node, message, prepare.user)
    kept: GrantRead = yield fx.ReadGrant(prepare.grant)
    if grant.age < kept.grant.age:
        here = f"{kept.grant.epoch}, {kept.grant.serial}"
        raise Refusal("stale", f"a grant of epoch {grant.epoch}, serial {grant.serial}; here is {here}")


def _told(memory: Memory, message: Prepare | Resize, prepare: Prepare) -> Steps[None]:
    """Have the files written that tell a job its nodes, where they are others."""
    if (message.peers, message.files) != (prepare.peers, prepare.files):
        key = (message.order.job_id, message.order.attempt)
        yield fx.MakeReady(key, files_of(message, memory.node), message.peers)


def _same_apart_from_nodes(first: Prepare, second: Prepare) -> bool:
    """Whether two orders differ in nodes alone; one of them may come from a scheduler that does not say the uid."""
    uids = {first.uid, second.uid} - {None}
    return len(uids) <= 1 and _apart_from_nodes(first) == _apart_from_nodes(second)


def _apart_from_nodes(prepare: Prepare) -> Prepare:
    return msgspec.structs.replace(
        prepare, fence=None, order=None, peers=(), environment={}, grant=b"", map=None, uid=None, files=(), watched=()
    )


def _names(message: Prepare | Resize) -> str:
    return ", ".join(peer.name for peer in message.peers)
