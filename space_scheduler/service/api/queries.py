"""Numbers and words of a request's address. Each raises :class:`BadInput` with what was found and expected."""

from aiohttp import web

from cosched.errors import BadInput, nearest
from space_scheduler.service.access.problems import Refusal
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry


def job_id(request: web.Request) -> int:
    """The number in the path."""
    text = request.match_info["id"]
    if not (text.isascii() and text.isdecimal()) or len(text) > 18 or int(text) < 1:
        raise BadInput("job", f"found {text!r}", "a job's number, such as 12")
    return int(text)


def whole(request: web.Request, key: str, least: int, most: int | None, default: int | None) -> int | None:
    """A whole number of the query, or the default."""
    text = request.query.get(key)
    if text is None:
        return default
    expected = f"a whole number, {least} to {most}" if most is not None else f"a whole number of at least {least}"
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise BadInput(key, f"found {text!r}", expected)
    if int(text) < least or (most is not None and int(text) > most):
        raise BadInput(key, f"found {text}", expected)
    return int(text)


def choice(request: web.Request, key: str, choices: tuple[str, ...]) -> str:
    """One of a few words of the query; the first where it is absent."""
    text = request.query.get(key, choices[0])
    if text not in choices:
        raise BadInput(key, f"found {text!r}", " or ".join(choices), nearest=nearest(text, choices))
    return text


def node(request: web.Request, book: NodeBook) -> NodeEntry:
    """The node in the path. Raises :class:`Refusal` with 404."""
    name = request.match_info["name"]
    if (entry := book.get(name)) is None:
        near = nearest(name, book.names())
        hint = f"; did you mean {near!r}?" if near else ""
        raise Refusal(404, f"there is no node {name!r}{hint}", where="node", found=name, nearest=near)
    return entry
