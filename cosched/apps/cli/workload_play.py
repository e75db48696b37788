"""``cosched workload play``: a workload submitted to a live service at its times."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from cosched.apps.cli.shared.job_environment import directory, environment, utf8
from cosched.apps.cli.shared.outputs import check_targets
from cosched.apps.cli.shared.progress import Progress
from cosched.apps.cli.shared.values import one_of, read_by, refuse, whole_number
from cosched.apps.cli.shared.verb import echo_json, json_option, service
from cosched.apps.play import prediction, results, session
from cosched.apps.play.play_log import PlayLog
from cosched.apps.play.player import Player
from cosched.apps.play.program_map import ProgramMap
from cosched.apps.play.submissions import Base, Plan, PlaySettings, planned
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.client.places import own_umask
from cosched.config.units import duration_us
from cosched.errors import BadInput, Failed
from cosched.model.job import JobState
from cosched.model.time import US_PER_S
from cosched.report import manifest as manifests
from cosched.report.table import console, parquet_modules
from cosched.wire.api import EXPORTS
from cosched.workload.shapes import Work
from space_scheduler.plugins import resolve
from space_scheduler.simulator.experiment import find_log

_INTERRUPTED: Final = 130
_ENDING: Final = ".parquet"


class Files(NamedTuple):
    """What a play reads, and what it leaves: results, what has been done so far, and the manifest."""

    log: Path
    programs: ProgramMap
    shapes: Path | None
    output: Path

    @property
    def record(self) -> Path:
        """What has been done so far, for ``--resume``."""
        return self.output.with_suffix(".play.jsonl")

    @property
    def manifest(self) -> Path:
        """What was played, on what, how."""
        return self.output.with_suffix(".manifest.json")

    @property
    def inputs(self) -> list[Path]:
        """What decides what is submitted when."""
        return [self.log, *self.programs.files, *([self.shapes] if self.shapes else [])]


@click.command("play")
@click.argument("log", metavar="FILE")
@click.option(
    "--map", "map_file", type=click.Path(path_type=Path), metavar="FILE.yaml", help="Which program each job is."
)
@click.option(
    "--shapes",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Sizes and classes of the jobs (docs/guide/shapes.md).",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.parquet",
    help="A row for each job; a manifest beside it.",
)
@click.option(
    "--scale",
    type=float,
    default=1.0,
    show_default=True,
    help="Of times between submissions and of work: 0.1 is ten times as fast.",
)
@click.option("--limit", metavar="N", callback=whole_number(1, 100_000_000), help="The first N jobs alone.")
@click.option(
    "--estimates",
    metavar="MODEL",
    default="user",
    show_default=True,
    help="What the service is told: user, exact, factor:F, tsafrir.",
)
@click.option(
    "--margin",
    "margin_us",
    metavar="TIME",
    callback=read_by(duration_us),
    default="10s",
    show_default=True,
    help="Added to each estimate, which is a limit too; not scaled.",
)
@click.option(
    "--work",
    metavar="WORK",
    callback=one_of(*(each.value for each in Work)),
    default=Work.LOGGED.value,
    show_default=True,
    help="Run times are those on the log's processors: logged, or linear.",
)
@click.option(
    "--speed-up",
    metavar="MODEL",
    default="linear",
    show_default=True,
    help="Of jobs of several sizes, as for 'simulate'.",
)
@click.option(
    "--seed",
    metavar="N",
    callback=whole_number(0, 1 << 63),
    default="1",
    show_default=True,
    help="Seed of all random choices.",
)
@click.option("--resume", is_flag=True, help="Go on with the play that left --output.")
@click.option("--force", is_flag=True, help="Replace what an earlier play left.")
@click.option(
    "--on-interrupt",
    metavar="cancel|leave",
    callback=one_of("cancel", "leave"),
    help="What becomes of the jobs when this is interrupted [asks on a terminal, else cancel].",
)
@click.option(
    "--patience",
    "patience_us",
    metavar="TIME",
    default="10min",
    callback=read_by(duration_us),
    show_default=True,
    help="So long the service may be away.",
)
@click.option("--predict", metavar="POLICY", help="Also what the simulator says of the same submissions.")
@click.option(
    "--directory", "place", metavar="DIR", help="Where jobs work; must be on every node [the current directory]."
)
@click.option("--env", "variables", metavar="NAME[=VALUE]", multiple=True, help="Also set this variable; repeatable.")
@click.option(
    "--export",
    metavar="|".join(EXPORTS),
    callback=one_of(*EXPORTS),
    default="programs",
    show_default=True,
    help="Which of your variables jobs get: what finds programs (PATH and the like), all, or none.",
)
@service
@json_option
def play(
    log: str,
    map_file: Path | None,
    shapes: Path | None,
    output: Path | None,
    resume: bool,
    force: bool,
    on_interrupt: str | None,
    patience_us: int,
    predict: str | None,
    place: str | None,
    variables: tuple[str, ...],
    export: str,
    server: str | None,
    lab: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Submit a workload to a live service at its times, as real programs, and keep what came of it.

    FILE is a log in the Standard Workload Format, plain or gzipped, or the name of a public one. --map says which
    program each job is and how fast that is, so that a job has as much work as its run time in the log means.

    --scale multiplies the times between submissions, and the jobs' run times and estimates, alike. A job that the
    service refuses is a row like the others. An interrupted play goes on with --resume; nothing is submitted twice.

    Exit status 0 when every job has come to an end, 1 when none of them ran, 130 when interrupted.

    \b
    Examples:
      cosched workload play bfm.swf --map map.yaml --shapes bfm.csv --scale 0.1 --output bfm.parquet
      cosched workload play LOG --map map.yaml --limit 50 --output first.parquet --predict easy
      cosched workload play LOG --map map.yaml --limit 50 --output first.parquet --resume
    """
    settings = PlaySettings(**given | {"work": Work(given["work"])})
    settings.check()
    files = _files(log, map_file, shapes, output)
    if predict:
        resolve(predict, where="--predict")
    record = _record(files, resume=resume, force=force)
    base = Base(utf8(directory(place), "--directory"), _variables(export, variables), own_umask())
    with closing(record), connect(server, lab) as client:
        found = session.found(client)
        plan = planned(files.log, files.programs, files.shapes, settings, found.cluster.procs, base)
        tag = record.begin(session.begun(files.inputs, settings, {"directory": base.directory}, found.cluster))
        record.keep(session.part(record, found, sys.argv[1:]))
        status = _played(client, plan, record, tag, patience_s=patience_us / US_PER_S, on_interrupt=on_interrupt)
    jobs = results.rows(plan.jobs, record, results.bound(settings.scale))
    results.write(jobs, files.output)
    made = session.manifest(record, found, files.inputs, [files.output])
    manifests.write(made, files.manifest)
    told = None
    if predict:
        bound_s, speed_up = results.bound(settings.scale), settings.speed_up
        told = prediction.predicted(plan.jobs, jobs, found.nodes, predict, bound_s=bound_s, speed_up=speed_up)
        if told is None:
            _say("no job ran of which the simulator could say anything")
    _show(jobs, plan, files, settings, told, status, as_json=as_json)
    return status or int(not any(job.ran for job in jobs))


