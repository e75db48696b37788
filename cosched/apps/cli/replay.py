"""``cosched replay``: decide again about a live journal's events, and compare with what was decided."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

import cosched
from cosched.apps.cli.shared.verb import Answer, says
from cosched.errors import BadInput
from space_scheduler.replay import Replay, replay


@click.command("replay")
@click.argument("journal", type=click.Path(path_type=Path))
@click.option("--inputs", is_flag=True, help="JOURNAL is a record of cosched scheduler --record.")
@says
def command(journal: Path, inputs: bool) -> Answer:
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
        return _inputs(journal)
    path = journal / "journal.db" if journal.is_dir() else journal
    if not path.exists():
        raise BadInput(str(path), "no such file", "the journal of a scheduler")
    found = replay(path)
    document = msgspec.structs.asdict(found) | {"agrees": found.agrees, "this_software": cosched.__version__}
    return Answer(document, _told(found), status=0 if found.agrees else 1)


def _told(found: Replay) -> Iterator[str]:
    from_seq = f" from event {found.first_seq} on" if found.first_seq > 1 else ""
    yield (
        f"{found.events} events, {found.passes} passes of {', '.join(found.policies)}{from_seq}: "
        f"{found.instructions} instructions as recorded."
    )
    if other := [version for version in found.software if version != cosched.__version__]:
        yield f"Made by cosched {', '.join(other)}; this is {cosched.__version__}, which may decide otherwise."
    if found.difference:
        yield f"Different at {found.difference}"


def _inputs(path: Path) -> Answer:
    """A record of inputs, taken in again."""
    from space_scheduler.service.recorder import take_in_again  # noqa: PLC0415 (slow to import, for this option only)

    found = take_in_again(path)
    difference, same = found.difference, found.difference is None
    lines = [f"{found.inputs} inputs, {found.effects} effects{' as recorded' if same else ''}."]
    if found.torn:
        lines.append("The last input is not whole: the scheduler was ended as it was written.")
    if found.software != cosched.__version__:
        lines.append(f"Made by cosched {found.software}; this is {cosched.__version__}, which may do otherwise.")
    if difference is not None:
        lines.append(f"Different at input {difference.number}: {difference.happened}")
        lines += [f"  then: {difference.was}", f"  now:  {difference.now}"]
    agrees = {"agrees": same, "this_software": cosched.__version__}
    return Answer(msgspec.to_builtins(found) | agrees, lines, status=0 if same else 1)
