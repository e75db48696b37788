"""The tests on machines that differ, each made out of this one; prints a table.

    ./run campaign matrix [CELL ...] [--quick] [--keep] [-- ARGUMENT ...]

A cell is a machine: an empty Debian 12 or 13 (debootstrap's ``minbase`` with git, python3 and ca-certificates), entered
by ``pivot_root`` or ``chroot``, with namespaces of its own for mounts, processes, host name and System V IPC, and
/proc, /sys, the control groups and /dev as a machine has them; ``here`` is this machine as it is. ``below-tmp`` has
the checkout below /tmp, and SIGINT ignored as in the background of a script. In each a fresh clone of this checkout's
commit runs ``./run test`` (with what follows ``--`` as its arguments) as that cell's user does. Public logs (``shared``
beside the checkout) are there if they are here, read-only.

The roots are made when they are missing (``--anew``: always), in ``--roots``; each cell writes into an overlay over
one, which goes with it. The end of a cell's first process ends all of its processes and mounts, also after Ctrl-C or
the limit of time. Needs root, debootstrap and an overlay file system. Debian's packages come from where this machine
has them from (``--mirror`` names another), Python's from where pip has them from. Ends with 1 unless all are well.
"""

import argparse
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = "git,python3,ca-certificates"
#: What root has in a container by default.
CONTAINER = (
    "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot mknod setfcap"
)
#: What of this process's environment says where packages come from.
PASSED = re.compile(r"(PIP|UV)_.*|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|(https?|no|all)_proxy", re.IGNORECASE)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
USER = "ada"
ROOT_HOME = pwd.getpwnam("root").pw_dir
USER_HOME = f"/srv/{USER}"


@dataclass(frozen=True)
class Cell:
    """One machine: ``suite`` of Debian ("": this machine), who runs the tests there, and how."""

    name: str
    suite: str = "bookworm"
    root: bool = True
    chroot: bool = False  # no user namespaces, no pivot_root
    capabilities: str = ""  # those that root has: as setpriv wants them; all by default
    home: str = ""  # where the checkout lies, if not in the user's home
    ignores_sigint: bool = False
    busy: int = 0  # processes that compute beside


CELLS = (
    Cell("bookworm-root"),
    Cell("trixie-root", suite="trixie"),
    Cell("no-sys-admin", chroot=True, capabilities="+all,-sys_admin"),
    Cell("container", chroot=True, capabilities=",".join(["-all", *(f"+{name}" for name in CONTAINER.split())])),
    Cell("chroot", chroot=True),
    Cell("user", root=False),
    Cell("below-tmp", home="/tmp/below", ignores_sigint=True),
    Cell("busy", busy=16),
    Cell("here", suite=""),
)


# --- Where packages come from -----------------------------------------------------------------------------------------


def mirror() -> str:
    """Where this machine has Debian's packages from."""
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for each in lists:
        text = each.read_text(encoding="utf-8") if each.is_file() else ""
        found = re.search(r"^(?:URIs:|deb(?: \[.*?\])?)\s+(\S+/debian)/?(?:\s|$)", text, re.MULTILINE)
        if found:
            return found[1]
    raise SystemExit("no mirror of Debian in /etc/apt: --mirror names one")


