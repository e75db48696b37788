"""A policy's memory as plain values, so that a journal and a snapshot can hold it, and back.

A policy declares ``memory_type``: a type that msgspec can convert (a Struct, a dataclass, a dict of numbers, a union of
tagged Structs). A class of one's own inside of it has ``packed() -> plain values`` and a class method ``unpacked``.
"""

from typing import Any

import msgspec

from space_scheduler.policy.interface import Policy, traits_of


def packed(memory: object) -> Any:
    """The memory as dicts with keys of text, lists, numbers and text."""
    return msgspec.to_builtins(memory, str_keys=True, enc_hook=lambda each: each.packed())


def unpacked(plain: object, policy: Policy) -> Any:
    """The memory of plain values. Raises :class:`msgspec.ValidationError` where they are not of the policy's type."""
    kind = traits_of(policy).memory_type
    if kind is None:
        raise msgspec.ValidationError("the policy declares no memory_type")
    return msgspec.convert(plain, kind, str_keys=True, dec_hook=lambda each, value: each.unpacked(value))
