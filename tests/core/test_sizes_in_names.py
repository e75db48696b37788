"""A policy's name may say which size moldable jobs get: a live service has no option beside it."""

import pytest

from cosched.errors import BadInput
from cosched.model.job import Job
from cosched.model.width import Range
from space_scheduler.plugins import resolve
from space_scheduler.policy.reshape.mold import parse


def test_the_size_in_a_name_is_that_of_the_option() -> None:
    for sizes in ("largest", "largest/4", "shared"):
        assert resolve(f"fjt1+bfm(fjt={sizes})") == resolve("fjt1+bfm", fjt=sizes)
        assert resolve(f"fjt1+bfa(short,fjt={sizes})") == resolve("fjt1+bfa(short)", fjt=sizes)
    assert resolve("fjt1+bfm(fjt=largest/4)") != resolve("fjt1+bfm")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fjt1+bfm(fjt=biggest)", "--policy: fjt: .*largest, shared, or largest/N"),
        ("fjt1+bfm(fjt=largest/0)", "largest/N with N a number of 1 or more"),
        ("equipartition(fjt=largest)", "no option 'fjt=largest'"),
        ("fifo(fjt=largest)", "no option 'fjt=largest'"),
        ("fjt1+bfm(short", r"expected fjt1\+bfm or fjt1\+bfm\(OPTION,...\)"),
        ("equipartition(threshold=half)", "'threshold=half' in .*; expected threshold= and a whole number"),
    ],
)
def test_other_sizes_and_other_policies_are_refused(name: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        resolve(name)


def test_order_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"--order: no order 'sjff'.*one of .*sjf"):
        resolve("equipartition", order="sjff")


def test_a_long_job_wider_than_what_is_left_of_the_machine_waits() -> None:
    """Nodes may be lost after it was taken."""
    sizes = parse("largest/1")
    for shape in (None, Range(5, 8, tuple(range(5, 9)))):
        job = Job(1, 8 if shape else 5, 10, 0, long=True, shape=shape)
        assert sizes.least(job, 4) > 4
    assert sizes.least(Job(1, 4, 10, 0, long=True), 4) == 4
