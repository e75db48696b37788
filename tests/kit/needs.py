"""What a machine must let tests do, found by trying it once: who lacks it skips by the name of what is missing."""

import os
import subprocess
from collections.abc import Sequence
from functools import cache

import pytest

from cosched.lab import kernel, tiers


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


def need_root() -> None:
    """Skip where no lab of tier 1 can be made: namespaces and control groups, for lack of rights or of them."""
    if os.geteuid():
        pytest.skip("needs root: namespaces and control groups")
    if _best().tier > 1:
        pytest.skip(f"needs namespaces and control groups: {_best().why}")


@cache
def trouble_of_user(prefix: Sequence[str], python: str, root: str) -> str:
    """What keeps that user from a lab of tier 2; empty where nothing does."""
    program = "from cosched.lab import tiers; best = tiers.best(); print(best.why if best.tier > 2 else '')"
    asked = subprocess.run(
        [*prefix, "env", f"PYTHONPATH={root}", python, "-c", program], capture_output=True, text=True, check=False
    )
    return (asked.stdout or asked.stderr).strip()
