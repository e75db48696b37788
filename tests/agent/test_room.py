"""Whether a node's file systems have room for a launch, by the rule alone."""

import pytest

from node_agent.policy.room import Least, Space, shortage

MIB = 1 << 20
LEAST = Least(64 * MIB, 1000)
ROOMY = Space(65 * MIB, 10**6, 1001, False)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (Space(64 * MIB - 1, 10**6, 10**6, False), "is full: 63 MiB are free, new work needs 64"),
        (
            Space(10**12, 10**6, 999, False),
            "is full: 999 inodes are free, new work needs 1000",
        ),
        (Space(10**12, 10**6, 10**6, True), "is read-only: mount it writable again"),
    ],
)
def test_shortage_of_bytes_inodes_or_writability_is_named_with_its_remedy(found: Space, problem: str) -> None:
    told = shortage("/state", found, LEAST, was_short=False)
    assert told.removesuffix(": make room there") == f"the disk of /state {problem}"


@pytest.mark.parametrize("found", [ROOMY, Space(64 * MIB, 10**6, 1000, False), Space(10**12, 0, 0, False)])
def test_room_for_the_least_or_without_counted_inodes_is_no_shortage(found: Space) -> None:
    assert not shortage("/state", found, LEAST, was_short=False)


def test_full_disk_has_room_again_only_a_quarter_above_the_least() -> None:
    assert shortage("/state", ROOMY, LEAST, was_short=True)
    assert shortage("/state", ROOMY._replace(free_bytes=80 * MIB), LEAST, was_short=True)
    assert not shortage("/state", Space(80 * MIB, 10**6, 1250, False), LEAST, was_short=True)
