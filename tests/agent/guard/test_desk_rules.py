"""The desk by itself: whom it believes, and what holds where the disk or a directory of names fails it."""

import os
import pwd
from pathlib import Path

import pytest
from kit.desk_alone import desk_alone

STRANGER = 4_000_000_001


def test_a_directory_of_names_that_is_away_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names may be on a network: the guard has one loop, and whoever asks there must not stop it."""

    def hangs(_: object) -> None:
        raise AssertionError("asked for a name")

    user = pwd.getpwuid(os.getuid()).pw_name
    with desk_alone(tmp_path, (user, "nobody")) as desk:
        monkeypatch.setattr("pwd.getpwuid", hangs)
        monkeypatch.setattr("pwd.getpwnam", hangs)
        assert desk.said(STRANGER, "status")["ok"]
        assert "bans" not in desk.said(STRANGER, "status")["word"]
        assert desk.said(65534, "status")["word"]["bans"] == {}, "of security.desk_users"
        refused = desk.said(STRANGER, "pause")
        assert refused["error"] == "user"
        assert refused["message"].startswith(f"user {STRANGER} is not logged in at this machine itself: ")
