"""Entry point of the ``cosched`` command.

Exit status: 0 done, 1 failed, 2 bad input, 3 no answer from the service, 4 something must be mended first. Each verb
lives in a module of its own, imported when it is called: ``cosched --help`` and a simulation do not pay for plots.
"""

import importlib
import io
import os
import sys
from typing import Any, Final, NoReturn

import click

import cosched
from cosched.apps.cli.shared.extras import advice
from cosched.apps.cli.shared.foreign import no_command, no_switch
from cosched.apps.cli.shared.importing import ONE_BLAS_THREAD, environment
from cosched.apps.cli.shared.verb import say
from cosched.apps.lab.interrupt import like_ctrl_c
from cosched.errors import BadInput, Failed, nearest

#: Sections of the help: verb -> (where its command is, what it does).
_SECTIONS: Final = {
    "Research": {
        "simulate": ("simulate:command", "Run one scheduling policy over a log."),
        "compare": ("compare:command", "Run several policies over one log, side by side."),
        "replicate": ("replicate:command", "Repeat a paper's experiments and judge its claims."),
        "workload": ("workload:command", "Statistics, conversion, generation and live play of workloads."),
        "policies": ("policies:command", "List policies, orders and selections."),
        "replay": ("replay:command", "Replay a live service's journal in the simulator."),
    },
    "Use": {
        "submit": ("submit:command", "Submit a job script."),
        "wait": ("wait:command", "Wait until jobs have ended."),
        "queue": ("queue:queue_command", "List the jobs that run and wait."),
        "show": ("show:command", "Show a job: state, reason, nodes, times, history, failure."),
        "explain": ("explain:command", "Explain why a job is in the state it is in."),
        "page": ("page:command", "Show the cluster in a browser."),
        "logs": ("logs:command", "Print a job's output."),
        "cancel": ("control:cancel_command", "Cancel jobs."),
        "hold": ("control:hold_command", "Hold jobs that wait."),
        "release": ("control:release_command", "Release held jobs."),
        "history": ("queue:history_command", "List the jobs that have ended."),
    },
    "Operate": {
        "demo": ("demo:command", "What the project does, in a few minutes."),
        "lab": ("lab:command", "Make workstations out of this machine, for trying and testing."),
        "init": ("init:command", "Make a cluster's certificates and configuration."),
        "scheduler": ("scheduler:command", "Run the scheduler's service."),
        "agent": ("agent:command", "Run a workstation's agent, or check what it can enforce."),
        "local-load": ("local_load:command", "Synthetic users at desks, and how the machine feels to them."),
        "nodes": ("nodes:command", "List the nodes."),
        "set-aside": ("set_aside:command", "List the nodes, jobs, launches and policies that are set aside."),
        "desk": ("desk:command", "At your own desk: what runs beside you, and what you allow."),
        "node": ("nodes:node_command", "Add, remove, drain or resume a node."),
        "identity": ("identity:command", "Make an authority, keys, requests and certificates."),
        "policy": ("policy:command", "Show the live system's policy, or choose another."),
        "token": ("token:command", "Tokens for users of other machines."),
        "monitoring": ("monitoring:command", "Rules and settings for Prometheus."),
        "bench": ("bench:command", "Measure what is claimed of the live system."),
        "calibrate": ("calibrate:command", "Measure what jobs cost each other on shared nodes."),
        "doctor": ("doctor:command", "Check the installation, and say what to do."),
    },
}
_VERBS: Final = {verb: entry for verbs in _SECTIONS.values() for verb, entry in verbs.items()}


class _Verbs(click.Group):
    """A group whose commands are imported on demand, and that suggests the nearest one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module, _, attribute = _VERBS[cmd_name][0].partition(":")
        with environment(ONE_BLAS_THREAD):
            command: click.Command = getattr(importlib.import_module(f"cosched.apps.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, verbs in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(verb, words) for verb, (_, words) in verbs.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            if foreign := no_command(args):
                raise foreign
            near = nearest(args[0], _VERBS)
            raise BadInput("", f"no command {args[0]!r}", "one of " + ", ".join(_VERBS), nearest=near)
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(cosched.__version__, prog_name="cosched")
def cli() -> None:
    """Coscheduling of parallel jobs on clusters that belong to somebody else.

    \b
    Examples:
      cosched simulate KTH-SP2-1996-2.1-cln.swf.gz --policy easy
      cosched submit -n 4 --time 10min job.sh
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its status."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for as long as the process lives)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character shows a question mark
    try:
        with like_ctrl_c():
            status = cli.main(arguments, prog_name="cosched", standalone_mode=False)
    except (BadInput, Failed) as error:
        _end(str(error), error.status)
    except click.ClickException as error:
        status = 2 if isinstance(error, click.UsageError | click.FileError) else 1
        if isinstance(error, click.NoSuchOption) and (foreign := no_switch(error)):
            _end(str(foreign), status)
        error.show()
        sys.exit(status)
    except ModuleNotFoundError as error:
        if not (what := advice(error.name or "")):
            raise
        _end(f"this {what}", 1)
    except (click.Abort, KeyboardInterrupt):
        _end("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing more to say
        sys.exit(1)
    except OSError as error:
        _end(f"{error.filename or 'output'}: {error.strerror}", 1)
    sys.exit(status if isinstance(status, int) else 0)


def _end(message: str, status: int) -> NoReturn:
    say(f"cosched: {message}")
    sys.exit(status)


if __name__ == "__main__":
    main()
