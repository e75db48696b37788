"""Public logs by name: where they are here, where they come from, and whom to acknowledge.

All are from the Parallel Workloads Archive (D. G. Feitelson, D. Tsafrir and D. Krakov, "Experience with using the
Parallel Workloads Archive", J. Parallel and Distributed Computing 74(10), 2014). None is shipped with this project.
Wherever a result on one is shown, its provider and the archive are to be acknowledged. A log is known by the SHA-256 of
its compressed file, so that a result names its input exactly.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from cosched.errors import BadInput, nearest

ARCHIVE: Final = "https://www.cs.huji.ac.il/labs/parallel/workload"
TIMEOUT_S: Final = 30.0
#: A download that is not done by then has stalled, even if a byte comes now and then.
DEADLINE_S: Final = 600.0
_CHUNK: Final = 1 << 16


class PublicLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log of the archive. ``size`` is the length of its compressed file in bytes."""

    name: str
    url: str
    sha256: str
    size: int
    machine: str
    provider: str

    @property
    def file(self) -> str:
        """The name of its compressed file."""
        return f"{self.name}.swf.gz"


class Unavailable(BadInput):
    """A log that could not be fetched, or not as it should be: the name was good, the world was not."""

    status = 1


_KNOWN: Final = (
    PublicLog(
        name="KTH-SP2-1996-2.1-cln",
        url=f"{ARCHIVE}/l_kth_sp2/KTH-SP2-1996-2.1-cln.swf.gz",
        sha256="3e152f201fd2e96808a735bced6ea6eb0bb07fdc447689cafb0750d87b264c0b",
        size=411_455,
        machine="IBM SP2, 100 nodes",
        provider="Lars Malinowsky, Swedish Royal Institute of Technology (KTH)",
    ),
    PublicLog(
        name="NASA-iPSC-1993-3.1-cln",
        url=f"{ARCHIVE}/l_nasa_ipsc/NASA-iPSC-1993-3.1-cln.swf.gz",
        sha256="5589ae9b2fb78e3bf92de097497cf33a91607de1ad54563e43533f7827597f29",
        size=207_976,
        machine="Intel iPSC/860, 128 nodes",
        provider="Bill Nitzberg, NASA Ames Research Center",
    ),
    PublicLog(
        name="LANL-CM5-1994-4.1-cln",
        url=f"{ARCHIVE}/l_lanl_cm5/LANL-CM5-1994-4.1-cln.swf.gz",
        sha256="71ff3dfa301b3ee1bd30ebc63c5363b5e8ec488e75f1f9398aa46d485ef23c3c",
        size=2_138_864,
        machine="Thinking Machines CM-5, 1024 nodes",
        provider="Curt Canada, Los Alamos National Laboratory (LANL)",
    ),
    PublicLog(
        name="LLNL-Thunder-2007-1.1-cln",
        url=f"{ARCHIVE}/l_llnl_thunder/LLNL-Thunder-2007-1.1-cln.swf.gz",
        sha256="df27b2ad62ef5ec1d02d592d48390ab2a8250265b9639bb5f0ebaa11f043ee38",
        size=1_312_559,
        machine="Thunder, Linux cluster, 4008 processors",
        provider="Moe Jette, Lawrence Livermore National Laboratory (LLNL)",
    ),
    PublicLog(
        name="SDSC-SP2-1998-4.2-cln",
        url=f"{ARCHIVE}/l_sdsc_sp2/SDSC-SP2-1998-4.2-cln.swf.gz",
        sha256="e03fe48be50c4ab04d6bb2285296d9c3399e9c1f27ee79b754ad32a14abd9bac",
        size=1_205_570,
        machine="IBM SP2, 128 nodes",
        provider="Victor Hazlewood, San Diego Supercomputer Center (SDSC)",
    ),
    PublicLog(
        name="RICC-2010-2",
        url=f"{ARCHIVE}/l_ricc/RICC-2010-2.swf.gz",
        sha256="38b7c5c9843d9a9f3d61a2d8b927f6d39b68b368fb713886b5f2ce3499f2ec82",
        size=3_673_454,
        machine="RIKEN Integrated Cluster of Clusters, 8192 processors",
        provider="Motoyoshi Kurokawa, RIKEN",
    ),
)
LOGS: Final[dict[str, PublicLog]] = {log.name: log for log in _KNOWN}


