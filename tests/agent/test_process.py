"""What is fatal with a parent's end is fatal whenever the parent ends."""

import subprocess
import sys

import pytest

# A process forks a child, which says "late" where its parent's end did not kill it; the test sees the pipe's end.
_FAMILY = """
import os, sys, time
from node_agent.linux.process import die_with_parent

parent = os.getpid()
watch, hold = os.pipe()
if os.fork() == 0:
    os.close(hold)
    while sys.argv[1] == "before" and os.getppid() == parent:
        time.sleep(0.001)
    die_with_parent(parent)
    if sys.argv[1] == "after":
        os.read(watch, 1)  # its descriptors are closed before its children are told
        time.sleep(10)
    print("late", flush=True)
    os._exit(0)
os._exit(0)
"""


@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_child_dies_with_its_parent_whenever_that_ends(ends: str) -> None:
    assert subprocess.check_output([sys.executable, "-c", _FAMILY, ends], timeout=30) == b""
