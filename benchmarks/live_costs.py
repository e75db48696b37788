"""The live system beside another checkout of it, in turn: to the first rank, submissions a second, the reconnect storm.

OTHER is the other checkout, whose environment has been made (``OTHER/run cosched --version``); each runs with its own.
In each round both have, one after the other (who begins changes from round to round):

* a **lab** of four nodes, and on it so many submissions over the service's socket, each until its first rank runs: the
  median counts;
* a **scheduler** with AGENTS agents in one process: for some seconds as many submissions as can be; then ``kill -9``, a
  new process, and the seconds from the kill until every agent is welcomed again (the storm).

Costs are given as this checkout's share of the other's in the same round, so more than 1 is dearer: median, and lowest
and highest. The first round warms up. Needs root, for a lab of tier 1.

    ./run bench live_costs OTHER [ROUNDS [AGENTS [SECONDS]]]
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.launch import by_api
from benchmarks.measure import header, machine, ratios, spread
from benchmarks.service import Lab as ServiceLab
from benchmarks.service import standing, submitted
from cosched.apps.lab.lab import Lab

LAUNCHES = 8
HERE = Path(__file__).resolve().parents[1]
#: What a round finds of a checkout -> what it is called. All are costs: of what is fast there is little.
COSTS = {
    "first_rank_s": "submit to the first rank, s",
    "submission_s": "a submission of as many as can be, s",
    "submission_cpu_s": "a submission, CPU s of scheduler and agents",
    "storm_s": "all agents back after the kill, s",
}


def first_rank() -> dict[str, float]:
    """Seconds from a submission to its first rank, on a lab."""
    with Lab.up(nodes=4, name=f"costs-{os.getpid()}") as lab, lab.client() as client:
        if lab.tier != 1:
            raise SystemExit(f"needs a lab of tier 1: {lab.why}")
        by_api(client)  # the first one reads what the others find in memory
        return {"first_rank_s": statistics.median(by_api(client) for _ in range(LAUNCHES))}


def service(agents: int, seconds: float) -> dict[str, float]:
    """Seconds, and CPU seconds, of a submission; seconds until all agents are back."""
    with standing(agents) as lab:
        before_s = cpu_s(lab)
        took, a_second = submitted(lab, seconds, None)
        used_s = cpu_s(lab) - before_s
        _, storm_s = lab.killed()
    return {"submission_s": 1 / a_second, "submission_cpu_s": used_s / len(took), "storm_s": storm_s}


def cpu_s(lab: ServiceLab) -> float:
    """CPU seconds that the scheduler and the process of the agents have used."""
    ticks = 0
    for process in (lab.scheduler, lab.agents):
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def found_by(checkout: Path, agents: int, seconds: float) -> dict[str, float]:
    """What a checkout's own programs find, in a process of its own environment."""
    command: list[str | Path] = [checkout / ".venv/bin/python", "-P", __file__, "--once", str(agents), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    ended = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{checkout}: ended with status {ended.returncode}")
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def compare(other: Path, rounds: int, agents: int, seconds: float) -> None:
    """Round by round, and a table."""
    costs: dict[Path, list[dict[str, float]]] = {HERE: [], other: []}
    for number in range(rounds + 1):
        for checkout in [HERE, other] if number % 2 else [other, HERE]:
            found = found_by(checkout, agents, seconds)
            print(f"round {number}{'' if number else ' (warms up)'}: {checkout}: {json.dumps(found)}", file=sys.stderr)
            if number:
                costs[checkout].append(found)
    print(f"{machine()}; {rounds} rounds, {agents} agents\n")
    header("cost | this | other | this / other")
    for key, words in COSTS.items():
        ours, theirs = ([each[key] for each in costs[checkout]] for checkout in (HERE, other))
        print(f"| {words} | {spread(ours)} | {spread(theirs)} | {spread(ratios(ours, theirs))} |")


def main(arguments: list[str]) -> None:
    """See above."""
    if arguments[:1] == ["--once"]:
        agents, seconds = int(arguments[1]), float(arguments[2])
        print(json.dumps(first_rank() | service(agents, seconds)))
        return
    if not arguments or not (Path(arguments[0]) / ".venv/bin/python").exists():
        raise SystemExit("which other checkout, with its environment made? ./run bench live_costs OTHER [ROUNDS]")
    given = [*arguments[1:], *["5", "100", "10"][len(arguments) - 1 :]]
    compare(Path(arguments[0]).resolve(), int(given[0]), int(given[1]), float(given[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
