"""Where a job works and which variables go with it, for the verbs that submit jobs."""

import os
import re
from typing import Final

from cosched.apps.cli.shared.values import refuse
from cosched.errors import BadInput

#: What finds programs and says in which language they speak.
_PROGRAMS: Final = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
)
#: What is a node's or a session's own, and would be wrong elsewhere.
_OWN: Final = re.compile(
    r"HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|SHLVL|_|TMPDIR|MAIL|DISPLAY|XAUTHORITY|WINDOWID|TERM\w*|TTY"
    r"|XDG_(?:RUNTIME_DIR|SESSION_\w+|SEAT|VTNR)|DBUS_SESSION_BUS_ADDRESS|SSH_\w+|COSCHED_\w+"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def directory(given: str | None) -> str:
    """A job's directory, absolute: the current one, or as given from there. Raises :class:`BadInput`."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise BadInput("--directory", "the current directory is gone", "a directory that is there") from None
    # As the shell shows it where that is the same place: on another node a symbolic link may lead elsewhere.
    shown = os.environ.get("PWD", "")
    if shown.startswith("/") and os.path.realpath(shown) == os.path.realpath(here):
        here = shown
    return os.path.normpath(os.path.join(here, given)) if given else here


def missing_place(option: str, path: str | None, works_in: str) -> None:
    """Refuse a file of output whose directory is not there, where this machine sees it. Raises :class:`BadInput`.

    It sees the job's files where it has the directory ``works_in``, and others where it has the top of their paths.
    """
    if path is None or not os.path.isdir(works_in):
        return
    whole = os.path.normpath(os.path.join(works_in, path))
    place = os.path.dirname(whole)
    seen = "%" not in place and os.path.isdir("/".join(place.split("/")[:2]))
    missing = seen and not os.path.isdir(place)
    refuse(
        (os.path.isdir(whole), option, f"{whole} is a directory", "the path of a file"),
        (missing, option, f"there is no directory {place}", f"one that is there: mkdir -p {place}"),
    )


def environment(export: str, variables: tuple[str, ...]) -> dict[str, str]:
    """The variables that go with the job. Raises :class:`BadInput`."""
    chosen: dict[str, str] = {}
    if export == "programs":
        chosen = {name: os.environ[name] for name in _PROGRAMS if name in os.environ}
    elif export == "all":
        chosen = {n: value for n, value in os.environ.items() if _NAME.fullmatch(n) and not _OWN.fullmatch(n)}
    for each in variables:
        name, equals, value = each.partition("=")
        unset, named = not equals and name not in os.environ, _NAME.fullmatch(name)
        refuse(
            (not named, "--env", f"{each!r}", "NAME or NAME=VALUE; a name has letters, digits and _"),
            (unset, "--env", f"{name}, which is not set here", "NAME=VALUE"),
        )
        chosen[name] = value if equals else os.environ[name]
    for name, value in chosen.items():
        utf8(value, f"--env {name}")
    return chosen


def utf8(value: str, where: str) -> str:
    """The value, unless it has bytes that are not UTF-8. Raises :class:`BadInput`."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(where, f"{value!r}", "text in UTF-8") from None
    return value
