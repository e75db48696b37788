"""The map from a log's jobs to programs: a YAML file of programs, and of rules which job is which.

A log says how long a job ran on how many processors, not what it was. Here each job is a program of known speed, so
that a job's run time becomes an amount of *work* in the program's own units (iterations, say), the same however many
processors the job gets and whoever runs beside it::

    programs:
      cg:
        run: exec mpirun python3 -m cosched.programs cg --class S --iterations $PLAY_WORK
        rate: [[1, 27], [2, 32], [4, 40]]    # tasks, units of work in a second, measured alone
        startup: 1s
        kind: comm
    jobs:
      - {executable: 1, program: cg}
      - {program: cg}

The first rule that fits a job decides. See docs/guide/play.md.
"""

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from cosched.config.convert import convert
from cosched.config.load import load
from cosched.config.units import duration_us, size_bytes
from cosched.errors import BadInput, nearest
from cosched.model.coscheduling import Mode
from cosched.model.time import US_PER_S

_SCRIPT_BYTES: Final = 1 << 20
_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
#: No job has more: what asks for it is a mistake.
_MOST_WORK: Final = 10**15
Numbers = int | str | list[int | str]


class Program(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job runs: ``run``, lines for the shell, or ``script``, a file beside the map, with fixed ``arguments``.

    ``rate`` is the work that it does in a second: of each task, or measured for numbers of tasks (straight lines
    between them, in proportion below the first, as the last one beyond it). ``startup`` is the time that it takes
    beside its work. The others are those of ``cosched submit``.
    """

    run: str = ""
    script: str = ""
    arguments: list[str] = []
    rate: float | list[tuple[int, float]] = 1.0
    startup: str = "0s"
    kind: str | None = None
    memory: str | None = None
    coscheduling: str | None = None
    requeue: bool = False

    def work(self, run_us: int, tasks: int) -> int:
        """How many units of work take so long with so many tasks, at least one."""
        for_work_s = max(0, run_us - duration_us(self.startup, "startup")) / US_PER_S
        return min(_MOST_WORK, max(1, round(for_work_s * self.units_per_s(tasks))))

    def units_per_s(self, tasks: int) -> float:
        """Work in a second with so many tasks."""
        if not isinstance(self.rate, list):
            return self.rate * tasks
        sizes, rates = zip(*sorted(self.rate), strict=True)
        return float(np.interp(tasks, (0, *sizes), (0.0, *rates)))

    @property
    def memory_bytes(self) -> int | None:
        """Of each task; None: the cluster's default."""
        return None if self.memory is None else size_bytes(self.memory, "memory")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs that are one program: those of which all holds that is said, by a number, a range ``4-8``, or a list."""

    program: str
    executable: Numbers | None = None
    tasks: Numbers | None = None
    user: Numbers | None = None
    job_class: str | None = msgspec.field(default=None, name="class")

    def fits(self, job: "Known") -> bool:
        """Whether it is about this job."""
        numbers = ((self.executable, job.executable), (self.tasks, job.tasks), (self.user, job.user))
        return all(wanted is None or _among(found, wanted) for wanted, found in numbers) and self.job_class in (
            None,
            job.job_class,
        )


class Known(NamedTuple):
    """What a log and its shapes say of a job: its number, executable and user (-1: not known), tasks, class."""

    number: int
    executable: int
    user: int
    tasks: int
    job_class: str


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    programs: dict[str, dict[str, Any]]
    jobs: list[dict[str, Any]]


class ProgramMap:
    """The programs of a map, their scripts, and which job is which."""

    def __init__(self, path: Path) -> None:
        """Read a map. Raises :class:`BadInput` with the file and the key."""
        if not path.exists():
            raise BadInput(str(path), "no such file", "a map from jobs to programs in YAML (docs/guide/play.md)")
        file = load(path, _File)
        self.path = path
        self.programs = {name: convert(raw, Program, f"{path}: programs.{name}") for name, raw in file.programs.items()}
        self.scripts = {name: _script(path, name, each) for name, each in self.programs.items()}
        self._rules = [convert(raw, Rule, f"{path}: jobs[{at}]") for at, raw in enumerate(file.jobs)]
        for at, rule in enumerate(self._rules):
            _check_rule(rule, self.programs, f"{path}: jobs[{at}]")
        if not file.jobs:
            raise BadInput(f"{path}: jobs", "no rule", "rules such as {executable: 1, program: NAME}")

    @property
    def files(self) -> list[Path]:
        """The map, and the scripts that it names."""
        names = sorted({each.script for each in self.programs.values() if each.script})
        return [self.path, *(self.path.parent / name for name in names)]

    def of(self, job: Known) -> str:
        """The name of a job's program. Raises :class:`BadInput` where no rule fits it."""
        for rule in self._rules:
            if rule.fits(job):
                return rule.program
        found = f"no rule for job {job.number} (executable {job.executable}, {job.tasks} tasks, user {job.user}"
        kind = f", class {job.job_class}" if job.job_class else ""
        raise BadInput(f"{self.path}: jobs", f"{found}{kind})", "a last rule {program: NAME} for all others")


def _script(path: Path, name: str, program: Program) -> str:
    """A program's job script; everything that the map says of it is looked at. Raises :class:`BadInput`."""
    where = f"{path}: programs.{name}"
    if not _NAME.fullmatch(name):
        raise BadInput(where, f"{name!r}", "a name of letters, digits and . _ + -, 40 at most")
    if bool(program.run) == bool(program.script):
        found = "run and script" if program.run else "neither run nor script"
        raise BadInput(where, found, "run: lines for the shell, or script: FILE")
    if program.run and program.arguments:
        raise BadInput(f"{where}.arguments", "arguments beside run", "them in run itself")
    _check_rate(program.rate, f"{where}.rate")
    duration_us(program.startup, f"{where}.startup")
    if program.memory is not None and size_bytes(program.memory, f"{where}.memory") < 1:
        raise BadInput(f"{where}.memory", f"{program.memory!r}", "at least 1B")
    for key, value, choices in (
        ("kind", program.kind, ("cpu", "comm")),
        ("coscheduling", program.coscheduling, tuple(mode.value for mode in Mode)),
    ):
        if value is not None and value not in choices:
            near = nearest(value, choices)
            raise BadInput(f"{where}.{key}", f"{value!r}", "one of " + ", ".join(choices), nearest=near)
    return f"#!/bin/sh\n{program.run.rstrip()}\n" if program.run else _read(path.parent / program.script, where)


def _read(path: Path, where: str) -> str:
    try:
        data = path.read_bytes()
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise BadInput(
            f"{where}.script", f"{path}: {said}", "a job script, beside the map or by its whole path"
        ) from None
    if len(data) > _SCRIPT_BYTES:
        raise BadInput(f"{where}.script", f"{path}: longer than 1 MiB", "a script; data belongs into files")
    first = text.partition("\n")[0]
    if not first.startswith("#!") or not first[2:].strip():
        raise BadInput(
            f"{path}:1", f"found {first[:60]!r}", "a first line that names the interpreter, such as #!/bin/sh"
        )
    return text


def _check_rate(rate: float | list[tuple[int, float]], where: str) -> None:
    points = rate if isinstance(rate, list) else [(1, rate)]
    if not points or len({size for size, _ in points}) != len(points):
        raise BadInput(where, f"{rate}", "pairs of tasks and work in a second, each number of tasks once")
    for size, units in points:
        if size < 1 or not 0 < units <= 1e12:
            raise BadInput(
                where, f"{units:g} with {size} tasks", "more than 0 units of work in a second, with 1 task or more"
            )


def _check_rule(rule: Rule, programs: dict[str, Program], where: str) -> None:
    if rule.program not in programs:
        expected = "one of " + ", ".join(programs) if programs else "a program of the map; it has none"
        near = nearest(rule.program, programs)
        raise BadInput(f"{where}.program", f"no program {rule.program!r}", expected, nearest=near)
    if rule.job_class not in (None, "long", "short"):
        near = nearest(str(rule.job_class), ("long", "short"))
        raise BadInput(f"{where}.class", f"{rule.job_class!r}", "long or short", nearest=near)
    for key in ("executable", "tasks", "user"):
        if (numbers := getattr(rule, key)) is not None:
            for each in _listed(numbers):
                if isinstance(each, str) and not _RANGE.fullmatch(each):
                    raise BadInput(
                        f"{where}.{key}", f"{each!r}", "a whole number, a range such as 4-8, or a list of them"
                    )


def _listed(numbers: Numbers) -> list[int | str]:
    return numbers if isinstance(numbers, list) else [numbers]


def _among(number: int, wanted: Numbers) -> bool:
    for each in _listed(wanted):
        if isinstance(each, int):
            if number == each:
                return True
        elif (found := _RANGE.fullmatch(each)) and int(found[1]) <= number <= int(found[2]):
            return True
    return False
