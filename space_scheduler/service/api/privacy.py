"""What others than operators are told of desks: free, limited or not available, and nothing of who is there.

The owner sees it at the desk itself (``cosched desk status``, the agent's log); the scheduler cannot tell which caller
is whose desk's owner. So a desk's presence, what its owner's processes use and who has paused it are for operators.
"""

from typing import Final

import msgspec

from cosched.model.node import Usage
from cosched.wire.api import NodeDoc, PausedDoc, Step
from space_scheduler.service.access.callers import Caller
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.launch.owners import BY_ITS_OWNER, public_reason

#: Events that name a desk whose owner came or went, as causes of decisions.
_OWNERS: Final = ("OwnerCame", "OwnerLeft")
_SOMEWHERE: Final = "an owner came or left"


def nodes_for(caller: Caller, found: list[NodeDoc], book: NodeBook) -> list[NodeDoc]:
    """Documents of nodes, as that caller may have them."""
    return found if caller.operator else [_public(each, book) for each in found]


def paused_for(caller: Caller, found: list[PausedDoc]) -> list[PausedDoc]:
    """What the owners of a job's nodes have done to it: since when, and not who."""
    return found if caller.operator else [msgspec.structs.replace(each, reason=BY_ITS_OWNER) for each in found]


def cause_for(caller: Caller, cause: str) -> str:
    """What a decision followed from; of an owner's coming and going not at which desk."""
    return _SOMEWHERE if cause.startswith(_OWNERS) and not caller.operator else cause


def story_for(caller: Caller, steps: list[Step]) -> list[Step]:
    """A job's steps, with causes as that caller may have them."""
    return [msgspec.structs.replace(each, note=cause_for(caller, each.note)) for each in steps]


def _public(node: NodeDoc, book: NodeBook) -> NodeDoc:
    entry, usage = book.get(node.name), node.usage
    if usage is not None:
        usage = Usage(cpu_parallel=usage.cpu_parallel, memory_parallel_bytes=usage.memory_parallel_bytes)
    return msgspec.structs.replace(
        node,
        reason=public_reason(node.reason),
        presence=None,
        presence_source="",
        blind=[],
        usage=usage,
        limited_cpus=entry.public_limit_cpus if entry is not None else None,
    )
