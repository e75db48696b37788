"""An owner's reads and fsyncs beside jobs on the same slow disk: jobs as everybody, and in the disks' idle class.

    ./run bench disk [--schedulers bfq,mq-deadline,none] [--jobs 16] [--seconds 6] [--rounds 3]

The disk is a loop device that takes four requests at a time and lies on a file whose transfers are limited to 40 MB/s
(``blkio.throttle`` of version 1, for all that use it together): about what a hard disk does. On it is one ext4, with
the owner's file and the jobs'. What jobs do: ``read`` (128 KiB at random, past the cache), ``write`` (the same),
``fsync`` (1 MiB through the cache, then fsync), ``buffered`` (through the cache, never synced). They have the CPU like
everybody, so that the disk alone decides. Every 10 ms the owner reads 4 KiB past the cache, and writes 4 KiB with
fdatasync. Rounds are interleaved; the figures are medians of the rounds' 95th percentiles, with the lowest and highest.
As root; nothing of it is left.
"""

import argparse
import contextlib
import mmap
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.measure import spread
from cosched.linux import process

_DEPTH: Final = 4
_BYTES_PER_S: Final = 40 << 20
_DISK_BYTES: Final = 2 << 30
_FILE_MIB: Final = 64
_MIB: Final = 1 << 20
_PIECE: Final = 128 << 10
_PAGE: Final = 4096
_SETTLE_S: Final = 2.0
KINDS: Final = ("read", "write", "fsync", "buffered")
CLASSES: Final = ("everybody's", "idle")


@contextlib.contextmanager
def slow_disk(directory: Path) -> Iterator[tuple[Path, Path]]:
    """A slow disk's queue in sysfs and its file system; the calling process and its children share its limit."""
    group = Path(f"/sys/fs/cgroup/blkio/cosched-bench-{os.getpid()}")
    image, mounted = directory / "image", directory / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, _DISK_BYTES)
    run("mkfs.ext4", "-q", "-F", str(image))
    device = run("losetup", "--find", "--show", "--direct-io=on", str(image)).strip()
    queue = Path("/sys/block", Path(device).name, "queue")
    depth = (queue / "nr_requests").read_text()
    group.mkdir()
    try:
        below = os.stat(directory).st_dev
        for kind in ("read", "write"):
            limit = f"{os.major(below)}:{os.minor(below)} {_BYTES_PER_S}"
            (group / f"blkio.throttle.{kind}_bps_device").write_text(limit)
        (queue / "nr_requests").write_text(str(_DEPTH))  # without a scheduler, the device's own
        run("mount", device, str(mounted))
        (group / "cgroup.procs").write_text("0")
        yield queue, mounted
    finally:
        (group.parent / "cgroup.procs").write_text("0")
        subprocess.run(["umount", str(mounted)], check=False)
        (queue / "scheduler").write_text("none")
        (queue / "nr_requests").write_text(depth)
        run("losetup", "--detach", device)
        group.rmdir()


def run(*command: str) -> str:
    """What a command has said. Raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def job(path: Path, kind: str, io_class: str) -> None:
    """Read or write until killed."""
    if io_class == "idle":
        process.disks_idle_class()
    direct = os.O_DIRECT if kind in ("read", "write") else 0
    file = os.open(path, os.O_RDWR | direct)
    buffer = mmap.mmap(-1, _PIECE)
    count = 0
    while True:
        at = random.randrange(_FILE_MIB * _MIB // _PIECE) * _PIECE
        if kind == "read":
            os.preadv(file, [buffer], at)
        else:
            os.pwrite(file, buffer, at)
        count += 1
        if kind == "fsync" and count % 8 == 0:
            os.fsync(file)


def owner(file: int, direct: int, seconds: float) -> dict[str, float]:
    """The 95th percentiles of an owner's reads and syncs, in milliseconds."""
    buffer, took = mmap.mmap(-1, _PAGE), defaultdict[str, list[float]](list)
    pages = _FILE_MIB * _MIB // _PAGE
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        os.preadv(direct, [buffer], random.randrange(pages) * _PAGE)
        read_s = time.monotonic()
        os.pwrite(file, os.urandom(_PAGE), random.randrange(pages) * _PAGE)
        written_s = time.monotonic()
        os.fdatasync(file)
        took["read"].append(read_s - began_s)
        took["fsync"].append(time.monotonic() - written_s)
        time.sleep(0.01)
    return {what: 1000 * statistics.quantiles(each, n=20)[-1] for what, each in took.items()}


@contextlib.contextmanager
def jobs(files: list[Path], kind: str, io_class: str) -> Iterator[list[int]]:
    """So many jobs, by pid, killed at the end."""
    pids = []
    try:
        for path in files:
            pids.append(os.fork())
            if pids[-1] == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                try:
                    job(path, kind, io_class)
                finally:
                    os._exit(1)
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def transferred(pids: list[int], kind: str) -> int:
    """Bytes that these have read or written so far."""
    word = "rchar" if kind == "read" else "wchar"
    lines = [line.split(": ") for pid in pids for line in Path(f"/proc/{pid}/io").read_text().splitlines()]
    return sum(int(value) for name, value in lines if name == word)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="./run bench disk", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--schedulers", default="bfq,mq-deadline,none")
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root, for a loop device")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    directory = Path(tempfile.mkdtemp(prefix="cosched-disk-", dir="/var/tmp"))
    try:
        with slow_disk(directory) as (queue, mounted):
            measure(options, queue, mounted)
    finally:
        shutil.rmtree(directory)


def measure(options: argparse.Namespace, queue: Path, mounted: Path) -> None:
    """Interleave everything that is asked for."""
    files = [mounted / str(index) for index in range(options.jobs + 1)]
    for path in files:
        path.write_bytes(os.urandom(_MIB) * _FILE_MIB)
    os.sync()
    file, direct = os.open(files[0], os.O_RDWR), os.open(files[0], os.O_RDONLY | os.O_DIRECT)
    cases = [(kind, io_class) for kind in options.kinds.split(",") for io_class in CLASSES]
    found = defaultdict[tuple[str, ...], list[float]](list)
    for _ in range(options.rounds):
        for scheduler in options.schedulers.split(","):
            (queue / "scheduler").write_text(scheduler)
            for what, took_ms in owner(file, direct, options.seconds).items():
                found[scheduler, "alone", "", what].append(took_ms)
            for kind, io_class in cases:
                with jobs(files[1:], kind, io_class) as pids:
                    time.sleep(_SETTLE_S)
                    before, began_s = transferred(pids, kind), time.monotonic()
                    for what, took_ms in owner(file, direct, options.seconds).items():
                        found[scheduler, kind, io_class, what].append(took_ms)
                    mb = (transferred(pids, kind) - before) / (time.monotonic() - began_s) / 1e6
                    found[scheduler, kind, io_class, "jobs"].append(mb)
                os.sync()
    os.close(file)
    os.close(direct)
    print("| scheduler | jobs | their class | owner's read, ms | owner's fsync, ms | jobs, MB/s |\n" + "|---" * 6 + "|")
    for scheduler in options.schedulers.split(","):
        for kind, io_class in [("alone", ""), *cases]:
            cells = [spread(found[scheduler, kind, io_class, what] or [0.0]) for what in ("read", "fsync", "jobs")]
            print(f"| {scheduler} | {kind} | {io_class} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
