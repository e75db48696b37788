"""Models by name: the one way in for the command line, the benchmarks and the replications."""

from collections.abc import Mapping
from typing import Final, get_type_hints

import msgspec
import numpy as np

from cosched.errors import BadInput, nearest
from cosched.workload.generators.base import Model, to_log
from cosched.workload.generators.cisne import Cisne
from cosched.workload.generators.feitelson96 import Feitelson96
from cosched.workload.generators.kale02 import Kale02
from cosched.workload.generators.lublin03 import Lublin03
from cosched.workload.generators.ngubiri06 import Ngubiri06
from cosched.workload.generators.poisson import Poisson
from cosched.workload.generators.utrera05 import Utrera05
from cosched.workload.log import Log
from cosched.workload.scaling import to_load
from cosched.workload.shapes import Line

MODELS: Final[dict[str, type[Model]]] = {
    "poisson": Poisson,
    "feitelson96": Feitelson96,
    "lublin03": Lublin03,
    "cisne": Cisne,
    "utrera05": Utrera05,
    "kale02": Kale02,
    "ngubiri06": Ngubiri06,
}


#: How a bound of a parameter is said.
_BOUNDS: Final = {"gt": "above {:g}", "ge": "of at least {:g}", "lt": "below {:g}", "le": "at most {:g}"}


def model(name: str, params: Mapping[str, object] | None = None) -> Model:
    """The model of that name with these parameters (text is converted), or :class:`BadInput` naming the nearest."""
    if name not in MODELS:
        raise BadInput("model", f"{name!r} is not known", ", ".join(MODELS), nearest=nearest(name, MODELS))
    kind = MODELS[name]
    known, hints = kind.__struct_fields__, get_type_hints(kind, include_extras=True)
    read: dict[str, object] = {}
    for key, value in (params or {}).items():
        if key not in known:
            raise BadInput(f"model {name}", f"no parameter {key!r}", ", ".join(known), nearest=nearest(key, known))
        try:
            read[key] = msgspec.convert(value, hints[key], strict=False)
        except msgspec.ValidationError:
            expected, near = _wanted(msgspec.inspect.type_info(hints[key]), str(value))
            raise BadInput(f"model {name}", f"{key} is {value!r}", expected, nearest=near) from None
    return kind(**read)


def _wanted(kind: msgspec.inspect.Type, value: str) -> tuple[str, str]:
    """What a parameter of that type may be, and the choice that is nearest to a value."""
    if isinstance(kind, msgspec.inspect.UnionType):
        kind = kind.types[0]
    if isinstance(kind, msgspec.inspect.EnumType):
        choices = [str(member.value) for member in kind.cls]
        return ", ".join(choices), nearest(value, choices)
    if isinstance(kind, msgspec.inspect.BoolType):
        return "true or false", ""
    if not isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return "a text", ""
    bounds = [words.format(bound) for key, words in _BOUNDS.items() if (bound := getattr(kind, key)) is not None]
    number = "a whole number" if isinstance(kind, msgspec.inspect.IntType) else "a number"
    return f"{number} {' and '.join(bounds)}".rstrip(), ""


def generate(
    name: str,
    jobs: int,
    procs: int,
    rng: np.random.Generator,
    params: Mapping[str, object] | None = None,
    *,
    load: float | None = None,
) -> Log:
    """Generate a log by a model; with ``load``, its inter-arrivals are then scaled to that offered load."""
    return generate_shaped(name, jobs, procs, rng, params, load=load)[0]


def generate_shaped(
    name: str,
    jobs: int,
    procs: int,
    rng: np.random.Generator,
    params: Mapping[str, object] | None = None,
    *,
    load: float | None = None,
) -> tuple[Log, dict[int, Line]]:
    """As :func:`generate`, and what a shapes file says of the jobs, by number; nothing where all are rigid."""
    chosen = model(name, params)
    if jobs < 1:
        raise BadInput("jobs", f"{jobs}", "at least 1")
    if procs < 1:
        raise BadInput("procs", f"{procs}", "at least 1")
    drawn = chosen.draw(jobs, procs, rng)
    log = to_log(name, chosen, procs, drawn)
    lines = dict(enumerate(drawn.shapes, 1))
    return (log if load is None else to_load(log, load, procs_total=procs)), lines
