"""``cosched replay``: decide again about a live journal's events, and compare with what was decided."""

from pathlib import Path

import click
import msgspec

import cosched
from cosched.errors import BadInput
from space_scheduler.replay import replay


@click.command("replay")
@click.argument("journal", type=click.Path(path_type=Path))
@click.option("--inputs", is_flag=True, help="JOURNAL is a record of cosched scheduler --record.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(journal: Path, inputs: bool, as_json: bool) -> int:
    """Replay the JOURNAL of a live scheduler (journal.db, or its directory) in the simulator's core.

    The same events at the same times must give the same instructions, in the same order, byte for byte. Nothing is
    changed, and the scheduler may be running. Exit status 1 and the first difference, where there is one.

    With --inputs, all that happened to a scheduler (agents' calls and words, leases, time-outs, its journal's events)
    is taken in again by the same rules, which must want the same done.

    \b
    Examples: cosched replay /var/lib/cosched/scheduler
              cosched replay --inputs night.record
    """
    if inputs:
        return _inputs(journal, as_json)
    path = journal / "journal.db" if journal.is_dir() else journal
    if not path.exists():
        raise BadInput(str(path), "no such file", "the journal of a scheduler")
    found = replay(path)
    other = [version for version in found.software if version != cosched.__version__]
    if as_json:
        document = msgspec.structs.asdict(found) | {"agrees": found.agrees, "this_software": cosched.__version__}
        click.echo(msgspec.json.encode(document))
        return 0 if found.agrees else 1
    from_seq = f" from event {found.first_seq} on" if found.first_seq > 1 else ""
    click.echo(
        f"{found.events} events, {found.passes} passes of {', '.join(found.policies)}{from_seq}: "
        f"{found.instructions} instructions as recorded."
    )
    if other:
        click.echo(f"Made by cosched {', '.join(other)}; this is {cosched.__version__}, which may decide otherwise.")
    if found.difference:
        click.echo(f"Different at {found.difference}")
        return 1
    return 0


def _inputs(path: Path, as_json: bool) -> int:
    """A record of inputs, taken in again."""
    from space_scheduler.service.recorder import take_in_again  # noqa: PLC0415 (slow to import, for this option only)

    found = take_in_again(path)
    if as_json:
        agrees = {"agrees": found.difference is None, "this_software": cosched.__version__}
        click.echo(msgspec.json.encode(msgspec.to_builtins(found) | agrees))
        return 1 if found.difference else 0
    click.echo(f"{found.inputs} inputs, {found.effects} effects{' as recorded' if not found.difference else ''}.")
    if found.torn:
        click.echo("The last input is not whole: the scheduler was ended as it was written.")
    if found.software != cosched.__version__:
        click.echo(f"Made by cosched {found.software}; this is {cosched.__version__}, which may do otherwise.")
    if (difference := found.difference) is not None:
        click.echo(f"Different at input {difference.number}: {difference.happened}")
        click.echo(f"  then: {difference.was}")
        click.echo(f"  now:  {difference.now}")
        return 1
    return 0
