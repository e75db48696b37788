"""What sharing nodes costs, as ``cosched calibrate`` measured it, from its file to the simulator's figures.

A cost is by how much a task is slower, as a part of its time alone, for each task beyond the CPUs that it shares a node
with (``space_scheduler.progress``), by the kinds of both and by coscheduling mode.
"""

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import msgspec

from cosched.errors import BadInput
from cosched.model.coscheduling import Mode

#: Measured here: see its ``machine`` and ``made``.
SHIPPED: Final = "coefficients.json"
#: Other kinds than "cpu" and "comm": whoever sits at the desk.
OWNER: Final = "owner"
_KINDS: Final = ("cpu", "comm")
#: More than a thousand times slower is no sharing.
_Cost = Annotated[float, msgspec.Meta(ge=-1000, le=1000)]


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A median with its 95 % interval, of so many runs."""

    median: _Cost
    low: _Cost
    high: _Cost
    runs: int


class Coefficients(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``costs[mode][own kind][other's kind]``, and where, when and with what they were measured."""

    made: str
    machine: str
    how: str
    costs: dict[str, dict[str, dict[str, Cost]]]

    def permille(self, mode: Mode) -> dict[str, dict[str, int]]:
        """The costs of a mode in thousandths; what was not measured costs nothing, and no cost is below nothing."""
        return {
            own: {other: max(0, round(1000 * cost.median)) for other, cost in costs.items()}
            for own, costs in self.costs.get(mode.value, {}).items()
        }


def read(path: Path | None = None) -> Coefficients:
    """The coefficients of a file, or those that come with cosched. Raises :class:`BadInput`."""
    where = str(path or SHIPPED)
    try:
        data = path.read_bytes() if path else files("cosched.config").joinpath(SHIPPED).read_bytes()
    except OSError as error:
        raise BadInput(where, error.strerror or str(error), "a file that 'cosched calibrate' wrote") from None
    try:
        found = msgspec.json.decode(data, type=Coefficients)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(where, str(error)[:200], "a file that 'cosched calibrate' wrote") from None
    for mode, kinds in found.costs.items():
        if mode not in set(Mode):
            raise BadInput(f"{where}: costs", f"no mode {mode!r}", f"of {', '.join(Mode)}")
        for own, others in kinds.items():
            if own not in _KINDS or not set(others) <= {*_KINDS, OWNER}:
                raise BadInput(f"{where}: costs.{mode}.{own}", ", ".join(others), f"{', '.join(_KINDS)}, {OWNER}")
    return found
