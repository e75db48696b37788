"""``cosched replicate``: a paper's experiments, its numbers beside ours, and a verdict for each of its claims."""

from pathlib import Path

import click

from cosched.apps.cli.shared.outputs import check_directory
from cosched.apps.cli.shared.progress import Progress
from cosched.apps.cli.shared.values import refuse
from cosched.apps.cli.shared.verb import say
from cosched.apps.experiments import cisne_real, reshaped_real
from cosched.apps.replicate import result as results
from cosched.apps.replicate.papers import Request, replicate
from cosched.apps.replicate.result import Result
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
@click.option(
    "--kept", type=click.Path(path_type=Path), metavar="DIR", help="Keep simulations there; use those that are kept."
)
@click.option("--real", is_flag=True, help="Run the paper's real part, where it has one: on labs, for hours.")
@click.option("--experiments", metavar="LIST", help="With --real: only these, such as coscheduling,policies.")
@click.option("--length", type=click.IntRange(2, 10_000), help="With --real, adaptive and bfm: jobs of a workload.")
@click.option("--scale", type=float, help="With --real, adaptive and bfm: seconds of ours for one of the paper's.")
@click.option(
    "--owners",
    type=click.Choice(["stay", "sessions"]),
    help="Of cisne, simulated: owners stay throughout, or come and go [default: stay].",
)
@click.option("--reshaped", metavar="FILE", help="Of adaptive, simulated: what './run bench reshape --out FILE' wrote.")
@click.option("--add", is_flag=True, help="With --real: add to the trials of --out; with --seeds 0 only judge them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    paper: str,
    log: str | None,
    quick: bool,
    seeds: int | None,
    jobs: int,
    out: Path | None,
    kept: Path | None,
    real: bool,
    experiments: str | None,
    length: int | None,
    scale: float | None,
    owners: str | None,
    reshaped: str | None,
    add: bool,
    as_json: bool,
) -> None:
    """Repeat the experiments of PAPER and judge its claims.

    PAPER is backfilling (Feitelson & Weil 1998), coallocation (Ngubiri & van Vliet 2006), adaptive (Kalé et al. 2002),
    bfm (Utrera et al. 2005), cisne (Hanzich et al. 2005) or predictions (Tsafrir et al. 2007); adaptive, bfm and cisne
    with --real on labs of this machine.

    LOG is another log than the paper's. A claim that fails is a finding, not an error: the exit status is 0.

    \b
    Examples:
      cosched replicate backfilling --quick
      cosched replicate backfilling --out results
      cosched replicate bfm --quick
      cosched replicate cisne --out results
      cosched replicate adaptive --quick
      cosched replicate coallocation --out results
      cosched replicate predictions --quick
      cosched replicate cisne --real --experiments coscheduling --seeds 3 --out real
      cosched replicate adaptive --real --seeds 1 --scale 0.05 --out malleable
    """
    of_real = add or seeds == 0 or any(each is not None for each in (experiments, length, scale))
    told = "--seeds" if seeds == 0 else "--add, --experiments, --length, --scale"
    given = f"with {'--real' if real else paper}"
    refuse(
        (of_real and not real, told, "without --real", "--real"),
        (owners and (real or paper != "cisne"), "--owners", given, "cisne, simulated"),
        (kept and real, "--kept", given, "simulations; trials are kept in --out, with --add"),
        (reshaped and (real or paper != "adaptive"), "--reshaped", given, "adaptive, simulated"),
    )
    if out and not add:
        check_directory(out)
    if real and (paper == "cisne" or paper in reshaped_real.EXPERIMENTS):
        if quick or log:
            raise BadInput("--quick" if quick else "LOG", "with --real", "--seeds and --experiments")
        found = _real(paper, seeds, out, add=add, experiments=experiments, length=length, scale=scale)
    else:
        asked = Request(
            paper=paper, log=log, quick=quick, seeds=seeds, workers=jobs, real=real, owners=owners or "stay",
            reshaped=reshaped or "", kept=kept,
        )  # fmt: skip
        found = replicate(asked, Progress)
    if out:
        results.write(found, out)
    if as_json:
        click.echo(results.as_json(results.document(found)))
        return
    results.show(found, console())
    if out:
        click.echo(f"Written to {out}: see manifest.json for the list.")


def _real(
    paper: str,
    seeds: int | None,
    out: Path | None,
    *,
    add: bool,
    experiments: str | None,
    length: int | None,
    scale: float | None,
) -> Result:
    """The real part of a paper. Raises :class:`BadInput` for an option that it has not."""
    cisne, sized = paper == "cisne", length is not None or scale is not None
    refuse(
        (cisne and sized, "--length, --scale", f"with {paper}", "adaptive or bfm"),
        (experiments is not None and not cisne, "--experiments", f"with {paper}, which has one", "nothing, or cisne"),
    )
    if cisne:
        chosen = [word.strip() for word in (experiments or "").split(",") if word.strip()]
        return cisne_real.replicate_real(seeds, out, say, add=add, experiments=chosen)
    return reshaped_real.replicate_real(paper, seeds, out, say, add=add, jobs=length, scale=scale)
