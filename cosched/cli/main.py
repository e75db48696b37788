"""Entry point of the ``cosched`` command.

Exit status: 0 done, 1 failed, 2 bad input, 3 no answer from the service. Each verb lives in a module of its own,
imported when it is called: ``cosched --help`` and a simulation do not pay for plots.
"""

import importlib
import io
import os
import sys
from typing import Any, Final

import click

import cosched
from cosched.errors import BadInput, Failed, nearest

_VERBS: Final = {
    "simulate": "Run one scheduling policy over a log.",
    "compare": "Run several policies over one log, side by side.",
    "policies": "List policies, orders and selections.",
    "replicate": "Repeat a paper's experiments and judge its claims.",
    "workload": "Statistics, conversion and generation of workloads.",
    "demo": "The main job on real input, in a few seconds.",
}


class _Verbs(click.Group):
    """A group whose commands are imported on demand, and that suggests the nearest one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        command: click.Command = importlib.import_module(f"cosched.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            raise BadInput(
                "", f"no command {args[0]!r}", "one of " + ", ".join(_VERBS), nearest=nearest(args[0], _VERBS)
            )
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(cosched.__version__, prog_name="cosched")
def cli() -> None:
    """Coscheduling of parallel jobs on clusters that belong to somebody else.

    \b
    Example: cosched simulate KTH-SP2-1996-2.1-cln.swf.gz --policy easy
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its status."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for as long as the process lives)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character shows a question mark
    try:
        status = cli.main(arguments, prog_name="cosched", standalone_mode=False)
    except BadInput as error:
        _complain(str(error))
        sys.exit(error.status)
    except Failed as error:
        _complain(str(error))
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(2 if isinstance(error, click.UsageError | click.FileError) else 1)
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing more to say
        sys.exit(1)
    except OSError as error:
        _complain(f"{error.filename or 'output'}: {error.strerror}")
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def _complain(message: str) -> None:
    click.echo(f"cosched: {message}", err=True)


if __name__ == "__main__":
    main()
