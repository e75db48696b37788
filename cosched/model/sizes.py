"""The numbers of processes that a user says a job can have: texts such as ``1-8``, and what contradicts itself."""

import re
from math import isqrt
from typing import Final

from cosched.errors import BadInput

#: The most tasks that a job may ask for.
MAX_TASKS: Final = 1 << 24
_EXPECTED: Final = "a number, a range such as 1-8, a list such as 4;8;16, pow2 or square"


def parse_sizes(text: str, most: int, where: str = "--sizes") -> tuple[int, int, tuple[int, ...]]:
    """The least, the most and the single sizes (none: each between) of a text, at most so many; raises BadInput.

    ``8``, ``1-8``, ``4;8;16``, ``pow2`` (1, 2, 4, …), ``square`` (1, 4, 9, …). (0, 0, ()) where all are above ``most``.
    """
    if text == "pow2":
        sizes = [1 << n for n in range(most.bit_length())]
    elif text == "square":
        sizes = [n * n for n in range(1, isqrt(most) + 1)]
    elif found := re.fullmatch(r"(\d{1,9})-(\d{1,9})", text):
        least, last = int(found[1]), min(int(found[2]), most)
        if not 1 <= least <= int(found[2]):
            raise BadInput(where, f"{text!r}", _EXPECTED)
        return (least, last, ()) if least <= last else (0, 0, ())
    elif re.fullmatch(r"\d{1,9}(;\d{1,9})*", text) and 0 not in (given := {int(each) for each in text.split(";")}):
        sizes = sorted(given)
    else:
        raise BadInput(where, f"{text!r}", _EXPECTED)
    kept = tuple(size for size in sizes if size <= most)
    return (kept[0], kept[-1], kept) if kept else (0, 0, ())


def parse_components(text: str, where: str = "--components") -> tuple[int, ...]:
    """The components of a text such as ``2+2``: tasks of each. Raises BadInput."""
    if not re.fullmatch(r"[1-9]\d{0,8}(\+[1-9]\d{0,8})*", text, re.ASCII):
        raise BadInput(where, f"{text[:80]!r}", "tasks of each component, such as 2+2")
    return tuple(int(each) for each in text.split("+"))


def contradiction(
    tasks: int,
    min_tasks: int | None,
    max_tasks: int | None,
    sizes: str | None,
    evolve_tasks: int | None = None,
    components: tuple[int, ...] | None = None,
) -> tuple[str, str, str] | None:
    """Which of a submission's numbers of tasks contradicts the others, what was found, and what is expected; or None.

    One is to be given alone: ``tasks`` (1: not given), ``sizes``, or the bounds ``min_tasks`` and ``max_tasks``.
    ``evolve_tasks`` (what it may ask for while it runs) is not to be given beside ``sizes``. ``components`` are as many
    tasks together as ``tasks``, and no other numbers are given beside them.
    """
    bounds = min_tasks is not None or max_tasks is not None
    if components is not None:
        return _wrong_components(components, tasks, alone=not (bounds or sizes is not None or evolve_tasks is not None))
    if sizes is not None and evolve_tasks is not None:
        return (
            "evolve_tasks",
            f"{evolve_tasks} beside sizes",
            "one number of tasks, or bounds",
        )
    if sizes is not None and bounds:
        return "sizes", f"{sizes!r} beside a minimum or a maximum", "sizes to choose from at the start, or bounds"
    if tasks != 1 and (sizes is not None or bounds):
        return "tasks", f"{tasks} beside other sizes", "one number of tasks, or several sizes"
    if min_tasks is not None and max_tasks is not None and min_tasks > max_tasks:
        return "min_tasks", f"{min_tasks}, above the maximum of {max_tasks}", "a minimum of at most the maximum"
    return None


def _wrong_components(components: tuple[int, ...], tasks: int, *, alone: bool) -> tuple[str, str, str] | None:
    told = "+".join(map(str, components))
    if not alone:
        return "components", f"{told} beside other sizes", "components, or several sizes"
    if sum(components) != tasks:
        return "components", f"{told}, {sum(components)} together, for {tasks} tasks", f"{tasks} tasks together"
    return None
