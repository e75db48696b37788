"""``cosched policies``: what can be given to ``--policy``, ``--order`` and ``--select``."""

from collections.abc import Sequence

import click

from cosched.apps.cli.shared.verb import Answer, says
from cosched.report.table import Table
from space_scheduler import plugins
from space_scheduler.policy.order import ORDERS
from space_scheduler.policy.place import VARIANTS
from space_scheduler.policy.presets import PRESETS, SELECTIONS
from space_scheduler.policy.presets.reshaping import RESHAPING


@click.command("policies")
@says
def command() -> Answer:
    """List policies, orders and selections.

    \b
    Example: cosched policies
    """
    others = plugins.names()[len(PRESETS) + len(RESHAPING) :]
    presets: list[Sequence[str]] = [
        *((name, preset.order, preset.select, preset.about) for name, preset in PRESETS.items()),
        *((name, "fcfs", "its own", reshaping.about) for name, reshaping in RESHAPING.items()),
        *((name, "its own", "its own", "from an entry point of another package") for name in others),
    ]
    variants = "Variants of policies that choose nodes, as in normal(overcommit=1.5)"
    options = {name: ", ".join(each.options) for name, each in RESHAPING.items() if each.options}
    orders = {name: (order.__doc__ or "").strip() for name, order in ORDERS.items()}
    tables = {
        "policies": Table("Policies (--policy)", ("policy", "order", "select", "what it does"), presets),
        "orders": Table("Orders (--order)", ("order", "what it does"), [*orders.items()]),
        "selections": Table("Selections (--select)", ("selection", "what it does"), [*SELECTIONS.items()]),
        "variants": Table(variants, ("variant", "what it does"), [*VARIANTS.items()]),
        "options": Table("Options, as in fjt1+bfm(short,expired=remain)", ("policy", "options"), [*options.items()]),
    }
    own = "A policy of your own: --policy module:name (docs/guide/own-policy.md)."
    return Answer({name: table.as_dicts() for name, table in tables.items()}, [*tables.values(), own])
