"""Runs of an experiment, written down one by one: an interrupted one is not lost, and another day can add to it.

A file of JSON lines. Each call of a command is a *campaign*: a line of how it measured, then its runs. Runs are held
against controls of their own campaign, since the next one may be made on a machine of another speed. Machine, version
of control groups, commit and date stand in that line, and do not have to be the same in all campaigns.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

import cosched
from cosched.apps.lab import cgroups
from cosched.errors import BadInput
from cosched.report.line_log import LineLog
from cosched.report.table import Table

Run = TypeVar("Run", bound=msgspec.Struct)
_HOW: Final = "how"
MACHINE: Final = "machine"
#: The version of control groups, 0 without any; logs from before this key are of version 1.
CGROUPS: Final = "cgroups"
_COMMIT: Final = "commit"
_DATE: Final = "date"


class RunLog(Generic[Run]):
    """All campaigns of a directory, in the order they were made; none without a directory, and nothing is written."""

    def __init__(self, out: Path | None, name: str, kind: type[Run]) -> None:
        """Read what is there. Raises :class:`BadInput` for lines that are none of ours."""
        self.campaigns: list[list[Run]] = []
        self.hows: list[dict[str, Any]] = []
        self._log = LineLog(out / f"{name}.jsonl", "--out") if out is not None else None
        self._kind = kind
        if self._log is not None:
            self._log.read(self._take)

    def begin(self, how: Mapping[str, Any], *, add: bool) -> None:
        """Begin a campaign. ``how`` is what must be the same in all of them.

        Raises :class:`BadInput`, by the command's option, where it is not, where there are runs already and none are to
        be added, and where the directory cannot be written to.
        """
        path = None if self._log is None else self._log.path
        if path is None and add:
            raise BadInput("--add", "without --out", "--out with the directory to add to")
        if any(self.campaigns) and not add:  # one that could not begin has none
            raise BadInput("--out", f"{path} has runs already", "another directory, or --add to add to them")
        for before, runs in zip(self.hows, self.campaigns, strict=True):
            for key, value in how.items():
                if runs and before.get(key) != value:
                    raise BadInput("--add", f"{key} {value}", f"{before.get(key)}, as in {path}")
        self.hows.append({**how, MACHINE: machine(), **provenance()})
        self.campaigns.append([])
        if self._log is not None:
            writable(self._log.path.parent)
            self._log.claim()
        self._write({_HOW: self.hows[-1]})

    def keep(self, run: Run) -> None:
        """Write a run of this campaign down."""
        self.campaigns[-1].append(run)
        self._write(msgspec.to_builtins(run))

    def keep_each(self, runs: Iterable[Run]) -> None:
        """Write runs of this campaign down, each when it has been made."""
        for run in runs:
            self.keep(run)

    def document(self, cells: Sequence[object], **more: object) -> str:
        """What was found, as JSON; ``how`` has an entry for each campaign."""
        return json.dumps({"how": self.hows, "cells": msgspec.to_builtins(list(cells)), **more}, indent=1) + "\n"

    def noted(self, table: Table) -> Table:
        """The table with a note for each machine, version of control groups, commit and date of campaigns with runs."""
        begun = zip(self.hows, self.campaigns, strict=True)
        table.notes += dict.fromkeys(worded(how) for how, runs in begun if runs)
        return table

    def _take(self, text: bytes) -> None:
        line = json.loads(text)
        if _HOW in line:
            self.hows.append({CGROUPS: 1, **line[_HOW]})
            self.campaigns.append([])
        else:
            self.campaigns[-1].append(msgspec.convert(line, self._kind))

    def _write(self, line: object) -> None:
        if self._log is not None:
            self._log.append(json.dumps(line).encode())


def writable(out: Path | None) -> None:
    """Make a directory for results, where one is wanted. Raises :class:`BadInput` where it can't be."""
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput("--out", f"{out}: {error.strerror}", "a directory to write to") from None


def machine() -> str:
    """This machine for a reader of the results: its kernel, its processors and how many of them may be used."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    models = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"Linux {platform.release()}, {len(os.sched_getaffinity(0))} x {model}"


def provenance() -> dict[str, Any]:
    """Version of control groups, commit and local date of what is measured here now."""
    found = max((hierarchy.version for hierarchy in cgroups.hierarchies()), default=0)
    return {CGROUPS: found, _COMMIT: _commit(), _DATE: datetime.now().astimezone().date().isoformat()}


def worded(how: Mapping[str, Any]) -> str:
    """A campaign's machine, control groups, commit and date, as far as they are known, in one line."""
    version = how[CGROUPS]
    groups = f"control groups of version {version}" if version else "no control groups"
    commit = f"commit {how[_COMMIT]}" if _COMMIT in how else ""
    return ", ".join(part for part in (how.get(MACHINE), groups, commit, how.get(_DATE)) if part)


def _commit() -> str:
    """The checkout's commit, ``-dirty`` with changes; cosched's version where it runs from no checkout."""
    root = Path(cosched.__file__).resolve().parents[1]
    git = ("git", "-c", f"safe.directory={root}", "-C", root)
    if (root / ".git").exists():
        try:
            return subprocess.run(
                [*git, "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty"],
                capture_output=True, check=True, text=True,
            ).stdout.strip()  # fmt: skip
        except (OSError, subprocess.CalledProcessError):
            pass
    return cosched.__version__
