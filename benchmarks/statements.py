"""How many statements of Python each room has, at one commit and at a later one.

    ./run bench statements BEFORE [AFTER]

Counted is what the parser takes for a statement; imports, docstrings and comments are none. A file that was moved
counts at both commits in the room where it stands now, so that a move is no growth. The rooms are those of
docs/design/rooms.md at AFTER (HEAD); the table that this prints is in docs/design/size.md.
"""

import ast
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Files that were rewritten, so that git does not see where they went.
BECAME = {
    "node_agent/linux/__init__.py": "cosched/linux/__init__.py",
    "space_scheduler/policy/future.py": "space_scheduler/policy/future/shared.py",
    "space_scheduler/policy/room.py": "space_scheduler/policy/room/__init__.py",
    "space_scheduler/policy/select/timetable.py": "space_scheduler/policy/future/named.py",
    "space_scheduler/service/launches.py": "space_scheduler/service/launch/service_core.py",
    "space_scheduler/service/orientations.py": "space_scheduler/service/launch/owners.py",
}


def git(*words: str) -> bytes:
    """What git answers."""
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True).stdout


def statements(source: bytes) -> int:
    """Those of one file."""
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))  # a docstring, or an ellipsis
        for node in ast.walk(ast.parse(source))
    )


def files(commit: str) -> dict[str, int]:
    """The statements of each file of Python."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as archive:
        return {
            member.name: statements(content.read())
            for member in archive
            if member.name.endswith(".py") and (content := archive.extractfile(member))
        }


def table(before: str, after: str) -> dict[str, tuple[int, int]]:
    """Each room's statements at both."""
    rooms = re.findall(r"^\| `([\w./]+/)` \|", git("show", f"{after}:docs/design/rooms.md").decode(), re.MULTILINE)
    renamed = git("diff", "--name-status", "--diff-filter=R", "-M40%", "-l0", before, after).decode().splitlines()
    now = BECAME | {old: new for _, old, new in (line.split("\t") for line in renamed)}
    then, since = Counter[str](), Counter[str]()
    for counts, found in ((then, files(before)), (since, files(after))):
        for name, number in found.items():
            place = now.get(name, name) if counts is then else name
            counts[max((room for room in rooms if place.startswith(room)), key=len, default="no room")] += number
    return {room: (then[room], since[room]) for room in sorted(then.keys() | since.keys())}


def main(before: str, after: str = "HEAD") -> None:
    """Print the table."""
    found = table(before, after)
    shown = {f"`{room}`": pair for room, pair in found.items() if any(pair)}
    for name, chosen in (("all but tests", [room for room in found if room != "tests/"]), ("all", [*found])):
        shown[name] = (sum(found[room][0] for room in chosen), sum(found[room][1] for room in chosen))
    print("| room | before | after | difference |\n|---|---|---|---|")
    for name, (then, since) in shown.items():
        print(f"| {name} | {then} | {since} | {since - then:+d} |")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: ./run bench statements BEFORE [AFTER]: two commits, the second HEAD unless given")
    main(*sys.argv[1:])
