"""From settings to outcomes: find and read the log, apply rules and estimates, run a policy."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from cosched.config.experiment import Experiment
from cosched.errors import BadInput
from cosched.workload import catalogue, estimates, scaling, shapes, speedups, swf
from cosched.workload.dividing import divided
from cosched.workload.log import Log
from cosched.workload.rules import Workload, machine_size, prepare
from cosched.workload.shapes import Line
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Policy
from space_scheduler.simulator.fitting import fitting
from space_scheduler.simulator.host import Observer, Outcome, Ties, simulate
from space_scheduler.simulator.shared import clusters_of, in_clusters, site_of, task_rules
from space_scheduler.simulator.site import Site


def find_log(name: str) -> Path:
    """A log by its path, or by its name in the catalogue of public logs. Raises :class:`BadInput`."""
    if not name:
        raise BadInput("LOG", "no log given", "a file in the Standard Workload Format, or the name of a public log")
    path = Path(name)
    if path.exists() or "/" in name:
        return path
    if (found := catalogue.find(name)) is not None:
        return found
    if catalogue.is_known(name):
        known = catalogue.entry(name).name
        remedy = f"'cosched workload fetch {known}' first, or COSCHED_TRACES to name the folder that has it"
        raise BadInput(name, "a public log that is not here", remedy)
    return path


def prepare_workload(experiment: Experiment, path: Path) -> Workload:
    """The workload that an experiment runs: the log by its rules, its load and its estimates; what fits its site."""
    log = swf.read(path, strict=experiment.strict, extra_columns=experiment.extra_columns)
    lines = shapes.read(Path(experiment.shapes)) if experiment.shapes else {}
    wide: dict[int, int] = {}
    site, procs = experiment.site, experiment.procs
    if site is not None and site.nodes is not None:
        procs = site.nodes * site.cpus
    if experiment.clusters and site is None:
        procs = _whole(experiment, log)
    if experiment.load is not None:
        log = scaling.to_load(log, experiment.load, procs_total=procs, rules=experiment.input_rules)
    tasks = task_rules(site) if site is not None else None
    if lines:
        log, wide = shapes.narrowed(log, lines, machine_size(log, procs)[0])
    load = prepare(log, experiment.input_rules, procs_total=procs, strict=experiment.strict, tasks=tasks)
    if site is not None and not experiment.clusters:
        load = _fitting(experiment, load)
    if not len(load):
        skipped = ", ".join(f"{n} {cause}" for cause, n in load.skipped.items()) or "none skipped"
        raise BadInput(str(path), f"no job can be simulated ({skipped})", "at least one usable job")
    rng = np.random.default_rng(experiment.seed)
    load = estimates.with_estimates(load, estimates.parse(experiment.estimates), rng)
    speed_up = speedups.parse(experiment.speed_up)
    if lines or experiment.work is not shapes.Work.LOGGED or speed_up is not None:
        load = shapes.apply(load, lines, experiment.work, speed_up, wide)
    if experiment.dividing is None:
        _no_components(lines)
        return load
    return _fitting(experiment, divided(load, experiment.dividing, experiment.seed, lines))


def _whole(experiment: Experiment, log: Log) -> int:
    """The processors of all clusters. Raises :class:`BadInput` where the log's machine has another number."""
    procs = sum(experiment.clusters)
    said = log.header.integer("MaxProcs")
    if said is not None and said > 0 and said != procs:
        found = "+".join(map(str, experiment.clusters))
        raise BadInput("--clusters", f"{found} = {procs} processors", f"{said} together, the log's MaxProcs")
    return procs


def _no_components(lines: Mapping[int, Line]) -> None:
    for line in lines.values():
        if len(line.components) > 1:
            raise BadInput(f"{line.where}: components", "several", "clusters for them: --clusters 20,20,20")


def _fitting(experiment: Experiment, load: Workload) -> Workload:
    """The workload without jobs that could never start on the experiment's site or clusters."""
    names: list[str | None] = [*experiment.policies] or [None]
    policies = [policy_of(experiment, name) for name in names]
    site = site_for(experiment, load)
    return load if site is None or not len(load) else fitting(load, policies, site, strict=experiment.strict)


def site_for(experiment: Experiment, load: Workload) -> Site | None:
    """The nodes of an experiment; None where it has one machine of counted processors."""
    if experiment.site is not None:
        site = site_of(experiment.site, load, experiment.seed)
        return in_clusters(site, experiment.clusters, experiment.between) if experiment.clusters else site
    return clusters_of(experiment.clusters, experiment.between) if experiment.clusters else None


def policy_of(experiment: Experiment, name: str | None, where: str = "--policy") -> Policy:
    """The policy of a name under an experiment's settings. Raises :class:`BadInput`."""
    return resolve(name, experiment.order, experiment.select, where=where, fjt=experiment.fjt)


def run(
    experiment: Experiment,
    policy: str | None,
    load: Workload,
    *,
    observer: Observer | None = None,
    progress: Callable[[int], None] | None = None,
    holdings: bool = False,
) -> Outcome:
    """Run one policy over a workload under the experiment's rules; ``holdings`` as for :func:`simulate`."""
    return simulate(
        load,
        policy_of(experiment, policy),
        ties=Ties(experiment.ties),
        at_limit=experiment.at_limit,
        launch_delay_us=experiment.launch_delay_us,
        site=site_for(experiment, load),
        observer=observer,
        progress=progress,
        fold_cost_ppm=experiment.fold_cost_ppm,
        resize_cost_us=experiment.resize_cost_us,
        holdings=holdings,
        predicted=experiment.predicted,
    )
