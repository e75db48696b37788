"""Disks of a campaign's own, that it can fill and freeze: ext4 images, mounted on a loop device."""

import contextlib
import os
import select
import subprocess
from pathlib import Path
from typing import Self

#: A paused job (control groups of version 1) that waited for the file system as it was thawed last has been given its
#: lock and holds it until the pause is over: neither freezing nor thawing waits for that longer than so.
_FREEZE_S = 10.0
#: Thaws when its standard input ends, so also when whoever froze the disk is killed.
_HOLD = 'fsfreeze --freeze "$1" || exit 1; echo frozen; read -r _; fsfreeze --unfreeze "$1"'


class Disk:
    """An ext4 file system of ``megabytes``, mounted at ``path`` from :meth:`make` to the end of the block."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        self._image = path.with_name(f"{path.name}.img")
        self._filler = path / "filler"
        self._megabytes = megabytes
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        if self.path.is_mount():
            if subprocess.run(["umount", self.path], check=False).returncode:
                subprocess.run(["umount", "--lazy", self.path], check=True)
            self.path.rmdir()
        self._image.unlink(missing_ok=True)

    def make(self) -> None:
        """Make the image and mount it. Raises CalledProcessError."""
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(self._megabytes << 20)
        how = ["-qF", "-m0", "-Jsize=4", "-Elazy_itable_init=0,lazy_journal_init=0"]
        subprocess.run(["mkfs.ext4", *how, self._image], check=True)
        subprocess.run(["mount", "-o", "loop", self._image, self.path], check=True)
        (self.path / "lost+found").rmdir()

    def freeze(self) -> None:
        """Writes to it wait until it is thawed; perhaps later than from now on (:data:`_FREEZE_S`)."""
        holder = subprocess.Popen(
            ["sh", "-c", _HOLD, "sh", self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt is not for it
        )
        self._holder = holder
        assert holder.stdout is not None
        if not select.select([holder.stdout], [], [], _FREEZE_S)[0]:
            return
        if holder.stdout.readline() != b"frozen\n":
            self.thaw()
            raise OSError(f"{self.path} cannot be frozen")

    def thaw(self) -> None:
        """Writes go on; nothing where it is not frozen."""
        if self._holder is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # once frozen it thaws at once
                self._holder.communicate(timeout=_FREEZE_S)
            self._holder = None

    def fill(self) -> None:
        """Leave no byte free."""
        with self._filler.open("wb") as file:
            for piece in (1 << 20, 64 << 10, 4 << 10):
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, piece)

    def free(self) -> None:
        """Remove what filled it."""
        self._filler.unlink(missing_ok=True)
