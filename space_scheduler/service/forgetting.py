"""What the scheduler keeps forgets a user: journal, tokens, revoked certificates.

For ``cosched scheduler --forget``, while no scheduler runs: it rewrites the whole file, and it removes evidence, which
is for the administrator of the host and not for every operator. After a crash at any moment the journal has all of it
or nothing, and running the command again completes it.
"""

import shlex
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput, Failed, nearest
from cosched.install.layout import ROOT
from space_scheduler.service.access.members import Members
from space_scheduler.service.access.tokens import Tokens
from space_scheduler.service.journal.backup import acting_as_owner
from space_scheduler.service.journal.forgetting import FORGOTTEN, Left, Removed
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.reading import Saved
from space_scheduler.service.journal.recovery import rebuild
from space_scheduler.service.journal.schema import JournalRefused, readable

#: Of a name that is said back, and of numbers of jobs in a line.
_MOST_CHARACTERS: Final = 64
_MOST_JOBS: Final = 10


def forget(config: ClusterConfig, where: str, user: str) -> list[str]:
    """Forget a user; what was removed and what is left, a line each. ``where`` is the settings' file.

    Raises :class:`BadInput` for a user that is not known, :class:`Failed` for one whose jobs have not ended,
    ``JournalRefused`` where a scheduler runs or the journal is damaged, and ``JournalUnwritable``.
    """
    state = Path(config.state)
    path = state / "journal.db"
    with acting_as_owner(state), readable(path):
        if not path.exists():
            raise JournalRefused(f"journal {path}: no such file")
        with closing(Journal(path)) as journal:
            members, tokens = Members(state / "members.json", config.nodes), Tokens(state / "tokens.json")
            known = journal.users() | {each.user for each in tokens.all()}
            known |= {name for kind, name in members.revocations().values() if kind == "user"} - {FORGOTTEN}
            if user not in known:
                if journal.overwrite_due:
                    journal.overwrite()
                    return ["completed what was cut short before; nothing here has that name"]
                shown, expected = user[:_MOST_CHARACTERS], "a user with jobs, tokens or certificates here"
                raise BadInput("--forget", repr(shown), expected, nearest=nearest(shown, known))
            if alive := [job_id for job_id, record in journal.alive().items() if record.user == user]:
                raise Failed(
                    f"--forget: {user} has jobs that have not ended: {_numbers(alive)}; nothing has changed. Start the "
                    f"scheduler, end them ('cosched cancel ID'), stop it and repeat this"
                )
            at_end = rebuild(journal).snapshot()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            removed = journal.forget(user, Saved(journal.seq, at_end.now_us, journal.chain, at_end), now)
            gone, revoked = tokens.forget(user), members.forget(user)
            journal.overwrite()
            found = journal.naming(user)
    return [
        *_removed(removed, gone, revoked),
        "left, each with what removes it:",
        *(f"  {line}" for line in _left(config, where, user, found)),
    ]


def _removed(removed: Removed, tokens: int, revoked: int) -> list[str]:
    replays = f", all up to {removed.last_seq}: a replay begins after it" if removed.events else ""
    return [
        f"jobs removed, with script, environment, records and story: {removed.jobs}",
        f"steps of other users' jobs without the name, which is now {FORGOTTEN!r}: {removed.steps}",
        f"events removed: {removed.events}{replays}",
        f"tokens removed, which open nothing any more: {tokens}",
        f"revoked certificates that stay revoked, without the name: {revoked}",
    ]


def _left(config: ClusterConfig, where: str, user: str, found: Left) -> Iterator[str]:
    word = shlex.quote(user)
    if user in config.operators and user != ROOT:
        yield f"operators in {where}: take the name out, and start the scheduler"
    if found.jobs:
        yield f"other users' jobs with that word in their texts: {_numbers(found.jobs)}: keep_jobs drops them"
    for node in found.nodes:
        yield f"the reason of the drain of {node}: cosched node resume {node}, then this again"
    for copy in _copies(Path(config.state)):
        yield f"a copy of the journal, of a conversion, an upgrade or --restore: rm -r {shlex.quote(str(copy))}"
    revoke = f"cosched identity revoke user {word} --authority DIR"
    match = shlex.quote(f'match[]=cosched_user_cpu_seconds_total{{user="{user}"}}')
    yield from (
        "backups (--backup) and records (--record) made before: rm, wherever they are",
        f"certificates that were not revoked, and count: {revoke} beside a scheduler that runs, then this again",
        "the list of all certificates that were issued: DIR/issued of the authority, by an editor",
        f"desks that have banned the user: cosched desk allow {word}, at the desk",
        "output of the jobs at their nodes: goes after output.keep (30d) by itself",
        "logs of this host and of the nodes: journalctl --rotate --vacuum-time=1s",
        f"Prometheus: curl --data-urlencode {match} http://HOST:9090/api/v1/admin/tsdb/delete_series",
    )


def _copies(state: Path) -> list[Path]:
    """What conversions, ``--restore`` and upgrades have laid beside the journal and its directory."""
    return [
        *sorted([*state.glob("journal.db.format*"), *state.glob("journal.db.replaced.*")]),
        *sorted(state.parent.glob(f"{state.name}.*")),
    ]


def _numbers(jobs: list[int]) -> str:
    more = f" and {len(jobs) - _MOST_JOBS} more" if len(jobs) > _MOST_JOBS else ""
    return ", ".join(map(str, jobs[:_MOST_JOBS])) + more
