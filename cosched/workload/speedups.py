"""How fast a job is with so many processes: speed-up models, as whole numbers.

The speed on one process is :data:`UNIT`, but of a measured table, whose numbers are its own. Whole numbers keep work
exact: a speed-up is rounded to a millionth once, and nothing after it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from cosched.errors import BadInput, nearest

UNIT: Final = 1_000_000

#: Speed with so many processes, a whole number above 0.
SpeedUp = Callable[[int], int]


def linear(procs: int) -> int:
    """Twice as many processes do twice as much."""
    return UNIT * procs


def amdahl(serial: float) -> SpeedUp:
    """1 / (f + (1 - f) / n), f being the part of the work that one process does (Amdahl, AFIPS 1967)."""
    return lambda procs: max(1, round(UNIT / (serial + (1 - serial) / procs)))


def downey(average: float, sigma: float) -> SpeedUp:
    """Downey, "A model for speedup of parallel programs", UCB/CSD-97-933, 1997: average parallelism A, its variance σ.

    Up to σ = 1 parallelism is A but for a part of the time; above that it is far from A for most of it.
    """
    a, s = average, sigma

    def speed_up(n: int) -> float:
        if s <= 1:
            if n <= a:
                return a * n / (a + s / 2 * (n - 1))
            if n <= 2 * a - 1:
                return a * n / (s * (a - 0.5) + n * (1 - s / 2))
            return a
        if n <= a + a * s - s:
            return n * a * (s + 1) / (s * (n + a - 1) + a)
        return a

    return lambda procs: max(1, round(UNIT * speed_up(procs)))


def measured(table: Mapping[int, float]) -> SpeedUp:
    """Speeds that were measured at some numbers of processes; between them on a straight line, beyond them as there."""
    points = sorted(table.items())

    def speed_up(procs: int) -> float:
        below = [each for each in points if each[0] <= procs]
        above = [each for each in points if each[0] >= procs]
        if not below or not above:
            return (below[-1] if below else above[0])[1]
        (left, low), (right, high) = below[-1], above[0]
        return low if left == right else low + (high - low) * (procs - left) / (right - left)

    return lambda procs: max(1, round(UNIT * speed_up(procs)))


def parse(text: str, where: str = "--speed-up") -> SpeedUp | None:
    """The model of a text: ``linear`` (None), ``amdahl:F``, ``downey:A,SIGMA``, ``table:FILE``. Raises BadInput.

    A table is a file with a line ``PROCESSES SPEEDUP`` for each number that was measured.
    """
    name, _, rest = text.partition(":")
    if text == "linear":
        return None
    if name == "amdahl" and (given := _numbers(rest, 1)) and 0 <= given[0] <= 1:
        return amdahl(given[0])
    if name == "downey" and (given := _numbers(rest, 2)) and given[0] >= 1 and given[1] >= 0:
        return downey(*given)
    if name == "table" and rest:
        return measured(_table(Path(rest)))
    names = ("linear", "amdahl:F", "downey:A,SIGMA", "table:FILE")
    raise BadInput(where, f"{text!r}", "one of " + ", ".join(names), nearest=nearest(text, names))


def _numbers(text: str, count: int) -> list[float]:
    parts = text.split(",")
    if len(parts) != count or not all(re.fullmatch(r"\d{1,9}(\.\d{1,9})?", part) for part in parts):
        return []
    return [float(part) for part in parts]


def _table(path: Path) -> dict[int, float]:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"it cannot be read: {error}", "a table of speed-ups") from error
    table: dict[int, float] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = re.fullmatch(r"\s*([1-9]\d{0,8})[\s,;]+(\d{1,9}(?:\.\d{1,9})?)\s*", line)
        if not found or float(found[2]) <= 0:
            raise BadInput(f"{path}:{number}", f"{line[:40]!r}", "PROCESSES SPEEDUP, such as '8 6.9'")
        if int(found[1]) in table:
            raise BadInput(f"{path}:{number}", f"{int(found[1])} again", "a line for each number of processes")
        table[int(found[1])] = float(found[2])
    if not table:
        raise BadInput(str(path), "no line with a speed-up", "at least one, such as '8 6.9'")
    return table
