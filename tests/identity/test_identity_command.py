"""``cosched identity``: an authority, a key that stays where it is, and a certificate for it."""

import io
import json
from pathlib import Path

import pytest

from cosched.apps.cli.main import main
from cosched.identity import tls
from cosched.identity.authority import serials_of
from cosched.identity.names import Kind


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize("kind", ["scheduler", "user"])
def test_a_certificate_for_a_key_that_stays_where_it_was_made(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, host = tmp_path / "authority", tmp_path / "host"
    assert called(capsys, "identity", "create", str(authority), "--name", "office")[0] == 0
    assert authority.stat().st_mode & 0o777 == 0o700
    host.mkdir()
    asked = ("identity", "request", "ada", "--kind", kind, "--into", str(host))
    _, request, _ = called(capsys, *asked)
    key = (host / f"{kind}.key").read_bytes()
    assert (host / f"{kind}.key").stat().st_mode & 0o777 == 0o600
    assert called(capsys, *asked)[0] == 0  # again: the same key
    assert (host / f"{kind}.key").read_bytes() == key

    monkeypatch.setattr("sys.stdin", io.StringIO(request))
    status, out, _ = called(
        capsys, "identity", "sign", "ada", "--kind", kind, "--authority", str(authority), "--address", "192.0.2.10"
    )
    texts = json.loads(out)
    assert (status, set(texts)) == (0, {f"{kind}.pem", "ca.pem"})
    for name, text in texts.items():
        (host / name).write_text(text)
    make = tls.client_context if kind == "user" else tls.server_context
    make(host)  # which takes a certificate only with its own key
    assert len(serials_of(authority, kind, "ada")) == 1


def test_users_first_request_makes_the_directory_of_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``init`` and the guide of keys have a user type this on an account that may have no ``~/.config``."""
    place = tmp_path / ".config/cosched"
    status, request, err = called(capsys, "identity", "request", "--kind", "user", "--into", str(place), "ada")
    assert (status, err) == (0, "")
    assert "CERTIFICATE REQUEST" in request
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / "user.key").stat().st_mode & 0o777 == 0o600


def test_what_is_no_request_and_no_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called(capsys, "identity", "create", str(tmp_path / "authority"), "--name", "office")
    monkeypatch.setattr("sys.stdin", io.StringIO("hello"))
    status, out, err = called(capsys, "identity", "sign", "ada", "--authority", str(tmp_path / "authority"))
    assert (status, out) == (2, "")
    assert "certificate request" in err
    assert not (tmp_path / "authority" / "issued").exists()
    status, _, err = called(capsys, "identity", "request", "ada", "--into", str(tmp_path / "nowhere"))
    assert status == 2
    assert "nowhere" in err
    (tmp_path / "scheduler.key").write_text("no key")
    (tmp_path / "scheduler.key").chmod(0o600)
    status, _, err = called(capsys, "identity", "request", "ada", "--into", str(tmp_path))
    assert status == 2
    assert "not a key" in err
