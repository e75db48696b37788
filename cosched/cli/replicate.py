"""``cosched replicate``: a paper's experiments, its numbers beside ours, and a verdict for each of its claims."""

from pathlib import Path

import click

from cosched.cli.outputs import check_directory
from cosched.cli.progress import Progress
from cosched.replicate import result as results
from cosched.replicate.papers import Request, replicate
from cosched.report.table import console


@click.command("replicate")
@click.argument("paper")
@click.argument("log", required=False)
@click.option("--quick", is_flag=True, help="Smaller runs, few seeds: an answer within a minute.")
@click.option("--seeds", type=click.IntRange(1, 1000), help="Seeds of what is drawn [default: 20, quick: 3].")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Simulations at a time.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write tables, plots, claims and a manifest."
)
@click.option("--real", is_flag=True, help="Run the paper's real part, where it has one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    paper: str, log: str | None, quick: bool, seeds: int | None, jobs: int, out: Path | None, real: bool, as_json: bool
) -> None:
    """Repeat the experiments of PAPER and judge its claims.

    PAPER is backfilling (Feitelson & Weil 1998) or cisne (Hanzich et al. 2005, simulated).

    LOG is another log than the paper's. A claim that fails is a finding, not an error: the exit status is 0.

    \b
    Examples:
      cosched replicate backfilling --quick
      cosched replicate backfilling --out results
      cosched replicate cisne --out results
    """
    if out:
        check_directory(out)
    request = Request(paper=paper, log=log, quick=quick, seeds=seeds, workers=jobs, real=real)
    found = replicate(request, Progress)
    if out:
        results.write(found, out)
    if as_json:
        click.echo(results.as_json(results.document(found)))
        return
    results.show(found, console())
    if out:
        click.echo(f"Written to {out}: see manifest.json for the list.")
