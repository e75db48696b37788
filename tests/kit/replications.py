"""What tests of replications share: no display of progress, and plots drawn on axes that nothing is written of."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

from cosched.apps.replicate.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def quiet(_what: str, _total: int) -> nullcontext[Callable[[int], None]]:
    """Shows no progress."""
    return nullcontext(lambda _done: None)


def drawn(result: Result) -> Iterator[tuple[str, "Axes"]]:
    """Each plot's name and axes."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (heavy)

    for name, plot in result.plots.items():
        axes = Figure().subplots()
        plot.draw(axes)
        yield name, axes
