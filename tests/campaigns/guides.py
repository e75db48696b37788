"""The guides, typed: each command line of README and of the administrator's and owner's guides, on hosts with systemd.

    ./run campaign guides [--work DIR] [--image DIR] [--only PART ...] [--factor N] [--list]

Five hosts (``_systemd_hosts``) on a network of their own, and this machine as that of the checkout. The lines are typed
in the order of ``_guides_acts``, as the account that the guide means, in terminals that keep directory and variables;
exit status and what the page shows are compared. A line that does otherwise ends the campaign with 1; given the same
``--work`` it goes on there, with the hosts as they were left. ``--list`` prints which lines are typed where, and which
are not and why, in Markdown. Needs root, debootstrap, systemd-nspawn, ssh, curl, an overlay file system, and a
network for the machine of the checkout.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from kit.guides import Line, lines

from campaigns._ansible_lab import Broken, workplace
from campaigns._guides_acts import LEFT, PAGES, PARTS, Act
from campaigns._guides_ground import Ground
from campaigns._systemd_hosts import COMMANDS, image, require


def table() -> str:
    """What is typed where, by page, and what is not, in Markdown."""
    rows = ["| page | line | typed on | as |", "|---|---|---|---|"]
    acts = [act for part in PARTS.values() for act in part if act.page]
    for page, file in PAGES.items():
        for line in lines(page, file.read_text()):
            where = {(act.on, act.user): None for act in acts if (act.page, act.line) == (page, line.command)}
            if where:
                hosts = ", ".join(dict.fromkeys(on for on, _ in where))
                users = ", ".join(dict.fromkeys(user for _, user in where))
                rows.append(f"| {page} | `{line.command.replace('|', chr(92) + '|')}` | {hosts} | {users} |")
    return "\n".join([*rows, "", left_out()])


def left_out() -> str:
    """What is not typed and why, in Markdown."""
    rows = [f"| {each.replace(': ', ': `', 1)}` | {reason} |" for reason, left in LEFT.items() for each in left]
    return "\n".join(["| not typed | why |", "|---|---|", *rows])


def main() -> int:
    """Type the lines; the exit status is 1 where one does not do what its page says."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--work", type=Path, help="a directory for hosts and logs, which is kept [a temporary one]")
    parser.add_argument(
        "--image", type=Path, default=Path("/var/cache/cosched-campaign"), help="kept for the next time"
    )
    parser.add_argument("--only", action="append", metavar="PART", help="these parts; repeatable [all]")
    parser.add_argument("--factor", type=float, default=1.0, metavar="N", help="multiplies what is waited for [1]")
    parser.add_argument("--list", action="store_true", help="print which lines are typed, and which are not and why")
    given = parser.parse_args()
    if given.list:
        print(table())
        return 0
    if unknown := set(given.only or ()) - PARTS.keys():
        parser.error(f"no part {unknown.pop()}; there are: {', '.join(PARTS)}")
    require(parser, COMMANDS)
    try:
        with workplace(given.work) as work:
            _campaign(work, given)
    except Broken:
        return 1
    return 0


def _campaign(work: Path, given: argparse.Namespace) -> None:
    print(f"{work}", flush=True)
    done = Done(work / "done.jsonl")
    there = {(line.page, line.command): line for page, file in PAGES.items() for line in lines(page, file.read_text())}
    ground = Ground(work, image(given.image), given.factor)
    try:
        for part, acts in PARTS.items():
            for act in acts:
                if (not given.only or part in given.only) and not done.before(part, act):
                    done.add(part, act, _took_s(ground, act, there.get((act.page, act.line)), work / "typed.log"))
    finally:
        ground.hosts.close()
        print(done.table(), flush=True)


class Done:
    """The acts that were taken, each with its seconds, in a file: a campaign goes on after them."""

    def __init__(self, file: Path) -> None:
        """The file of an earlier run, or one that is yet to be made."""
        self._file = file
        self._rows = [json.loads(row) for row in file.read_text().splitlines()] if file.exists() else []
        self._left = Counter(json.dumps(row[:-1]) for row in self._rows)

    def before(self, part: str, act: Act) -> bool:
        """Whether an earlier run has taken an act; each time that it has, once."""
        name = json.dumps([part, act.page, act.on, act.user, act.line])
        self._left[name] -= 1
        return self._left[name] >= 0

    def add(self, part: str, act: Act, took_s: float) -> None:
        """Note an act that was taken."""
        self._rows.append([part, act.page, act.on, act.user, act.line, round(took_s, 1)])
        with self._file.open("a") as file:
            file.write(f"{json.dumps(self._rows[-1])}\n")

    def table(self) -> str:
        """How many lines of the guides each part has typed and how long it took, in Markdown."""
        rows = ["| part | lines of the guides | s |", "|---|---|---|"]
        for part in PARTS:
            of_part = [row for row in self._rows if row[0] == part]
            if of_part:
                rows.append(
                    f"| {part} | {sum(bool(row[1]) for row in of_part)} | {sum(row[-1] for row in of_part):.0f} |"
                )
        return "\n".join(rows)


def _took_s(ground: Ground, act: Act, line: Line | None, log: Path) -> float:
    """Take an act, and print it if it is a line of a guide. Raises :class:`Broken` where it does otherwise."""
    begun_s = time.monotonic()
    printed, wrong = ground.taken(act, line)
    took_s = time.monotonic() - begun_s
    with log.open("a") as file:
        file.write(f"{act.on} {act.user} {act.page or '-'}: {act.text}\n{printed}[{took_s:.1f} s]\n\n")
    if wrong:
        told = f"{act.page} line {line.number}" if line else "before a line of a guide"
        print(f"FAILED  {told}\n{act.user}@{act.on}: {act.text}\n{printed}\n" + "\n".join(wrong), flush=True)
        raise Broken(act.text)
    if act.page:
        print(f"  {act.page:<12} {act.user}@{act.on}: {act.text.splitlines()[0][:110]}  {took_s:.1f} s", flush=True)
    return took_s


if __name__ == "__main__":
    sys.exit(main())
