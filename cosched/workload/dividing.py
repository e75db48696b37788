"""A workload on several clusters: which of its jobs are divided into components, and how (design, section 7)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from msgspec import structs

from cosched.errors import BadInput
from cosched.model.components import Dividing, Partition, phased_bounds
from cosched.model.width import Components, Flexible
from cosched.workload.rules import Shaped, Workload
from cosched.workload.shapes import Line

_AT_THE_START = (Partition.ADAPTIVE, Partition.NEAR)


def divided(load: Workload, dividing: Dividing, seed: int, lines: Mapping[int, Line] | None = None) -> Workload:
    """The workload with the components of its jobs: those that ``lines`` of a shapes file give, the others by the rule.

    What is drawn depends on the seed and on the jobs' order alone. The bounds of ``phased`` and ``balanced``, where
    they are not given, are those of the workload's own large jobs. Of jobs of several widths only moldable ones may be
    divided, at their start. Raises :class:`BadInput` for given components that are not the job's processors together.
    """
    if not dividing.bounds and dividing.partition in (Partition.PHASED, Partition.BALANCED):
        bounds = phased_bounds(Counter(load.procs.tolist()), dividing.threshold, dividing.most)
        dividing = structs.replace(dividing, bounds=bounds)
    shapes = load.shapes or [None] * len(load)
    parts = list(_parts(load, shapes, dividing, Random(seed), lines or {}))
    molded = [_over_clusters(each, dividing) for each in load.shapes]
    crossing = [lines[number].crossing_ppm if lines and number in lines else None for number in load.job_id.tolist()]
    known = crossing if any(each is not None for each in crossing) else ()
    return replace(load, divided=parts if any(parts) else (), shapes=molded, crossing_ppm=known)


def _parts(
    load: Workload, shapes: Sequence[Shaped | None], dividing: Dividing, chance: Random, lines: Mapping[int, Line]
) -> Iterator[Components | Flexible | None]:
    for number, procs, shaped in zip(load.job_id.tolist(), load.procs.tolist(), shapes, strict=True):
        line = lines.get(number)
        if line is not None and line.components:
            if sum(line.components) != procs:
                written = "+".join(map(str, line.components))
                raise BadInput(f"{line.where}: components", f"{written} of a job of {procs}", f"{procs} together")
            yield Components(line.components) if len(line.components) > 1 else None
        else:
            yield None if shaped is not None else dividing.shape(procs, chance)


def _over_clusters(shaped: Shaped | None, dividing: Dividing) -> Shaped | None:
    """A moldable job wider than the threshold, which may be divided when it starts."""
    if shaped is None or shaped.shape.malleable or shaped.shape.most <= dividing.threshold:
        return shaped
    most = dividing.most if dividing.partition in _AT_THE_START else 1
    return shaped._replace(shape=structs.replace(shaped.shape, components=most))