def _files(log: str, map_file: Path | None, shapes: Path | None, output: Path | None) -> Files:
    """The files of a play. Raises :class:`BadInput` for what cannot be read or written."""
    if map_file is None:
        raise BadInput("--map", "none given", "a file in YAML that says which program each job is (docs/guide/play.md)")
    if output is None:
        raise BadInput("--output", "none given", "a file for the results, such as results.parquet")
    if output.suffix != _ENDING:
        raise BadInput("--output", f"{output}", f"an ending of {_ENDING}")
    files = Files(find_log(log), ProgramMap(map_file), shapes, output)
    for target in (output, files.record, files.manifest):
        check_targets((target,), files.log)
        if not os.access(target if target.exists() else target.absolute().parent, os.W_OK):
            raise BadInput("--output", f"{target} cannot be written by this user", "a file in a directory of one's own")
    parquet_modules(output)
    return files


def _record(files: Files, *, resume: bool, force: bool) -> PlayLog:
    """What has been done so far: nothing, or what is to be gone on with. Raises :class:`BadInput`."""
    there = next((path for path in (files.output, files.record) if path.exists()), None)
    taken, begun = there and not resume and not force, files.record.exists()
    refuse(
        (resume and not begun, "--resume", f"no {files.record}", "the --output of a play that was begun"),
        (taken, "--output", f"{there} is there already", "another name, --resume to go on, or --force"),
    )
    return PlayLog(files.record, fresh=not resume)


