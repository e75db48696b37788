"""The list of what was issued: a line that was cut off or damaged hides no other, and is named."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.command import called
from kit.service import Cluster, running

from cosched.errors import BadInput
from cosched.identity import issued
from cosched.identity.authority import create_authority, issue, serials_of

UNTIL = datetime(2030, 1, 2, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    create_authority(tmp_path / "authority", "office")
    issue(tmp_path / "authority", "node", "desk1", tmp_path / "one")
    return tmp_path / "authority"


def test_a_line_that_was_cut_off_hides_no_later_one(authority: Path, tmp_path: Path) -> None:
    listed = authority / "issued"
    whole = listed.read_text()
    for cut in (1, 10, len(whole) - 1):
        listed.write_text(whole + whole[:cut])
        issue(authority, "node", "desk2", tmp_path / f"two-{cut}")
        assert len(serials_of(authority, "node", "desk2")) == 1
        assert serials_of(authority, "node", "desk1")[0] == whole.split()[0]


def test_what_is_no_entry_is_passed_over_and_named(authority: Path) -> None:
    listed = authority / "issued"
    (good,) = issued.read(authority).entries
    for damage in ("hello", "ab node", "xyz node desk1 2030-01-01", "ab king desk1 2030-01-01", "\x00\x00"):
        listed.write_bytes(f"{damage}\n".encode() + b"\xff\xfe\n" + " ".join(good).encode() + b"\n\n")
        found = issued.read(authority)
        assert found.entries == [good]
        assert [each.split(":")[0] for each in found.damaged] == [f"{listed}, line 1", f"{listed}, line 2"]
        assert serials_of(authority, "node", "desk1") == [good.serial]


def test_an_entry_is_one_write_and_on_the_disk(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    write, fsync = os.write, os.fsync

    def noted(name: str, call: Callable[..., Any], *given: Any) -> Any:
        done.append(name)
        return call(*given)

    monkeypatch.setattr("os.write", partial(noted, "write", write))
    monkeypatch.setattr("os.fsync", partial(noted, "fsync", fsync))
    issued.record(authority, "user", "ada", 0xAB, UNTIL)
    assert done[:2] == ["write", "fsync"]
    assert done.count("write") == 1
    assert issued.read(authority).of("user", "ada") == [("ab", "user", "ada", "2030-01-02")]


def test_an_entry_that_does_not_fit_on_the_disk_is_said(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:5]))
    with pytest.raises(BadInput, match="cut off"):
        issued.record(authority, "user", "ada", 0xAB, UNTIL)
    monkeypatch.undo()
    issued.record(authority, "user", "ada", 0xAC, UNTIL)
    assert [each.serial for each in issued.read(authority).of("user", "ada")] == ["ac"]


async def test_a_revocation_goes_on_over_a_damaged_line(files: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    files.certificate("user", "ada")
    listed = files.identity / "issued"
    listed.write_text("torn\n" + listed.read_text())
    (serial,) = serials_of(files.identity, "user", "ada")
    server = ("--server", str(files.socket), "--authority", str(files.identity))
    async with running(files):
        ended = await called(capfd, "identity", "revoke", "user", "ada", *server)
        assert (ended.status, "issued, line 1: 'torn' is no certificate" in ended.err) == (0, True)
        assert ended.out.startswith(f"user ada: revoked {serial}")
        ended = await called(capfd, "identity", "list", *server)
        assert (ended.status, "line 1: 'torn'" in " ".join(ended.out.split())) == (0, True)
        ended = await called(capfd, "identity", "list", "--authority", files.path / "nowhere")
        assert (ended.status, "issued: no such file" in ended.err) == (2, True)
