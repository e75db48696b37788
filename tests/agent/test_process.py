"""What the kernel is told of processes: whom they die with, and to whom they give way."""

import subprocess
import sys

import pytest
from kit.waiting import BOUND_S

from cosched.linux import slices

# A process forks a child, which says "late" where its parent's end did not kill it; the test sees the pipe's end.
_FAMILY = """
import os, sys, time
from cosched.linux.process import die_with_parent

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
    assert subprocess.check_output([sys.executable, "-c", _FAMILY, ends], timeout=BOUND_S) == b""


def test_who_gives_way_has_the_longest_slice_and_its_children_have_not() -> None:
    """Where the kernel has no slices of processes' own, all have the same."""
    program = (
        "import subprocess, sys\n"
        "from cosched.linux import slices\n"
        "print(slices.slice_ns())\n"
        "slices.give_way()\n"
        "print(slices.slice_ns(), flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'from cosched.linux import slices; print(slices.slice_ns())'])\n"
    )
    told = subprocess.check_output([sys.executable, "-c", program], timeout=BOUND_S)
    before_ns, given_ns, child_ns = (int(line) for line in told.split())
    assert child_ns == before_ns
    assert given_ns == (slices.LONGEST_NS if before_ns else 0)
