"""What is left of a job on a node and cannot be ended: processes that wait in the kernel and hear no signal."""

from typing import Annotated

import msgspec

from cosched.model.quantities import Memory, Micros, Pid, Tasks

_Name = Annotated[str, msgspec.Meta(max_length=256)]


class StalledProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of them. ``channel``: the kernel's function that it waits in; ``path`` and ``mount`` (mount point): what its
    system call works on; ``device`` (``MAJOR:MINOR``) names the file system on its node. Empty: not known.

    ``own``: the node's guard and agent write to that file system, too.
    """

    pid: Pid
    command: _Name = ""
    channel: _Name = ""
    path: _Name = ""
    mount: _Name = ""
    device: _Name = ""
    own: bool = False

    @property
    def words(self) -> str:
        """Which process waits for what, without the path, which is its user's."""
        name = f"process {self.pid}" + (f" ({self.command})" if self.command else "")
        if self.mount:
            return f"{name} waits for {self.mount}"
        return f"{name} waits in the kernel ({self.channel})" if self.channel else f"{name} does not end"


class Stall(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is left of one attempt on one node. ``procs`` and ``memory_bytes`` are what it was given there, and holds.

    ``for_us``: how long ago it was killed. ``processes``: the first few.
    """

    user: _Name
    procs: Tasks
    memory_bytes: Memory = 0
    for_us: Micros = 0
    processes: Annotated[tuple[StalledProcess, ...], msgspec.Meta(max_length=8)] = ()
