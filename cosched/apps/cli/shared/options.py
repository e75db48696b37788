"""The options that ``simulate`` and ``compare`` share, and the settings they make."""

import re
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from cosched.apps.cli.shared.values import one_of, read_by
from cosched.apps.cli.shared.verb import options
from cosched.config.convert import Settings, convert
from cosched.config.experiment import RULES, Experiment
from cosched.config.site import SiteSettings
from cosched.errors import BadInput, nearest
from cosched.model.components import Partition
from cosched.workload.rules import AtLimit, NegativeTimes, NeverRan, ProcsFrom
from cosched.workload.shapes import Work
from cosched.workload.swf import ExtraColumns


def _loaded(path: Path, into: type[Settings]) -> Settings:
    from cosched.config.load import load  # noqa: PLC0415 (most simulations read no YAML)

    return load(path, into)


def _site(path: Path, _option: str) -> dict[str, Any]:
    """The settings of a site's file."""
    site = _loaded(path, SiteSettings)
    site.check(f"{path}: ")
    return dict(msgspec.to_builtins(site))


def _cost(text: str, _option: str) -> float | str:
    """A number, or else the name of a file."""
    try:
        return float(text)
    except ValueError:
        return text


def _sizes(text: str, option: str) -> list[int]:
    """Numbers with commas between."""
    if not re.fullmatch(r"\s*[0-9]{1,10}\s*(,\s*[0-9]{1,10}\s*)*", text):
        raise BadInput(option, f"{text[:80]!r}", "processors of each cluster, such as 4,4,4")
    return [int(part) for part in text.split(",")]


#: Adds the shared options to a command; they arrive as one dictionary of those that were given.
settings: Final = options(
    click.option("--procs", type=int, help="Processors of the machine [default: MaxProcs of the log's header]."),
    click.option("--order", metavar="ORDER", help="Order of the queue: fcfs, sjf or ljf [default: the policy's]."),
    click.option("--select", metavar="SELECT", help="Job selection, such as 'backfill(2)' [default: the policy's]."),
    click.option(
        "--ties",
        metavar="RULE",
        callback=one_of("batch", "sequential"),
        help="Passes per instant: batch or sequential [default: batch].",
    ),
    click.option(
        "--procs-from",
        metavar="FIELD",
        callback=one_of(*ProcsFrom),
        help="A job's size: allocated, requested, allocated-only [default: allocated].",
    ),
    click.option(
        "--never-ran",
        metavar="RULE",
        callback=one_of(*NeverRan),
        help="Jobs that never ran: drop, or wait and run 1 s [default: drop].",
    ),
    click.option(
        "--negative-times",
        metavar="RULE",
        callback=one_of(*NegativeTimes),
        help="Jobs with negative times: skip or unknown [default: skip].",
    ),
    click.option(
        "--at-limit",
        metavar="RULE",
        callback=one_of(*AtLimit),
        help="At the end of the estimate: kill or run [default: kill].",
    ),
    click.option(
        "--preceding",
        is_flag=True,
        default=None,
        help="A job waits for the end of its preceding job and its think time (fields 17 and 18).",
    ),
    click.option(
        "--estimates",
        metavar="MODEL",
        help="What the scheduler is told: user, exact, predicted, factor:F, tsafrir [default: user].",
    ),
    click.option("--seed", type=int, help="Seed of all random choices [default: 1]."),
    click.option("--load", type=float, help="Scale inter-arrival times to this offered load [default: as logged]."),
    click.option(
        "--launch-delay", metavar="TIME", help="From the decision to a running job, such as 2s [default: 0s]."
    ),
    click.option(
        "--strict", is_flag=True, default=None, help="Stop at the first line that is skipped or has to be interpreted."
    ),
    click.option(
        "--extra-columns",
        metavar="RULE",
        callback=one_of(*ExtraColumns),
        help="Lines of over 18 columns: skip, or ignore the rest [default: skip].",
    ),
    click.option(
        "--rules", metavar="NAME", help="A named set of rules: default, or oracle (docs/design/semantics.md)."
    ),
    click.option(
        "--site",
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=read_by(_site),
        help="A non-dedicated cluster in YAML: nodes, contract, owners (docs/guide/simulate.md).",
    ),
    click.option(
        "--shapes",
        type=click.Path(),
        metavar="FILE",
        help="Widths of jobs, in CSV: job_id,sizes,min,max,components,evolve, … (docs/guide/shapes.md).",
    ),
    click.option(
        "--work",
        metavar="WORK",
        callback=one_of(*Work),
        help="Run times are those on the log's processors: logged, or linear.",
    ),
    click.option(
        "--speed-up", metavar="MODEL", help="linear, amdahl:F, downey:A,SIGMA or table:FILE [default: linear]."
    ),
    click.option("--fjt", metavar="SIZE", help="A moldable job's size: largest, largest/N, shared [default: largest]."),
    click.option("--fold-cost", type=float, help="Part of its rate that a folded job loses, such as 0.1 [default: 0]."),
    click.option("--resize-cost", metavar="TIME", help="A job does nothing for so long after a resize [default: 0s]."),
    click.option(
        "--clusters",
        metavar="SIZES",
        callback=read_by(_sizes),
        help="Processors of each of several clusters, such as 20,20,20,20,20.",
    ),
    click.option("--threshold", type=int, help="Divide jobs of more processors into components, a cluster for each."),
    click.option(
        "--partition",
        metavar="RULE",
        callback=one_of(*Partition),
        help="How: random, phased, balanced, adaptive, near, user [default: random].",
    ),
    click.option("--most-components", type=int, help="Components that a divided job has at most [default: 4]."),
    click.option(
        "--cross-cluster-cost",
        metavar="X|FILE",
        callback=read_by(_cost),
        help="Part of its time that a job on several takes longer; or a file of calibrate --clusters [default: 0].",
    ),
    click.option(
        "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings in YAML; options override them."
    ),
)


def experiment(given: dict[str, Any]) -> Experiment:
    """The settings from a file, a named set of rules and options, the later overriding the earlier."""
    given = {key: value for key, value in given.items() if value is not None}
    rules, path = given.pop("rules", None), given.pop("config", None)
    base = _loaded(path, Experiment).checked(str(path)) if path else Experiment()
    if rules is not None and rules not in RULES:
        raise BadInput("--rules", f"no rules {rules!r}", "one of " + ", ".join(RULES), nearest=nearest(rules, RULES))
    merged = msgspec.to_builtins(base) | RULES.get(rules or "", {}) | given
    return convert(merged, Experiment, "options").checked("")
