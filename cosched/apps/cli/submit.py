"""``cosched submit``: hand a job script to the service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from cosched.apps.cli.following import tell, to_end
from cosched.apps.cli.foreign import directives, time_meant
from cosched.apps.cli.job_environment import EXPORTS, directory, environment, missing_place, utf8
from cosched.apps.cli.job_script import merged, read
from cosched.apps.cli.service import echo_json, exit_status, json_option, lasting, outcome, service
from cosched.apps.cli.values import one_of, whole_number
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.client.places import own_umask
from cosched.config.units import duration_us, size_bytes
from cosched.errors import BadInput, NoAnswer
from cosched.model.sizes import contradiction, parse_components, parse_sizes
from cosched.model.time import US_PER_S
from cosched.wire.api import JobDoc, Submission
from cosched.wire.foreign import CHOICES, foreign_directives

#: Options that concern the command, not the job: not in a script.
_NOT_IN_SCRIPT: Final = ("wait", "as_json", "server", "lab", "script", "arguments")

#: A field of the submission -> the option that sets it, for what the service refuses.
_OPTIONS: Final = {
    "tasks": "--tasks",
    "sizes": "--sizes",
    "min_tasks": "--min",
    "max_tasks": "--max",
    "evolve_tasks": "--evolve",
    "job_class": "--class",
    "components": "--components",
    "crossing": "--crossing",
    "time_limit_s": "--time",
    "memory_bytes": "--mem",
    "kind": "--kind",
    "coscheduling": "--coscheduling",
    "name": "--name",
    "output": "--output",
    "error": "--error",
    "directory": "--directory",
    "script": "SCRIPT",
    "arguments": "ARGS",
    "foreign_directives": "--foreign-directives",
}


def _seconds(_ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        limit_us = duration_us(text, param.opts[-1])
    except BadInput as error:
        raise BadInput(error.where, error.found, error.expected, nearest=error.nearest or time_meant(text)) from None
    if limit_us < 1:
        raise BadInput(param.opts[-1], f"{text!r}", "more than nothing")
    return limit_us / US_PER_S


def _bytes(_ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        size = size_bytes(text, param.opts[-1])
    except BadInput as error:
        near = error.nearest or (f"{text}MB" if text.isdigit() else "")  # as Slurm reads it
        raise BadInput(error.where, error.found, error.expected, nearest=near) from None
    if size < 1:
        raise BadInput(param.opts[-1], f"{text!r}", "at least 1B")
    return size


def _sizes(_ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    if text is not None:
        parse_sizes(text, 1, param.opts[-1])
    return text


def _part(_ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        part = float(text)
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1000:
        raise BadInput(param.opts[-1], f"{text!r}", "a part of its time from 0 to 1000, such as 0.25")
    return part


def _components(_ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    return None if text is None else parse_components(text, param.opts[-1])


@click.command("submit", context_settings={"allow_interspersed_args": False})
@click.option(
    "-n",
    "--tasks",
    metavar="N",
    default="1",
    callback=whole_number(1, 1 << 24),
    show_default=True,
    help="Tasks: all start at once, or none.",
)
@click.option(
    "--sizes",
    metavar="SIZES",
    callback=_sizes,
    help="Instead of -n, what it can be started with: 8, 1-8, '4;8;16', pow2 or square.",
)
@click.option(
    "--min",
    "min_tasks",
    metavar="N",
    callback=whole_number(1, 1 << 24),
    help="Instead of -n, the fewest tasks with which it can go on [1 where --max is given].",
)
@click.option(
    "--max", "max_tasks", metavar="N", callback=whole_number(1, 1 << 24), help="The most that it can use [the cluster]."
)
@click.option(
    "--evolve",
    "evolve_tasks",
    metavar="N",
    callback=whole_number(1, 1 << 24),
    help="How many tasks more, or fewer, it may ask for itself while it runs [0].",
)
@click.option("--fold", metavar="yes|no", callback=one_of("yes", "no"), help="Whether tasks may share a CPU [yes].")
@click.option(
    "--class",
    "job_class",
    metavar="long|short",
    callback=one_of("long", "short"),
    help="Its class of run time [short].",
)
@click.option(
    "--components",
    metavar="N+N…",
    callback=_components,
    help="Tasks of each of its components, such as 2+2, which lie on clusters of their own [the cluster's settings].",
)
@click.option(
    "--crossing",
    metavar="X",
    callback=_part,
    help="Part of its time that it takes longer on several clusters, such as 0.25 [as its kind does].",
)
@click.option(
    "--time",
    metavar="TIME",
    callback=_seconds,
    help="Estimate and limit of its run time, such as 10min [the cluster's].",
)
@click.option("--mem", metavar="SIZE", callback=_bytes, help="Memory of each task, such as 512MB [the cluster's].")
@click.option(
    "--kind",
    metavar="cpu|comm",
    callback=one_of("cpu", "comm"),
    help="Whether it mostly computes or mostly communicates.",
)
@click.option(
    "--coscheduling",
    metavar="MODE",
    callback=one_of("none", "ccs", "dcs", "spin", "gang"),
    help="How it runs beside other jobs on its nodes: none, ccs, dcs, spin or gang [the cluster's].",
)
@click.option("--name", help="What it is called [the script's name].")
@click.option(
    "--output",
    metavar="PATH",
    help="Write its output there, on its first node; %j %x %u %N: number, name, user, node [kept for 'cosched logs'].",
)
@click.option("--error", metavar="PATH", help="The same for its error output.")
@click.option("--directory", metavar="DIR", help="Where it works; must be on every node [the current directory].")
@click.option("--env", "variables", metavar="NAME[=VALUE]", multiple=True, help="Also set this variable; repeatable.")
@click.option(
    "--export",
    metavar="|".join(EXPORTS),
    callback=one_of(*EXPORTS),
    default="programs",
    show_default=True,
    help="Which of your variables it gets: what finds programs (PATH and the like), all, or none.",
)
@click.option(
    "--foreign-directives",
    metavar="|".join(CHOICES),
    callback=one_of(*CHOICES),
    help="What to do where the script has #SBATCH lines or the like, which are not read [the cluster's settings].",
)
@click.option("--hold", is_flag=True, help="Do not start it before 'cosched release'.")
@click.option("--requeue", is_flag=True, help="When a node of it is lost, run it again from its beginning.")
@click.option("--wait", is_flag=True, help="Wait for its end; the exit status is the job's.")
@service
@json_option
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1)
def command(script: str, as_json: bool, wait: bool, **given: Any) -> int:
    """Submit a job: SCRIPT runs on the first of its nodes, and starts the other tasks with mpirun.

    The script's first line names its interpreter (#!/bin/sh). Lines '#COSCHED --time 10min' before its first command
    have the same options; the command line wins. SCRIPT may be - for standard input.

    With --wait the exit status is the job's own: 128 + signal when one killed it, 124 for its time limit, 125 for a
    lost node, 126 when it could not be launched, 130 when it was cancelled.

    A job of components (--components) has each on a cluster (a lab) of its own, and they start together.

    A job of several sizes (--sizes, --min, --max) has the largest that could ever start here; --time is for that one.

    \b
    Examples:
      cosched submit -n 4 --time 10min --mem 200MB cg.sh
      cosched submit -n 4 --wait --json - < cg.sh
      cosched submit --sizes pow2 --class long cg.sh
      cosched submit --components 3+3 cg.sh
    """
    ctx = click.get_current_context()
    text = read(script)
    shown = "standard input" if script == "-" else script
    asked = merged(ctx, text, shown, _NOT_IN_SCRIPT)
    for option in ("name", "output", "error", "directory"):
        utf8(asked[option] or "", f"--{option}")
    works_in = directory(asked["directory"])
    for option in ("output", "error"):
        missing_place(f"--{option}", asked[option], works_in)
    submission = Submission(
        script=text,
        arguments=tuple(utf8(each, "ARGS") for each in given["arguments"]),
        name=utf8(
            asked["name"] if asked["name"] is not None else ("" if script == "-" else Path(script).name), "--name"
        ),
        tasks=sum(asked["components"]) if asked["components"] and asked["tasks"] == 1 else asked["tasks"],
        time_limit_s=asked["time"],
        memory_bytes=asked["mem"],
        kind=asked["kind"],
        coscheduling=asked["coscheduling"],
        directory=utf8(works_in, "--directory"),
        environment=environment(asked["export"], asked["variables"]),
        output=asked["output"],
        error=asked["error"],
        umask=own_umask(),
        hold=asked["hold"],
        requeue=asked["requeue"],
        sizes=asked["sizes"],
        min_tasks=asked["min_tasks"],
        max_tasks=asked["max_tasks"],
        evolve_tasks=asked["evolve_tasks"],
        fold=None if asked["fold"] is None else asked["fold"] == "yes",
        job_class=asked["job_class"],
        components=asked["components"],
        crossing=asked["crossing"],
        foreign_directives=asked["foreign_directives"],
    )
    numbers = (submission.tasks, submission.min_tasks, submission.max_tasks)
    if wrong := contradiction(*numbers, submission.sizes, submission.evolve_tasks, submission.components):
        field, found, expected = wrong
        raise BadInput(_OPTIONS[field], found, expected)
    with connect(given["server"], given["lab"]) as client:
        job = _submitted(client, submission, shown)
        for line in _unread(ctx, job, submission, shown):
            click.echo(f"cosched: {line}", err=True)
        if job.shape is not None and job.shape.note:
            click.echo(f"cosched: job {job.job_id}: {job.shape.note}", err=True)
        if not wait:
            echo_json(job) if as_json else click.echo(f"job {job.job_id}")
            return 0
        job = _waited(client, job.job_id, as_json=as_json)
        echo_json(job) if as_json else click.echo(_closing(job))
    return exit_status(job)


def _unread(ctx: click.Context, job: JobDoc, submission: Submission, where: str) -> Iterator[str]:
    """What looks like options of the job and was not read as such, and what its script probably does not mean."""
    known = {option for param in ctx.command.params for option in param.opts} | set(ctx.help_option_names)
    after = next((each for each in submission.arguments if _option(each) in known), None)
    if after is not None:
        yield f"{after!r} stands after {where} and is the script's: options of the job stand before it"
    yield from (f"job {job.job_id}: {note}" for note in job.notes)
    if found := foreign_directives(submission.script):
        like = f": {same}" if (same := directives(submission.script)) else ""
        tasks = f"{job.tasks} task{'s' if job.tasks > 1 else ''} for at most {lasting(job.time_limit_s)}"
        read = f"not read; job {job.job_id} is {tasks}; '#COSCHED' lines have its options{like}"
        yield f"WARNING: {where}: {found}: {read}"


def _option(argument: str) -> str:
    """The option that an argument begins with: --time of --time=5min, -n of -n4."""
    return argument.partition("=")[0] if argument.startswith("--") else argument[:2]


def _submitted(client: Client, submission: Submission, where: str) -> JobDoc:
    try:
        return client.submit(submission)
    except BadInput as error:
        field = error.where.removeprefix("submission: ")
        place = where if field == "script" else _OPTIONS.get(field, error.where)
        raise BadInput(place, error.found, error.expected, nearest=error.nearest) from None
    except NoAnswer as error:
        raise NoAnswer(f"{error}. Whether the job was taken is not known: 'cosched queue' tells") from None


def _waited(client: Client, job_id: int, *, as_json: bool) -> JobDoc:
    try:
        click.echo(f"job {job_id}", err=as_json)
        return to_end(client, job_id, tell(job_id))
    except KeyboardInterrupt:
        click.echo(f"cosched: job {job_id} goes on without this command ('cosched cancel {job_id}' ends it)", err=True)
        raise


def _closing(job: JobDoc) -> str:
    where = f"{job.output} on {job.nodes[0].name}" if job.output and job.nodes else f"cosched logs {job.job_id}"
    told = f"job {job.job_id} {outcome(job)}; output: {where}"
    return told if job.state == "completed" else f"{told}; why: cosched show {job.job_id}"
