"""Directives of other batch systems in a job script: ``#SBATCH`` and ``#PBS`` lines are read where they mean the same.

:func:`directives` gives what they ask for as options of ``cosched submit``, and names those that are not read, so that
none is taken without an effect. The meanings are those of sbatch(1) of Slurm and of qsub(1) of OpenPBS and TORQUE.
Lines of other systems are found, and not read. docs/guide/batch-systems.md has the tables of this module.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

_DIRECTIVE: Final = re.compile(r"#(SBATCH|PBS|BSUB|MSUB|OAR|HQ|FLUX:|\$)\s+-")
#: What a cluster's settings or a submission may want done about those that are not read.
CHOICES: Final = ("warn", "refuse")
_TIME: Final = re.compile(r"(?:(?P<d>\d{1,4})-)?(?P<parts>\d{1,6}(?::\d{1,2}){0,2})", re.ASCII)
_PBS_TIME: Final = re.compile(r"\d{1,9}(?::\d{1,2}){0,2}", re.ASCII)
_COUNT: Final = re.compile(r"[1-9]\d{0,7}", re.ASCII)
_SLURM_SIZE: Final = re.compile(r"([1-9]\d{0,11})([KMGT]?)", re.ASCII | re.IGNORECASE)
_PBS_SIZE: Final = re.compile(r"([1-9]\d{0,11})([KMGT]?)B", re.ASCII | re.IGNORECASE)
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*(=.*)?", re.ASCII | re.DOTALL)
_SHIFTS: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class Unreadable(Exception):
    """Why a directive is not read."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch of directives and what does the same here.

    ``names``: its spellings, separated by spaces. ``here``: the option that it is, or why nothing is. ``read``: its
    value -> words of ``cosched submit``, raises :class:`Unreadable`; None: it is not read, or with others
    (:func:`_of_nodes`). ``flag``: it has no value.
    """

    names: str
    here: str
    read: Callable[[str], list[str]] | None = None
    flag: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """A switch as a script has it: its line's number, its text, and its value, '' without."""

    line: int
    text: str
    value: str


@dataclass
class Directives:
    """What a script's directives ask for: words of ``cosched submit`` with their lines; what is not read, and why."""

    words: list[tuple[int, str]] = field(default_factory=list)
    not_read: list[tuple[Given, str]] = field(default_factory=list)

    def left(self) -> str:
        """The first that is not read, why, and how many more there are; empty: all are read."""
        if not self.not_read:
            return ""
        (first, why), more = self.not_read[0], len(self.not_read) - 1
        others = f", and {more} more" if more else ""
        return f"line {first.line}, {first.text[:60]!r} ({why}){others}"


def time_words(text: str) -> str:
    """A time of Slurm's (minutes, MM:SS, HH:MM:SS, D-HH:MM:SS) with its unit; '' where it is none, or nothing."""
    match = _TIME.fullmatch(text)
    if match is None:
        return ""
    parts = [int(each) for each in match["parts"].split(":")]
    if match["d"] is not None:  # D-HH[:MM[:SS]]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        hours += 24 * int(match["d"])
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:  # MM[:SS]
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return _with_unit((hours * 60 + minutes) * 60 + seconds)


def _with_unit(seconds: int) -> str:
    unit, length_s = next(((u, s) for u, s in (("h", 3600), ("min", 60)) if seconds % s == 0), ("s", 1))
    return f"{seconds // length_s}{unit}" if seconds else ""


def _is(option: str) -> Callable[[str], list[str]]:
    return lambda value: [f"{option}={value}"]


def _flag(option: str = "") -> Callable[[str], list[str]]:
    return lambda _: [option] if option else []


def _only(value: str, expected: str) -> Callable[[str], list[str]]:
    """Read where it asks for what is so anyway."""

    def read(given: str) -> list[str]:
        if given != value:
            raise Unreadable(expected)
        return []

    return read


def _matching(
    pattern: re.Pattern[str], expected: str, words: Callable[[re.Match[str]], str]
) -> Callable[..., list[str]]:
    def read(value: str) -> list[str]:
        if (match := pattern.fullmatch(value)) is None or not (word := words(match)):
            raise Unreadable(f"{expected} is expected")
        return [word]

    return read


