"""An installation laid out on a machine: its accounts, directories and files, as :mod:`cosched.install` has them."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cosched.errors import Failed
from cosched.identity.names import owner
from cosched.install import notices
from cosched.install.layout import SYSUSERS, TMPFILES, UNITS, File, Installation

#: What the agent keeps in the directory that lasts, and in the one that is gone with each boot. The rest there is the
#: guard's, and stays root's.
_KEPT: Final = ("epoch", "attempts", "spool", "revoked", "bin")
_VOLATILE: Final = ("bin", "jobs")


def write(made: Installation, root: Path) -> None:
    """Directories and files with their modes below ``root``, whoever owns them there. Raises OSError."""
    for directory in made.directories:
        place = root / directory.path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(int(directory.mode, 8))
    for file in made.files:
        _written(file, root)


def lay(made: Installation) -> None:
    """All of it on this machine, as root, with owners. Raises :class:`Failed`, OSError."""
    for file in made.files:
        if file.path.startswith(f"{SYSUSERS}/"):
            _written(file, Path("/"))
            make_accounts(Path(file.path))
    owners = [os.stat(each.path).st_uid if os.path.exists(each.path) else -1 for each in made.directories]
    write(made, Path("/"))
    for directory, before in zip(made.directories, owners, strict=True):
        uid, gid = owner(directory.owner)
        if before == 0 != uid:  # while nobody but root can move anything in it
            _hand_over(Path(directory.path), _VOLATILE if directory.volatile else _KEPT, uid, gid)
        os.chown(directory.path, uid, gid)
    own(made.identity)


def own(files: Iterable[File], place: Path | None = None) -> None:
    """Give those of these files that are there their owner and mode. ``place``: a directory where they lie as yet.

    Raises :class:`Failed`, OSError.
    """
    for file in files:
        path = Path(file.path) if place is None else place / Path(file.path).name
        if path.exists():
            os.chown(path, *owner(file.owner))
            path.chmod(int(file.mode, 8))


def make_accounts(listed: Path) -> None:
    """Have systemd make the accounts that a file lists, where they are missing. Raises :class:`Failed`."""
    try:
        ended = subprocess.run(
            ["systemd-sysusers", str(listed)], capture_output=True, text=True, timeout=60, check=False
        )  # fmt: skip
    except FileNotFoundError:
        raise Failed("systemd-sysusers is not there: the accounts cannot be made") from None
    if ended.returncode:
        raise Failed(f"systemd-sysusers {listed}: {ended.stderr.strip() or f'status {ended.returncode}'}")


def take_away(made: Installation) -> None:
    """Remove what describes its services, accounts and directories, and its notices; the rest stays."""
    for file in made.files:
        if file.path.startswith((UNITS, SYSUSERS, TMPFILES, *notices.PLACES)):
            Path(file.path).unlink(missing_ok=True)


def _written(file: File, root: Path) -> None:
    place = root / file.path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{place.name}.new")
    fresh.write_text(file.text, encoding="utf-8")
    fresh.chmod(int(file.mode, 8))
    fresh.replace(place)


def _hand_over(directory: Path, names: Iterable[str], uid: int, gid: int) -> None:
    """What an agent that was root has left there, for the one that is not. Root's own directory: nobody moves in it."""
    for name in names:
        top = directory / name
        if not top.is_symlink() and top.exists():
            os.chown(top, uid, gid, follow_symlinks=False)
            for _, directories, files, at in os.fwalk(top) if top.is_dir() else ():
                for each in (*directories, *files):
                    os.chown(each, uid, gid, dir_fd=at, follow_symlinks=False)
