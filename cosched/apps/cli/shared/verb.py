"""What a verb is made of: its common options, the service that it asks, and what it prints.

A verb that is decorated by :func:`says` gives an :class:`Answer` and prints nothing itself; one that is decorated by
:func:`asks` is given the ``client`` of the service that is meant.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
import msgspec

from cosched.apps.cli.shared.foreign import jobs_meant
from cosched.apps.cli.shared.values import refuse
from cosched.config.units import is_whole
from cosched.errors import BadInput
from cosched.report.table import Table

if TYPE_CHECKING:
    from cosched.client.client import Client

Command = TypeVar("Command", bound=Callable[..., Any])
Item = TypeVar("Item")

#: In place of a job's number: the job that the user has submitted last.
LAST: Final = "last"
#: Adds ``--json``, which arrives as ``as_json``.
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
#: Adds ``--wide``: a list is not cut to the terminal's width.
wide_option: Final = click.option("--wide", is_flag=True, help="Cut nothing off at the terminal's width.")


class Answer(NamedTuple):
    """What a verb has found: the document that ``--json`` prints, lines and tables for people, the exit status.

    Of ``document`` and ``lines`` one is used; lines that take long to make are an iterator.
    """

    document: object
    lines: Iterable[str | Table] = ()
    status: int = 0


def options(*declared: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """A decorator that adds these options to a command, in this order in its help."""
    return lambda command: reduce(lambda made, option: option(made), reversed(declared), command)


#: Adds the options that say which service is asked; they arrive as ``server`` and ``lab``.
service: Final = options(
    click.option(
        "--server", metavar="PLACE", help="The service: path of its Unix socket, or https://HOST:PORT [COSCHED_SERVER]."
    ),
    click.option("--lab", metavar="NAME", help="The service of a lab on this machine [COSCHED_LAB]."),
)


def asks(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which service is asked; the verb gets a ``client`` of it for as long as it runs."""

    @wraps(verb)
    def asked(server: str | None, lab: str | None, **given: Any) -> Any:
        from cosched.client.find import connect  # noqa: PLC0415 (HTTP and TLS: a simulation asks no service)

        with connect(server, lab) as client:
            if given.get("job_id") == LAST:
                given["job_id"] = _newest(client)
            if LAST in given.get("job_ids", ()):
                numbers = (_newest(client) if each == LAST else each for each in given["job_ids"])
                given["job_ids"] = tuple(dict.fromkeys(numbers))
            return verb(client=client, **given)

    return service(asked)


def _newest(client: "Client") -> int:
    """The last job that this user has submitted, of those alive and the newest ended. Raises :class:`BadInput`."""
    from cosched.apps.cli.shared.words import this_user  # noqa: PLC0415 (half of what a desk's commands import)

    user = this_user()
    found = [job.job_id for job in (*client.jobs(user), *client.history(user))]
    refuse((not found, "ID", f"'{LAST}', but {user} has no job here", "the number of a job"))
    return max(found)


def says(verb: Callable[..., Answer]) -> Callable[..., int]:
    """Add ``--json``, and print what the verb answers as one line of JSON or for people; gives its exit status."""

    @wraps(verb)
    def said(as_json: bool, **given: Any) -> int:
        answer = verb(**given)
        if as_json:
            echo_json(answer.document)
        else:
            echo(answer.lines)
        return answer.status

    return json_option(said)


def tell_each(
    found: Iterable[Item],
    lines: Callable[[Iterable[Item]], Iterable[str]],
    document: Callable[[list[Item]], object],
    *,
    as_json: bool,
) -> list[Item]:
    """Print what is found one by one: for people each as it comes, as JSON a document of all; gives all of it."""
    told: list[Item] = []

    def telling() -> Iterator[Item]:
        for each in found:
            told.append(each)
            yield each

    if as_json:
        echo_json(document([*telling()]))
    else:
        echo(lines(telling()))
    return told


def echo_json(document: object) -> None:
    """Print a document as one line of JSON."""
    click.echo(msgspec.json.encode(document))


def json_text(document: object, indent: int = 2) -> str:
    """A document as the text of a file that people read too."""
    return msgspec.json.format(msgspec.json.encode(document), indent=indent).decode() + "\n"


def echo(lines: Iterable[str | Table], *, err: bool = False) -> None:
    """Print lines and tables; ``err``: on standard error."""
    for each in lines:
        if isinstance(each, Table):
            each.print(err=err)
        else:
            click.echo(each, err=err)


def say(text: str) -> None:
    """Print a line on standard error: what goes on, beside what comes out."""
    click.echo(text, err=True)


def _job_number(text: str) -> int | str:
    if text == LAST:
        return text
    if not is_whole(text) or len(text) > 18 or int(text) < 1:
        expected = f"the number of a job, as 'cosched submit' and 'cosched queue' print it, or {LAST!r}"
        raise BadInput("ID", f"{text!r}", expected, nearest=jobs_meant(text))
    return int(text)


#: Adds the argument ID, which arrives as ``job_id``, a number by :func:`asks`; what is none raises :class:`BadInput`.
job_argument: Final = click.argument("job_id", metavar="ID", callback=lambda _ctx, _param, text: _job_number(text))
#: Adds the argument ID…, which arrives as ``job_ids``, numbers by :func:`asks`: each once.
job_arguments: Final = click.argument(
    "job_ids",
    metavar="ID...",
    nargs=-1,
    required=True,
    callback=lambda _ctx, _param, texts: tuple(dict.fromkeys(map(_job_number, texts))),
)