def _pbs_time(match: re.Match[str]) -> str:
    seconds = 0
    for each in match[0].split(":"):
        seconds = 60 * seconds + int(each)
    return f"--time={_with_unit(seconds)}" if seconds else ""


def _slurm_bytes(match: re.Match[str]) -> int:
    return int(match[1]) << _SHIFTS[match[2].upper() or "M"]


def _pattern(option: str) -> Callable[[str], list[str]]:
    def read(value: str) -> list[str]:
        if unknown := [each for each in re.findall("%.?", value) if each[1:] not in tuple("jAxuN%")]:
            raise Unreadable(f"{unknown[0]} in names of files has no counterpart")
        return [f"{option}={value}"]

    return read


def _pbs_path(option: str) -> Callable[[str], list[str]]:
    def read(value: str) -> list[str]:
        if ":" in value:
            raise Unreadable("files are of the job's first node, not of one that is named")
        path = value.replace("%", "%%").replace("$PBS_JOBID", "%j")
        if "$" in path or "^" in path:
            raise Unreadable("of variables in names of files $PBS_JOBID alone has a counterpart")
        return [f"{option}={path}"]

    return read


def _rerun(value: str) -> list[str]:
    if value not in ("y", "n"):
        raise Unreadable("y or n is expected")
    return ["--requeue"] if value == "y" else []


def _variables(value: str) -> list[str]:
    names = value.split(",")
    if not all(_VARIABLE.fullmatch(each) for each in names):
        raise Unreadable("variables, without commas in their values, are expected")
    return [f"--env={each}" for each in names]


def _export(value: str) -> list[str]:
    """ALL or NONE, then variables; these alone: no others."""
    first, _, rest = value.partition(",")
    kind = {"ALL": "all", "NONE": "none"}.get(first)
    variables = rest if kind else value
    return [f"--export={kind or 'none'}", *(_variables(variables) if variables or not kind else [])]


_CHOSEN: Final = "nodes are chosen for the job"
_PART: Final = f"--tasks, the product; alone it is not read: {_CHOSEN}"
_SPREAD: Final = f"its tasks are counted; {_CHOSEN}, and how tasks lie on them is not kept"
_ARRAYS: Final = "there are no arrays: a submission for each task"
_AFTER: Final = "there are no dependencies: 'cosched wait ID' before the next submission"
_BEGIN: Final = "a job has no time before which it does not start"
_MAIL: Final = "no mail is sent"
NO_COUNTERPART: Final = "no counterpart"
NO_EFFECT: Final = "read, without an effect"
_SIZE: Final = "a size such as 512mb or 2gb"
_COUNTED: Final = _matching(_COUNT, "a number of at least 1", lambda found: f"--tasks={found[0]}")

