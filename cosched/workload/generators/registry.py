"""Models by name: the one way in for the command line, the benchmarks and the replications."""

import re
from collections.abc import Mapping
from enum import Enum
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


def model(name: str, params: Mapping[str, object] | None = None) -> Model:
    """The model of that name with these parameters (text is converted), or :class:`BadInput` naming the nearest."""
    if name not in MODELS:
        raise BadInput("model", f"{name!r} is not known", ", ".join(MODELS), nearest=nearest(name, MODELS))
    kind, params = MODELS[name], params or {}
    for key in params:
        if key not in kind.__struct_fields__:
            known = kind.__struct_fields__
            raise BadInput(f"model {name}", f"no parameter {key!r}", ", ".join(known), nearest=nearest(key, known))
    try:
        return msgspec.convert(params, kind, strict=False)
    except msgspec.ValidationError as error:
        key = found[1] if (found := re.search(r"`\$\.(\w+)`", str(error))) else ""
        value = params.get(key)
        wanted = get_type_hints(kind).get(key)
        where, what = f"model {name}", f"{key} is {value!r}"
        if isinstance(wanted, type) and issubclass(wanted, Enum):
            choices = [str(member.value) for member in wanted]
            raise BadInput(where, what, ", ".join(choices), nearest=nearest(str(value), choices)) from None
        raise BadInput(where, what, str(error).partition(" - at ")[0].removeprefix("Expected ")) from None


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
