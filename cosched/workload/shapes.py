"""Jobs of several widths: what a shapes file says of a log's jobs (design, section 7), and their work.

A shapes file is CSV with a header line: ``job_id`` and those of
``class,sizes,min,max,fold,evolve,resident,components,crossing`` that are needed. A job without a line is rigid, and so
is one of components (``dividing``). Work is a job's run time times its speed on the processors that it ran on; it is
kept as a whole number, so that a job's time in another width is exact until its end is rounded up to a microsecond.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from cosched.errors import BadInput, nearest
from cosched.model.sizes import parse_sizes
from cosched.model.width import Range
from cosched.workload.log import Field, Log
from cosched.workload.rules import MAX_PROCS, Ask, Shaped, Workload
from cosched.workload.speedups import SpeedUp

#: So many sizes of a job may have speeds that are not linear: each is kept.
_MOST_SPEEDS: Final = 100_000
COLUMNS: Final = ("job_id", "class", "sizes", "min", "max", "components", "evolve", "fold", "resident", "crossing")


class Work(StrEnum):
    """What a log's run time is: the time on its processors, or the time on one (linear work)."""

    LOGGED = "logged"
    LINEAR = "linear"


class Line(NamedTuple):
    """What a shapes file says of one job. ``sizes``: as it is written; ``least`` and ``most``: of a malleable job.

    ``resident``: of a malleable job all processes are there while it runs (``cosched.model.width``). ``components``:
    the widths of a job's parts, each on a cluster of its own. ``crossing_ppm``: by how many millionths of its time it
    is slower on several clusters.
    """

    sizes: str = ""
    least: int | None = None
    most: int | None = None
    long: bool = False
    foldable: bool = True
    asks: tuple[Ask, ...] = ()
    where: str = ""
    resident: bool = False
    components: tuple[int, ...] = ()
    crossing_ppm: int | None = None

    @property
    def several(self) -> bool:
        """Whether it can have several sizes, or may be folded or not."""
        apart = self.crossing_ppm is not None and self._replace(crossing_ppm=None, where="") == Line()
        return not (self.components or apart)

    @property
    def malleable(self) -> bool:
        """Whether it can have other sizes while it runs."""
        return self.least is not None or self.most is not None or bool(self.asks)


def read(path: Path) -> dict[int, Line]:
    """The lines of a shapes file, by job number. Raises :class:`BadInput` with the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"it cannot be read: {error}", "a file of shapes in CSV") from error
    rows = _rows(text, path)
    names = [name.strip() for name in next(rows, ("", []))[1]]
    for name in names:
        if name not in COLUMNS:
            found = nearest(name, COLUMNS)
            raise BadInput(f"{path}:1", f"no column {name!r}", "columns of " + ", ".join(COLUMNS), nearest=found)
    if "job_id" not in names or len({*names}) != len(names):
        raise BadInput(f"{path}:1", f"the columns {', '.join(names)}", "job_id, and each column once")
    lines: dict[int, Line] = {}
    for where, cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(names):
            raise BadInput(where, f"{len(cells)} fields", f"{len(names)}, as in the first line")
        row = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
        number = _count(row["job_id"], f"{where}: job_id", least=0)
        if number in lines:
            raise BadInput(where, f"job {number} again", "a line for each job")
        lines[number] = _line(row, where)
    return lines


def _rows(text: str, path: Path) -> Iterator[tuple[str, list[str]]]:
    """The rows of a file in CSV, each with where it is."""
    rows = csv.reader(text.splitlines())
    try:
        for cells in rows:
            yield f"{path}:{rows.line_num}", cells
    except csv.Error as error:
        raise BadInput(f"{path}:{rows.line_num}", str(error), "a line in CSV") from error


def write(lines: Mapping[int, Line], path: Path) -> None:
    """Write a shapes file that :func:`read` reads as these lines."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        resident = any(line.resident for line in lines.values())
        apart = any(line.components or line.crossing_ppm is not None for line in lines.values())
        more = (["resident"] if resident else []) + (["components", "crossing"] if apart else [])
        rows.writerow(("job_id", "class", "sizes", "min", "max", "evolve", "fold", *more))
        for number, line in lines.items():
            least, most = ("" if each is None else each for each in (line.least, line.most))
            asks = ";".join(f"{float(100 * ask.part):g}%:{ask.procs:+}" for ask in line.asks)
            kind, fold = "long" if line.long else "short", "yes" if line.foldable else "no"
            stays = ["yes" if line.resident else "no"] if resident else []
            slower = "" if line.crossing_ppm is None else f"{line.crossing_ppm / 1_000_000:g}"
            parts = ["+".join(map(str, line.components)), slower] if apart else []
            rows.writerow((number, kind, line.sizes, least, most, asks, fold, *stays, *parts))


