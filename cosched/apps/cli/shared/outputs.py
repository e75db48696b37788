"""What a run leaves in a directory: schedules, tables, plots, and the manifest from which it repeats byte for byte."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from cosched.apps.cli.shared import show
from cosched.apps.cli.shared.values import refuse
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
from space_scheduler.simulator.experiment import find_log
from space_scheduler.simulator.host import Observer

_DAY_US: Final = 86_400 * US_PER_S
_ENCODER: Final = msgspec.json.Encoder()


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


@contextmanager
def event_log(path: Path | None) -> Iterator[Observer | None]:
    """Write every event with its instructions, a JSON object a line; the same run gives the same bytes.

    The file has its name only when the block has ended well: an interrupted one leaves nothing, and an old file stays.
    ``-`` is standard output.
    """
    if path is None:
        yield None
        return
    if path == STDOUT or (path.exists() and not path.is_file()):  # a pipe or a terminal: written as it comes
        with click.open_file(path, "wb") as file:
            yield partial(_write_event, file)
            file.flush()
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            yield partial(_write_event, file)
        unfinished.replace(path)
    finally:  # also after a signal
        unfinished.unlink(missing_ok=True)


def _write_event(file: IO[bytes], now_us: int, event: Event, instructions: list[Instruction]) -> None:
    line = {"now_us": now_us, "event": event, "instructions": list(map(_as_written, instructions))}
    file.write(_ENCODER.encode(line) + b"\n")


def _as_written(instruction: Instruction) -> object:
    """The instruction; a promise of nothing as null, not as the end of all time."""
    if type(instruction) is Tell and instruction.promised_us == FOREVER_US:
        return msgspec.to_builtins(instruction) | {"promised_us": None}
    return instruction


def check_targets(targets: Iterable[Path | None], log: Path) -> None:
    """Refuse output files that cannot be written, are the log, or are each other, before anything is computed."""
    seen: set[str] = set()
    for target in filter(None, targets):
        where, place = str(target), os.path.realpath(target)  # which goes round no loop of links
        refuse(
            (not target.absolute().parent.is_dir(), where, f"no directory {target.parent}", "an existing directory"),
            (target.is_dir(), where, "a directory", "a file's name"),
            (place == os.path.realpath(log), where, "the log itself", "another file: the log would be lost"),
            (place in seen, where, "two outputs in one file", "a file for each"),
        )
        seen.add(place)


def expected_of(repeat: Path, command: str, given: Mapping[str, object]) -> manifests.Manifest:
    """The manifest of a run of ``command`` that is to be repeated; nothing else may have been given."""
    if any(value is not None for value in given.values()):
        raise BadInput("--repeat", "other settings beside a manifest", "a manifest alone, and LOG if it moved")
    manifest = manifests.read(repeat)
    if manifest.command != command:
        raise BadInput(str(repeat), f"the manifest of {manifest.command!r}", f"one that 'cosched {command}' wrote")
    manifest.configuration.checked(f"{repeat}: configuration")
    return manifest


def checked_log(
    log: str | None, experiment: Experiment, out: Path | None, expected: manifests.Manifest | None, repeat: Path | None
) -> Path:
    """The log of a run whose output directory can be one, and whose inputs are those of the run that it repeats."""
    if out:
        check_directory(out)
    path = find_log(log or experiment.log)
    if expected:
        manifests.check_inputs(expected, inputs_of(experiment, path), str(repeat))
    return path


def leave(
    out: Path | None,
    command: str,
    experiment: Experiment,
    log: Path,
    schedules: dict[str, Schedule],
    expected: manifests.Manifest | None,
) -> list[str]:
    """Write what a run leaves in a directory, if there is one; what differs from the run that it repeats."""
    if out:
        write_all(out, command, experiment, log, schedules)
    return _repeated(expected, experiment, log, schedules) if expected else []


def left(out: Path | None, expected: manifests.Manifest | None, differing: list[str]) -> Iterator[str]:
    """What came of repeating a run, and where its outputs are, for people."""
    if expected:
        count = len(expected.outputs)
        yield f"Repeated: {count - len(differing)} of {count} outputs are the same, byte for byte."
        yield from (f"  differs: {each}" for each in differing)
    if out:
        yield f"Written to {out}: see manifest.json for the list."


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


def _repeated(
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
