"""What may be submitted: checked before anything is journalled, so that bad input costs nothing that was there."""

import hashlib
import json
import posixpath
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cosched.config.cluster import ClusterConfig
from cosched.config.convert import convert, shown
from cosched.config.hosts import MAX_NODE_NAME
from cosched.config.units import size_bytes
from cosched.errors import BadInput, nearest
from cosched.model.job import PRIVATE_PLACES, Job
from cosched.model.sizes import MAX_TASKS, contradiction, parse_sizes
from cosched.model.time import US_PER_S, humanised
from cosched.wire.api import ASKED, Submission
from cosched.wire.foreign import directives
from cosched.wire.output_names import expanded, has_unknown_pattern
from space_scheduler.launch import check_environment
from space_scheduler.service.access.problems import TooLarge
from space_scheduler.service.api import bodies

MAX_SCRIPT_BYTES: Final = 1 << 20
MAX_ARGUMENTS_BYTES: Final = 128 << 10
_MAX_NAME: Final = 128
_MAX_PATH: Final = 4095  # Linux's PATH_MAX, less the closing NUL
_LONGEST_NUMBER: Final = 10**18  # of a job
_LONGEST_USER: Final = 256  # Linux's LOGIN_NAME_MAX
#: What travels to a node's guard in one packet, as JSON, less the part that is left to the job's own variables.
MAX_LAUNCH_BYTES: Final = 160 << 10
MAX_ARGUMENTS: Final = 4000
#: Of ``sizes``, in characters.
_MAX_SIZES: Final = 4000
_MAX_COMPONENTS: Final = 1000
#: A link that makes a job longer by more than that many times its time is none.
MOST_CROSSING: Final = 1000


def decoded(body: bytes) -> Submission:
    """The submission in a request's body. Raises :class:`BadInput` with the key's path."""
    return convert(bodies.decoded(body, "a submission as JSON"), Submission, "submission")


def checked(given: Submission, config: ClusterConfig) -> Submission:
    """The same submission, when this cluster can take it; names and paths made plain. Raises :class:`BadInput`."""
    _script(given.script)
    for key, asked in ASKED:
        value = getattr(given, key)
        if asked.words and isinstance(value, str) and value not in asked.words:
            raise _bad(key, value, " or ".join(asked.words), nearest(value, asked.words))
        if asked.within and value is not None and not asked.within[0] <= value <= asked.within[1]:
            raise _bad(key, value, asked.expected)
    refused = (given.foreign_directives or config.foreign_directives) == "refuse"
    if refused and (found := directives(given.script).left()):
        raise BadInput(
            "submission: script",
            f"{found}: of another batch system, and not read here",
            "lines '#COSCHED OPTIONS', or --foreign-directives warn, with which they are comments",
        )
    _arguments(given.arguments)
    _tasks(given)
    if given.time_limit_s is not None:
        _time_limit(given.time_limit_s, config)
    if given.crossing is not None:
        _crossing(given.crossing, given.time_limit_s, config)
    if not 0 <= given.umask <= 0o777:
        raise _bad("umask", given.umask, "a number from 0 to 511, the octal 777")
    if len(given.name) > _MAX_NAME or not given.name.isprintable():
        raise _bad("name", given.name[:_MAX_NAME], f"at most {_MAX_NAME} printable characters")
    directory = _path("directory", given.directory)
    if not directory.startswith("/"):
        raise _bad("directory", given.directory, "an absolute path")
    check_environment(given.environment)
    made = msgspec.structs.replace(
        given,
        directory=posixpath.normpath(directory),
        output=_file("output", given.output, given, directory),
        error=_file("error", given.error, given, directory),
    )
    # each of them alone is not too long; all together travel in one packet
    packet = json.dumps([made.arguments, made.environment, made.directory, made.output, made.error])
    if len(packet) > MAX_LAUNCH_BYTES:
        raise TooLarge(
            "submission: arguments and environment",
            f"{len(packet)} bytes together, as they travel to the nodes",
            f"at most {MAX_LAUNCH_BYTES}; long lists are better in a file, and --export names what the job needs",
        )
    return made


def job_of(given: Submission, config: ClusterConfig, uid: int, program: str) -> Job:
    """The core's job of a checked submission, still without number and time; what it leaves out is the cluster's."""
    fields: dict[str, Any] = {"estimate_us": config.time_us("default_time")}
    if config.default_memory:
        fields["memory_bytes"] = size_bytes(config.default_memory, "default_memory")
    for key, asked in ASKED:
        if asked.job and (value := getattr(given, key)) is not None:
            fields[asked.job] = asked.to_job(value)
    return Job(0, submit_us=0, user=uid, program=program, **fields)


