"""The command: ``mpirun python -m cosched.programs NAME --class LETTER``, measured and verified.

Exit status: 0 verified, 1 a wrong answer, 2 it cannot run so (rank 0 says why), 3 the world is not the job's.
"""

import argparse
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from cosched.programs.bt import BlockTridiagonal
from cosched.programs.cg import ConjugateGradient
from cosched.programs.comm import Comm
from cosched.programs.integer_sort import IntegerSort
from cosched.programs.kernel import Kernel, Unsuitable
from cosched.programs.mg import Multigrid

PROGRAMS: Mapping[str, type[Kernel]] = {
    kernel.name: kernel for kernel in (ConjugateGradient, IntegerSort, Multigrid, BlockTridiagonal)
}
WRONG, UNUSABLE, OTHER_WORLD = 1, 2, 3
#: Iterations, where a program tells how far it is without end.
_VERIFIED_EVERY = 16
#: Seconds in calls of the message library, how many there were, bytes sent.
Account = tuple[float, int, int]


def main(arguments: Sequence[str] | None = None, programs: Mapping[str, type[Kernel]] = PROGRAMS) -> int:
    """Run a program on the world that this process is in; its exit status, the same on all ranks."""
    options = _parser(programs).parse_args(arguments)
    kernel = programs[options.program]
    size = dict(kernel.sizes[options.letter])
    try:
        import mpi4py  # noqa: PLC0415 (an extra; absent, the message says so)
    except ModuleNotFoundError:
        _say(f"mpi4py is missing: install cosched's extra `lab` for {sys.executable}")
        return UNUSABLE
    mpi4py.rc.thread_level = "serialized"
    from mpi4py import MPI  # noqa: PLC0415 (starts MPI)

    try:
        return _run(kernel, size, options, Comm(MPI.COMM_WORLD))
    except Exception:
        # alone, this rank would end while the others wait for it
        traceback.print_exc()
        sys.stderr.flush()
        if MPI.COMM_WORLD.Get_size() > 1:
            MPI.COMM_WORLD.Abort(WRONG)
        return WRONG


def _run(kernel: type[Kernel], size: dict[str, int], options: argparse.Namespace, comm: Comm) -> int:
    expected = options.ranks or int(os.environ.get("COSCHED_TASKS") or comm.size)
    if expected != comm.size:
        _say(_other_world(comm.size, expected), comm)
        return OTHER_WORLD
    try:
        work = kernel(comm, size, options.seed)
    except Unsuitable as error:
        _say(f"{kernel.name} {options.letter}: {error}", comm)
        return UNUSABLE
    if options.tell:
        return _telling(work, options, comm)
    done, seconds, cpu_s, account = _iterated(work, options, options.iterations or size["iterations"], comm)
    verdict = work.verify()
    report = {
        "program": kernel.name,
        "class": options.letter,
        "ranks": comm.size,
        "hosts": sorted({str(name) for name in comm.collected(os.uname().nodename)}),
        "seconds": seconds,
        "iterations": done,
        "verification": verdict.value,
        "allowed": verdict.allowed,
        "verified": verdict.right,
        "comm_ratio": comm.total(account[0]) / comm.size / seconds,
        "cpu_ratio": comm.total(cpu_s) / comm.size / seconds,
        "calls_per_s": comm.total(account[1]) / comm.size / seconds,
        "bytes_per_call": comm.total(account[2]) / max(comm.total(account[1]), 1),
        "peak_memory_bytes": int(comm.largest(_peak_bytes())),
    }
    if comm.rank == 0:
        sys.stdout.write((json.dumps(report) if options.json else _sentence(report)) + "\n")
        sys.stdout.flush()
    if not verdict.right:
        numbers = f"verification gives {verdict.value:g}, allowed is {verdict.allowed:g}"
        _say(f"{kernel.name} {options.letter}: WRONG: {numbers}", comm)
        return WRONG
    return 0


def _iterated(
    work: Kernel, options: argparse.Namespace, iterations: int, comm: Comm
) -> tuple[int, float, float, Account]:
    """Iterate so often, or until rank 0's clock says that it is enough.

    How often, in what time, with how much CPU time of this rank, and with what messages.
    """
    comm.barrier()
    comm.forget()
    cpu_s = time.process_time()
    done, seconds = _on(work, iterations, options.seconds, comm)
    cpu_s = time.process_time() - cpu_s
    return done, seconds, cpu_s, (comm.seconds, comm.calls, comm.sent_bytes)


