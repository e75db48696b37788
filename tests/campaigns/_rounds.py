"""What campaigns of rounds have in common: which are asked for, and those in which a live policy changes shapes."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from campaigns.faults import Broken, Field, Round, asked
from cosched.apps.lab.lab import Lab
from cosched.errors import Failed
from space_scheduler.replay import replay


class Shapes(NamedTuple):
    """A campaign on a lab whose policy changes shapes: its name, what a round does, its phase, the lab, the policy."""

    name: str
    field: Callable[[Lab, Path], Field]
    phase: str
    nodes: int
    cpus: int
    policy: str


def tried(campaign: Shapes, faults: Sequence[Round], say: Callable[[str], None] = print) -> Counter[str]:
    """All these rounds on one lab; how often what came of them. Raises :class:`Broken`, with the command.

    At the end the lab's journal is decided again.
    """
    came: Counter[str] = Counter()
    how = {"nodes": campaign.nodes, "cpus": campaign.cpus, "policy": campaign.policy}
    with (
        tempfile.TemporaryDirectory() as name,
        Lab.up(name=f"{campaign.name}-{os.getpid()}", keep=[name], **how) as lab,  # type: ignore[arg-type]
    ):
        if lab.tier != 1:
            raise SystemExit(f"needs a lab of tier 1: {lab.why}")
        field = campaign.field(lab, Path(name))
        for fault in faults:
            try:
                field.run(fault)
            except (Broken, Failed) as error:
                again = f"--only {fault.site} --rounds 1 --from {fault.number} --seed {fault.seed}"
                raise Broken(f"{fault.site}: {error}\nrepeat it: ./run campaign {campaign.name} {again}") from None
            came += fault.outcomes + Counter({f"{fault.site} met": fault.fired})
            outcomes = ", ".join(f"{count} {state}" for state, count in sorted(fault.outcomes.items()))
            say(f"{fault.site:10} {'met' if fault.fired else 'missed':7} {outcomes}")
        found = replay(lab.journal)
        if found.difference is not None or found.instructions < 2 * len(faults):
            raise Broken(f"the journal decided again: {found.difference}, {found.instructions} instructions")
    return came


def main(campaign: Shapes, about: str, sites: Sequence[str], count: int) -> None:
    """Try what is asked for, and print what came of it."""
    options, only = asked(campaign.name, about, sites, count)
    numbers = range(options.first, options.first + options.rounds)
    faults = [Round(site, campaign.phase, number, options.seed) for number in numbers for site in only]
    try:
        came = tried(campaign, faults)
    except Broken as error:
        raise SystemExit(str(error)) from None
    print(", ".join(f"{times} {what}" for what, times in sorted(came.items())))
