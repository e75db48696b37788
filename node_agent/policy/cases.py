"""Rules as tables: cases in order, of which the first whose condition holds is the one."""

from collections.abc import Iterable
from typing import TypeVar

Case = TypeVar("Case")


def first_true(cases: Iterable[tuple[Case, object]], otherwise: Case) -> Case:
    """The first case whose condition, which is beside it, is true; ``otherwise`` where none is."""
    return next((case for case, holds in cases if holds), otherwise)
