"""What a run leaves in a directory: schedules, tables, plots, and the manifest from which it repeats byte for byte."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from cosched.apps.cli.shared import show
from cosched.apps.cli.shared.verb import json_text
from cosched.config.experiment import Experiment
from cosched.errors import BadInput
from cosched.metrics.groups import component_labels, size_labels, widest_labels
from cosched.metrics.summary import class_labels, grouped, summarise, user_labels
from cosched.model.time import FOREVER_US, US_PER_S
from cosched.report import manifest as manifests
from cosched.report import plots, schedule_file
from cosched.report.table import STDOUT
from cosched.workload.calendar import month_labels
from cosched.workload.schedule import Schedule
from space_scheduler.machine.events import Event
from space_scheduler.machine.instructions import Instruction, Tell
from space_scheduler.simulator.host import Observer

_DAY_US: Final = 86_400 * US_PER_S


def _months(schedule: Schedule) -> NDArray[np.str_]:
    load = schedule.workload
    if load.unix_start_s is None:  # no calendar: thirty days at a time
        return np.array([f"days {day:5}-{day + 29}" for day in (load.submit_us // _DAY_US // 30 * 30).tolist()])
    return month_labels(load.submit_us, load.unix_start_s, load.timezone, offset_s=load.timezone_offset_s)


GROUPINGS: Final[dict[str, Callable[[Schedule], NDArray[np.str_]]]] = {
    "month": _months,
    "user": user_labels,
    "class": class_labels,
    "size": size_labels,
    "components": component_labels,
    "widest": widest_labels,
}
#: What says nothing of jobs of one component.
_OF_COMPONENTS: Final = ("components", "widest")


class EventLog(AbstractContextManager[Observer | None]):
    """Writes every event with its instructions, a JSON object a line; the same run gives the same bytes.

    The file has its name only when the run has ended well: an interrupted one leaves nothing, and an old file stays.
    ``-`` is standard output.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._partial = Path()
        self._file: IO[bytes] | None = None
        self._encoder = msgspec.json.Encoder()

    def __enter__(self) -> Observer | None:
        if self._path is None:
            return None
        if self._path == STDOUT:
            self._file = sys.stdout.buffer
            return self._write
        special = self._path.exists() and not self._path.is_file()  # a pipe or a terminal: written as it comes
        self._partial = self._path if special else self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            self._file = self._partial.open("wb")
        except BaseException:  # a signal, too: nobody calls __exit__ then
            if not special:
                self._partial.unlink(missing_ok=True)
            raise
        return self._write

    def _write(self, now_us: int, event: Event, instructions: list[Instruction]) -> None:
        assert self._file is not None
        line = {"now_us": now_us, "event": event, "instructions": list(map(_as_written, instructions))}
        self._file.write(self._encoder.encode(line) + b"\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None or self._path is None:
            return
        if self._path == STDOUT:
            self._file.flush()
            return
        self._file.close()
        if self._partial == self._path:
            return
        if kind is None:
            self._partial.replace(self._path)
        else:
            self._partial.unlink()


def _as_written(instruction: Instruction) -> object:
    """The instruction; a promise of nothing as null, not as the end of all time."""
    if type(instruction) is Tell and instruction.promised_us == FOREVER_US:
        return msgspec.to_builtins(instruction) | {"promised_us": None}
    return instruction


def check_targets(targets: Iterable[Path | None], log: Path) -> None:
    """Refuse output files that cannot be written, are the log, or are each other, before anything is computed."""
    seen: set[Path] = set()
    for target in filter(None, targets):
        if not target.absolute().parent.is_dir():
            raise BadInput(str(target), f"no directory {target.parent}", "an existing directory")
        if target.is_dir():
            raise BadInput(str(target), "a directory", "a file's name")
        if target.resolve() == log.resolve():
            raise BadInput(str(target), "the log itself", "another file: the log would be lost")
        if target.resolve() in seen:
            raise BadInput(str(target), "two outputs in one file", "a file for each")
        seen.add(target.resolve())


def expected_of(repeat: Path, command: str, given: Mapping[str, object]) -> manifests.Manifest:
    """The manifest of a run of ``command`` that is to be repeated; nothing else may have been given."""
    if any(value is not None for value in given.values()):
        raise BadInput("--repeat", "other settings beside a manifest", "a manifest alone, and LOG if it moved")
    manifest = manifests.read(repeat)
    if manifest.command != command:
        raise BadInput(str(repeat), f"the manifest of {manifest.command!r}", f"one that 'cosched {command}' wrote")
    manifest.configuration.checked(f"{repeat}: configuration")
    return manifest


def repetition(expected: manifests.Manifest, differing: list[str]) -> str:
    """What came of repeating a run, for people."""
    count = len(expected.outputs)
    same = f"Repeated: {count - len(differing)} of {count} outputs are the same, byte for byte."
    return "\n  differs: ".join([same, *differing])


def check_directory(directory: Path) -> None:
    """Refuse an output directory that cannot be one, before anything is computed."""
    if directory.exists() and not directory.is_dir():
        raise BadInput(str(directory), "a file", "a directory, or a name that is free")


def inputs_of(experiment: Experiment, log: Path) -> list[Path]:
    """The files that decide the outcome of a run."""
    costs = experiment.cross_cluster_cost
    named = [experiment.shapes, costs if isinstance(costs, str) else ""]
    return [log, *(Path(each) for each in named if each)]


def write_all(
    directory: Path, command: str, experiment: Experiment, log: Path, schedules: dict[str, Schedule]
) -> manifests.Manifest:
    """Write everything about one or more schedules of one workload, and the manifest. Existing files are replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []

    def path_of(stem: str, policy: str, ending: str) -> Path:
        name = stem if len(schedules) == 1 else f"{stem}-{plots.file_name(policy)}"
        written.append(directory / (name + ending))
        return written[-1]

    for policy, schedule in schedules.items():
        schedule_file.write(schedule, path_of("schedule", policy, ".csv"))
        if schedule.holdings is not None:
            schedule_file.write_holdings(schedule, path_of("changes", policy, ".csv"))
        for what, labels in GROUPINGS.items():
            if what in _OF_COMPONENTS and not schedule.workload.divided:
                continue
            rows = grouped(schedule, labels(schedule))
            show.groups(what, policy, rows).write(path_of(f"by-{what}", policy, ".tsv"))
    summaries = {policy: summarise(schedule) for policy, schedule in schedules.items()}
    written.append(directory / "summary.json")
    written[-1].write_text(json_text(summaries), encoding="utf-8")
    written += plots.all_plots(schedules, directory)
    manifest = manifests.make(command, experiment, inputs_of(experiment, log), written)
    manifests.write(manifest, directory / "manifest.json")
    return manifest


def repeated(
    expected: manifests.Manifest, experiment: Experiment, log: Path, schedules: dict[str, Schedule]
) -> list[str]:
    """The outputs of a run that did not come out the same as its manifest says."""
    with TemporaryDirectory(prefix="cosched-repeat-") as scratch:
        now = write_all(Path(scratch), expected.command, experiment, log, schedules)
    digests = {output.name: output.sha256 for output in now.outputs}
    differing = [output.name for output in expected.outputs if digests.get(output.name) != output.sha256]
    changed = [
        f"{name} {version} then, {now.packages.get(name)} now"
        for name, version in expected.packages.items()
        if now.packages.get(name) != version
    ]
    return differing + (changed if differing else [])
