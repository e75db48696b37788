"""A certificate put beside its key, where the key is: a scheduler's or a user's (of nodes: ``apps.enrol``)."""

import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import msgspec

from cosched.errors import BadInput, Failed
from cosched.identity import tls
from cosched.identity.names import CA_PEM, GRANT_KEY, Kind, certificate

_MOST_CHARACTERS: Final = 1 << 16


def fresh_key(kind: Kind, directory: Path) -> Path:
    """Where a new key lies until its certificate is accepted."""
    key = certificate(kind, directory)[1]
    return key.with_name(f"{key.name}.new")


def accept(kind: Kind, directory: Path, answer: bytes, account: str | None = None) -> None:
    """Put an authority's answer (JSON, texts by file name) into force; ``account`` is given the keys.

    Raises :class:`BadInput` where it is not the certificate of a key that is here, and then changes nothing.
    """
    pem, key = certificate(kind, directory)
    texts = _texts(answer, {pem.name, CA_PEM})
    owner = _owner(account)
    fresh = fresh_key(kind, directory)
    problem: BadInput | None = None
    for candidate in [each for each in (fresh, key) if each.exists()] or [key]:
        try:
            trial = _tried(kind, directory, texts, candidate)
        except BadInput as error:
            problem = problem or error
            continue
        try:
            for secret in (candidate, directory / GRANT_KEY):
                if owner is not None and secret.exists():
                    os.chown(secret, *owner)
            if candidate == fresh:
                fresh.replace(key)
            for name in (pem.name, CA_PEM):
                (trial / name).replace(directory / name)
        finally:
            shutil.rmtree(trial, ignore_errors=True)
        return
    assert problem is not None
    raise problem


def _texts(answer: bytes, expected: set[str]) -> Mapping[str, str]:
    try:
        texts = msgspec.json.decode(answer, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadInput("certificate", "no JSON of texts", "what 'cosched identity sign' has said") from None
    if set(texts) != expected or any(len(each) > _MOST_CHARACTERS or not each.isascii() for each in texts.values()):
        found = ", ".join(sorted(texts))[:200]
        raise BadInput("certificate", f"files {found or 'none'}", f"the texts of {' and '.join(sorted(expected))}")
    return texts


def _tried(kind: Kind, directory: Path, texts: Mapping[str, str], key: Path) -> Path:
    """A directory with the new identity, complete and not yet in force. Raises :class:`BadInput`."""
    trial = Path(mkdtemp(prefix=".accepting.", dir=directory))
    try:
        for name, text in texts.items():
            (trial / name).write_text(text, encoding="ascii")
            (trial / name).chmod(0o644)
        if not key.exists():
            raise BadInput(str(key), "no such file", "the key that 'cosched identity request' makes")
        shutil.copy2(key, certificate(kind, trial)[1])
        (tls.client_context if kind == "user" else tls.server_context)(trial)
    except BaseException:
        shutil.rmtree(trial, ignore_errors=True)
        raise
    certificate(kind, trial)[1].unlink()
    return trial


def _owner(account: str | None) -> tuple[int, int] | None:
    if account is None:
        return None
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise Failed(f"there is no account {account} on this machine") from None
    return entry.pw_uid, entry.pw_gid
