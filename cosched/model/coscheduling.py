"""How jobs that share workstations are run together: the modes, how a job receives, and everybody's fair rate.

``fair_rates`` is max-min fairness with nodes as what is shared: a job runs everywhere at one rate (its tasks wait for
each other anyhow), so the node that has the least to give sets it, and what it leaves elsewhere goes to other jobs.
"""

from collections.abc import Collection, Mapping, Set
from enum import StrEnum
from fractions import Fraction
from typing import Final, TypeVar

#: Jobs that take turns with more neighbours than this would wait too long for each.
MAX_ROWS: Final = 8
_ROUNDING: Final = 1e-12
#: CPUs, and parts of them.
Number = TypeVar("Number", float, float | Fraction)


class Mode(StrEnum):
    """How a job is coscheduled.

    ``none``: plain Linux. ``ccs``: cooperating coscheduling, with a budget and balance (Hanzich et al. 2005, section
    1). ``dcs``: raised when messages arrive, without either. ``spin``: the message library spins, then yields.
    ``gang``: slots in which a job's tasks run everywhere at the same time.
    """

    NONE = "none"
    CCS = "ccs"
    DCS = "dcs"
    SPIN = "spin"
    GANG = "gang"


class Receives(StrEnum):
    """How a job waits for messages. ``nothing``: it receives none worth waiting for."""

    UNKNOWN = "unknown"
    NOTHING = "nothing"
    POLLS = "polls"
    YIELDS = "yields"
    BLOCKS = "blocks"


def fair_rates(
    cpus: Mapping[str, Number], tasks: Mapping[int, Mapping[str, int]], most: Mapping[int, Number] | None = None
) -> dict[int, Number]:
    """Max-min fair rate of each job, in CPUs for each of its tasks, at most 1, or what ``most`` has for it.

    ``cpus``: what parallel work may have on a node; ``tasks``: a job's tasks on each of its nodes. All rates rise
    together; where a node is full, the jobs on it stop rising, the others go on.
    """
    rates: dict[int, Number] = dict.fromkeys(tasks, 0.0)
    held = {job: {node: n for node, n in on.items() if n and node in cpus} for job, on in tasks.items()}
    there: dict[str, list[int]] = {node: [] for on in held.values() for node in on}
    for job, on in held.items():
        for node in on:
            there[node].append(job)
    weight = {node: sum(held[job][node] for job in jobs) for node, jobs in there.items()}
    left: dict[str, Number] = {node: max(0.0, cpus[node]) for node in there}
    wanted = sorted(((1.0 if most is None else most[job], job) for job, on in held.items() if on), reverse=True)
    level: Number = 0  # no float: what is exact stays so
    while wanted:
        if wanted[-1][1] not in held:  # stopped before: a node of its was full
            wanted.pop()
            continue
        full_at = {node: level + left[node] / n for node, n in weight.items()}
        stop = min(wanted[-1][0], *full_at.values())
        for node, n in weight.items():
            left[node] -= (stop - level) * n
        level = stop
        stopped = {job for node, at in full_at.items() if at <= stop + _ROUNDING for job in there[node] if job in held}
        while wanted and wanted[-1][0] <= stop:
            stopped.add(wanted.pop()[1])
        stopped &= held.keys()
        for job in stopped:
            rates[job] = level
            for node, n in held.pop(job).items():
                weight[node] -= n
                if not weight[node]:
                    del weight[node]
    return rates


def rows(
    tasks: Mapping[int, Mapping[str, int]], contended: Collection[str], wanting: Set[int], able: Collection[str]
) -> dict[int, tuple[int, int]]:
    """Who takes turns with whom: job -> (its row, how many there are); jobs that take none are left out.

    Jobs that meet on a contended node, and those that these meet, are one company: all its nodes count the same rows,
    and no two jobs that meet have the same one. A company has turns when one of its jobs is ``wanting`` and all of its
    nodes are ``able`` to keep time. Jobs of equal numbers of turns have equal time, whatever they asked for.
    """
    contended, able = set(contended), set(able)
    there: dict[str, list[int]] = {}
    for job, on in tasks.items():
        for node, n in on.items():
            if n and node in contended:
                there.setdefault(node, []).append(job)
    meeting: dict[int, set[int]] = {job: set() for here in there.values() for job in here}
    for here in there.values():
        for job in here:
            meeting[job].update(here)
    found: dict[int, tuple[int, int]] = {}
    seen: set[int] = set()
    for first in sorted(meeting):
        if first in seen:
            continue
        company, border = set(), [first]
        while border:
            job = border.pop()
            if job not in company:
                company.add(job)
                border += meeting[job]
        seen |= company
        nodes = {node for job in company for node in tasks[job]}
        if len(company) < 2 or not company & wanting or not nodes <= able:
            continue
        row: dict[int, int] = {}
        for job in sorted(company):
            taken = {row[other] for other in meeting[job] if other in row}  # itself not yet
            row[job] = next(number for number in range(len(company)) if number not in taken)
        count = max(row.values()) + 1
        if count <= MAX_ROWS:
            found.update({job: (number, count) for job, number in row.items()})
    return found