SLURM: Final = (
    Switch("-n --ntasks", "--tasks", _COUNTED),
    Switch("-N --nodes", _PART),
    Switch("--ntasks-per-node", _PART),
    Switch("-c --cpus-per-task", "a task has one CPU: 1 is read", _only("1", "a task has one CPU")),
    Switch(
        "-t --time", "--time",
        _matching(_TIME, "a time such as 30, 00:30:00 or 1-00:00:00", lambda found: (
            f"--time={words}" if (words := time_words(found[0])) else ""
        )),
    ),
    Switch(
        "--mem-per-cpu", "--mem",
        _matching(_SLURM_SIZE, "a size such as 512 or 2G", lambda found: f"--mem={_slurm_bytes(found)}B"),
    ),
    Switch("--mem", "--mem, which is of each task: divided by --ntasks-per-node, without it not read"),
    Switch("-J --job-name", "--name", _is("--name")),
    Switch("-o --output", "--output", _pattern("--output")),
    Switch("-e --error", "--error", _pattern("--error")),
    Switch("-D --chdir --workdir", "--directory", _is("--directory")),
    Switch("--export", "--export all or none, and --env", _export),
    Switch("--get-user-env", "--export all", _flag("--export=all"), flag=True),
    Switch("-H --hold", "--hold", _flag("--hold"), flag=True),
    Switch("--requeue", "--requeue", _flag("--requeue"), flag=True),
    Switch("--no-requeue", "as it is without --requeue", _flag(), flag=True),
    Switch("--comment", NO_EFFECT, lambda _: []),
    Switch("-Q --quiet -v --verbose --parsable", NO_EFFECT, _flag(), flag=True),
    Switch("-a --array", _ARRAYS),
    Switch("-d --dependency", _AFTER),
    Switch("-b --begin", _BEGIN),
    Switch("--deadline", "a job has no time by which it is to end; 'cosched queue' has the promise of its start"),
    Switch("--exclusive", "the cluster's settings say whether jobs share nodes", flag=True),
    Switch("-s --oversubscribe", "the cluster's settings say whether jobs share nodes", flag=True),
    Switch("-C --constraint", "nodes have no labels"),
    Switch("-w --nodelist", _CHOSEN),
    Switch("-x --exclude", _CHOSEN),
    Switch("-i --input", "'exec <FILE' in the script"),
    Switch("--open-mode", "an output file is written from its beginning"),
    Switch("--signal", "what runs is sent SIGTERM at its end, and after a grace SIGKILL"),
    Switch("--mail-type", _MAIL),
    Switch("--mail-user", _MAIL),
    Switch("-G --gpus --gres --gpus-per-node --gpus-per-task", "GPUs are not scheduled"),
    Switch("-W --wait", "--wait on the command line", flag=True),
    Switch("-M --clusters", "--server or --lab on the command line"),
    Switch("-p --partition -q --qos -A --account --nice --priority --reservation -L --licenses", NO_COUNTERPART),
)  # fmt: skip
#: A switch, or a resource of -l.
PBS: Final = (
    Switch("-N", "--name", _is("--name")),
    Switch("nodes", f"--tasks, N times M of nodes=N:ppn=M; {_CHOSEN}"),
    Switch("select", f"--tasks, N times M of select=N:mpiprocs=M (and :ncpus=M, no more); {_CHOSEN}"),
    Switch("procs", "--tasks", _COUNTED),
    Switch("walltime", "--time", _matching(_PBS_TIME, "a time such as 1800 or 00:30:00", _pbs_time)),
    Switch("pmem", "--mem", _matching(_PBS_SIZE, _SIZE, lambda found: (
        f"--mem={int(found[1]) << _SHIFTS[found[2].upper()]}B"
    ))),
    Switch("mem", "--mem, which is of each task, not of the job: not read"),
    Switch("-o", "--output", _pbs_path("--output")),
    Switch("-e", "--error", _pbs_path("--error")),
    Switch("-j", "'exec 2>&1' in the script; n is read", _only("n", "'exec 2>&1' in the script")),
    Switch("-d -w", "--directory", _is("--directory")),
    Switch("-V", "--export all", _flag("--export=all"), flag=True),
    Switch("-v", "--env", _variables),
    Switch("-h", "--hold", _flag("--hold"), flag=True),
    Switch("-r", "y: --requeue; n: as it is without", _rerun),
    Switch("-J -t", _ARRAYS),
    Switch("-W", _AFTER),
    Switch("-a", _BEGIN),
    Switch("-m -M", _MAIL),
    Switch("-S", "the script's first line names its interpreter"),
    Switch("-I -X", "a script: there are no interactive jobs", flag=True),
    Switch("-q -A -P -p", NO_COUNTERPART),
)  # fmt: skip


def by_name(switches: tuple[Switch, ...]) -> dict[str, Switch]:
    """Each spelling -> its switch."""
    return {name: switch for switch in switches for name in switch.names.split()}


#: Of Slurm, what is read together (:func:`_of_nodes`).
_OF_NODES: Final = ("-N --nodes", "--ntasks-per-node", "--mem")
#: Bounds of what is read of a script: reading it occupies the scheduler.
_LAST_LINE: Final = 200
_LONGEST: Final = 400
_TOO_FAR: Final = f"longer than {_LONGEST} characters, or behind line {_LAST_LINE}"
_SYSTEMS: Final = {"SBATCH": by_name(SLURM), "PBS": by_name(PBS)}


def directive_lines(script: str) -> list[tuple[int, str]]:
    """The directives before the script's first command, each with the number of its line."""
    header = takewhile(lambda line: line.lstrip()[:1] in ("", "#"), script.splitlines())
    return [(number, line.strip()) for number, line in enumerate(header, 1) if _DIRECTIVE.match(line)]


