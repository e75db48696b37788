"""The guides, typed: each command line of README and of the administrator's and owner's guides, on hosts with systemd.

    ./run campaign guides [--work DIR] [--image DIR] [--only PART ...] [--factor N] [--list]

Five hosts (``_systemd_hosts``) on a network of their own, and this machine as that of the checkout. The lines are typed
in the order of ``_guides_acts``, as the account that the guide means, in terminals that keep directory and variables;
exit status and what the page shows are compared. A line that does otherwise ends the campaign with 1; given the same
``--work`` it goes on there, with the hosts as they were left. ``--list`` prints which lines are typed where, and which
are not and why, in Markdown. Needs root, debootstrap, systemd-nspawn,
ssh, curl, an overlay file system, and a network for the machine of the checkout.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from kit.guides import Line, lines

from campaigns._ansible_lab import Broken, workplace
from campaigns._guides_acts import LEFT, PAGES, PARTS, Act
from campaigns._guides_ground import Ground
from campaigns._systemd_hosts import image


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
    if os.geteuid():
        parser.error("needs root: namespaces, control groups and mounts")
    try:
        with workplace(given.work) as work:
            _campaign(work, given)
    except Broken:
        return 1
    return 0


def _campaign(work: Path, given: argparse.Namespace) -> None:
    print(f"{work}", flush=True)
    done_file = work / "done.jsonl"
    done = Counter(done_file.read_text().splitlines()) if done_file.exists() else Counter()
    there = {(line.page, line.command): line for page, file in PAGES.items() for line in lines(page, file.read_text())}
    ground = Ground(work, image(given.image), given.factor)
    rows = ["| part | lines of the guides | s |", "|---|---|---|"]
    try:
        for part, acts in PARTS.items():
            if given.only and part not in given.only:
                continue
            begun_s, typed = time.monotonic(), 0
            for act in acts:
                name = json.dumps([part, act.page, act.on, act.user, act.line])
                if done[name]:
                    done[name] -= 1
                    continue
                _take(ground, act, there.get((act.page, act.line)), work / "typed.log")
                typed += bool(act.page)
                with done_file.open("a") as file:
                    file.write(f"{name}\n")
            rows.append(f"| {part} | {typed} | {time.monotonic() - begun_s:.0f} |")
    finally:
        ground.hosts.close()
        print("\n".join(rows), flush=True)


def _take(ground: Ground, act: Act, line: Line | None, log: Path) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