def _line(row: Mapping[str, str], where: str) -> Line:
    kind = row.get("class") or "short"
    if kind not in ("long", "short"):
        raise BadInput(f"{where}: class", f"{kind!r}", "long or short", nearest=nearest(kind, ("long", "short")))
    fold, resident = _yes(row, "fold", "yes", where), _yes(row, "resident", "no", where)
    least, most = ((_count(row[name], f"{where}: {name}") if row.get(name) else None) for name in ("min", "max"))
    sizes = row.get("sizes", "")
    if sizes and (least is not None or most is not None):
        raise BadInput(where, "sizes beside min or max", "sizes of a moldable job, or min and max of a malleable one")
    asks = tuple(
        _ask(part.strip(), f"{where}: evolve") for part in (row.get("evolve") or "").split(";") if part.strip()
    )
    if asks and list(asks) != sorted(asks, key=lambda each: each.part):
        raise BadInput(f"{where}: evolve", row["evolve"], "parts that do not fall")
    if sizes:
        parse_sizes(sizes, 1, f"{where}: sizes")  # looked at alone: which of them there are, the machine says
        if asks:
            raise BadInput(where, "sizes beside evolve", "an evolving job that is rigid or malleable")
    components = _components(row, where)
    crossing = _crossing(row.get("crossing", ""), where)
    line = Line(sizes, least, most, kind == "long", fold, asks, where, resident, components, crossing)
    if resident and not line.malleable:
        raise BadInput(f"{where}: resident", "yes without min, max or evolve", "a malleable job whose processes stay")
    return line


def _components(row: Mapping[str, str], where: str) -> tuple[int, ...]:
    """Such as 2+2, of a job that has no other widths."""
    text = row.get("components", "")
    if not text:
        return ()
    if any(row.get(name) for name in ("sizes", "min", "max", "evolve")):
        raise BadInput(f"{where}: components", f"{text!r} beside other widths", "components of a rigid job")
    return tuple(_count(part.strip(), f"{where}: components") for part in text.split("+"))


def _crossing(text: str, where: str) -> int | None:
    """The part of its time by which a job is slower on several clusters, such as 0.25, in millionths."""
    if not text:
        return None
    if not re.fullmatch(r"\d{1,3}(\.\d{1,6})?", text):
        raise BadInput(f"{where}: crossing", f"{text!r}", "the part of its time that it adds, such as 0.25")
    return int(Fraction(text) * 1_000_000)


def _yes(row: Mapping[str, str], name: str, otherwise: str, where: str) -> bool:
    said = row.get(name) or otherwise
    if said not in ("yes", "no"):
        raise BadInput(f"{where}: {name}", f"{said!r}", "yes or no")
    return said == "yes"


def _ask(text: str, where: str) -> Ask:
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)%:([+-]\d{1,9})", text)
    if not found or not 0 <= (part := Fraction(found[1]) / 100) < 1 or not int(found[2]):
        raise BadInput(where, f"{text!r}", "PART%:+PROCESSES, such as 50%:+4")
    return Ask(part, int(found[2]))


def narrowed(log: Log, lines: Mapping[int, Line], procs_total: int) -> tuple[Log, dict[int, int]]:
    """The log, in which no job with a line is wider than the machine; and the processors of those that were, by number.

    Raises :class:`BadInput` for a line of a job that the log does not have.
    """
    numbers = log.column(Field.JOB).astype(np.int64)
    if unknown := lines.keys() - {*numbers.tolist()}:
        raise BadInput(lines[min(unknown)].where, f"job {min(unknown)}", "the number of one of the log's jobs")
    rows, wide = log.rows.copy(), {}
    mine = np.isin(numbers, np.fromiter(lines, np.int64, len(lines)))
    for column in (Field.PROCS_REQUESTED, Field.PROCS_ALLOCATED):
        for row in np.flatnonzero(mine & (rows[:, column] > procs_total)).tolist():
            wide[int(numbers[row])] = int(rows[row, column])
            rows[row, column] = procs_total
    return replace(log, rows=rows), wide


