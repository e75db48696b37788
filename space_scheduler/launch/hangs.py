"""MPI programs that wait until a job's limit, or lose their input: seen in the script, and in what it wrote till then.

``mpirun`` and ``mpiexec`` read the standard input that they have and hand it to rank 0, also in a loop that reads from
it. With Open MPI 5.0.11 rank 0 never sees the end of that input.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

from space_scheduler.launch.environment import LAUNCHERS

#: Of a script that is longer, the beginning is read.
_MOST_CHARACTERS: Final = 64 << 10
_MOST_NOTES: Final = 10
_COMMENT: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
#: A loop's head, a loop's end, and a launcher's command with the implementation that Debian's name says.
_TOKEN: Final = re.compile(
    r"(?:^|[;|&({]|\b(?:do|then|else)\b)[ \t]*(?:(?P<loop>while|until|for|select)\b(?P<head>[^\n;]*)|(?P<done>done)\b)"
    r"|(?<![\w.-])(?P<name>mpirun|mpiexec|prterun|orterun)(?P<kind>\.\w+)?"
    r"(?P<words>[ \t](?:[^;|&\n)\\]|\\[\s\S]|(?<=>)&)*)",
    re.MULTILINE,
)
_READS: Final = re.compile(r"\bread\b(?!.*(?:<&|\s-u\b))")
_INPUT: Final = re.compile(r"<(?!\()\s*(?P<file>[^\s;|&<]*)|--?stdin[\s=]+none\b")
_RAISED: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?P<what>[A-Za-z_][\w.]*(?::.*)?)$", re.MULTILINE
)


def script_notes(script: str) -> list[str]:
    """What a script does with standard input that is probably not meant, each with its remedy."""
    text = _COMMENT.sub("", script[:_MOST_CHARACTERS])
    notes, loops = [], []
    for token in _TOKEN.finditer(text):
        if token["loop"]:
            loops.append(token["loop"] == "while" and bool(_READS.search(token["head"])))
        elif token["done"]:
            loops[-1:] = []
        else:
            before = text[max(0, token.start() - 100) : token.start()].rstrip()
            piped = before.endswith("|") and not before.endswith("||")
            line = text.count("\n", 0, token.start()) + 1
            notes += [f"line {line}: {note}" for note in _notes(token, piped=piped, in_reading_loop=any(loops))]
    return notes[:_MOST_NOTES]


def _notes(command: re.Match[str], *, piped: bool, in_reading_loop: bool) -> Iterator[str]:
    name = command["name"] + (command["kind"] or "")
    given = _INPUT.search(command["words"])
    if given is None and not piped and in_reading_loop:
        yield f"{name} takes the lines that 'while read' is to read: '{name} … </dev/null' does not"
    if command["kind"] is None and (piped if given is None else given["file"] not in (None, "/dev/null")):
        yield (
            f"under {name} of Open MPI 5 a program never sees the end of its standard input: "
            "let it open the file by its name, or use Open MPI 4.1"
        )


def cause_of_time_out(error: str, tasks: int, script: str, seen: Collection[str] = ()) -> str:
    """Why a job may have waited until its limit, and the remedy; empty: nothing shows that.

    ``seen``: processes of launchers (``Launcher.watched``) that its nodes have seen.
    """
    raised = [match["what"] for match in _RAISED.finditer(error)]
    if raised and tasks > 1:
        return (
            f"a rank ended with {raised[-1][:200]}, and the others may have waited for it: "
            "'mpirun python3 -m mpi4py PROGRAM' ends all of them then"
        )
    begins = script[:_MOST_CHARACTERS]
    return next((why for each in LAUNCHERS if (why := each.hang(error, begins, seen))), "")
