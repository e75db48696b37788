"""Makes a wheelhouse: all that is installed on machines that have neither an index nor a compiler, in one directory.

``./run wheelhouse DIR`` calls it with the environment's interpreter. Into DIR go the project's own wheel, built from
this checkout; a wheel of every package that it needs there, for each Python asked for, in the versions of
``lock/requirements.txt`` and checked by its hashes; pip; ``requirements.txt`` with the hashes of all of them, and
``SHA256SUMS``. Where the packages come from is pip's own configuration: no address is known here.
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTION = "cosched-testbed"
PYTHONS = "3.11,3.12,3.13"
#: The tags of wheels that a machine with glibc 2.28 takes, the most demanding first.
GLIBC = ("2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")
#: A package's first line in the lock, and what follows from its name to its last hash.
_PINNED = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?P<rest>[^\n]*(?:\n    --hash=[^\n]*)+)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Refused(Exception):
    """It cannot be made, and the message says why."""


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lock: str) -> dict[str, str]:
    """The packages of a lock by name: ``name==version`` with its condition and its hashes, as they stand there."""
    return {found["name"]: found[0] for found in _PINNED.finditer(lock)}


def wanted(lock: str, project: dict, extras: list[str]) -> list[str]:
    """The names of all packages that the project with these extras needs, and those packages in turn, sorted.

    What needs what is said in the lock itself (``# via``).
    """
    table = project["optional-dependencies"]
    if unknown := sorted(set(extras) - table.keys()):
        raise Refused(f"no extra {unknown[0]!r}; there are: {', '.join(sorted(table))}")
    first: set[str] = set()
    lines = [*project["dependencies"], *(line for extra in extras for line in table[extra])]
    while lines:
        line = lines.pop()
        name = normal(_NAME.match(line)[0])
        if name == DISTRIBUTION:
            lines += [more for extra in re.search(r"\[(.*)\]", line)[1].split(",") for more in table[extra.strip()]]
        else:
            first.add(name)
    needs = needed_by(lock)
    found: set[str] = set()
    left = sorted(first)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += needs.get(name, [])
    return sorted(found)


def needed_by(lock: str) -> dict[str, list[str]]:
    """Name -> the packages that it needs, from the lock's remarks on who needs what."""
    needs: dict[str, list[str]] = {}
    name = ""
    for line in lock.splitlines():
        if start := re.match(r"([a-z0-9-]+)==", line):
            name = start[1]
        elif (via := re.match(r"    #(?: via|  ) +([a-z0-9-]+)$", line)) and name:
            needs.setdefault(via[1], []).append(name)
    return needs


def download(into: Path, texts: list[str], python: str, machine: str) -> None:
    """A wheel of each package for one Python. Raises :class:`Refused`."""
    with tempfile.TemporaryDirectory() as scratch:
        listed = Path(scratch) / "requirements.txt"
        # Its conditions are of the machine that installs, and pip would ask them of this one.
        listed.write_text("".join(re.sub(r" ;[^\n]*\\\n", " \\\\\n", text, count=1) + "\n" for text in texts))
        tags = [word for glibc in GLIBC for word in ("--platform", f"manylinux_{glibc}_{machine}")]
        tags += ["--platform", f"manylinux2014_{machine}", "--platform", f"linux_{machine}"]
        short = python.replace(".", "")
        pip(
            "download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest", str(into),
            "--implementation", "cp", "--python-version", python, "--abi", f"cp{short}", "--abi", "abi3",
            "--abi", "none", *tags, "-r", str(listed),
        )  # fmt: skip


def pip(*words: str) -> None:
    """Run this environment's pip. Raises :class:`Refused`."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q", *words]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Refused(f"pip {words[0]}: {ended.stderr.strip() or f'status {ended.returncode}'}")


def build(into: Path) -> Path:
    """The project's own wheel, by the hatchling of this environment: the same bytes from the same files."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1577836800")
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(into), str(ROOT))
    return next(into.glob(f"{DISTRIBUTION.replace('-', '_')}-*.whl"))


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_ours(directory: Path) -> bool:
    """Whether nothing is there but what was made here before."""
    if not directory.is_dir():
        return False
    names = {path.name for path in directory.iterdir() if path.suffix != ".whl"}
    return not any(directory.iterdir()) or names == {"requirements.txt", "SHA256SUMS"}


def make(directory: Path, pythons: list[str], machine: str, extras: list[str]) -> int:
    """Make it, whole or not at all; how many wheels it has. Raises :class:`Refused`."""
    if directory.exists() and not is_ours(directory):
        raise Refused(f"{directory} is there and no wheelhouse: nothing is written over")
    lock = (ROOT / "lock" / "requirements.txt").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = pinned(lock)
    names = wanted(lock, project, extras)
    if missing := [name for name in names if name not in pins]:
        raise Refused(f"lock/requirements.txt lacks {missing[0]}: './run lock' makes it anew")
    directory.absolute().parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.absolute().parent))
    try:
        own = build(partial)
        texts = [pins[name] for name in names]
        for python in pythons:
            download(partial, [*texts, pinned((ROOT / "lock" / "pip.txt").read_text())["pip"]], python, machine)
        version = own.name.split("-")[1]
        with_extras = f"[{','.join(extras)}]" if extras else ""
        mine = f"{DISTRIBUTION}{with_extras}=={version} \\\n    --hash=sha256:{sha256(own)}\n"
        (partial / "requirements.txt").write_text("".join(text + "\n" for text in texts) + mine)
        wheels = sorted(partial.glob("*.whl"))
        (partial / "SHA256SUMS").write_text("".join(f"{sha256(path)}  {path.name}\n" for path in wheels))
        partial.chmod(0o755)
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return len(wheels)


def main() -> int:
    """Make what the arguments ask for; the exit status."""
    parser = argparse.ArgumentParser(prog="./run wheelhouse", description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--python", default=PYTHONS, metavar="3.X,…", help=f"the machines' Pythons [{PYTHONS}]")
    parser.add_argument("--machine", default=platform.machine(), choices=("x86_64", "aarch64"), help="[this one's]")
    parser.add_argument(
        "--extra", default="", metavar="A,…", help="of pyproject.toml, such as scheduler [none: a desk]"
    )
    given = parser.parse_args()
    pythons = given.python.split(",")
    if not all(re.fullmatch(r"3\.1[1-9]", python) for python in pythons):
        parser.error(f"--python {given.python}: expected versions such as {PYTHONS}")
    try:
        made = make(given.directory, pythons, given.machine, [extra for extra in given.extra.split(",") if extra])
    except (Refused, OSError) as error:
        sys.stderr.write(f"./run wheelhouse: {error}\n")
        return 1
    sys.stdout.write(f"{given.directory}: {made} wheels for Python {', '.join(pythons)} on {given.machine}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
