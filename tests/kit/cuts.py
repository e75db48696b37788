"""A machine that loses its power between two changes of what its directories name, at each of them in turn."""

import contextlib
import importlib
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

#: What changes names and so is seen after a crash.
CHANGES = ("os.replace", "os.link", "pathlib.Path.replace", "pathlib.Path.rename", "pathlib.Path.unlink")


class Cut(BaseException):
    """The machine lost its power: nothing goes on, and nothing is tidied up."""


def cut_at(patched: pytest.MonkeyPatch, count: int, changes: Sequence[str] = CHANGES) -> None:
    """Let the first ``count`` changes of names happen; at the next one, and from then on, the power is gone."""
    left = itertools.count(count, -1)
    for name in changes:
        holder, attribute = _found(name)
        real = getattr(holder, attribute)

        def changed(*given: Any, _real: Callable[..., Any] = real, **more: Any) -> Any:
            if next(left) <= 0:
                raise Cut
            return _real(*given, **more)

        patched.setattr(holder, attribute, changed)


def cuts(
    before: Path, step: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch, changes: Sequence[str] = CHANGES
) -> Iterator[Path]:
    """Copies of a directory, each with a step in it cut off later than in the one before."""
    for count in itertools.count():
        place = before.with_name(f"{before.name}-cut-{count}")
        shutil.copytree(before, place, symlinks=True)
        done = False
        with monkeypatch.context() as patched, contextlib.suppress(Cut):
            cut_at(patched, count, changes)
            step(place)
            done = True
        if done:
            assert count, "the step changes something"
            return
        yield place


def _found(name: str) -> tuple[Any, str]:
    holder, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(holder), attribute
    except ModuleNotFoundError:
        module, _, kind = holder.rpartition(".")
        return getattr(importlib.import_module(module), kind), attribute
