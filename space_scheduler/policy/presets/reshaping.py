"""Named policies for jobs that change shape, with options in brackets: ``fjt1+bfm(short,expired=remain)``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cosched.errors import BadInput, nearest
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.order import ORDERS
from space_scheduler.policy.reshape.equipartition import Equipartition, Evolving, Strategy
from space_scheduler.policy.reshape.folding import Expired, MoldableBackfill, Window
from space_scheduler.policy.reshape.mold import FOLD, Fjt, parse

#: What an option sets, by its text; one that ends in "=" wants a number.
Options = Mapping[str, Mapping[str, Any]]

#: Which size moldable jobs get, in the name itself: a live service has no other place for it.
_SIZES: Final = "fjt="
_FOLDING: Final[Options] = {
    "candidates=any": {"short_only": False},
    "candidates=short": {"short_only": True},
    "short": {"short_only": True},
    **{f"expired={each}": {"expired": each} for each in Expired},
    **{f"window={each}": {"window": each} for each in Window},
    "partial": {"partial": True},
    "unfold=idle": {"busy_unfold": False},
    "unfold=always": {"busy_unfold": True},
    _SIZES: {},
}
_EQUIPARTITION: Final[Options] = {
    **{f"{each}": {"strategy": each} for each in Strategy},
    **{f"{each}": {"evolving": each} for each in Evolving},
    "easy": {"reserve": True},
    "in-order": {"in_order": True},
    "threshold=": {"threshold": int},
}


@dataclass(frozen=True)
class Reshaping:
    """A policy by name: what makes it, its options, and what it is."""

    make: Callable[[Fjt], Policy]
    options: Options
    about: str


def _fjt4(sizes: Fjt) -> Fjt:
    return replace(sizes, fold=FOLD)


RESHAPING: Final[dict[str, Reshaping]] = {
    "fifo": Reshaping(
        lambda _: MoldableBackfill(Fjt(all_of_it=True), backfill=False),
        {},
        "moldable jobs in their largest size, in order, nobody passes (Utrera et al. 2005)",
    ),
    "fjt4": Reshaping(
        lambda sizes: MoldableBackfill(_fjt4(sizes), backfill=False, busy_unfold=True),
        _FOLDING,
        "moldable jobs in the size that is free; long ones may start folded up to four times",
    ),
    "fjt4+bfa": Reshaping(
        lambda sizes: MoldableBackfill(_fjt4(sizes), expired=Expired.ABORT, busy_unfold=True),
        _FOLDING,
        "FJT4 with backfilling; backfilled jobs are ended and queued again when their window has expired",
    ),
    "fjt1+bfa": Reshaping(
        lambda sizes: MoldableBackfill(sizes, expired=Expired.ABORT),
        _FOLDING,
        "moldable jobs, backfilled without estimates, ended and queued again when their window has expired",
    ),
    "fjt1+bfm": Reshaping(
        MoldableBackfill,
        _FOLDING,
        "moldable jobs, backfilled without estimates, folded when their window has expired (Utrera et al. 2005)",
    ),
    "equipartition": Reshaping(
        lambda _: Equipartition(),
        _EQUIPARTITION,
        "malleable jobs share all processors: each its minimum, and equal parts of the rest (Kalé et al. 2002)",
    ),
}


def reshaping(name: str, order: str | None, fjt: str, where: str) -> Policy | None:
    """The policy of a name with its options, or None where the name is none of these. Raises :class:`BadInput`.

    ``where`` is the option or key that the name was given by; ``fjt`` says which size moldable jobs get.
    """
    base, bracket, rest = name.partition("(")
    preset = RESHAPING.get(base)
    if preset is None:
        return None
    if order is not None and order not in ORDERS:
        expected = "one of " + ", ".join(ORDERS)
        raise BadInput("--order", f"no order {order!r}", expected, nearest=nearest(order, ORDERS))
    set_by: dict[str, Any] = {} if order is None else {"order": ORDERS[order]}
    sizes = parse(fjt)
    if bracket:
        if not rest.endswith(")"):
            raise BadInput(where, f"{name!r}", f"{base} or {base}(OPTION,...)")
        for text in map(str.strip, rest[:-1].split(",")):
            if text.startswith(_SIZES) and _SIZES in preset.options:
                sizes = parse(text.removeprefix(_SIZES), f"{where}: {_SIZES.rstrip('=')}")
            else:
                set_by |= _option(text, preset.options, name, where)
    policy: Any = preset.make(sizes)
    made: Policy = replace(policy, **set_by) if set_by else policy
    return made


def _option(text: str, options: Options, name: str, where: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if text in options:
        return dict(options[text])
    if equals and f"{key}=" in options:
        if not value.isdecimal() or len(value) > 9:
            raise BadInput(where, f"{text!r} in {name!r}", f"{key}= and a whole number")
        return {key: int(value)}
    expected = "one of " + ", ".join(options) if options else "nothing in brackets"
    raise BadInput(where, f"no option {text!r} in {name!r}", expected, nearest=nearest(text, options))
