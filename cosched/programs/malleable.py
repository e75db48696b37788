"""Malleable programs: ``mpirun python -m cosched.programs.malleable heat --size 512 --steps 1000``.

Exit status: 0 verified, 1 a wrong answer or a failure. Their answers have the same bits whatever was resized.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cosched.adaptive import Job
    from cosched.programs.comm import Floats
    from cosched.programs.kernel import Verdict

    Program = Callable[[Job, int, int], tuple[Floats | None, Verdict]]

#: Points of a side, or particles; and steps: seconds on one processor.
DEFAULTS: Mapping[str, tuple[int, int]] = {"heat": (512, 2000), "molecules": (500, 200)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program on the world that this process is in; its exit status."""
    options = _parser().parse_args(arguments)
    for library in ("OMP", "OPENBLAS", "MKL"):  # ranks would fight over the threads
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    try:
        import mpi4py  # noqa: PLC0415 (an extra; absent, the message says so)
    except ModuleNotFoundError:
        sys.stderr.write(f"cosched.programs.malleable: mpi4py is missing: install it for {sys.executable}\n")
        return 2
    mpi4py.rc.threads = False
    from cosched import adaptive  # noqa: PLC0415 (numpy's library reads the environment when it is loaded)

    program = _program(options.program)
    size, steps = (options.size or DEFAULTS[options.program][0]), (options.steps or DEFAULTS[options.program][1])
    right = True
    began_s = time.perf_counter()
    with adaptive.job(every=options.balance) as job:
        answer, verdict = program(job, size, steps)
        right = verdict.right
        if job.leads and answer is not None:
            report = {
                "program": options.program,
                "size": size,
                "steps": steps,
                "ranks": len(job.ranks),
                "map": job.number,
                "seconds": time.perf_counter() - began_s,
                "verification": verdict.value,
                "allowed": verdict.allowed,
                "verified": right,
                "digest": hashlib.sha256(answer.tobytes()).hexdigest(),
            }
            sys.stdout.write((json.dumps(report) if options.json else _sentence(report)) + "\n")
            sys.stdout.flush()
    return 0 if right else 1


def _program(name: str) -> "Program":
    from cosched.programs.heat import heat  # noqa: PLC0415 (as above)
    from cosched.programs.molecules import molecules  # noqa: PLC0415

    return heat if name == "heat" else molecules


def _sentence(report: Mapping[str, object]) -> str:
    verified = "verified" if report["verified"] else "NOT VERIFIED"
    return (
        f"{report['program']}: {report['steps']} steps of size {report['size']}, in the end on {report['ranks']} ranks "
        f"by map {report['map']}, in {report['seconds']:.2f} s, {verified} ({report['verification']:.2g}), "
        f"digest {str(report['digest'])[:16]}"
    )


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cosched.programs.malleable",
        description="Programs whose number of processes may change while they run.",
    )
    parser.add_argument("program", choices=list(DEFAULTS))
    parser.add_argument(
        "--size", type=_natural, metavar="N", help="points of a side of the plate (512), particles (500)"
    )
    parser.add_argument("--steps", type=_natural, metavar="N", help="how many (heat: 2000, molecules: 200)")
    parser.add_argument("--balance", type=_natural, default=0, metavar="K", help="balance each K steps too (0: never)")
    parser.add_argument("--json", action="store_true", help="the result as one line of JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
