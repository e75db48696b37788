"""Policies and rules of eligibility by name: ours, an entry point of another package, a user's own ``module:name``.

``module:name`` is looked for as Python would from the current directory, or from one that is named. The object is one,
or something that gives one when called without arguments (a class, a function).
"""

import importlib
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cosched.errors import BadInput, nearest
from cosched.model.job import Job
from space_scheduler.eligibility.dependency import DEPENDENCY
from space_scheduler.eligibility.rule import Moment, Rule, Wait
from space_scheduler.machine.rules import BadPlan
from space_scheduler.policy.interface import Plan, PlannedChange, Policy, Snapshot, traits_of
from space_scheduler.policy.order import Key
from space_scheduler.policy.place import mpl_of, place_of
from space_scheduler.policy.presets import PRESETS, compose
from space_scheduler.policy.presets.reshaping import RESHAPING, reshaping

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP: Final = "cosched.policies"
RULES: Final = "cosched.eligibility"
Answer = TypeVar("Answer")


def names() -> list[str]:
    """Every policy that has a name here: presets, those for jobs of several widths, then entry points."""
    return [*PRESETS, *RESHAPING, *(entry.name for entry in entry_points(group=GROUP))]


def entry_points(group: str) -> "EntryPoints":
    """What other packages offer; a command that asks for a preset does without the 10 ms that this takes."""
    from importlib import metadata  # noqa: PLC0415 (as said)

    return metadata.entry_points(group=group)


def resolve(
    name: str | None,
    order: str | None = None,
    select: str | None = None,
    *,
    where: str = "--policy",
    directory: str | None = None,
    fjt: str = "largest",
) -> Policy:
    """The policy of a name, with another order or selection where given.

    A preset that chooses nodes may have variants of its place, ``uniform-hard(subset)`` (``policy.place``), and one for
    jobs of several widths options (``presets.reshaping``); ``fjt`` is the size of a moldable job. Raises
    :class:`BadInput`; ``where`` is the option or key that the name was given by. A module of one's own is looked for in
    ``directory`` first (None: the current one; empty: nowhere but where Python has what is installed).
    """
    base, bracket, variants = (name or "fcfs").partition("(")
    if base in PRESETS:
        preset = PRESETS[base]
        if bracket and preset.argument:
            if not variants.endswith(")"):
                raise BadInput(where, f"{name!r}", f"a number of jumps in parentheses: {base}(10)")
            number, bracket, variants = _argument(variants)
            select = select or (f"{preset.argument}({number})" if number else None)
        if bracket and not preset.place:
            raise BadInput(where, f"{name!r}", f"{base} without variants: it leaves the nodes to the machine")
        place = preset.place + bracket + variants
        if place:
            place_of(place, where)
        beside = f"{where.removesuffix('policy')}order" if where.endswith("policy") else "--order"
        return compose(order or preset.order, select or preset.select, place, preset.mpl, where=beside)
    assert name is not None
    if (reshapes := reshaping(name, order, fjt, where)) is not None:
        if select:
            raise BadInput(where, f"{name!r} with --select", f"{base} alone: it selects for itself")
        return reshapes
    if order or select:
        raise BadInput(where, f"{name!r} with --order or --select", "a preset: a policy of your own has its own order")
    if ":" in name:
        return _checked(name, _imported(name, where, directory))
    if (loaded := _installed(GROUP, name, "policy")) is not None:
        return _checked(name, loaded)
    known = names()
    raise BadInput(
        where,
        f"no policy {name!r}",
        "one of " + ", ".join(known) + ", or module:name",
        nearest=nearest(name, known),
    )


def rules(given: Sequence[str], *, where: str = "eligibility", directory: str | None = None) -> tuple[Rule, ...]:
    """The rules of eligibility of these names, in this order: ``dependency``, entry points, ``module:name``.

    Raises :class:`BadInput`; ``where`` and ``directory`` as for :func:`resolve`.
    """
    if twice := sorted({name for name in given if given.count(name) > 1}):
        raise BadInput(where, f"{twice[0]!r} twice", "each rule once")
    return tuple(_rule(name, where, directory) for name in given)


def _rule(name: str, where: str, directory: str | None) -> Rule:
    if name == DEPENDENCY.name:
        return DEPENDENCY
    found = _imported(name, where, directory, "rule") if ":" in name else _installed(RULES, name, "rule")
    if found is None:
        known = [DEPENDENCY.name, *(entry.name for entry in entry_points(group=RULES))]
        expected = "one of " + ", ".join(known) + ", or module:name"
        raise BadInput(where, f"no rule {name!r}", expected, nearest=nearest(name, known))
    try:
        made = found() if isinstance(found, type) or not hasattr(found, "wait") else found  # type: ignore[operator]
    except TypeError as error:
        raise BadInput(f"rule {name}", f"it cannot be made: {error}", "something that needs no arguments") from error
    if not callable(getattr(made, "wait", None)):
        expected = "an object with wait(job, moment); see docs/guide/own-policy.md"
        raise BadInput(f"rule {name}", f"{type(made).__name__} has no wait", expected)
    return _OwnRule(name, made)


class _OwnRule:
    """A user's own rule, by the name under which it was asked for."""

    def __init__(self, name: str, rule: Any) -> None:
        self.name = name
        self._rule = rule

    def wait(self, job: Job, moment: Moment) -> Wait | None:
        """What it says; what goes wrong in it is told by ``Gates``."""
        found: Wait | None = self._rule.wait(job, moment)
        return found


