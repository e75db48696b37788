"""What the experiments on the live system refuse before they make anything."""

from kit.command import Call
from kit.snapshots import Snapshot


def test_bad_input_is_told_by_its_option(snapshot: Snapshot, cosched: Call) -> None:
    snapshot.replay(cosched)
