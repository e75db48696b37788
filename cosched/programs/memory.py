"""Programs that need memory, for measuring what the contract does about it: ``python -m cosched.programs.memory``.

``walk`` is an owner's working set: it maps a file and touches each of its pages in turn, a few times a second, for so
many seconds; then it prints one line of JSON: pages touched, the longest that a piece of 4 MiB took, and the major
faults, that is, pages that had to be read from disk again. The first walk, of as many seconds at most, does not count.

``press`` takes anonymous memory and goes on touching it; with ``--file`` it reads that file over and over too. It is
ended from outside.
"""

import argparse
import json
import mmap
import os
import resource
import sys
import time
from collections.abc import Sequence
from typing import Final

_MIB: Final = 1 << 20
_PAGE: Final = mmap.PAGESIZE
_WALKED: Final = 4 * _MIB
_PAUSE_S: Final = 0.2
_PIECE: Final = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the two; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m cosched.programs.memory", description=(__doc__ or "").split("\n")[0]
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    owner = verbs.add_parser("walk", help="a working set that is touched again and again")
    owner.add_argument("--file", required=True)
    owner.add_argument("--seconds", type=float, required=True)
    task = verbs.add_parser("press", help="anonymous memory, and a file that is read again and again")
    task.add_argument("--mib", type=int, required=True)
    task.add_argument("--file", default="")
    options = parser.parse_args(arguments)
    if options.verb == "press":
        _press(options.mib, options.file)
    else:
        sys.stdout.write(json.dumps(_walk(options.file, options.seconds)) + "\n")
    return 0


def _walk(path: str, seconds: float) -> dict[str, float]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        _touched(pages, seconds, walks=1)
        pages.madvise(mmap.MADV_RANDOM)  # from now on each page by itself: reading ahead would hide what is lost
        before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        touched, slowest_s = _touched(pages, seconds)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before
    return {"touched": touched, "slowest_s": slowest_s, "major_faults": faults}


def _touched(pages: mmap.mmap, seconds: float, walks: int = -1) -> tuple[int, float]:
    """Walk for so long, or so often: pages touched, and the slowest piece's seconds."""
    touched, slowest_s = 0, 0.0
    end_s = time.monotonic() + seconds
    while walks:
        walks -= 1
        for at in range(0, len(pages), _WALKED):
            begin_s = time.monotonic()
            if begin_s >= end_s:
                return touched, slowest_s
            touched += len(pages[at : at + _WALKED : _PAGE])
            slowest_s = max(slowest_s, time.monotonic() - begin_s)
        time.sleep(_PAUSE_S)
    return touched, slowest_s


def _press(mib: int, path: str) -> None:
    held = mmap.mmap(-1, mib * _MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    stamp = 0
    while True:
        stamp = (stamp + 1) % 256
        for at in range(0, len(held), _PAGE):
            held[at] = stamp
        if path:
            _read(path)


def _read(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while os.read(descriptor, _PIECE):
            pass
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
