"""Attempts at the runs of an experiment: watched, reported, and refused with a reason."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from cosched.apps.experiments.interference import InterferenceWatch, Taken
from cosched.apps.experiments.jobs import Cannot
from cosched.errors import BadInput

Made = TypeVar("Made")
Say = Callable[[str], None]


class Attempts:
    """Makes runs, again while they are disturbed if there is a watch. ``refused``: what could not be run, and why."""

    #: The errors that refuse a run and leave the others; any other ends the experiment.
    refusals: ClassVar[tuple[type[Exception], ...]] = (Cannot, BadInput)

    def __init__(self, say: Say, watch: InterferenceWatch | None = None) -> None:
        self.refused: dict[str, str] = {}
        self._say = say
        self._watch = watch

    def attempt(
        self, what: str, make: Callable[[], Made], worded: Callable[[Made], str], number: int | None = None
    ) -> Iterator[tuple[Made, dict[str, Any]]]:
        """The run and the fields of :class:`Taken`, or nothing where it is refused; ``number`` is its round, from 0.

        It is reported once the caller has kept it.
        """
        try:
            made, taken = (make(), Taken()) if self._watch is None else self._watch.run(make, what)
        except self.refusals as error:
            self.refused[what] = str(error)
            self._say(f"{what}: {error}")
            return
        yield made, taken._asdict()
        self._say(f"{'' if number is None else f'round {number + 1}: '}{what}: {worded(made)}")