def package_settings() -> dict[str, str]:
    """Pip's settings on this machine, from its files and its environment, as an environment."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    found = {}
    for name, value in re.findall(r"^(?:global|install)\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
        found["PIP_" + name.upper().replace("-", "_")] = value.replace("\\n", " ")
    return found | {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}


def package_folders(settings: dict[str, str]) -> set[Path]:
    """Folders of this machine that those settings name."""
    found = set()
    for word in " ".join(settings.values()).split():
        path = Path(word.removeprefix("file://"))
        if path.is_absolute() and path.is_dir() and path != CERTIFICATES.parent:
            found.add(path.parent if path.name == "simple" else path)  # an index, and its files beside it
    return found


def made_root(roots: Path, suite: str, source: str, *, anew: bool) -> Path:
    """The folder whose ``root`` is an empty Debian of that suite."""
    folder = roots / suite
    if anew:
        shutil.rmtree(folder, ignore_errors=True)
    if not (folder / "made").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with (folder / "log").open("wb") as log:
            made = subprocess.run(
                ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, folder / "root", source],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        if made.returncode:
            raise SystemExit(f"debootstrap of {suite} failed: see {folder / 'log'}")
        (folder / "made").touch()
    return folder


# --- A cell -----------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """One cell's run: ``base`` is its overlay's folder, ``arguments`` those of ``./run test``."""

    cell: Cell
    lower: Path
    base: Path
    log: Path
    arguments: list[str]
    limit_s: float

    @property
    def home(self) -> str:
        """The folder, as the cell sees it, in which the checkout and ``shared`` lie."""
        return self.cell.home or (ROOT_HOME if self.cell.root else USER_HOME)

    def script(self) -> str:
        """What the cell's first process does: furnish, enter, run. It stays outside of the root, to end all."""
        root = self.base / "merged" / "root"
        settings = package_settings()
        lines = [
            "mount --make-rprivate /",
            f"mount -t overlay -o {self._layers()} overlay {self.base}/merged",
            f"mkdir -p {root}{self.home}",
        ]
        if not self.cell.chroot:
            lines.append(f"mount --bind {root} {root}")
        lines += [
            f"mount -t proc proc {root}/proc",
            f"mount -t sysfs sysfs {root}/sys",
            f"mount --rbind /sys/fs/cgroup {root}/sys/fs/cgroup",
            f"mount --rbind /dev {root}/dev",
            f"mount -t tmpfs -o mode=1777 tmpfs {root}/dev/shm",
            f"mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts {root}/dev/pts",
            f"mount --bind {root}/dev/pts/ptmx {root}/dev/ptmx",
            f"mount -t tmpfs -o mode=755 tmpfs {root}/run",
            f"echo 127.0.0.1 localhost {self.cell.name} >{root}/etc/hosts",
            f"cat /etc/resolv.conf >{root}/etc/resolv.conf",
            f"hostname {self.cell.name}",
        ]
        if CERTIFICATES.exists():
            lines.append(f"cat {CERTIFICATES} >{root}{CERTIFICATES}")
        kept = package_folders(settings) | {Path("/var/empty")}
        shared = ROOT.parent / "shared"
        for source, place in [*((each, str(each)) for each in kept), (shared, f"{self.home}/shared")]:
            if source.is_dir():
                lines += [f"mkdir -p {root}{place}", f"mount --bind -o ro {source} {root}{place}"]
        if not self.cell.root:
            name = f"{root} useradd --create-home --home-dir {USER_HOME} --uid 1000 {USER}"
            lines.append(f"chroot {root} id {USER} >/dev/null 2>&1 || chroot {name}")
            lines.append(
                f"chroot {root} chown {USER}: {self.home} && chroot {root} chown -R {USER}: {self.home}/cosched"
            )
        enter = [f"cd {root}"]
        if self.cell.chroot:
            enter.append(f"exec chroot {root} {shlex.join(self._within(settings))}")
        else:
            leave = ["chroot", ".", "sh", "-c", 'umount -l /mnt/old; exec "$@"', "sh"]
            words = shlex.join([*leave, *self._within(settings)])
            enter += ["mkdir -p mnt/old", "pivot_root . mnt/old", f"exec {words}"]
        return "\n".join([*lines, *enter])

    def _layers(self) -> str:
        return f"lowerdir={self.lower},upperdir={self.base}/upper,workdir={self.base}/work"

    def _within(self, settings: dict[str, str]) -> list[str]:
        """The command inside of the root."""
        become = [] if self.cell.root else ["setpriv", "--reuid", USER, "--regid", USER, "--init-groups"]
        if self.cell.capabilities:
            become = ["setpriv", f"--bounding-set={self.cell.capabilities}", "--inh-caps=-all"]
        home = ROOT_HOME if self.cell.root else USER_HOME
        name = "root" if self.cell.root else USER
        environment = {**settings, "PATH": PATH, "HOME": home, "USER": name, "LANG": "C.UTF-8"}
        words = [*become, "env", "-i", *(f"{key}={value}" for key, value in environment.items())]
        return ["sh", "-c", self._session(), "sh", *words]

    def _session(self) -> str:
        """A shell's script that runs its arguments and the tests, and says what came of them."""
        lines = ["cd " + f"{self.home}/cosched", "python3 --version", 'echo "Debian $(cat /etc/debian_version)"']
        lines += [f"timeout {self.limit_s:.0f} sh -c 'while :; do :; done' &" for _ in range(self.cell.busy)]
        if self.cell.ignores_sigint:
            lines.append("trap '' INT")
        lines.append(f'"$@" ./run test {shlex.join(self.arguments)} </dev/null && status=0 || status=$?')
        lines.append('echo "ended with $status"; exit "$status"')
        return "\n".join(lines)

    def here(self) -> list[str]:
        """The same on this machine as it is."""
        return ["sh", "-c", self._session().replace(f"cd {self.home}/cosched", f"cd {self.base}/cosched"), "sh", "env"]

    def run(self) -> str:
        """Make the machine, run the tests in it and take it away; the row of the table."""
        began_s = time.monotonic()
        if self.cell.suite:
            for name in ("upper", "work", "merged"):
                (self.base / name).mkdir(parents=True, exist_ok=True)
            clone(self.base / "upper" / "root" / self.home.removeprefix("/") / "cosched")
            script = ["sh", "-euc", self.script()]
            command = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", *script]
        else:
            clone(self.base / "cosched")
            if (shared := ROOT.parent / "shared").is_dir() and not (self.base / "shared").exists():
                (self.base / "shared").symlink_to(shared)
            command = ["setsid", "--wait", *self.here()]
        with self.log.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            _running.append(process)
            try:
                process.wait(self.limit_s)
            except subprocess.TimeoutExpired:
                log.write(b"\nmatrix: stopped at the limit of time\n")
            finally:
                process.kill()  # with its first process the whole machine ends
                process.wait()
                _running.remove(process)
        return row(self.cell, self.log.read_text(encoding="utf-8", errors="replace"), time.monotonic() - began_s)


