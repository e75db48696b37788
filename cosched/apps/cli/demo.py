"""``cosched demo``: the main job, once, from nothing: workstations, a user at a desk, parallel jobs, an account."""

import time
from pathlib import Path

import click
import msgspec

from cosched.apps.lab.demo import report
from cosched.apps.lab.demo.play import Outcome, play
from cosched.model.time import humanised, us
from cosched.report.table import console


@click.command("demo")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/demo"), show_default=True, metavar="DIR")
@click.option("--tier", type=click.IntRange(1, 3), help="Which tier of lab to make; the best there is by default.")
@click.option("--short", is_flag=True, help="Four jobs instead of thirteen: half a minute.")
@click.option("--page", is_flag=True, help="Show it in a browser meanwhile.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(out: Path, tier: int | None, short: bool, page: bool, as_json: bool) -> None:
    """Make a four-node lab, run a dozen MPI jobs beside a user at one of its desks, and report.

    Takes about two minutes, and leaves nothing behind but the files in DIR. Exit status 1 when a job that should have
    completed did not.

    \b
    Example: cosched demo
    """
    began_s = time.monotonic()
    outcome = play(out, console(stderr=as_json), tier=tier, short=short, page=page)
    unexpected = report.unexpected(outcome.jobs)
    if as_json:
        click.echo(
            msgspec.json.encode(
                {
                    "tier": outcome.tier,
                    "jobs": outcome.jobs,
                    "desks": outcome.account.desks,
                    "user": outcome.user,
                    "unexpected": unexpected,
                    "out": str(out),
                }
            )
        )
    else:
        _show(outcome, out, unexpected)
        click.echo(f"\nThe lab is gone again; all of it took {humanised(us(round(time.monotonic() - began_s)))}.")
    raise SystemExit(1 if unexpected else 0)


def _show(outcome: Outcome, out: Path, unexpected: list[str]) -> None:
    screen = console()
    screen.print()
    for table in (report.jobs(outcome.jobs), report.kinds(outcome.jobs), report.desks(outcome.account)):
        table.show(screen)
    for line in report.user(outcome.user, outcome.desk):
        screen.print(line, markup=False)
    for line in unexpected:
        screen.print(f"Not as it should be: {line}", markup=False)
    click.echo(
        f"\nLook further:\n"
        f"  {out}/jobs.json             every job with its history and the reasons of every decision\n"
        f"  {out}/job-*.stdout          what the jobs printed: result and verification\n"
        f"  {out}/journal.db            the journal; decide again from it: ./run cosched replay {out}/journal.db\n"
        f"  {out}/metrics.txt           what Prometheus would have scraped\n"
        "  ./run cosched lab up        a lab that stays, for your own jobs: ./run cosched submit -n 4 SCRIPT\n"
        "  ./run cosched compare LOG --policies easy,conservative   the same policies on a real log, simulated"
    )
