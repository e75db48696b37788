"""The lab in a box: workstations made out of one Linux machine, with agents, a scheduler and users at the desks.

``Lab`` is the whole of it for other rooms. Inside: ``making`` claims the directory, writes ``files`` and starts the
``holder``, which finds out by trying which of the ``tiers`` can be had and makes the nodes: ``rooms`` (mounts),
``wiring`` and ``netlink`` (network; between clusters the kernel or ``relay``, asked by ``link``), ``cgroups``, and a
process 1 each (``init``), which ``commands`` talk to. ``state`` knows what lives, and removes what a dead lab left.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosched.apps.lab.lab import Lab

__all__ = ["Lab"]


def __getattr__(name: str) -> Any:
    """``Lab`` when it is asked for: the processes inside a lab import this package too, and not all that Lab needs."""
    if name == "Lab":
        from cosched.apps.lab.lab import Lab  # noqa: PLC0415

        return Lab
    raise AttributeError(name)
