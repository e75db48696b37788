"""``cosched replicate``: a paper's experiments, its numbers beside ours, and a verdict for each of its claims."""

from pathlib import Path

import click

from cosched.apps.cli.outputs import check_directory
from cosched.apps.cli.progress import Progress
from cosched.apps.experiments.cisne_real import replicate_real
from cosched.apps.replicate import result as results
from cosched.apps.replicate.papers import Request, replicate
from cosched.errors import BadInput
from cosched.report.table import console


@click.command("replicate")
@click.argument("paper")
@click.argument("log", required=False)
@click.option("--quick", is_flag=True, help="Smaller runs, few seeds: an answer within a minute.")
@click.option(
    "--seeds", type=click.IntRange(0, 1000), help="Seeds of what is drawn [default: the paper's; quick, real: 3]."
)
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Simulations at a time.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write tables, plots, claims and a manifest."
)
@click.option("--real", is_flag=True, help="Run the paper's real part, where it has one: on labs, for hours.")
@click.option("--experiments", metavar="LIST", help="With --real: only these, such as coscheduling,policies.")
@click.option("--add", is_flag=True, help="With --real: add to the trials of --out; with --seeds 0 only judge them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    paper: str,
    log: str | None,
    quick: bool,
    seeds: int | None,
    jobs: int,
    out: Path | None,
    real: bool,
    experiments: str | None,
    add: bool,
    as_json: bool,
) -> None:
    """Repeat the experiments of PAPER and judge its claims.

    PAPER is backfilling (Feitelson & Weil 1998), adaptive (Kalé et al. 2002), bfm (Utrera et al. 2005) or cisne
    (Hanzich et al. 2005; with --real on labs of this machine).

    LOG is another log than the paper's. A claim that fails is a finding, not an error: the exit status is 0.

    \b
    Examples:
      cosched replicate backfilling --quick
      cosched replicate backfilling --out results
      cosched replicate bfm --quick
      cosched replicate cisne --out results
      cosched replicate adaptive --quick
      cosched replicate cisne --real --experiments coscheduling --seeds 3 --out real
    """
    if not real and (add or experiments is not None or seeds == 0):
        raise BadInput("--seeds" if seeds == 0 else "--add, --experiments", "without --real", "--real")
    if out and not add:
        check_directory(out)
    if real and paper == "cisne":
        if quick or log:
            raise BadInput("--quick" if quick else "LOG", "with --real", "--seeds and --experiments")
        chosen = [word.strip() for word in (experiments or "").split(",") if word.strip()]
        found = replicate_real(seeds, out, lambda text: click.echo(text, err=True), add=add, experiments=chosen)
    else:
        found = replicate(Request(paper=paper, log=log, quick=quick, seeds=seeds, workers=jobs, real=real), Progress)
    if out:
        results.write(found, out)
    if as_json:
        click.echo(results.as_json(results.document(found)))
        return
    results.show(found, console())
    if out:
        click.echo(f"Written to {out}: see manifest.json for the list.")