def apply(
    load: Workload,
    lines: Mapping[int, Line],
    work: Work = Work.LOGGED,
    speed_up: SpeedUp | None = None,
    wide: Mapping[int, int] | None = None,
) -> Workload:
    """The workload with these shapes; its own procs, run times and estimates are those of each job's largest size.

    ``wide`` as :func:`narrowed` gives it. A job none of whose sizes the machine has is left out, and counted as
    ``wider_than_machine``. Raises :class:`BadInput` for a line that is no shape.
    """
    numbers = load.job_id.tolist()
    shaped: list[Shaped | None] = []
    columns = {name: getattr(load, name).copy() for name in ("procs", "run_us", "estimate_us")}
    keep = np.ones(len(load), np.bool_)
    for row, number in enumerate(numbers):
        line = lines.get(number)
        rigid = line is None or not line.several
        if rigid and work is Work.LOGGED and speed_up is None:
            shaped.append(None)
            continue
        logged = (wide or {}).get(number) or int(load.procs[row])
        made = _range(line or Line(), logged, load.procs_total, speed_up)
        if made is None:
            keep[row] = False
            shaped.append(None)
            continue
        on = logged if work is Work.LOGGED else 1
        unit = speed_up(on) if speed_up is not None else on
        procs = made.largest(load.procs_total)
        assert procs is not None
        works = {name: int(column[row]) * unit for name, column in columns.items() if name != "procs"}
        for name, each in works.items():
            columns[name][row] = -(-each // made.speed(procs))
        columns["procs"][row] = procs
        line = line or Line()
        shaped.append(Shaped(made, works["run_us"], works["estimate_us"], line.long, line.foldable, line.asks))
    skipped = {**load.skipped}
    if not keep.all():
        skipped["wider_than_machine"] = skipped.get("wider_than_machine", 0) + int((~keep).sum())
    others = {name: getattr(load, name) for name in ("job_id", "submit_us", "user", "timed_out")} | columns
    return replace(
        load,
        skipped=skipped,
        shapes=[each for each, kept in zip(shaped, keep, strict=True) if kept],
        **{name: column[keep] for name, column in others.items()},
    )


def _range(line: Line, logged: int, most: int, speed_up: SpeedUp | None) -> Range | None:
    """The widths of a job on a machine of so many processors, or None where it has none there."""
    malleable = line.malleable
    if line.sizes:
        least, largest, sizes = parse_sizes(line.sizes, most, f"{line.where}: sizes")
    else:
        least = logged if line.least is None and line.most is None else line.least or 1
        largest, sizes = logged if line.least is None and line.most is None else line.most or most, ()
        if line.least is not None and line.most is not None and line.least > line.most:
            raise BadInput(line.where, f"min {line.least} above max {line.most}", "a minimum of at most the maximum")
        largest = min(largest, most)
    if not 1 <= least <= largest:
        return None
    more = sum(ask.procs for ask in line.asks if ask.procs > 0)  # any of them may be refused
    fewer = -sum(ask.procs for ask in line.asks if ask.procs < 0)
    if fewer >= least:  # then it gives back at most what leaves it what it would have with all granted
        fewer = -min(accumulate((ask.procs for ask in line.asks), initial=0))
    if fewer >= least:
        raise BadInput(f"{line.where}: evolve", f"{fewer} processes fewer of {least}", "one that is left at least")
    if speed_up is None:
        return Range(least, largest, sizes, (), malleable, more, fewer, line.resident)
    widths = range(least - fewer, largest + more + 1)
    if not sizes and len(widths) > _MOST_SPEEDS:
        found = f"{len(widths)} sizes, each with a speed of its own"
        raise BadInput(line.where or "--speed-up", found, f"at most {_MOST_SPEEDS}, or linear speed-up")
    if not line.asks:
        sizes = sizes or tuple(widths)
    speeds = tuple(speed_up(size) for size in sizes or widths)
    return Range(least, largest, sizes, speeds, malleable, more, fewer, line.resident)


def _count(text: str, where: str, least: int = 1) -> int:
    if not re.fullmatch(r"\d{1,15}", text) or not least <= int(text) <= max(MAX_PROCS, 10**15 * (least == 0)):
        raise BadInput(where, f"{text!r}", f"a whole number of {least} or more")
    return int(text)
