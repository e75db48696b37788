"""A certificate put beside its key, where the key is: a scheduler's or a user's (of nodes: ``apps.enrol``).

Key and certificate are two files, so there is a moment in which a new key lies beside the old certificate. The old key
is kept as ``KIND.key.old`` until that is over: a machine that lost its power then is mended by accepting once more, or
by moving that key back.
"""

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from cosched.errors import BadInput
from cosched.identity import answers, tls
from cosched.identity.names import CA_PEM, GRANT_KEY, Kind, certificate, owner
from cosched.linux.durable import sync, sync_all

_MOST_CHARACTERS: Final = 1 << 16


def fresh_key(kind: Kind, directory: Path) -> Path:
    """Where a new key lies until its certificate is accepted."""
    key = certificate(kind, directory)[1]
    return key.with_name(f"{key.name}.new")


def accept(kind: Kind, directory: Path, answer: bytes, account: str | None = None) -> None:
    """Put an authority's answer (JSON, texts by file name) into force; ``account`` is given the keys.

    Raises :class:`BadInput` where it is not the certificate of a key that is here, of that kind and the name that was
    asked for, and issued by the authority that came with it; and then changes nothing.
    """
    pem, key = certificate(kind, directory)
    texts = _texts(answer, {pem.name, CA_PEM})
    answers.look(kind, directory, texts[pem.name], texts[CA_PEM])
    trial = directory / ".accepting"
    try:
        candidate = _tried(kind, directory, texts, trial)
        if account is not None:
            _give(account, directory, [candidate, *([directory / GRANT_KEY] if kind == "scheduler" else [])])
        before = key.with_name(f"{key.name}.old")
        if candidate != key:
            if _fits(kind, directory):  # else the one that was kept is the certificate's
                before.unlink(missing_ok=True)
                os.link(key, before)
            candidate.replace(key)
        for name in (pem.name, CA_PEM):
            (trial / name).replace(directory / name)
        sync(directory)
        before.unlink(missing_ok=True)
        answers.asked(kind, directory).unlink(missing_ok=True)
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _texts(answer: bytes, expected: set[str]) -> Mapping[str, str]:
    try:
        texts = msgspec.json.decode(answer, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadInput("certificate", "no JSON of texts", "what 'cosched identity sign' has said") from None
    if set(texts) != expected or any(len(each) > _MOST_CHARACTERS or not each.isascii() for each in texts.values()):
        found = ", ".join(sorted(texts))[:200]
        raise BadInput("certificate", f"files {found or 'none'}", f"the texts of {' and '.join(sorted(expected))}")
    return texts


def _tried(kind: Kind, directory: Path, texts: Mapping[str, str], trial: Path) -> Path:
    """The key here that the texts are a certificate of; they are on the disk below ``trial`` then.

    Raises :class:`BadInput`.
    """
    shutil.rmtree(trial, ignore_errors=True)
    trial.mkdir(mode=0o700)
    for name, text in texts.items():
        (trial / name).write_text(text, encoding="ascii")
        (trial / name).chmod(0o644)
    fresh, key = fresh_key(kind, directory), certificate(kind, directory)[1]
    here = [each for each in (fresh, key) if each.exists()]
    if not here:
        raise BadInput(str(key), "no such file", "the key that 'cosched identity request' makes")
    problems = []
    for candidate in here:
        link = certificate(kind, trial)[1]
        link.unlink(missing_ok=True)
        link.symlink_to(candidate.absolute())
        try:
            _load(kind, trial)
        except BadInput as error:
            problems.append(error)
            continue
        sync_all(trial)
        return candidate
    raise problems[0]


def _load(kind: Kind, directory: Path) -> None:
    """Read an identity as its user will. Raises :class:`BadInput`."""
    (tls.client_context if kind == "user" else tls.server_context)(directory)


def _fits(kind: Kind, directory: Path) -> bool:
    try:
        _load(kind, directory)
    except BadInput:
        return False
    return True


def _give(account: str, directory: Path, secrets: list[Path]) -> None:
    """Have an account own these files. Raises :class:`BadInput` where others may move files there meanwhile."""
    status = directory.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found = f"uid {status.st_uid}'s with mode {stat.S_IMODE(status.st_mode):04o}: others may move files in it"
        expected = "a directory of yours alone; or accept as that account, without --account"
        raise BadInput(str(directory), found, expected)
    for secret in secrets:
        if secret.exists():
            os.chown(secret, *owner(account), follow_symlinks=False)
