"""What a machine must let tests do, found by trying it once: who lacks it skips by the name of what is missing."""

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from cosched.apps.lab import kernel, tiers

ROOT = Path(__file__).resolve().parents[2]


@cache
def trouble_with_namespaces() -> str:
    """What keeps this process from mounts, a network and processes of its own; empty where nothing does."""
    return tiers.tried(lambda: kernel.unshare(tiers.NAMESPACES, "namespaces"))


@cache
def _best() -> tiers.Possible:
    return tiers.best()


def need_namespaces() -> None:
    """Skip where this process cannot have mounts, a network and processes of its own."""
    if trouble := trouble_with_namespaces():
        pytest.skip(f"needs namespaces: {trouble}")


@cache
def _trouble_with_mounts() -> str:
    def attempt() -> None:
        kernel.unshare(kernel.NEW_MOUNTS, "mounts")

    return "only root mounts" if os.geteuid() else tiers.tried(attempt)


def need_mounts() -> None:
    """Skip where this process may mount nothing."""
    if trouble := _trouble_with_mounts():
        pytest.skip(f"needs to mount a file system: {trouble}")


def need_root() -> None:
    """Skip where no lab of tier 1 can be made: namespaces and control groups, for lack of rights or of them."""
    if os.geteuid():
        pytest.skip("needs root: namespaces and control groups")
    if _best().tier > 1:
        pytest.skip(f"needs namespaces and control groups: {_best().why}")


def need_namespaces_of(prefix: tuple[str, ...], python: str) -> None:
    """Skip where the user that this command's prefix becomes cannot make a lab of tier 2."""
    if trouble := _trouble_of_user(prefix, python):
        pytest.skip(f"needs namespaces for ordinary users: {trouble}")


@cache
def _trouble_of_user(prefix: tuple[str, ...], python: str) -> str:
    program = "from cosched.apps.lab import tiers; best = tiers.best(); print(best.why if best.tier > 2 else '')"
    asked = subprocess.run(
        [*prefix, "env", f"PYTHONPATH={ROOT}", python, "-c", program], capture_output=True, text=True, check=False
    )
    return (asked.stdout or asked.stderr).strip()
