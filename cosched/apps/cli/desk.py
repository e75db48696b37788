"""``cosched desk``: what the person at this desk decides, without the scheduler: it talks to this machine's guard."""

import pwd
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cosched.apps.cli.shared.desk_session import follow
from cosched.apps.cli.shared.desk_words import document, lines
from cosched.apps.cli.shared.values import number_within, read_by, refuse
from cosched.apps.cli.shared.verb import Answer, say, says
from cosched.client.desk_socket import SOCKET, ask, found_socket
from cosched.config.units import duration_us
from cosched.errors import BadInput
from cosched.model.presets import DAYS, hours_of
from cosched.model.time import US_PER_S

#: Between two looks at what jobs use: the guard tells how much it was so far.
_BETWEEN_S = 0.4
#: What the guard takes at most, and at least.
_LONGEST_S = 366 * 24 * 3600
_LEAST_SHARE = 0.001

_socket_option = click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    default=found_socket,
    show_default=str(SOCKET),
    envvar="COSCHED_DESK_SOCKET",
    metavar="FILE",
    help="Where this machine's guard listens (desk.sock in its run directory).",
)


_on_or_off = click.argument("switch", metavar="on|off", type=click.Choice(["on", "off"]))


def _seconds(duration: str, option: str) -> float:
    seconds = duration_us(duration, option) / US_PER_S
    if not 0 < seconds <= _LONGEST_S:
        raise BadInput(option, f"found {duration}", "a time above 0, up to 366d")
    return seconds


def _at_desk(command: Callable[..., Answer]) -> Callable[..., int]:
    """Add the options of every verb that says something; the socket's arrives as ``path``."""
    return _socket_option(says(command))


@click.group("desk")
def command() -> None:
    """What runs beside you on this machine, and what you allow of it.

    What decides is for root, and for who is logged in at the machine itself; it works without the scheduler.

    \b
    Example: cosched desk status
    """


@command.command("status")
@_at_desk
def status_command(path: Path) -> Answer:
    """Whose jobs run on this machine, how much they use, and what you have allowed.

    \b
    Example: cosched desk status
    """
    before = ask(path, {"do": "status"})
    if not before["jobs"]:
        told = document(before)
        return Answer(told, [*lines(told), "no job is here"])
    time.sleep(_BETWEEN_S)
    return _asked(path, before, do="status")


@command.command("pause")
@click.option(
    "--for", "seconds", metavar="TIME", callback=read_by(_seconds), help="Go on by itself after this time, such as 2h."
)
@_at_desk
def pause_command(path: Path, seconds: float | None) -> Answer:
    """Stop all parallel work on this machine, at once.

    What runs is frozen and goes on after 'cosched desk resume'; its memory stays in use.

    \b
    Example: cosched desk pause --for 30min
    """
    return _asked(path, do="pause", seconds=seconds)


@command.command("resume")
@_at_desk
def resume_command(path: Path) -> Answer:
    """Let parallel work go on.

    \b
    Example: cosched desk resume
    """
    return _asked(path, do="resume")


@command.command("end")
@click.argument("which", metavar="JOB|all")
@_at_desk
def end_command(path: Path, which: str) -> Answer:
    """End a job on this machine, or all of them; it is not put here again.

    Its processes here have at most five seconds. On its other nodes the scheduler ends it: its user is told that the
    owner of this machine has ended it, and it runs again elsewhere if that was asked for (submit --requeue).

    \b
    Example: cosched desk end 12
    """
    if which != "all" and not (which.isascii() and which.isdigit() and len(which) <= 18):
        raise BadInput("JOB", f"{which[:40]!r}", "the number of a job, as 'cosched desk status' prints it, or all")
    answer = ask(path, {"do": "end", "job": None if which == "all" else int(which)})
    ended = ", ".join(f"job {job}" for job in answer["ended"])
    line = f"ended here: {ended}" if ended else "nothing runs here that was not being ended already"
    return Answer({"ended": answer["ended"]}, [line])