_running: list[subprocess.Popen[bytes]] = []


def clone(place: Path) -> None:
    """This checkout's commit there; what another commit has left there (``--keep``) stays, its environment too."""
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    git: list[str | Path] = ["git", "-c", "safe.directory=*", "-C", place]
    if not (place / ".git").exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, place], check=True)
    subprocess.run([*git, "fetch", "--quiet", ROOT, commit], check=True)
    subprocess.run([*git, "reset", "--quiet", "--hard", commit], check=True)


# --- The table --------------------------------------------------------------------------------------------------------


def row(cell: Cell, log: str, took_s: float) -> str:
    """The cell's row; a log without an end of pytest's is a failure, and says its last line."""
    python = (re.findall(r"^Python (\S+)", log, re.MULTILINE) or ["?"])[0]
    debian = (re.findall(r"^Debian (\S+)", log, re.MULTILINE) or ["?"])[0]
    ends = re.findall(r"^(?=.*\d (?:passed|failed|skipped|error)).* in [\d.]+s.*$", log, re.MULTILINE)
    counts = {kind: number for number, kind in re.findall(r"(\d+) (passed|failed|skipped|errors?)", (ends or [""])[-1])}
    failed = int(counts.get("failed", 0)) + int(counts.get("error", counts.get("errors", 0)))
    status = (re.findall(r"^ended with (\d+)$", log, re.MULTILINE) or ["no end"])[-1]
    numbers = [counts.get("passed", "0"), counts.get("skipped", "0"), str(failed)]
    return " | ".join([f"| {cell.name}", debian, python, *numbers, f"{took_s / 60:.1f}", f"{status} |"])


def is_well(line: str) -> bool:
    """Whether that row's tests all passed."""
    return line.endswith("| 0 |")


def main() -> int:
    """Make the cells, one after another: they share this machine's control groups and processors."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("cells", nargs="*", metavar="CELL", help=" ".join(cell.name for cell in CELLS))
    options.add_argument("--quick", action="store_true", help="./run test --quick")
    options.add_argument("--keep", action="store_true", help="keep what a cell wrote, and use it again")
    options.add_argument("--anew", action="store_true", help="make the roots again")
    options.add_argument("--mirror", help="of Debian; this machine's own by default")
    options.add_argument("--roots", type=Path, default=Path("/var/cache/cosched-matrix"), help="(%(default)s)")
    options.add_argument("--logs", type=Path, default=ROOT / "results" / "matrix", help="(results/matrix)")
    options.add_argument("--limit-minutes", type=float, default=60, help="of a cell (60)")
    given, arguments = sys.argv[1:], []
    if "--" in given:
        given, arguments = given[: given.index("--")], given[given.index("--") + 1 :]
    asked = options.parse_args(given)
    if unknown := set(asked.cells) - {cell.name for cell in CELLS}:
        options.error(f"no cell {', '.join(sorted(unknown))}; there are: {', '.join(cell.name for cell in CELLS)}")
    if os.geteuid():
        raise SystemExit("needs root: it makes machines out of this one")
    for number in (signal.SIGINT, signal.SIGTERM):  # also where the caller ignores it, as in the background of a script
        signal.signal(number, _stop)
    chosen = [cell for cell in CELLS if not asked.cells or cell.name in asked.cells]
    source = asked.mirror or mirror()
    for suite in sorted({cell.suite for cell in chosen} - {""}):
        made_root(asked.roots, suite, source, anew=asked.anew)
    asked.logs.mkdir(parents=True, exist_ok=True)
    arguments += ["--quick"] if asked.quick else []
    print("| cell | Debian | Python | passed | skipped | failed | minutes | ended with |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for cell in chosen:
        rows.append(_tried(cell, asked, arguments))
        print(rows[-1], flush=True)
    return 0 if all(map(is_well, rows)) else 1


def _tried(cell: Cell, asked: argparse.Namespace, arguments: list[str]) -> str:
    base = asked.roots / "cells" / (cell.name if asked.keep else f"{cell.name}-{os.getpid()}")
    log = asked.logs / f"{cell.name}.log"
    try:
        return Run(cell, asked.roots / cell.suite, base, log, arguments, 60 * asked.limit_minutes).run()
    finally:
        if not asked.keep:
            shutil.rmtree(base, ignore_errors=True)


def _stop(number: int, frame: object) -> None:
    del number, frame
    for process in _running:
        process.kill()
    raise SystemExit(130)


if __name__ == "__main__":
    sys.exit(main())
