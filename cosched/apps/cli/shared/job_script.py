"""A job's script: its text, and the options in its #COSCHED lines."""

import re
import shlex
from collections.abc import Container
from typing import Any, Final

import click

from cosched.apps.cli.shared.foreign import no_switch
from cosched.apps.cli.shared.values import refuse
from cosched.errors import BadInput
from cosched.wire.foreign import directives

_MAX_BYTES: Final = 1 << 20
_LINE: Final = re.compile(r"#COSCHED(?:[ \t]+(.*))?")
_ALMOST: Final = re.compile(r"#\s*COSCHED\b", re.IGNORECASE)


def read(script: str) -> str:
    """The script's text. Raises :class:`BadInput`."""
    where = "standard input" if script == "-" else script
    try:
        with click.open_file(script, "rb") as file:  # "-" is standard input
            data: bytes = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadInput(where, "no such file", "a job script, or - for standard input") from None
    except OSError as error:
        raise BadInput(where, f"cannot be read: {error.strerror}") from None
    first = data.partition(b"\n")[0]
    none = not first.startswith(b"#!") or not first[2:].strip()
    found = f"found {first[:60].decode(errors='replace')!r}" if data.strip() else "empty"
    refuse(
        (len(data) > _MAX_BYTES, where, "longer than 1 MiB", "a script; data belongs into files"),
        (none, f"{where}:1", found, "a first line that names the interpreter, such as #!/bin/sh"),
        (first.endswith(b"\r"), f"{where}:1", "lines end with CR LF, as on Windows", "lines that end with LF"),
    )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{where}:{line}", "not text in UTF-8", "a script") from None


def merged(ctx: click.Context, text: str, where: str, not_in_script: Container[str]) -> dict[str, Any]:
    """The job's options: from the command line, else from the script's lines, else the defaults.

    Of the script's lines the last counts; those of Slurm and PBS stand behind #COSCHED lines.

    ``not_in_script`` are the options of the command that do not concern the job. Raises :class:`BadInput`.
    """
    asked = {name: value for name, value in ctx.params.items() if name not in not_in_script}
    said = {name for name in asked if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE}
    variables: tuple[str, ...] = ()
    foreign = [(number, shlex.quote(word)) for number, word in directives(text).words]
    for number, words in foreign + _lines(text, where):
        for name, value in _parsed(ctx, words, f"{where}:{number}", not_in_script).items():
            if name == "environment":
                variables += value
            elif name not in said:
                asked[name] = value
    asked["environment"] = variables + asked["environment"]
    return asked


def _lines(text: str, where: str) -> list[tuple[int, str]]:
    """The script's #COSCHED lines, up to its first command, with their numbers. Raises :class:`BadInput`."""
    found = []
    commands = False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        commands = commands or not (stripped.startswith("#") or not stripped)
        if match := _LINE.fullmatch(stripped):
            if commands:
                click.echo(f"cosched: {where}:{number}: {stripped!r} stands after a command: not read", err=True)
            else:
                found.append((number, match[1] or ""))
        elif not commands and _ALMOST.match(stripped):
            raise BadInput(f"{where}:{number}", f"found {stripped[:40]!r}", "#COSCHED, a space, and options")
    return found


def _parsed(ctx: click.Context, words: str, where: str, not_in_script: Container[str]) -> dict[str, Any]:
    """The options that one #COSCHED line gives. Raises :class:`BadInput` with file and line."""
    try:
        arguments = shlex.split(words, comments=True)
    except ValueError as error:
        raise BadInput(where, f"{words!r}: {str(error).lower()}", "options as on the command line") from None
    try:
        line = ctx.command.make_context("#COSCHED", [*arguments, "--", "-"], parent=ctx.parent, help_option_names=[])
    except BadInput as error:
        raise BadInput(f"{where}: {error.where}", error.found, error.expected, nearest=error.nearest) from None
    except click.UsageError as error:
        if isinstance(error, click.NoSuchOption) and (foreign := no_switch(error)):
            raise BadInput(f"{where}: {foreign.where}", foreign.found, foreign.expected) from None
        raise BadInput(where, error.format_message().rstrip("."), "options of 'cosched submit'") from None
    given = {
        name: value
        for name, value in line.params.items()
        if line.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    if given.pop("script") != "-" or given.pop("arguments", ()):
        raise BadInput(where, f"{words!r}", "options alone")
    for name in given:
        if name in not_in_script:
            option = next(param.opts[-1] for param in ctx.command.params if param.name == name)
            raise BadInput(where, option, "options of the job; this one is the command's")
    return given