def _installed(group: str, name: str, kind: str) -> object | None:
    """What an entry point offers; None where there is none of that name."""
    for entry in entry_points(group=group):
        if entry.name == name:
            try:
                loaded: object = entry.load()
            except (Exception, SystemExit) as error:
                found = f"its entry point {entry.value} cannot be loaded: {_told(error)}"
                raise BadInput(f"{kind} {name}", found, "one that can be imported") from error
            return loaded
    return None


def _argument(text: str) -> tuple[str, str, str]:
    """The number before the variants in a name's parentheses, if there is one, and the variants with their bracket."""
    first, _, rest = text.removesuffix(")").partition(",")
    if not first.strip().isdecimal():
        return "", "(", text
    return (first.strip(), "(", f"{rest})") if rest else (first.strip(), "", "")


def _imported(name: str, where: str, directory: str | None, kind: str = "policy") -> object:
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), attribute]):
        raise BadInput(where, f"{name!r}", "module:name, such as mypolicy:MyPolicy")
    if directory is None and "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    elif directory and directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        there = "in the current directory or installed" if directory is None else f"in {directory} or installed"
        expected = f"a module {there}" if directory != "" else "an installed module, or policy_directory, where it lies"
        raise BadInput(f"{kind} {name}", f"no module {error.name!r}", expected) from error
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}" if error.filename else f"{kind} {name}"
        raise BadInput(where, str(error.msg), "a module that Python can read") from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"{kind} {name}", f"its module fails: {_told(error)}", "one that can be imported") from error
    if not hasattr(module, attribute):
        public = [each for each in vars(module) if not each.startswith("_")]
        raise BadInput(
            f"{kind} {name}",
            f"{module_name} has no {attribute!r}",
            f"a {kind} in it",
            nearest=nearest(attribute, public),
        )
    found: object = getattr(module, attribute)
    return found


def _checked(name: str, found: object) -> Policy:
    try:
        made = found() if (callable(found) and not hasattr(found, "plan")) or isinstance(found, type) else found
    except TypeError as error:
        raise BadInput(f"policy {name}", f"it cannot be made: {error}", "something that needs no arguments") from error
    missing = [part for part in ("plan", "order") if not callable(getattr(made, part, None))]
    if missing:
        expected = "an object with plan(snapshot) and order(job, rank); see docs/guide/own-policy.md"
        raise BadInput(f"policy {name}", f"{type(made).__name__} has no {' and no '.join(missing)}", expected)
    _check_traits(name, made)  # type: ignore[arg-type]
    guarded = _SelfChecking if callable(getattr(made, "validate", None)) else _Guarded
    return guarded(name, made)  # type: ignore[arg-type]


def _check_traits(policy_name: str, policy: Policy) -> None:
    """Raise :class:`BadInput` for what a policy cannot declare."""
    traits, where = traits_of(policy), f"policy {policy_name}"
    for name in ("shares", "reshapes"):
        if not isinstance(value := getattr(traits, name), bool):
            raise BadInput(where, f"{name} is {value!r}", "True or False")
    if not isinstance(traits.alone_because, str):
        raise BadInput(where, f"alone_because is {traits.alone_because!r}", "a sentence")
    if not isinstance(traits.place, str):
        raise BadInput(where, f"place is {traits.place!r}", "the name of a way of placing")
    if traits.place:
        place_of(traits.place, f"{where}: place")
    if mpl_of(traits.place) not in (None, traits.mpl):
        raise BadInput(where, f"place is {traits.place!r}", f"mpl = {mpl_of(traits.place)} as an attribute of its own")
    if traits.mpl is not None and (not isinstance(traits.mpl, int) or isinstance(traits.mpl, bool) or traits.mpl < 1):
        raise BadInput(where, f"mpl is {traits.mpl!r}", "a whole number of at least 1, or None")


def _told(error: BaseException) -> str:
    """What was raised, and in which line."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"


class _Guarded:
    """A user's own policy: what goes wrong in it is told as its error, not as the scheduler's."""

    def __init__(self, name: str, policy: Policy) -> None:
        self._name = name
        self._policy = policy

        self.shares, self.place, self.mpl, self.memory_type, self.alone_because, self.reshapes = traits_of(policy)

    def __str__(self) -> str:
        return f"policy {self._name}"

    def order(self, job: Job, rank: int) -> Key:
        """The policy's sort key."""
        return self._asked(self._policy.order, job, rank)

    def plan(self, snapshot: Snapshot) -> Plan:
        """The policy's plan."""
        plan = self._asked(self._policy.plan, snapshot)
        if not isinstance(plan, Plan):
            raise BadPlan(f"policy {self._name}: plan() gave {type(plan).__name__}, expected a Plan")
        if plan.wake_us is not None and not isinstance(plan.wake_us, int):
            raise BadPlan(f"policy {self._name}: wake_us is {plan.wake_us!r}, expected whole microseconds")
        if not all(isinstance(change, PlannedChange) for change in plan.changes):
            raise BadPlan(
                f"policy {self._name}: changes has something that is no PlannedStart, PlannedResize or PlannedRequeue"
            )
        return plan

    def _asked(self, method: Callable[..., Answer], *arguments: object) -> Answer:
        try:
            return method(*arguments)
        except (Exception, SystemExit) as error:
            raise BadPlan(f"policy {self._name}: {_told(error)}", getattr(error, "job_id", None)) from error


class _SelfChecking(_Guarded):
    """One that can check its own memory."""

    def validate(self, snapshot: Snapshot) -> None:
        """The policy's own check: its AssertionError is a finding about it."""
        self._policy.validate(snapshot)  # type: ignore[attr-defined]
