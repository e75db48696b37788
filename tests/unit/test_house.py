"""The rules of the house: what no file here may say, what the lock promises, and which way imports run."""

import hashlib
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from kit.changed import PACKAGES, imports_of
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("lock/requirements.txt", "lock/pip.txt")

# The registries that packages come from, as SHA-256 sums: this file may not name them either.
REGISTRIES = {
    "a4aa2ac280bb8d1a",
    "8b5bb5eb9d758455",
    "8743857e3ea00fd1",
    "3ca29e55be4befa4",
    "789e46d79514e280",
    "66394d5952c288e4",
    "71741fe2460a6150",
    "6af40d8f60238faa",
}


@cache
def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def registries_named(text: str) -> list[str]:
    """The hosts in a text that are a package registry, or lie within one."""
    found = []
    for host in dict.fromkeys(re.findall(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+", text.lower())):
        labels = host.split(".")
        if any(digest(".".join(labels[at:])) in REGISTRIES for at in range(len(labels) - 1)):
            found.append(host)
    return found


def private_paths(text: str) -> list[str]:
    """The absolute paths in a text that exist on somebody's own machine only."""
    return re.findall(r"(?<![\w.~$}/-])/(?:work|root|home)(?=[/\s\"'`:,;)]|$)[^\s\"'`]*", text)


@cache
def tracked_files() -> list[tuple[str, str]]:
    answer = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip(f"needs a git checkout ({answer.stderr.splitlines()[0]})")
    names = [name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [(name, (ROOT / name).read_bytes().decode("utf-8", "replace")) for name in names]


def pins(lock: str) -> dict[str, list[str]]:
    """Every requirement of a lock, `name==version`, with its hashes."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / lock).read_text().replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            requirement, *options = line.split(" --hash=")
            found[requirement.strip()] = [option.strip() for option in options]
    return found


def test_no_file_names_a_package_registry() -> None:
    assert {name: hosts for name, text in tracked_files() if (hosts := registries_named(text))} == {}


def test_a_registry_would_be_found() -> None:
    index = ".".join(("pypi", "org"))
    assert registries_named(f"see https://{index}/simple/ or files.{index.upper()}") == [index, f"files.{index}"]
    assert registries_named("www.example.org, numpy.linalg, 3.11") == []


def test_credentials_of_peers_are_unpacked_in_one_place() -> None:
    """The kernel's uid is unsigned: a second place that unpacks it is a second chance to read it signed."""
    product = ((name, text) for name, text in tracked_files() if name.split("/")[0] in PACKAGES)
    assert [name for name, text in product if "SO_PEERCRED," in text] == ["cosched/linux/peers.py"]


def test_no_file_knows_one_machines_paths() -> None:
    assert {name: paths for name, text in tracked_files() if (paths := private_paths(text))} == {}


def test_a_private_path_would_be_found() -> None:
    private = "/" + "root"
    assert private_paths(f"open('{private}/log.swf')") == [f"{private}/log.swf"]
    assert private_paths("cosched/work/load, $HOME/work/x, ~/work") == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_has_hashes_and_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert not re.search(r"://|^\s*-|file:|@ ", text.replace("\n    --hash", ""), re.MULTILINE)
    assert pins(lock)
    for requirement, hashes in pins(lock).items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[^ ;]+( ; .*)?", requirement), requirement
        assert hashes, f"{requirement} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", item) for item in hashes), requirement


def test_lock_serves_what_pyproject_asks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locked = [Requirement(requirement) for requirement in pins("lock/requirements.txt")]
    versions = {requirement.name: Version(next(iter(requirement.specifier)).version) for requirement in locked}
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        asked += extra
    for requirement in map(Requirement, asked):
        if requirement.name != project["project"]["name"]:
            name = requirement.name.lower().replace("_", "-")
            assert name in versions, f"{name} is not in the lock: ./run lock"
            assert versions[name] in requirement.specifier, (
                f"the lock has {name} {versions[name]}, asked is {requirement}"
            )


def test_the_python_versions_are_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = re.search(r"^oldest=(\d+) newest=(\d+)", (ROOT / "run").read_text(), re.MULTILINE)
    assert said
    oldest, newest = map(int, said.groups())
    assert project["requires-python"] == f">=3.{oldest}"
    versions = [item.rpartition("3.")[2] for item in project["classifiers"] if "Python :: 3." in item]
    assert [int(minor) for minor in versions] == list(range(oldest, newest + 1))
    assert f"CPython 3.{oldest} to 3.{newest} " in (ROOT / "lock/requirements.txt").read_text()


def test_imports_run_one_way() -> None:
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def arrows() -> dict[str, set[str]]:
    """Which rooms each room imports: a room is a folder with the files right in it."""
    files = [file.relative_to(ROOT) for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    rooms = {".".join(file.with_suffix("").parts).removesuffix(".__init__"): str(file.parent) for file in files}
    found: dict[str, set[str]] = {room: set() for room in rooms.values()}
    for file in files:
        here = str(file.parent)
        found[here] |= {rooms[name] for name in imports_of((ROOT / file).read_text(), rooms)} - {here}
    return found


def circles(arrows: dict[str, set[str]]) -> set[str]:
    """The rooms that are left when those that import nothing that is left have gone, again and again."""
    left = dict(arrows)
    while gone := {room for room, imported in left.items() if not imported & left.keys()}:
        left = {room: imported for room, imported in left.items() if room not in gone}
    return set(left)


def test_no_rooms_import_each_other_in_a_circle() -> None:
    found = arrows()
    assert "space_scheduler/machine" in found["space_scheduler/service"]
    assert circles(found) == set()


def test_a_circle_would_be_found() -> None:
    assert circles({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": set()}) == {"a", "b"}
    assert imports_of("import a.b, x\nfrom c import d, E\nfrom c.d import e", {"a.b", "c", "c.d"}) == {"a.b", "c.d"}


def test_the_command_is_installed() -> None:
    (command,) = entry_points(group="console_scripts", name="cosched")
    assert command.value == "cosched.apps.cli.main:main"
    assert command.dist is not None
    assert command.dist.name == "cosched-testbed"