def directives(script: str) -> Directives:
    """Read a script's directives. Of two of one kind the later counts."""
    found = Directives()
    given: dict[str, dict[str, Given]] = {system: {} for system in _SYSTEMS}
    for number, line in directive_lines(script):
        system, rest = line[1:].split(maxsplit=1)
        if system not in _SYSTEMS:
            found.not_read.append((Given(number, line, ""), "'#COSCHED' lines have the options of 'cosched submit'"))
            continue
        if len(line) > _LONGEST or number > _LAST_LINE:
            found.not_read.append((Given(number, line, ""), _TOO_FAR))
            continue
        try:
            words = shlex.split(rest, comments=True)
        except ValueError as error:
            found.not_read.append((Given(number, line, ""), str(error).lower()))
            continue
        for name, value, text in _switches(words, _SYSTEMS[system]):
            switch = _SYSTEMS[system].get(name)
            counts_once = switch is not None and (switch.read is not None or switch.names in _OF_NODES)
            key = switch.names if switch is not None and counts_once else f"{name} {len(given[system])}"
            given[system][key] = Given(number, text, value)
    _of_nodes(given["SBATCH"], found)
    for system, switches in given.items():
        for name, each in switches.items():
            _read(_SYSTEMS[system].get(name.partition(" ")[0]), each, found)
    found.words.sort(key=lambda word: word[0])
    found.not_read.sort(key=lambda left: left[0].line)
    return found


def _switches(words: list[str], table: Mapping[str, Switch]) -> Iterator[tuple[str, str, str]]:
    """The switches of a line, each with its value ('' without) and as it was written; of -l each resource is one."""
    left = iter(words)
    for word in left:
        name, _, value = word.partition("=") if word.startswith("--") else (word[:2], "", word[2:].removeprefix("="))
        switch, text = table.get(name), word
        if name == word and not (switch and switch.flag):
            value = next(left, "")
            text = f"{word} {value}".strip()
        if name == "-l":
            for resource in value.split(","):
                yield *resource.partition("=")[::2], f"-l {resource}"
        else:
            yield name, value, text


def _read(switch: Switch | None, given: Given, found: Directives) -> None:
    try:
        if switch is not None and switch.names in ("nodes", "select"):
            words = [f"--tasks={_chunks(given.value, switch)}"]
            found.not_read.append((given, _SPREAD))
        elif switch is not None and switch.read is not None:
            words = switch.read(given.value)
        else:
            raise Unreadable(switch.here if switch is not None else NO_COUNTERPART)
    except Unreadable as why:
        found.not_read.append((given, str(why)))
    else:
        found.words += [(given.line, word) for word in words]


def _of_nodes(given: dict[str, Given], found: Directives) -> None:
    """Of Slurm: tasks are nodes times tasks of each; memory of a task is that of a node divided by these."""
    each = given.get("--ntasks-per-node")
    if each is None or not _COUNT.fullmatch(each.value):
        return
    read = False
    if (nodes := given.get("-N --nodes")) and _COUNT.fullmatch(nodes.value):
        del given["-N --nodes"]
        if "-n --ntasks" not in given:
            found.words.append((nodes.line, f"--tasks={int(nodes.value) * int(each.value)}"))
        found.not_read.append((nodes, _SPREAD))
        read = True
    memory = given.get("--mem")
    match = _SLURM_SIZE.fullmatch(memory.value) if memory else None
    if memory and match and (size := _slurm_bytes(match) // int(each.value)):
        del given["--mem"]
        found.words.append((memory.line, f"--mem={size}B"))
        read = True
    if read:
        del given["--ntasks-per-node"]


def _chunks(value: str, switch: Switch) -> int:
    """The tasks of PBS's ``2:ppn=4+1:ppn=2``. Raises :class:`Unreadable`."""
    per, others = ("ppn", {"ppn"}) if switch.names == "nodes" else ("mpiprocs", {"mpiprocs", "ncpus"})
    total = 0
    for chunk in value.split("+"):
        count, *rest = chunk.split(":")
        parts = dict(each.partition("=")[::2] for each in rest)
        each = parts.get(per, "1")
        known = parts.keys() <= others and parts.get("ncpus", each) == each
        if not known or not _COUNT.fullmatch(count) or not _COUNT.fullmatch(each):
            raise Unreadable(switch.here)
        total += int(count) * int(each)
    return total
