"""The site of an experiment: named nodes by its settings, owners who come and go, and what sharing costs there."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace

from cosched.config import coefficients
from cosched.config.site import SiteSettings
from cosched.errors import BadInput
from cosched.model.components import Between
from cosched.model.contract import offered
from cosched.model.node import Node, Owner
from cosched.model.presets import Hours
from cosched.model.time import US_PER_S
from cosched.workload.rules import TaskRules, Workload
from space_scheduler.progress import Sharing
from space_scheduler.simulator.site import Site

_NO_BOUND: Final = 1 << 60  # bytes: where memory is no matter
_MINUTE_US: Final = 60 * US_PER_S
_DAY_US: Final = 24 * 60 * _MINUTE_US
#: Owners come and go until so long after the last submission.
_AFTER_US: Final = 30 * _DAY_US


def site_of(settings: SiteSettings, load: Workload, seed: int) -> Site:
    """The site for a workload; who has an owner is drawn. Raises :class:`BadInput`."""
    count = settings.nodes or -(-load.procs_total // settings.cpus)
    nodes, owners = nodes_of(settings, count), list(_owners(settings, load, count, seed))
    return Site(nodes, owners, sharing_of(settings), learns=settings.tasks.known == "learned")


def clusters_of(sizes: Sequence[int], between: Between | None) -> Site:
    """Clusters of so many interchangeable processors each, named by their numbers from 1: each a node of its own."""
    nodes = [Node(str(number), procs, _NO_BOUND, procs, cluster=str(number)) for number, procs in enumerate(sizes, 1)]
    return Site(nodes, sharing=None, between=between)


def in_clusters(site: Site, sizes: Sequence[int], between: Between | None) -> Site:
    """The site with its nodes in clusters of so many each, in order. Raises :class:`BadInput` for another number."""
    if sum(sizes) != len(site.nodes):
        found = "+".join(map(str, sizes))
        raise BadInput("--clusters", f"{found} = {sum(sizes)} nodes", f"{len(site.nodes)} together, those of the site")
    names = [str(number) for number, size in enumerate(sizes, 1) for _ in range(size)]
    nodes = [replace(node, cluster=name) for node, name in zip(site.nodes, names, strict=True)]
    return site._replace(nodes=nodes, between=between)


def sharing_of(settings: SiteSettings) -> Sharing:
    """How nodes are shared: the mode, and what was measured of it. Raises :class:`BadInput` where nothing was."""
    found = coefficients.read(Path(settings.costs) if settings.costs else None)
    if settings.contract.mpl > 1 and settings.coscheduling.value not in found.costs:
        raise BadInput(
            "site.coscheduling", f"no costs were measured of {settings.coscheduling.value!r}",
            f"one of {', '.join(found.costs)}, or a file of cosched calibrate's as site.costs",
        )  # fmt: skip
    return Sharing(settings.coscheduling, found.permille(settings.coscheduling))


def task_rules(settings: SiteSettings) -> TaskRules:
    """What tasks need where the log does not tell."""
    tasks = settings.tasks
    return TaskRules(
        memory_bytes=settings.tasks_memory_bytes,
        cpu_permille=max(1, round(1000 * tasks.cpu)),
        kind=tasks.kind,
        programs={int(number): kind for number, kind in tasks.programs.items()},
    )


def nodes_of(settings: SiteSettings, count: int) -> list[Node]:
    """All alike. In a simulation memory, too, is relaxed while nobody is there."""
    return [
        offered(settings.contract, f"node{number}", settings.cpus, settings.memory_bytes, memory_is_relaxed=True)
        for number in range(1, count + 1)
    ]


def _owners(settings: SiteSettings, load: Workload, count: int, seed: int) -> Iterator[tuple[int, str, Owner | None]]:
    """Who comes and goes when, in order of time."""
    owners = settings.owners
    drawn = np.random.default_rng((seed, count)).choice(count, round(count * owners.desks), replace=False)
    names = [f"node{at + 1}" for at in sorted(drawn.tolist())]
    owner = Owner(round(1000 * owners.cpu), settings.owners_memory_bytes)
    hours = owners.present
    if hours is None:
        yield from ((0, name, owner) for name in names)
        return
    for at_us, there in _shifts(hours, load):
        yield from ((at_us, name, owner if there else None) for name in names)


def _shifts(hours: Hours, load: Workload) -> Iterator[tuple[int, bool]]:
    """When people come (True) and go, in the log's own time."""
    began = datetime.fromtimestamp((load.unix_start_s or 0) + (load.timezone_offset_s or 0), UTC)
    if load.unix_start_s is None:
        began = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday
    minute, weekday = 60 * began.hour + began.minute, began.weekday()
    midnight_us = -(minute * _MINUTE_US + began.second * US_PER_S)
    if hours.include(weekday, minute):
        yield 0, True
    until_us = int(load.submit_us.max(initial=0)) + _AFTER_US
    minutes = hours.end - hours.begin if hours.begin < hours.end else hours.end - hours.begin + 24 * 60
    day = -1
    while (here_us := midnight_us + day * _DAY_US) < until_us:
        come_us = here_us + hours.begin * _MINUTE_US
        if (weekday + day) % 7 in hours.days:
            if come_us > 0:
                yield come_us, True
            if (go_us := come_us + minutes * _MINUTE_US) > 0:
                yield go_us, False
        day += 1
