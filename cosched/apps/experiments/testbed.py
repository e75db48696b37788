"""Where an experiment runs: on a cluster that is there, or on a lab of two nodes with a CPU each, made for it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.errors import Failed

NODES: Final = 2


class Testbed(NamedTuple):
    """A cluster with so many nodes up; ``lab`` is its name if it was made for the experiment."""

    client: Client
    nodes: int
    lab: str | None


def is_there(server: str | None, lab: str | None) -> bool:
    """Whether a cluster is named, by options or by the environment.

    Raises :class:`Failed` where none is, and this machine has no room for a lab of the experiment's own.
    """
    if server or lab or os.environ.get("COSCHED_SERVER") or os.environ.get("COSCHED_LAB"):
        return True
    check_room("; name a cluster with --server")
    return False


def check_room(instead: str = "") -> None:
    """Raises :class:`Failed` where the lab's nodes could not have a CPU each; ``instead`` is said with it."""
    if len(os.sched_getaffinity(0)) < NODES:
        raise Failed(f"a lab of two nodes with a CPU each needs two CPUs{instead}")


@contextmanager
def found(server: str | None, lab: str | None) -> Iterator[Testbed]:
    """The cluster that is named."""
    with connect(server, lab) as client:
        yield Testbed(client, len([node for node in client.nodes() if node.state == "up"]), None)


@contextmanager
def made(
    what: str,
    say: Callable[[str], None],
    *,
    mpl: int,
    policy: str = "easy",
    users: int = 0,
    clock_shift_us: int = 0,
    delay_us: int | None = None,
) -> Iterator[Testbed]:
    """A lab for the experiment ``what``, until the block is left. Raises :class:`Failed` without control groups.

    ``delay_us``: each node is a cluster of its own, with a link of that delay between.
    """
    clusters = "" if delay_us is None else ",".join("1" * NODES)
    name = f"{what}-{os.getpid()}"
    with Lab.up(
        NODES, name=name, pin=True, mpl=mpl, policy=policy, users=users, clock_shift_us=clock_shift_us,
        clusters=clusters, delay_us=delay_us or 0, say=say,
    ) as lab:  # fmt: skip
        if lab.tier != 1:
            raise Failed(f"shares of a CPU need control groups, a lab of tier 1: {lab.why}")
        with lab.client() as client:
            yield Testbed(client, NODES, name)