def _on(work: Kernel, iterations: int, limit_s: float | None, comm: Comm) -> tuple[int, float]:
    """So many iterations, or for so long: how many, and how long that took."""
    comm.barrier()
    began_s = time.perf_counter()
    number = 0
    while True:
        work.iterate(number)
        number += 1
        if limit_s is None:
            if number == iterations:
                break
        elif comm.told(time.perf_counter() - began_s >= limit_s):
            break
    comm.barrier()
    return number, time.perf_counter() - began_s


def _telling(work: Kernel, options: argparse.Namespace, comm: Comm) -> int:
    """Iterate until somebody ends it, or an answer is wrong; every so often a line says how far it is.

    Seconds of CPU and in the message library are a rank's, on average, since the beginning. Every so many iterations
    (not seconds: it must cost the same part of the work however slow that is) the answer is verified.
    """
    comm.forget()
    began_cpu_s = time.process_time()
    number, next_s = 0, time.monotonic()
    while True:
        work.iterate(number)
        number += 1
        if number % _VERIFIED_EVERY == 0 and not (verdict := work.verify()).right:
            _say(f"{work.name} {options.letter}: WRONG after {number} iterations: {verdict.value:g}", comm)
            return WRONG
        if not comm.told(time.monotonic() >= next_s):
            continue
        next_s = time.monotonic() + options.tell
        word = {
            "program": work.name,
            "time_s": time.time(),
            "done": number,
            "cpu_s": comm.total(time.process_time() - began_cpu_s) / comm.size,
            "comm_s": comm.total(comm.seconds) / comm.size,
        }
        if comm.rank == 0:
            sys.stdout.write(json.dumps(word) + "\n")
            sys.stdout.flush()


def _other_world(ranks: int, expected: int) -> str:
    if ranks == 1:
        remedy = (
            "several worlds of one rank mean that mpirun and the MPI library of this Python are of different systems, "
            "or that mpirun was forgotten; use the mpirun beside the Python, or MPI4PY_LIBMPI (docs/guide/jobs.md)"
        )
    else:
        remedy = f"if that is meant, say so with --ranks {ranks}"
    return f"this world has {ranks} rank{'s' if ranks > 1 else ''}, and the job has {expected} tasks: {remedy}"


def _sentence(report: Mapping[str, Any]) -> str:
    verified = "verified" if report["verified"] else "NOT VERIFIED"
    return (
        f"{report['program']} {report['class']}: {report['iterations']} iterations on {report['ranks']} ranks "
        f"({', '.join(report['hosts'])}) in {report['seconds']:.2f} s, "
        f"{100 * report['comm_ratio']:.0f} % communication, "
        f"{report['peak_memory_bytes'] / 1e6:.0f} MB a rank, {verified} ({report['verification']:.2g})"
    )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _say(message: str, comm: Comm | None = None) -> None:
    if comm is None or comm.rank == 0:
        sys.stderr.write(f"cosched.programs: {message}\n")
        sys.stderr.flush()


def _positive(kind: type[int] | type[float]) -> Any:
    def number(text: str) -> int | float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError(text)
        return value

    number.__name__ = "positive number"
    return number


def _parser(programs: Mapping[str, type[Kernel]]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cosched.programs",
        description="NAS-like kernels, measured and verified.",
        epilog="Example: mpirun python -m cosched.programs cg --class W --json",
    )
    parser.add_argument("program", choices=list(programs))
    parser.add_argument("--class", dest="letter", choices=["S", "W", "A", "B"], default="S", help="the size (S)")
    parser.add_argument("--iterations", type=_positive(int), metavar="N", help="how often (as the class has it)")
    parser.add_argument("--seconds", type=_positive(float), metavar="S", help="iterate for so long instead")
    parser.add_argument(
        "--tell",
        type=_positive(float),
        metavar="S",
        help="iterate until ended, with a line of JSON at most every so many seconds",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another problem of the same size (1)")
    parser.add_argument("--ranks", type=_positive(int), metavar="N", help="expect so many, instead of the job's tasks")
    parser.add_argument("--json", action="store_true", help="the result as one line of JSON")
    return parser
