"""The priority of all packets that a cgroup (version 2) sends, by the smallest program that the kernel can be given.

Four instructions of eBPF at the group's way out (BPF_CGROUP_INET_EGRESS): write the priority, let the packet go. It
stays with the group until the group goes, and holds for sockets that are open already. See bpf(2), linux/bpf.h.
"""

import ctypes
import errno
import os
import struct
from typing import Final

from cosched.linux import weights
from cosched.linux.process import checked

_CALLS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_LOAD, _ATTACH, _DETACH = 5, 8, 9
_CGROUP_SKB: Final = 8
_EGRESS: Final = 1
_REPLACEABLE: Final = 1  # BPF_F_ALLOW_OVERRIDE: attaching again takes the place of what was there
_ATTR_BYTES: Final = 128
_PRIORITY_AT: Final = 32  # in struct __sk_buff
_INSTRUCTION: Final = struct.Struct("=BBhi")
_NO_LICENCE: Final = ctypes.create_string_buffer(b"")
_libc = ctypes.CDLL(None, use_errno=True)


def set_priority(group: str, priority: int) -> None:
    """Have all packets from a cgroup's processes carry that priority (``skb->priority``). Raises OSError."""
    program = _program(priority)
    text = ctypes.create_string_buffer(program, len(program))
    licence = ctypes.addressof(_NO_LICENCE)
    load = struct.pack("=IIQQ", _CGROUP_SKB, len(program) // _INSTRUCTION.size, ctypes.addressof(text), licence)
    loaded = _bpf(_LOAD, load, group)
    try:
        _on(group, _ATTACH, loaded)
    finally:
        os.close(loaded)


def can(group: str, priority: int) -> str:
    """Whether packets get it and queues look at it: "yes", or what holds instead."""
    try:
        set_priority(group, priority)
    except OSError as error:
        return f"no: {error.strerror}"
    return weights.interfaces()


def forget_priority(group: str) -> None:
    """Take it back. Raises OSError, also where none was set."""
    _on(group, _DETACH, 0)


def _on(group: str, call: int, program: int) -> None:
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = _REPLACEABLE if call == _ATTACH else 0
        _bpf(call, struct.pack("=IIII", directory, program, _EGRESS, flags), group)
    finally:
        os.close(directory)


def _program(priority: int) -> bytes:
    """r2 = priority; packet->priority = r2; return 1 (let it go)."""
    return b"".join(
        _INSTRUCTION.pack(code, registers, offset, value)
        for code, registers, offset, value in (
            (0xB4, 0x02, 0, priority),  # w2 = priority
            (0x63, 0x21, _PRIORITY_AT, 0),  # *(u32 *)(r1 + 32) = w2
            (0xB7, 0x00, 0, 1),  # r0 = 1
            (0x95, 0x00, 0, 0),  # exit
        )
    )


def _bpf(call: int, attributes: bytes, group: str) -> int:
    number = _CALLS.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf(2) has no known number on {os.uname().machine}", group)
    told = ctypes.create_string_buffer(attributes.ljust(_ATTR_BYTES, b"\0"), _ATTR_BYTES)
    return checked(_libc.syscall(number, call, told, _ATTR_BYTES), group)
