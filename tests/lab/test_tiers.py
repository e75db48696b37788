"""What a machine can have is found by trying; what forbids it is named, with the remedy."""

import json
import re
import subprocess

import pytest
from kit.labs import Bench
from kit.needs import need_root
from kit.waiting import BOUND_S

from cosched.apps.lab import cgroups, tiers

#: From Python 3.12 on, a fork beside pytest's own threads is warned of; what is forked here uses no locks of theirs.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def test_root_with_control_groups_has_the_first_tier() -> None:
    need_root()
    assert tiers.best() == tiers.Possible(1)


def test_what_somebody_left_who_was_killed_while_he_tried_is_removed() -> None:
    need_root()
    with subprocess.Popen(["true"]) as gone:
        gone.wait(BOUND_S)
    left = f"try.{gone.pid}"
    cgroups.make(left, {"node": cgroups.Share(1, 0)})
    assert left in cgroups.labs()
    tiers.best()
    assert left not in cgroups.labs()


def test_a_tier_that_is_asked_for_is_no_better_than_that() -> None:
    need_root()
    assert tiers.best(2).tier == 2
    assert tiers.best(3) == tiers.Possible(3, why="tier 3 was asked for")


def best_of(bench: Bench, before: str) -> dict[str, object]:
    """What an ordinary user can have, after something was done to his process."""
    code = (
        f"import json, os, sys; from cosched.apps.lab import kernel; from cosched.linux import files; {before}; "
        "os.execv(sys.executable, [sys.executable, '-P', '-c', "
        "'import json; from cosched.apps.lab import tiers; print(json.dumps(tiers.best()._asdict()))'])"
    )
    ended = subprocess.run(
        [*bench.prefix, bench.python, "-P", "-c", code], env=bench.environment(), cwd="/", capture_output=True,
        text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found


def test_an_ordinary_user_has_the_second(namespaced_user_bench: Bench) -> None:
    possible = best_of(namespaced_user_bench, "pass")
    assert (possible["tier"], possible["user_namespace"]) == (2, True)
    assert re.search("/cosched-lab.*: Permission denied$", str(possible["why"]))
    assert possible["remedy"] == "as root, desks get limits too"


FORBID = "kernel.enter_user_namespace(); files.write('/proc/sys/user/max_{}_namespaces', '0')"


@pytest.mark.parametrize("kind", ["user", "net"])
def test_where_namespaces_are_forbidden_the_setting_is_named(namespaced_user_bench: Bench, kind: str) -> None:
    possible = best_of(namespaced_user_bench, FORBID.format(kind))
    assert possible["tier"] == 3
    assert "No space left on device" in str(possible["why"])
    assert possible["remedy"] == f"as root: sysctl -w user.max_{kind}_namespaces=15000"


def test_the_headline_says_tier_reason_and_remedy() -> None:
    assert tiers.headline("x", 1, "", "") == "lab x: tier 1, namespaces and control groups"
    line = tiers.headline("x", 3, "user namespace: Operation not permitted", "as root: sysctl -w a=1")
    assert line == (
        "lab x: tier 3, plain processes on one host: no job over several nodes; "
        "not tier 2: user namespace: Operation not permitted; remedy: as root: sysctl -w a=1"
    )
