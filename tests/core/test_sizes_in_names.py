"""A policy's name may say which size moldable jobs get: a live service has no option beside it."""

import pytest

from cosched.errors import BadInput
from space_scheduler.plugins import resolve


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
    ],
)
def test_other_sizes_and_other_policies_are_refused(name: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        resolve(name)
