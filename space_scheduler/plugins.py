"""Policies by name: a preset, an entry point of another package, or a user's own ``module:name``.

``module:name`` is looked for as Python would from the current directory. The object is a policy, or something that
gives one when called without arguments (a class, a function).
"""

import importlib
import sys
from importlib.metadata import entry_points
from typing import Final

from cosched.errors import BadInput, nearest
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.presets import PRESETS, compose

GROUP: Final = "cosched.policies"


def names() -> list[str]:
    """Every policy that has a name here: presets, then entry points."""
    return [*PRESETS, *(entry.name for entry in entry_points(group=GROUP))]


def resolve(name: str | None, order: str | None = None, select: str | None = None) -> Policy:
    """The policy of a name, with another order or selection where given. Raises :class:`BadInput`."""
    if name is None or name in PRESETS:
        preset = PRESETS[name or "fcfs"]
        return compose(order or preset.order, select or preset.select)
    if order or select:
        raise BadInput(
            "--policy", f"{name!r} with --order or --select", "a preset: a policy of your own has its own order"
        )
    if ":" in name:
        return _checked(name, _imported(name))
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                return _checked(name, entry.load())
            except (ImportError, AttributeError) as error:
                raise BadInput(f"policy {name}", f"its entry point {entry.value} cannot be loaded: {error}") from error
    known = names()
    raise BadInput(
        "--policy",
        f"no policy {name!r}",
        "one of " + ", ".join(known) + ", or module:name",
        nearest=nearest(name, known),
    )


def _imported(name: str) -> object:
    module_name, _, attribute = name.partition(":")
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise BadInput(
            f"policy {name}", f"no module {error.name!r}", "a module in the current directory or installed"
        ) from error
    if not hasattr(module, attribute):
        public = [each for each in vars(module) if not each.startswith("_")]
        raise BadInput(
            f"policy {name}",
            f"{module_name} has no {attribute!r}",
            "a policy in it",
            nearest=nearest(attribute, public),
        )
    found: object = getattr(module, attribute)
    return found


def _checked(name: str, found: object) -> Policy:
    made = found() if (callable(found) and not hasattr(found, "plan")) or isinstance(found, type) else found
    missing = [part for part in ("plan", "order") if not callable(getattr(made, part, None))]
    if missing:
        expected = "an object with plan(snapshot) and order(job, rank); see docs/guide/own-policy.md"
        raise BadInput(f"policy {name}", f"{type(made).__name__} has no {' and no '.join(missing)}", expected)
    policy: Policy = made  # type: ignore[assignment]
    return policy