@command.command("ban")
@click.argument("user", required=False)
@click.option(
    "--for",
    "seconds",
    metavar="TIME",
    callback=read_by(_seconds),
    help="Until then, such as 8h or 7d; else until 'desk allow'.",
)
@click.option("--list", "only_list", is_flag=True, help="Say who is banned.")
@_at_desk
def ban_command(path: Path, user: str | None, seconds: float | None, only_list: bool) -> Answer:
    """Take no jobs of a user on this machine. (What runs goes on: 'desk end' ends it.)

    \b
    Example: cosched desk ban bob --for 8h
    """
    found = "none given" if user is None else "with --list"
    refuse(
        ((user is None) != only_list, "USER", found, "a user's name, or --list alone"),
        (user is not None and not user.strip(), "USER", f"{user!r}", "a user's name"),
        (only_list and seconds is not None, "--for", "with --list", "--list alone"),
    )
    if user is not None:
        answer = _asked(path, do="ban", user=user, seconds=seconds)
        if not _known(user):
            say(f"no user of this computer is called {user}: is the name right?")
        return answer
    status = ask(path, {"do": "status"})
    if (bans := status["word"].get("bans")) is None:
        expected = "root, a user with a local session at this machine, or one of desk_users"
        raise BadInput("--list", "this user may not list bans", expected)
    told = [line for line in lines(document(status)) if line.startswith("banned: ")]
    return Answer({"bans": bans}, told or ["nobody is banned here"])


@command.command("allow")
@click.argument("user")
@_at_desk
def allow_command(path: Path, user: str) -> Answer:
    """Take a user's jobs again.

    \b
    Example: cosched desk allow bob
    """
    return _asked(path, do="allow", user=user)


@command.command("hours")
@click.argument("windows", metavar="WINDOW...", nargs=-1, required=True)
@_at_desk
def hours_command(path: Path, windows: tuple[str, ...]) -> Answer:
    """Let parallel work run in some hours alone, by this machine's clock; outside of them it is paused.

    A WINDOW is a span (18:00-08:00), days (sat,sun), or both (mon,tue@12:00-13:00); 'always' takes it back.

    \b
    Example: cosched desk hours 18:00-08:00 sat,sun
    """
    asked = None if windows == ("always",) else [_window(each) for each in windows]
    return _asked(path, do="hours", windows=asked)


@command.command("share")
@click.argument("ratio", metavar="SHARE|contract")
@_at_desk
def share_command(path: Path, ratio: str) -> Answer:
    """Leave parallel work less of the CPU while somebody is here than the contract does; 'contract' takes it back.

    \b
    Example: cosched desk share 0.25
    """
    expected = f"a part of the CPU such as 0.25, from {_LEAST_SHARE} to 1, or contract"
    wrong = BadInput("SHARE", f"{ratio[:40]!r}", expected)
    share = None if ratio == "contract" else number_within(ratio, _LEAST_SHARE, 1, wrong)
    return _asked(path, do="share", cpu_ratio=share)


@command.command("session")
@click.option("--quiet", is_flag=True, help="Show no notifications.")
@_socket_option
def session_command(path: Path, quiet: bool) -> None:
    """Run beside your desktop: notify of jobs that begin, and let a film count as you being there.

    An installed node starts it with each desktop session. It ends with that.

    \b
    Example: cosched desk session --quiet
    """
    follow(path, notify=not quiet)


@command.command("probe")
@_on_or_off
@_at_desk
def probe_command(path: Path, switch: str) -> Answer:
    """Let a small process measure here how late your programs wake up, or not.

    \b
    Example: cosched desk probe off
    """
    return _asked(path, do="probe", on=switch == "on")


@command.command("wake")
@_on_or_off
@_at_desk
def wake_command(path: Path, switch: str) -> Answer:
    """Let this computer be woken from its sleep for jobs that wait, or not (as it is until you say so).

    \b
    Example: cosched desk wake on
    """
    return _asked(path, do="wake", on=switch == "on")


def _known(user: str) -> bool:
    """Whether there is such a user: names are the same on all computers of a cluster."""
    try:
        pwd.getpwnam(user)
    except (KeyError, ValueError):
        return False
    return True


def _window(text: str) -> list[Any]:
    """A window as the guard takes it: minutes of its begin and end, and its days."""
    days, at, span = text.rpartition("@")
    if not at and ":" not in text:
        days, span = text, "00:00-24:00"
    try:
        hours = hours_of(span, days.split(",") if days else DAYS)
    except ValueError as problem:
        raise BadInput("WINDOW", f"{text[:40]!r}", f"{problem}") from None
    return [hours.begin % (24 * 60), hours.end, sorted(hours.days)]


def _asked(path: Path, before: dict[str, Any] | None = None, **request: Any) -> Answer:
    """What the guard answers to a request. ``before``: an earlier answer, by which the CPUs in use are known."""
    told = document(ask(path, request), before)
    return Answer(told, lines(told))