def entry(name: str) -> PublicLog:
    """The public log of that name (an ending of .swf or .swf.gz may be there), or :class:`BadInput`."""
    bare = name.removesuffix(".gz").removesuffix(".swf")
    if bare not in LOGS:
        raise BadInput("log", f"{name!r} is not a public log known here", ", ".join(LOGS), nearest=_nearest(bare))
    return LOGS[bare]


def is_known(name: str) -> bool:
    """Whether a public log of that name is in the catalogue, here or not."""
    return name.removesuffix(".gz").removesuffix(".swf") in LOGS


def _nearest(name: str) -> str:
    by_case = {known.casefold(): known for known in LOGS}
    return by_case.get(nearest(name, by_case), "")


def cache_folder() -> Path:
    """Where fetched logs are kept: ``cosched/traces`` in the user's cache (XDG_CACHE_HOME)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "cosched", "traces")


def folders() -> list[Path]:
    """Where logs are looked for, in this order: COSCHED_TRACES, beside the checkout, the cache."""
    given = os.environ.get("COSCHED_TRACES")
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
    return [*([Path(given)] if given else []), beside, cache_folder()]


def find(name: str) -> Path | None:
    """The file of a public log here, or None: where no folder has it, and where the name is unknown."""
    try:
        log = entry(name)
    except BadInput:
        return None
    for folder in folders():
        for path in (folder / log.file, folder / f"{log.name}.swf"):
            if path.is_file():
                return path
    return None


def fetch(name: str) -> Path:
    """The log in the cache, downloaded if it is not there yet, and as the catalogue knows it.

    Raises :class:`Unavailable` without a connection, or for a file of another content; nothing is then stored.
    """
    log = entry(name)
    target = cache_folder() / log.file
    if target.is_file() and digest(target) == log.sha256:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{log.file}.{os.getpid()}.part")
        try:
            with open(partial, "wb") as file:
                for chunk in _download(log):
                    file.write(chunk)
            found = digest(partial)
            if found != log.sha256:
                what = f"{log.url} gave another file, of SHA-256 {found}"
                raise Unavailable(log.name, what, f"{log.sha256}; it was not kept")
            os.replace(partial, target)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
    except OSError as error:
        raise Unavailable(log.name, f"cannot be kept in {target.parent} ({error.strerror or error})") from None
    return target


def digest(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    import hashlib  # noqa: PLC0415 (only who fetches pays for it)

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(log: PublicLog) -> Iterator[bytes]:
    from http.client import HTTPException  # noqa: PLC0415 (these cost as much as all else: only who fetches pays)
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import Request, urlopen  # noqa: PLC0415

    if not log.url.startswith(("https://", "http://")):
        raise Unavailable(log.name, f"{log.url} is no address on the web", "http or https")
    deadline = time.monotonic() + DEADLINE_S
    received = 0
    request = Request(log.url, headers={"User-Agent": "cosched"})
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:
            while chunk := answer.read1(_CHUNK):
                received += len(chunk)
                if received > log.size:
                    raise Unavailable(log.name, f"{log.url} gave more than {log.size} bytes", "that many; not kept")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not done after {DEADLINE_S:g} s")
                yield chunk
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, HTTPError):
            reason = f"{error.code} {error.reason}"
            error.close()
        remedy = f"a connection, or the file {log.file} in a folder that COSCHED_TRACES names"
        raise Unavailable(log.name, f"cannot be downloaded from {log.url} ({reason})", remedy) from None
