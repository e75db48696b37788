"""``cosched replay``: decide again about a live journal's events, and compare with what was decided."""

from pathlib import Path

import click
import msgspec

import cosched
from cosched.errors import BadInput
from space_scheduler.replay import replay


@click.command("replay")
@click.argument("journal", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(journal: Path, as_json: bool) -> int:
    """Replay the JOURNAL of a live scheduler (journal.db, or its directory) in the simulator's core.

    The same events at the same times must give the same instructions, in the same order, byte for byte. Nothing is
    changed, and the scheduler may be running. Exit status 1 and the first difference, where there is one.

    \b
    Example: cosched replay /var/lib/cosched/scheduler
    """
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
