"""The experiment on memory for people and programs: a line for each condition, what the owner lost, the verdict.

The goal: under the contract an owner loses no more of his working set than alone. Where an unprotected one loses less
than a hundredth of what he touches, there was no harm to be protected from: not testable here.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from cosched.apps.experiments.matrix import Spread, spread
from cosched.apps.experiments.memory import CONTRACT, HARM_SHARE, IDLE, UNPROTECTED, MemoryRun
from cosched.report.table import Table

#: More than this beyond the owner's own is a rise: five pages of a working set of 51 200 on each walk.
_RISE_SHARE: Final = 0.000_1


class MemoryCell(msgspec.Struct, frozen=True, kw_only=True):
    """A condition. ``lost_share``: of the pages that the owner touches; spreads are of the runs' own figures."""

    condition: str
    swap: bool
    runs: int
    lost_share: Spread
    major_faults: Spread
    refaults: Spread | None
    slowest_s: Spread
    pressed: Spread | None


def cells(runs: Sequence[MemoryRun]) -> list[MemoryCell]:
    """What came out, by swap and condition."""
    made = []
    for swap in (True, False):
        for condition in (IDLE, UNPROTECTED, CONTRACT):
            found = [run for run in runs if run.condition == condition and run.swap == swap]
            refaults = [run.refaults for run in found if run.refaults is not None]
            pressed = [run.pressed for run in found if run.pressed is not None]
            if found:
                made.append(
                    MemoryCell(
                        condition=condition,
                        swap=swap,
                        runs=len(found),
                        lost_share=spread([run.major_faults / run.touched for run in found]),
                        major_faults=spread([run.major_faults for run in found]),
                        refaults=spread(refaults) if refaults else None,
                        slowest_s=spread([run.slowest_s for run in found]),
                        pressed=spread(pressed) if pressed else None,
                    )
                )
    return made


def verdict(made: Sequence[MemoryCell], *, swap: bool) -> str:
    """Empty where the goal is met; else what is missed, or why nothing can be said."""
    by_condition = {cell.condition: cell for cell in made if cell.swap == swap}
    if by_condition.keys() != {IDLE, UNPROTECTED, CONTRACT}:
        return "not all conditions were run"
    idle, harmed, kept = (by_condition[each].lost_share.median for each in (IDLE, UNPROTECTED, CONTRACT))
    if harmed < HARM_SHARE:
        return (
            f"not testable here: an unprotected owner loses {harmed:.2%} of his working set, less than {HARM_SHARE:.0%}"
        )
    if (pressed := by_condition[CONTRACT].pressed) is not None and pressed.median == 0:
        return "void: parallel work did not press on its limit"
    return f"{kept:.2%} of what he touches is lost, {idle:.2%} alone" if kept > idle + _RISE_SHARE else ""


def table(made: Sequence[MemoryCell]) -> Table:
    """One line for each condition."""
    shown = Table(
        "Memory: an owner's working set, medians and in brackets their interval",
        (
            *("swap", "desk", "runs", "major faults", "refaults", "lost of what he touches", "slowest 4 MiB, s"),
            "parallel refaults",
        ),
    )
    for cell in made:
        shown.add(
            "yes" if cell.swap else "no", cell.condition, cell.runs, cell.major_faults.worded(".0f"),
            cell.refaults.worded(".0f") if cell.refaults else "not counted", f"{cell.lost_share.median:.2%}",
            cell.slowest_s.worded(), cell.pressed.worded(".0f") if cell.pressed else "",
        )  # fmt: skip
    return shown