def outliving(given: Submission, *, private_tmp: bool) -> None:
    """Refuse what would be lost where every node gives a job a /tmp of its own. Raises :class:`BadInput`."""
    for key, path in (("directory", given.directory), ("output", given.output), ("error", given.error)):
        if private_tmp and path is not None and path.startswith(PRIVATE_PLACES):
            raise BadInput(
                f"submission: {key}",
                f"{path} is in a job's own /tmp, empty at its start",
                "a place that outlives the job and that its nodes have, such as one below your home",
            )


def _script(script: str) -> None:
    if not script.strip():
        raise _bad("script", script[:20], "a script")
    _at_most(MAX_SCRIPT_BYTES, "script", len(script.encode()), "bytes")
    first = script.partition("\n")[0]
    if "\0" in script or not first.startswith("#!") or not first[2:].strip():
        raise BadInput(
            "submission: script",
            f"its first line is {first[:60]!r}",
            "a script whose first line names its interpreter, such as #!/bin/sh",
        )
    if "\r" in first:
        raise BadInput("submission: script", "its lines end with CR LF, as on Windows", "lines that end with LF")


def _tasks(given: Submission) -> None:
    """How many tasks it may have, and what else it says of its shape."""
    if given.sizes is not None:
        _at_most(_MAX_SIZES, "sizes", len(given.sizes), "characters")
        if not parse_sizes(given.sizes, MAX_TASKS, "submission: sizes")[0]:
            raise _bad("sizes", given.sizes, f"a size of at most {MAX_TASKS} among them")
    if given.components is not None and not (
        1 <= len(given.components) <= _MAX_COMPONENTS and min(given.components) >= 1
    ):
        raise _bad("components", list(given.components), f"tasks of 1 to {_MAX_COMPONENTS} components, each at least 1")
    sizes = (given.tasks, given.min_tasks, given.max_tasks, given.sizes, given.evolve_tasks, given.components)
    if wrong := contradiction(*sizes):
        key, found, expected = wrong
        raise BadInput(f"submission: {key}", found, expected)


def _arguments(arguments: Sequence[str]) -> None:
    _at_most(MAX_ARGUMENTS, "arguments", len(arguments), "of them")
    for at, argument in enumerate(arguments):
        if "\0" in argument:
            raise BadInput(f"submission: arguments[{at}]", "a NUL character in it", "text")
    _at_most(MAX_ARGUMENTS_BYTES, "arguments", sum(len(argument.encode()) + 1 for argument in arguments), "bytes")


def _time_limit(limit_s: float, config: ClusterConfig) -> None:
    longest_us = config.time_us("max_time")
    if not 0 < limit_s * US_PER_S <= longest_us or limit_s * US_PER_S < 1:
        raise _bad("time_limit_s", limit_s, f"more than 0, at most {longest_us / US_PER_S:g} ({humanised(longest_us)})")


def _crossing(crossing: float, limit_s: float | None, config: ClusterConfig) -> None:
    """Across the link its limit is longer by that, and no longer than any job's."""
    limit_us = config.time_us("default_time") if limit_s is None else limit_s * US_PER_S
    most = min(config.time_us("max_time") / limit_us - 1, MOST_CROSSING)
    if not 0 <= crossing <= most:
        raise _bad("crossing", crossing, f"from 0, at most {most:g}: so many times its time limit longer")


def _path(key: str, path: str) -> str:
    if not path or "\0" in path or len(path.encode()) > _MAX_PATH:
        raise _bad(key, path[:60], f"a path of at most {_MAX_PATH} bytes")
    return path


def _file(key: str, path: str | None, given: Submission, directory: str) -> str | None:
    """A path of output: where it is relative, it is in the job's directory."""
    if path is None:
        return None
    if _path(key, path).endswith("/"):
        raise _bad(key, path, "the path of a file")
    if has_unknown_pattern(path):
        raise _bad(key, path, "%j (number), %x (name), %u (user) or %N (first node) after a %; %% is a % itself")
    whole = _path(key, posixpath.join(directory.replace("%", "%%"), path))
    _path(key, expanded(whole, _LONGEST_NUMBER, given.name, "u" * _LONGEST_USER, "n" * MAX_NODE_NAME))
    return posixpath.normpath(whole)


def _at_most(most: int, key: str, count: int, of: str) -> None:
    if count > most:
        raise TooLarge(f"submission: {key}", f"{count} {of}", f"at most {most}")


def _bad(key: str, found: object, expected: str, near: str = "") -> BadInput:
    return BadInput(f"submission: {key}", f"found {shown(found)}", expected, nearest=near)


def program(user: str, submission: Submission) -> str:
    """The name of a user's program, under which its behaviour is remembered: a script with its arguments.

    On one node alone it is another program, since it has no peers to communicate with.
    """
    several = str(submission.tasks > 1 or submission.several_sizes)
    text = "\0".join([several, submission.script, *submission.arguments])
    return f"{user}:{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"