def _variables(export: str, variables: tuple[str, ...]) -> dict[str, str]:
    """The variables of all jobs. Programs of this Python, and its ``mpirun``, are found first."""
    made = environment(export, variables)
    made["PATH"] = os.path.dirname(sys.executable) + ":" + made.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return made


def _played(
    client: Client, plan: Plan, record: PlayLog, tag: str, *, patience_s: float, on_interrupt: str | None
) -> int:
    """Play; the command's exit status so far."""
    with Progress("playing", len(plan.jobs)) as progress:
        player = Player(client, plan.jobs, record, tag, say=_say, patience_s=patience_s, progress=progress)
        try:
            player.play()
        except KeyboardInterrupt:
            _interrupted(player, on_interrupt)
            return _INTERRUPTED
        except Failed as error:
            _say(f"{error}; --resume goes on")
            return error.status
    return 0


def _interrupted(player: Player, on_interrupt: str | None) -> None:
    """Cancel the jobs, or leave them."""
    jobs = len(player.alive())
    if on_interrupt is None and sys.stdin.isatty():
        on_interrupt = _asked(jobs)
    if on_interrupt == "leave":
        _say(f"interrupted; {jobs} jobs go on, and --resume finds them again")
        return
    _say(f"interrupted; {jobs} jobs are cancelled (--on-interrupt leave leaves them)")
    try:
        player.cancel()
    except Failed as error:
        _say(f"{error}; jobs may be left")


def _asked(jobs: int) -> str:
    """What is to become of so many jobs; whoever interrupts the question, too, leaves them."""
    try:
        return "cancel" if click.confirm(f"\nCancel the {jobs} jobs that wait or run?", err=True) else "leave"
    except click.Abort:
        return "leave"


def _show(
    jobs: Sequence[results.PlayedJob],
    plan: Plan,
    files: Files,
    settings: PlaySettings,
    predicted: prediction.Prediction | None,
    status: int,
    *,
    as_json: bool,
) -> None:
    groups, late = results.grouped(jobs), results.lateness(jobs)
    states = Counter(job.state for job in jobs)
    if as_json:
        echo_json(
            {
                "output": str(files.output),
                "manifest": str(files.manifest),
                "jobs": len(jobs),
                "states": states,
                "skipped": dict(plan.skipped),
                "means": groups,
                "lateness": late,
                "prediction": predicted,
                "interrupted": status == _INTERRUPTED,
            }
        )
        return
    shown = results.table(groups, results.bound(settings.scale))
    shown.notes.append("states: " + ", ".join(f"{count} {state}" for state, count in states.items()))
    if ill := [job for job in jobs if job.number and job.state in (JobState.FAILED, JobState.LAUNCH_FAILED)]:
        shown.notes.append(f"the first that failed is job {ill[0].number}: {ill[0].why} (cosched show {ill[0].number})")
    shown.notes.append(
        f"submissions were late by {late.mean_s:.2f} s on average, {late.most_s:.2f} s at most; "
        f"{late.late_jobs} by more than a second"
    )
    if plan.skipped:
        shown.notes.append("of the log: skipped " + ", ".join(f"{n} {cause}" for cause, n in plan.skipped.items()))
    shown.show(console())
    if predicted:
        prediction.table(predicted).show(console())
    click.echo(f"wrote {files.output} and {files.manifest}")


def _say(text: str) -> None:
    click.echo(f"cosched: {text}", err=True)
