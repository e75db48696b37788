"""Random and shaped input through every decoder with its handler: nothing of it may be a fault of ours.

Each entry of ``TARGETS`` takes inputs of the two kinds: bytes and values out of nowhere, and a good document with some
of it changed. It says how often each outcome came, and raises :class:`Unexpected` at the first input that is answered
by anything but what its part promises (a message, a refusal). The tests give each a few hundred.

    ./run campaign fuzz [--random 100000] [--shaped 10000] [--seed 1] [TARGET ...]
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable

from benchmarks.measure import machine
from campaigns import fuzz_api, fuzz_node, fuzz_settings
from campaigns._inputs import Unexpected

#: Makes inputs and gives them to a part: of a random source, so many random ones and so many shaped ones.
Target = Callable[[random.Random, int, int], Counter[str]]

#: All of them, by name: a part of the system adds its own here.
TARGETS: dict[str, Target] = {
    "api": fuzz_api.run,
    "settings": fuzz_settings.run,
    "desk": fuzz_node.desk,
    "agent-socket": fuzz_node.local,
    "launch-port": fuzz_node.launch,
}


def main(arguments: list[str]) -> int:
    """See above; 1 where something was answered as it should not be."""
    parser = argparse.ArgumentParser(prog="./run campaign fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--random", type=int, default=100_000)
    parser.add_argument("--shaped", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    print(f"{machine()}; seed {given.seed}")
    wrong = 0
    for name in given.targets or TARGETS:
        began_s = time.monotonic()
        try:
            outcomes = TARGETS[name](random.Random(given.seed), given.random, given.shaped)
        except Unexpected as error:
            wrong += 1
            print(f"{name}: UNEXPECTED {error}")
            continue
        told = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common())
        print(f"{name}: {sum(outcomes.values())} inputs in {time.monotonic() - began_s:.0f} s: {told}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
