"""Histories full of faults, one for each seed, judged by the promises of docs/design/faults.md: how many were clean.

    ./run faults [--seeds 10000] [--from 0] [--processes 2]
    ./run faults --seed 17 [--only 3,8]
    ./run faults --chain 1000 [--seeds 12]

The first is a campaign: it prints how often each fault fired, and for a seed that breaks a promise the command that
replays it with as few faults as still do. The second lives one history, with its lines. In
the third each history is a chain of so many jobs, each of which follows the one before it, and faults happen as long as
it runs. Status 1 where a promise broke.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from faults import ailing, depending
from faults.chain import Chain
from faults.history import RATES, Result, lived, shrunk
from faults.shapes import CHANGES


def main() -> int:
    """As the module says."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--seeds", type=int, default=10_000, help="how many histories (10000)")
    options.add_argument("--from", dest="first", type=int, default=0, help="the first seed (0)")
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--seed", type=int, help="this history alone, with its lines")
    options.add_argument("--only", help="of its faults those with these numbers, such as 3,8; '-' for none")
    options.add_argument("--chain", type=int, metavar="LENGTH", help="histories of one chain of so many jobs")
    asked = options.parse_args()
    how = {} if asked.chain is None else {"kind": partial(Chain, length=asked.chain)}
    if asked.seed is not None:
        return one(asked.seed, asked.only, how)
    return many(range(asked.first, asked.first + asked.seeds), asked.processes, how)


def one(seed: int, only: str | None, how: Mapping[str, Any]) -> int:
    """Live one history and print it."""
    chosen = None if only is None else frozenset(int(each) for each in only.replace("-", "").split(",") if each)
    result = lived(seed, chosen, **how)
    for at_us, what in result.trace:
        print(f"{at_us / 1e6:10.3f}  {what}")
    print(result.violation or f"clean: {dict(result.states)}")
    return 1 if result.violation else 0


def many(seeds: range, processes: int, how: Mapping[str, Any]) -> int:
    """Live many, and tell of them."""
    began_s = time.monotonic()
    fired: Counter[str] = Counter()
    states: Counter[str] = Counter()
    broken: list[Result] = []
    with ProcessPoolExecutor(processes) as pool:
        for result in pool.map(partial(_bare, how), seeds):
            fired += result.fired
            states += result.states
            if result.violation:
                broken.append(result)
                print(f"seed {result.seed}: {result.violation}", flush=True)  # to find its faults takes much longer
    took_s = time.monotonic() - began_s
    lived_in = f"{len(seeds)} histories in {took_s:.0f} s, {60 * len(seeds) / took_s:.0f} a minute"
    print(f"{lived_in}; {len(broken)} broke a promise")
    print("jobs: " + ", ".join(f"{count} {state}" for state, count in states.most_common()))
    print("faults: " + ", ".join(f"{fired[site]} {site}" for site in RATES))
    print("policies that fail: " + ", ".join(f"{fired[site]} {site}" for site in ailing.SEEN))
    print("rules before the queue: " + ", ".join(f"{fired[site]} {site}" for site in depending.SEEN))
    print("shapes: " + ", ".join(f"{fired[change]} {change}" for change in CHANGES))
    chain = f" --chain {how['kind'].keywords['length']}" if how else ""
    for result in broken[:10]:
        faults, shortest = shrunk(result.seed, **how)
        chosen = ",".join(map(str, sorted(faults))) or "-"
        print(f"seed {result.seed}: {shortest.violation}\n    ./run faults --seed {result.seed} --only {chosen}{chain}")
    never = [site for site in (*RATES, *CHANGES, *ailing.SEEN, *depending.SEEN) if not fired[site]]
    if never and len(seeds) >= 100:
        print(f"never fired: {', '.join(never)}")
    return 1 if broken or (never and len(seeds) >= 100) else 0


def _bare(how: Mapping[str, Any], seed: int) -> Result:
    """A history without its lines: they are made again where somebody wants them."""
    return lived(seed, **how)._replace(trace=[])


if __name__ == "__main__":
    sys.exit(main())
