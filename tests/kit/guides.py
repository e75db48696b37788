"""The command lines that the guides tell people to type: those of console blocks, and those in the text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
#: ``$ ``, ``# ``, ``desk1# ``, ``ada$ ``: the host or the user, if it is named, and ``#`` for root.
_PROMPT = re.compile(r"(?P<host>[a-z][a-z0-9]*)?(?P<sign>[$#]) (?P<rest>.*)")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_COMMENT = re.compile(r"\s{2,}#\s.*$")
#: The first word of what is a command line when it stands in a text between backquotes.
PROGRAMS = frozenset((
    "./run", "/opt/cosched/bin/python3", "ansible-playbook", "cat", "chmod", "cosched", "curl", "df", "dmesg",
    "export", "iostat", "journalctl", "ls", "mkdir", "mount", "ping", "python3", "rm", "runuser", "ssh", "sudo",
    "systemctl", "systemd-analyze", "systemd-sysusers", "systemd-tmpfiles", "umount", "userdel",
))  # fmt: skip
_PLAYBOOK = re.compile(r"[a-z_]+\.yml\b")


@dataclass(frozen=True)
class Line:
    """A command line of a page: where it stands, on which host and as which account it is typed, what it prints."""

    page: str
    number: int
    command: str
    host: str = ""  # or the user, where the prompt names one
    root: bool = False  # the prompt is root's
    printed: tuple[str, ...] = ()  # the lines that the page shows below it
    in_text: bool = False


def typed(page: str, text: str) -> Iterator[Line]:
    """The command lines of a page's console blocks, with the output that the page shows.

    A line that ends with a backslash, and a here-document, belong to one command. Comments at its end do not.
    """
    for fence in _FENCE.finditer(text):
        if fence["language"] != "console":
            continue
        first = text.count("\n", 0, fence.start("text")) + 1
        lines = [line.removeprefix(fence["indent"]) for line in fence["text"].splitlines()]
        at = 0
        found: tuple[tuple[int, str, bool, str], list[str]] | None = None
        while at < len(lines):
            prompt = _PROMPT.fullmatch(lines[at])
            begun = at
            at += 1
            if prompt is None:
                if found:
                    found[1].append(lines[begun])
                continue
            if found:
                yield _line(page, *found)
            command = [prompt["rest"]]
            while command[-1].endswith("\\") and at < len(lines):
                command.append(lines[at])
                at += 1
            here = _HERE.search("\n".join(command))
            while here and command[-1] != here[2] and at < len(lines):
                command.append(lines[at])
                at += 1
            found = ((first + begun, prompt["host"] or "", prompt["sign"] == "#", "\n".join(command)), [])
        if found:
            yield _line(page, *found)


def _line(page: str, begins: tuple[int, str, bool, str], printed: list[str]) -> Line:
    number, host, root, command = begins
    return Line(page, number, _COMMENT.sub("", command), host, root, tuple(printed))


def in_text(page: str, text: str) -> Iterator[Line]:
    """The command lines that stand between backquotes in a page's text, and playbooks with their arguments."""
    prose = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    for span in re.finditer(r"(?<!`)`([^`]+)`(?!`)", prose):
        command = " ".join(span[1].split())
        first = command.split(" ")[0]
        if (first in PROGRAMS and (command != first or first.startswith("systemd-"))) or _PLAYBOOK.fullmatch(first):
            yield Line(page, prose.count("\n", 0, span.start()) + 1, command, in_text=True)


def lines(page: str, text: str) -> list[Line]:
    """A page's command lines, each once: that of a block, with what it prints, before the same in the text.

    What stands in the text and is the beginning of another line names that one.
    """
    found: dict[str, Line] = {}
    for line in (*typed(page, text), *in_text(page, text)):
        found.setdefault(line.command, line)
    longer = {
        command
        for command, line in found.items()
        if line.in_text and any(other.startswith(f"{command} ") for other in found)
    }
    return sorted((line for command, line in found.items() if command not in longer), key=lambda line: line.number)
