"""Where a visit leads with control groups of version 1: to a limit, outside the idle class."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.groups import MOUNT, parallel_side
from kit.guards import places
from kit.visits import apart, group_of, own_side

from cosched.linux.cgroups import ENDINGS_CPUS, VISITORS, Cgroups, read_number


@pytest.fixture
def groups() -> Iterator[Cgroups]:
    """The cgroups of this machine, and none of ours afterwards."""
    with own_side() as found:
        if found.kind != "v1":
            pytest.skip("needs control groups of version 1: with version 2 visits are among the jobs")
        yield found


def cpu_groups() -> list[Path]:
    """The group of the calling process in the tree of the CPU, and those above it."""
    top = MOUNT / "cpu"
    here = top / group_of().strip("/")
    return [each for each in (here, *here.parents) if each.is_relative_to(top) and each != top]


def test_a_visit_is_limited_and_not_idle(groups: Cgroups) -> None:
    assert not [problem for problem in groups.set_limits(0.5, True, 1 << 30) if "idle" not in problem]

    def visit() -> None:
        with groups.visit():
            here = cpu_groups()
            assert [each for each in here if read_number(f"{each}/cpu.idle") == 1] == []
            assert [each for each in here if read_number(f"{each}/cpu.shares") < 1024] == []
            quotas = [
                (read_number(f"{each}/cpu.cfs_quota_us"), read_number(f"{each}/cpu.cfs_period_us")) for each in here
            ]
            assert min(used / of for used, of in quotas if used > 0) == ENDINGS_CPUS

    assert apart(visit) == 0


def test_a_limit_that_somebody_has_taken_away_is_set_before_the_next_visit(groups: Cgroups) -> None:
    def visit() -> None:
        with groups.visit():
            limit = cpu_groups()[1] / "cpu.cfs_quota_us"
        limit.write_text("-1")
        with groups.visit():
            assert limit.read_text().strip() == "1000"

    assert apart(visit) == 0


def test_where_a_visit_cannot_be_limited_it_is_among_the_jobs(groups: Cgroups) -> None:
    above = f"cosched-test-{uuid.uuid4().hex[:12]}"
    tight = MOUNT / "cpu" / above
    tight.mkdir()
    try:
        (tight / "cpu.cfs_period_us").write_text("100000")
        (tight / "cpu.cfs_quota_us").write_text("5000")  # less than a visit may have: the kernel takes no wider one
        with parallel_side(f"{above}/jobs") as inner:

            def visit() -> None:
                home = group_of()
                with inner.visit():
                    assert group_of().endswith(f"/{above}/jobs/{VISITORS}")
                assert group_of() == home

            assert apart(visit) == 0
    finally:
        for place in places(above):
            place.rmdir()


def test_what_ends_now_and_who_reaps_have_one_limit_together(groups: Cgroups) -> None:
    groups.create("job-1.1", None, 64)

    def visit() -> None:
        groups.enter("job-1.1")
        groups.ease("job-1.1")
        eased = cpu_groups()[1]
        groups.restrain("job-1.1")
        with groups.visit():
            assert cpu_groups()[1] == eased

    assert apart(visit) == 0
