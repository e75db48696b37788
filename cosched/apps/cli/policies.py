"""``cosched policies``: what can be given to ``--policy``, ``--order`` and ``--select``."""

import click
import msgspec

from cosched.report.table import Table, console
from space_scheduler import plugins
from space_scheduler.policy.order import ORDERS
from space_scheduler.policy.place import VARIANTS
from space_scheduler.policy.presets import PRESETS, SELECTIONS
from space_scheduler.policy.presets.reshaping import RESHAPING


@click.command("policies")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List policies, orders and selections.

    \b
    Example: cosched policies
    """
    presets = Table("Policies (--policy)", ("policy", "order", "select", "what it does"))
    for name, preset in PRESETS.items():
        presets.add(name, preset.order, preset.select, preset.about)
    for name, reshaping in RESHAPING.items():
        presets.add(name, "fcfs", "its own", reshaping.about)
    for name in plugins.names()[len(PRESETS) + len(RESHAPING) :]:
        presets.add(name, "its own", "its own", "from an entry point of another package")
    orders = Table("Orders (--order)", ("order", "what it does"))
    for name, order in ORDERS.items():
        orders.add(name, (order.__doc__ or "").strip())
    selections = Table("Selections (--select)", ("selection", "what it does"))
    for name, about in SELECTIONS.items():
        selections.add(name, about)
    variants = Table(
        "Variants of policies that choose nodes, as in normal(overcommit=1.5)", ("variant", "what it does")
    )
    for name, about in VARIANTS.items():
        variants.add(name, about)
    options = Table("Options, as in fjt1+bfm(short,expired=remain)", ("policy", "options"))
    for name, reshaping in RESHAPING.items():
        if reshaping.options:
            options.add(name, ", ".join(reshaping.options))
    if as_json:
        tables = {
            "policies": presets,
            "orders": orders,
            "selections": selections,
            "variants": variants,
            "options": options,
        }
        click.echo(msgspec.json.encode({name: table.as_dicts() for name, table in tables.items()}))
        return
    for table in (presets, orders, selections, variants, options):
        table.show(console())
    click.echo("A policy of your own: --policy module:name (docs/guide/own-policy.md).")
