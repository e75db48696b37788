"""Named policies, and policies put together from an order and a selection.

A selection is written as in the papers: ``jfirst``, ``bestfit``, ``fpfs(10)``, ``backfill(1)``,
``conservative(arrival)``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cosched.errors import BadInput, nearest
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.order import ORDERS
from space_scheduler.policy.place import LONGEST_NUMBER, mpl_of, place_of
from space_scheduler.policy.select.backfill import Backfill
from space_scheduler.policy.select.bestfit import BestFit
from space_scheduler.policy.select.conservative import Conservative
from space_scheduler.policy.select.early_end import EarlyEnd
from space_scheduler.policy.select.fpfs import FitProcessorsFirstServed
from space_scheduler.policy.select.jfirst import JustFirst


@dataclass(frozen=True)
class Preset:
    """A name for an order, a selection, a way of laying tasks on named nodes (empty: the machine's), and how many of
    them may share a CPU (None: as many as nodes offer). ``argument``: the selection whose number may stand in
    parentheses after the name.
    """

    order: str
    select: str
    about: str
    place: str = ""
    mpl: int | None = None
    argument: str = ""


PRESETS: Final[dict[str, Preset]] = {
    "fcfs": Preset("fcfs", "jfirst", "first come, first served: only the head of the queue may start"),
    "sjf": Preset("sjf", "jfirst", "shortest job first, by estimate"),
    "ljf": Preset("ljf", "jfirst", "longest job first, by estimate"),
    "firstfit": Preset("fcfs", "backfill(0)", "greedy first fit over the whole queue, no reservation"),
    "bestfit": Preset("fcfs", "bestfit", "the job that leaves the fewest processors unused"),
    "fpfs": Preset("fcfs", "fpfs(10)", "first fit, the head passed ten times at most (Ngubiri & van Vliet 2006)"),
    "easy": Preset("fcfs", "backfill(1)", "EASY backfilling: one reservation, for the head (Feitelson & Weil 1998)"),
    "sjbf": Preset("fcfs", "backfill(1,shortest)", "EASY, the shortest job backfilled first (Tsafrir et al. 2007)"),
    "conservative": Preset(
        "fcfs", "conservative(arrival)", "a reservation for every job at submission (Feitelson & Weil 1998)"
    ),
    "normal": Preset(
        "fcfs", "jfirst", "FCFS, each task on the node that is used least (Hanzich et al. 2005)", "normal"
    ),
    "uniform-light": Preset(
        "fcfs", "jfirst", "FCFS, jobs of different kinds on the same nodes where that can be had", "uniform-light"
    ),
    "uniform-hard": Preset(
        "fcfs", "jfirst", "FCFS, jobs of different kinds on the same nodes, or they wait", "uniform-hard"
    ),
    "basic": Preset("fcfs", "jfirst", "Normal with one task on a CPU (Hanzich et al. 2005, Table 2)", "normal", 1),
    "2dbf": Preset("fcfs", "backfill(1)", "EASY with Normal's nodes and one task on a CPU", "normal", 1),
    "3dbf-light": Preset(
        "fcfs", "backfill(1)", "backfilling on predicted states of shared nodes, Uniform-Light's nodes", "uniform-light"
    ),
    "3dbf-hard": Preset(
        "fcfs", "backfill(1)", "backfilling on predicted states of shared nodes, Uniform-Hard's nodes", "uniform-hard"
    ),
    "coalloc-fcfs": Preset(
        "fcfs", "jfirst", "FCFS, components on clusters by Worst Fit (Ngubiri & van Vliet 2006)", "worst-fit"
    ),
    "coalloc-fpfs": Preset(
        "fcfs",
        "fpfs(10)",
        "FPFS(10), or coalloc-fpfs(JUMPS), components on clusters by Worst Fit (Ngubiri & van Vliet 2006)",
        "worst-fit",
        argument="fpfs",
    ),
}

SELECTIONS: Final[dict[str, str]] = {
    "jfirst": "the head or nobody",
    "bestfit": "the widest job that fits, again and again",
    "fpfs(JUMPS)": "first fit; the head may be passed JUMPS times",
    "backfill(N)": "the first N queued jobs have reservations; backfill(N,shortest) scans the others shortest first",
    "conservative(CHOICE)": "a reservation at submission; CHOICE at an early end: none, anew, schedule or arrival",
}


def compose(order: str, select: str, place: str = "", mpl: int | None = None, *, where: str = "--order") -> Policy:
    """The policy of an order's name, a selection's text, a place's name and a multiprogramming level.

    ``where`` is the option or key that the order was given by. A place's name may say the level, too. Each goes with
    each, but for conservative on a place where company decides. Raises :class:`BadInput`, with the nearest.
    """
    if order not in ORDERS:
        raise BadInput(where, f"no order {order!r}", _one_of(ORDERS), nearest=nearest(order, ORDERS))
    key = ORDERS[order]
    mpl = mpl_of(place) or mpl
    match = re.fullmatch(r"\s*([a-z]+)\s*(?:\(([^()]*)\))?\s*", select)
    name = match[1] if match else select
    arguments = [part.strip() for part in match[2].split(",")] if match and match[2] is not None else []
    if name == "jfirst" and not arguments:
        return JustFirst(key, place, mpl)
    if name == "bestfit" and not arguments:
        return BestFit(key, place, mpl)
    if name == "fpfs" and len(arguments) == 1:
        return FitProcessorsFirstServed(_count(select, arguments[0]), key, place, mpl)
    if name == "backfill" and len(arguments) in (1, 2) and arguments[1:] in ([], ["shortest"]):
        return Backfill(_count(select, arguments[0]), len(arguments) == 2, key, place, mpl)
    if name == "conservative" and len(arguments) <= 1:
        choice = arguments[0] if arguments else EarlyEnd.ARRIVAL.value
        if choice not in set(EarlyEnd):
            choices = [value.value for value in EarlyEnd]
            raise BadInput("--select", f"no choice {choice!r}", _one_of(choices), nearest=nearest(choice, choices))
        if place and place_of(place).by_company:
            raise BadInput(
                "--select",
                f"{select!r} with nodes chosen by {place}, where an end can take away the company that a start was "
                "guaranteed beside",
                "a selection without guarantees, such as backfill(1), or nodes chosen by uniform-light or normal",
            )
        return Conservative(EarlyEnd(choice), key, place, mpl)
    close = nearest(name, (form.split("(")[0] for form in SELECTIONS))
    form = next((form for form in SELECTIONS if form.split("(")[0] == close), "")
    raise BadInput("--select", f"no selection {select!r}", _one_of(SELECTIONS), nearest=form)


def _count(select: str, text: str) -> int:
    if not text.isdecimal() or len(text) > LONGEST_NUMBER:
        raise BadInput("--select", f"{text[:80]!r} in {select[:80]!r}", "a whole number of 0 or more")
    return int(text)


def _one_of(choices: Iterable[str]) -> str:
    return "one of " + ", ".join(choices)
