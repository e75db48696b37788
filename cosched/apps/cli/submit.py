"""``cosched submit``: hand a job script to the service."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from cosched.apps.cli.shared.following import tell, to_end
from cosched.apps.cli.shared.job_environment import directory, environment, missing_place, utf8
from cosched.apps.cli.shared.job_script import merged, read
from cosched.apps.cli.shared.values import number_within, one_of, refuse, whole_number
from cosched.apps.cli.shared.verb import echo_json, json_option, service
from cosched.apps.cli.shared.words import exit_status, lasting, outcome
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.client.places import own_umask
from cosched.config.units import duration_us, size_bytes
from cosched.errors import BadInput, NoAnswer
from cosched.model.sizes import contradiction, parse_components, parse_sizes
from cosched.model.time import US_PER_S
from cosched.wire.api import ASKED, Asked, JobDoc, Submission, Unit
from cosched.wire.foreign import directives, time_words

#: Options that concern the command, not the job: not in a script.
_NOT_IN_SCRIPT: Final = ("wait", "as_json", "parsable", "quiet", "server", "lab", "script", "arguments")

#: Where a job's output goes that says no other place, if the submitter wants a file.
_OUTPUT: Final = "COSCHED_OUTPUT"
#: A field of the submission -> the option that sets it, for what the service refuses.
_OPTIONS: Final = {"script": "SCRIPT", "arguments": "ARGS"} | {
    name: asked.options.split()[-1] for name, asked in reversed(ASKED)
}


def _amount(text: str, option: str, read: Callable[[str, str], int], expected: str) -> int:
    """A time or size above 0."""
    try:
        found = read(text, option)
    except BadInput as error:
        megabytes = f"{text}MB" if text.isdigit() and read is size_bytes else ""  # as Slurm reads it
        raise BadInput(error.where, error.found, error.expected, nearest=error.nearest or megabytes) from None
    if found < 1:
        raise BadInput(option, f"{text!r}", expected)
    return found


#: A unit -> how the text of an option becomes the value: (text, option) -> value. Raises :class:`BadInput`.
_READ: Final[dict[Unit, Callable[[str, str], object]]] = {
    "text": utf8,
    "yes|no": lambda text, _option: text == "yes",
    "sizes": lambda text, option: parse_sizes(text, 1, option) and text,
    "components": parse_components,
    "part": lambda text, option: number_within(
        text, 0, 1000, BadInput(option, f"{text!r}", "a part of its time from 0 to 1000, such as 0.25")
    ),
    "time": lambda text, option: _amount(time_words(text) or text, option, duration_us, "more than nothing") / US_PER_S,
    "size": lambda text, option: _amount(text, option, size_bytes, "at least 1B"),
}


def _read(asked: Asked, ctx: click.Context, param: click.Parameter, given: object) -> object:
    """The value of an option's text; what is no text (no option, a flag, variables) is the value itself."""
    if not isinstance(given, str):
        return given
    if asked.words:
        one_of(*asked.words)(ctx, param, given)
    if asked.unit == "number" and asked.within:
        return whole_number(*asked.within)(ctx, param, given)
    return _READ[asked.unit](given, param.opts[-1])


def _field_option(name: str, asked: Asked) -> click.Option:
    """The option that sets a field; it arrives under the field's name unless it has one of its own."""
    spellings = asked.options.split()
    return click.Option(
        [*spellings, *([] if spellings[-1].isidentifier() else [name])],
        metavar=asked.metavar or "|".join(asked.words) or None,
        is_flag=asked.unit == "flag" or None,  # False would let it have no value
        multiple=asked.unit == "variables",
        callback=partial(_read, asked),
        help=asked.help,
        default=asked.default,
        show_default=asked.default is not None,
    )


@click.command(
    "submit",
    params=[_field_option(name, asked) for name, asked in ASKED],
    context_settings={"allow_interspersed_args": False},
)
@click.option("--wait", is_flag=True, help="Wait for its end; the exit status is the job's.")
@click.option("--parsable", is_flag=True, help="Print its number alone, for shell scripts.")
@click.option("-Q", "--quiet", is_flag=True, help="Print nothing where it is taken.")
@service
@json_option
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1)
def command(script: str, as_json: bool, parsable: bool, quiet: bool, wait: bool, **given: Any) -> int:
    """Submit a job: SCRIPT runs on the first of its nodes, and starts the other tasks with mpirun.

    The script's first line names its interpreter (#!/bin/sh). Lines '#COSCHED --time 10min' before its first command
    have the same options; the command line wins. Lines of Slurm and PBS (#SBATCH, #PBS) are read where they mean the
    same, and named where not. SCRIPT may be - for standard input.

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
    refuse((as_json + parsable + quiet > 1, "--json, --parsable, --quiet", "more than one", "one of them"))
    text = read(script)
    shown = "standard input" if script == "-" else script
    asked = merged(ctx, text, shown, _NOT_IN_SCRIPT)
    if asked["output"] is None and (file := os.environ.get(_OUTPUT)):
        asked["output"] = utf8(file, _OUTPUT)
    works_in = directory(asked["directory"])
    for option in ("output", "error"):
        missing_place(f"--{option}", asked[option], works_in)
    asked |= {
        "script": text,
        "arguments": tuple(utf8(each, "ARGS") for each in given["arguments"]),
        "name": asked["name"]
        if asked["name"] is not None
        else utf8("" if script == "-" else Path(script).name, "--name"),
        "tasks": sum(asked["components"]) if asked["components"] and asked["tasks"] == 1 else asked["tasks"],
        "directory": utf8(works_in, "--directory"),
        "environment": environment(asked.pop("export"), asked["environment"]),
        "umask": own_umask(),
    }
    submission = Submission(**{name: value for name, value in asked.items() if value is not None})
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
        if as_json and not wait:
            echo_json(job)
        elif not quiet:
            click.echo(job.job_id if parsable else f"job {job.job_id}", err=as_json)
        if not wait:
            return 0
        job = _waited(client, job.job_id)
        if not (quiet or parsable):
            echo_json(job) if as_json else click.echo(_closing(job))
    return exit_status(job)


def _unread(ctx: click.Context, job: JobDoc, submission: Submission, where: str) -> Iterator[str]:
    """What looks like options of the job and was not read as such, and what its script probably does not mean."""
    known = {option for param in ctx.command.params for option in param.opts} | set(ctx.help_option_names)
    after = next((each for each in submission.arguments if _option(each) in known), None)
    if after is not None:
        yield f"{after!r} stands after {where} and is the script's: options of the job stand before it"
    yield from (f"job {job.job_id}: {note}" for note in job.notes)
    if left := directives(submission.script).not_read:
        for given, why in left:
            yield f"WARNING: {where}:{given.line}: {given.text[:60]!r}: not read: {why}"
        tasks = f"{job.tasks} task{'s' if job.tasks > 1 else ''} for at most {lasting(job.time_limit_s)}"
        yield f"WARNING: {where}: job {job.job_id} is {tasks}"


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


def _waited(client: Client, job_id: int) -> JobDoc:
    try:
        return to_end(client, job_id, partial(tell, job_id))
    except KeyboardInterrupt:
        click.echo(f"cosched: job {job_id} goes on without this command ('cosched cancel {job_id}' ends it)", err=True)
        raise


def _closing(job: JobDoc) -> str:
    where = f"{job.output} on {job.nodes[0].name}" if job.output and job.nodes else f"cosched logs {job.job_id}"
    told = f"job {job.job_id} {outcome(job)}; output: {where}"
    return told if job.state == "completed" else f"{told}; why: cosched show {job.job_id}"
