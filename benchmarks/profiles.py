"""Whether each built-in profile is held: CPU, memory and network against their targets, seed by seed.

On an idle machine, one after the other: profiles × seeds × SECONDS (by default half an hour in all). Each user has a
network of his own when this is root (nothing else counts), and a node of 1 GiB. Ends with status 1 where a target was
missed by more than 10 %, or where the probe cost more than 1 % of a CPU.

    ./run bench profiles [SECONDS [SEEDS]]
"""

import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.measure import header, machine
from local_load.profile import built_in

NODE = "1GiB"
UNITS = (("cpu", "share", 0.01), ("memory", "bytes", 1 << 20), ("network", "bytes_per_s", 1))


def one(profile: str, seed: int, seconds: float) -> dict[str, Any]:
    """What a run says at its end."""
    own_network = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "alone"]
    command = [
        *([] if os.geteuid() else own_network),
        *(sys.executable, "-P", "-m", "cosched.apps.cli.main", "local-load", "run"),
        *("--profile", profile, "--seed", str(seed), "--seconds", f"{seconds:g}", "--memory", NODE, "--json"),
    ]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds + 120, check=True)
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def main() -> int:
    """Measure, and print a table in Markdown."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    print(f"{machine()}; {seconds:g} s each, a node of {NODE}\n")
    header("profile | seed | CPU (target) | off | memory MiB (target) | off | network B/s (target) | off | probe")
    missed = 0
    for profile in built_in():
        for seed in range(1, seeds + 1):
            told = one(profile, seed, seconds)
            cells = [profile, str(seed)]
            for what, unit, scale in UNITS:
                found = told["targets"][what]
                target, achieved = found[f"target_{unit}"], found[f"achieved_{unit}"]
                missed += not found["held"]
                off = f"{achieved / target - 1:+.1%}" + ("" if found["held"] else f" missed: {found['why']}")
                mark = " %" if what == "cpu" else ""
                cells += [f"{achieved / scale:.4g}{mark} ({target / scale:.4g}{mark})", off]
            missed += not told["probe"]["within_budget"]
            print(f"| {' | '.join(cells)} | {told['probe']['cpu_ratio']:.2%} |", flush=True)
    print(f"\n{missed} missed" if missed else "\nall held within 10 %")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
