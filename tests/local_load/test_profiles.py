"""Profiles: the paper's two are built in; one that no user can have is refused by the path of its key."""

from pathlib import Path
from typing import Any

import msgspec
import yaml
from kit.command import Call
from kit.snapshots import Snapshot, refusals

from local_load import profile as profiles


def written(folder: Path, change: dict[str, Any], base: str = "xwindows") -> Path:
    """A profile in a file: a built-in one with keys changed; a dotted key goes deeper, None removes."""
    document = msgspec.to_builtins(profiles.find(base))
    for path, value in change.items():
        *above, last = path.split(".")
        place = document
        for key in above:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value
    file = folder / "profile.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_the_papers_users_are_built_in() -> None:
    """Hanzich et al. 2005, Workloads and Metrics."""
    told = {
        name: (found.cpu_share, found.memory_share, found.network_bytes_per_s, found.users_share)
        for name in profiles.built_in()
        for found in [profiles.find(name)]
    }
    assert told == {"xwindows": (0.15, 0.35, 500, 0.65), "internet": (0.20, 0.60, 3000, 0.35)}
    assert profiles.find("XWindows") == profiles.find("xwindows")


def test_a_mixture_of_users_has_the_papers_proportions_at_any_size() -> None:
    for seed in range(3):
        for count in (1, 4, 20):
            seated = profiles.seated(count, seed)
            assert len(seated) == count
            assert abs(seated.count("xwindows") - 0.65 * count) <= 1
    assert profiles.seated(7, 3) == profiles.seated(7, 3)
    assert {profiles.seated(1, seed)[0] for seed in range(12)} == {"xwindows", "internet"}


def test_a_profile_of_ones_own_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, {"name": "mine", "cpu_share": 0.4, "transfers": {"2MiB": 1}})
    found = profiles.find(str(file))
    assert (found.name, found.cpu_share, found.transfer_sizes()) == ("mine", 0.4, {2 << 20: 1})


BAD: list[dict[str, Any]] = [
    {"cpu_share": 1.2}, {"memory_share": 1.01}, {"memory_share": -0.1}, {"cpu_share": float("nan")},
    {"cpu_share": "much"}, {"network_bytes_per_s": -1}, {"calls.getpdi": 1}, {"calls.getpid": -1},
    {"calls": {"pipe": 0}}, {"calls": {}}, {"typing.think_s.mean": -1}, {"typing.think_s.mean": float("inf")},
    {"typing.key_gap_s.least": 3}, {"typing.key_gap_s": {"kind": "constant", "mean": 1e-5}}, {"typing.work_s": -0.1},
    {"phase_s.kind": "expnential"}, {"phase_s.mode": 1}, {"phase_s.spread": 9}, {"cpu_shares": 1}, {"cpu_share": None},
    {"transfers": {"4KiB": 1, "9 parsecs": 1}}, {"transfers": {"1GiB": 1}}, {"day.arrivals_per_h": [1, 2]},
    {"day.arrivals_per_h": [0] * 24}, {"day.arrivals_per_h": [1] * 23 + [-1]}, {"day.stay_s.mean": 0}, {"name": "../x"},
]  # fmt: skip


def test_a_bad_profile_is_refused_by_the_path_of_its_key(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot(refusals(lambda change: profiles.find(str(written(tmp_path, change))), *BAD))


def test_profiles_and_refused_runs_are_shown(snapshot: Snapshot, cosched: Call) -> None:
    assert yaml.safe_load(cosched("local-load", "profiles", "internet").out) == msgspec.to_builtins(
        profiles.find("internet")
    )
    snapshot.replay(cosched)
    refused = cosched("local-load", "run", "--memory", "900TiB")  # its message has the machine's memory
    assert (refused.status, "--memory: 900TiB; expected more than 0, at most the" in refused.err) == (2, True)
