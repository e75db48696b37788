"""The wheelhouse of ``./run wheelhouse``: what it has, and an installation from it without an index or a compiler."""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "lock" / "requirements.txt").read_text()
BOUND_S = 300.0
MOST_MB = 60

#: In one process: all share one wheelhouse, and one environment made from it.
pytestmark = pytest.mark.xdist_group("wheelhouse")


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheelhouse", ROOT / "lock" / "wheelhouse.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


wheelhouse = _loaded()


def test_a_desk_needs_the_base_and_what_that_needs() -> None:
    found = wheelhouse.wanted(LOCK, PROJECT, [])
    assert found == sorted(
        ["cffi", "click", "cryptography", "msgspec", "psutil", "pycparser", "pyyaml", "tomli-w", "websockets"]
    )


def test_an_extra_brings_what_it_names_and_what_that_needs() -> None:
    scheduler = set(wheelhouse.wanted(LOCK, PROJECT, ["scheduler"]))
    assert {"aiohttp", "yarl", "multidict", "paramiko", "bcrypt", "pynacl", "rich", "pygments"} <= scheduler
    assert not {"numpy", "scipy", "pyarrow", "pytest"} & scheduler
    both = set(wheelhouse.wanted(LOCK, PROJECT, ["scheduler", "results"]))
    assert scheduler | {"numpy", "scipy", "matplotlib", "pillow", "pyarrow"} <= both
    assert set(wheelhouse.wanted(LOCK, PROJECT, ["dev"])) == set(wheelhouse.pinned(LOCK))
    with pytest.raises(wheelhouse.Refused, match=r"no extra 'nonsense'; there are: .*scheduler"):
        wheelhouse.wanted(LOCK, PROJECT, ["nonsense"])


def test_each_package_keeps_its_condition_and_hashes() -> None:
    pins = wheelhouse.pinned(LOCK)
    assert len(pins) == len(re.findall(r"^[a-z0-9-]+==", LOCK, re.MULTILINE))
    assert sum(text.count("--hash=sha256:") for text in pins.values()) == LOCK.count("--hash=sha256:")


def test_nothing_is_written_over_that_is_no_wheelhouse(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.tex"
    precious.write_text("all of it")
    with pytest.raises(wheelhouse.Refused, match="nothing is written over"):
        wheelhouse.make(tmp_path, ["3.11"], "x86_64", [])
    for name in ("SHA256SUMS", "requirements.txt"):  # as beside an image of somebody else's
        (tmp_path / name).write_text("")
        with pytest.raises(wheelhouse.Refused, match="nothing is written over"):
            wheelhouse.make(tmp_path, ["3.11"], "x86_64", [])
    assert precious.read_text() == "all of it"
    precious.unlink()
    assert wheelhouse.is_ours(tmp_path)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheelhouse for this Python. Skipped where pip reaches no index of packages."""
    place = tmp_path_factory.mktemp("wheels")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    made = place / "house"
    ran = subprocess.run(
        [sys.executable, ROOT / "lock" / "wheelhouse.py", made, "--python", version],
        capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    if ran.returncode and not reaches_an_index(place / "one"):
        pytest.skip("needs an index of packages that pip reaches")
    assert ran.returncode == 0, ran.stderr
    return made


def reaches_an_index(place: Path) -> bool:
    download = ("download", "-q", "--no-deps", "--only-binary", ":all:", "-d", place, "tomli-w")
    return subprocess.run([sys.executable, "-m", "pip", *download], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def desk(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that a desk has: made from the wheelhouse alone, with a PATH that has no compiler."""
    place = tmp_path_factory.mktemp("desk") / "venv"
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    run([base, "-m", "venv", "--without-pip", place])
    (pip,) = wheels.glob("pip-*.whl")
    run([
        base, pip / "pip", "--isolated", "--python", place / "bin" / "python", "install", "-q", "--no-index",
        "--no-compile", "--no-cache-dir", "--find-links", wheels, "--require-hashes", "-r", wheels / "requirements.txt",
    ])  # fmt: skip
    return place


def run(words: list[object], status: int = 0) -> "subprocess.CompletedProcess[str]":
    ended = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=BOUND_S, check=False, cwd="/",
        env={"PATH": "/nowhere", "LANG": "C.UTF-8", "HOME": "/nowhere"},
    )  # fmt: skip
    assert ended.returncode == status, ended.stderr
    return ended


@pytest.mark.slow
def test_its_sums_are_right_and_it_names_no_address(wheels: Path) -> None:
    lines = [line.split("  ") for line in (wheels / "SHA256SUMS").read_text().splitlines()]
    sums = {name: total for total, name in lines}
    assert {path.name for path in wheels.glob("*.whl")} == sums.keys()
    for name, digest in sums.items():
        assert hashlib.sha256((wheels / name).read_bytes()).hexdigest() == digest
        assert digest in (wheels / "requirements.txt").read_text() or name.startswith("pip-")
    assert "://" not in (wheels / "requirements.txt").read_text()
    assert len(sums) == 11


@pytest.mark.slow
def test_the_same_checkout_makes_the_same_wheel(wheels: Path, tmp_path: Path) -> None:
    again = wheelhouse.build(tmp_path)
    assert again.read_bytes() == (wheels / again.name).read_bytes()


@pytest.mark.slow
def test_a_desk_is_installed_from_it_and_its_agent_checks(desk: Path, tmp_path: Path) -> None:
    python = desk / "bin" / "python"
    assert "--config" in run([python, "-I", "-m", "node_agent", "--help"]).stdout
    assert "--config" in run([python, "-I", "-m", "node_agent.guard", "--help"]).stdout
    cosched = desk / "bin" / "cosched"
    run([
        cosched, "node", "render", "--name", "desk1", "--cluster", "office", "--scheduler", "127.0.0.1",
        "--into", tmp_path,
        "--etc", tmp_path / "etc", "--state", tmp_path / "state", "--run", tmp_path / "run", "--scheduler-port", "9",
    ])  # fmt: skip
    (settings,) = tmp_path.rglob("node.toml")
    identity = tmp_path / "etc" / "identity"
    identity.mkdir(parents=True)
    key = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    (identity / "grant.pub").write_text(f"{key}\n")
    checked = run([cosched, "agent", "--config", settings, "--check", "--json"], status=1)
    found = {each["what"]: each["level"] for each in json.loads(checked.stdout)["findings"]}
    assert found["grant key"] == "ok"
    assert {found[what] for what in ("certificate", "guard")} == {"fail"}  # none is there, and it says so


@pytest.mark.slow
def test_a_desk_is_slim_and_names_what_it_lacks(desk: Path) -> None:
    site = desk / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    # pip would compile each module: that takes about as much again, and is left out here for its time
    used = sum(path.lstat().st_blocks * 512 * (1 + (path.suffix == ".py")) for path in site.rglob("*"))
    assert 10 < used / (1 << 20) <= MOST_MB
    assert not any((site / name).exists() for name in ("numpy", "scipy", "aiohttp", "pip"))
    refused = run([desk / "bin" / "cosched", "simulate", "no.swf", "--policy", "easy"], status=1)
    assert "extra 'research'" in refused.stderr
