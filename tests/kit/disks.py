"""Disks that are full, and disks that do not answer."""

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cosched.linux import namespaces


@contextmanager
def no_file_may_grow(path: Path) -> Iterator[None]:
    """A full disk under the journal at a path, for this process: to write beyond what its log has now is an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name(path.name + "-wal").stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class StallingDisk:
    """A file system of its own at ``mount``: while it is frozen, whatever writes to it waits uninterruptibly."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self.frozen = False

    def freeze(self) -> None:
        """No write comes to an end from now on."""
        subprocess.run(["fsfreeze", "--freeze", self.mount], check=True)
        self.frozen = True

    def thaw(self) -> None:
        """All that wait go on."""
        if self.frozen:
            subprocess.run(["fsfreeze", "--unfreeze", self.mount], check=True)
            self.frozen = False


@contextmanager
def stalling_disk(mount: Path) -> Iterator[StallingDisk]:
    """An ext4 on a loop device, mounted at a new directory that everybody may write to. Skips where there is none."""
    if os.geteuid():
        pytest.skip("needs root: mounts and freezes a file system")
    mount.mkdir()
    with tempfile.NamedTemporaryFile(prefix="cosched-disk-", dir="/var/tmp") as image:
        image.truncate(16 << 20)
        try:
            subprocess.run(["mkfs.ext4", "-qF", image.name], check=True, capture_output=True)
            subprocess.run(["mount", "-o", "loop", image.name, mount], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs an ext4 on a loop device: {getattr(error, 'stderr', None) or error}")
        disk = StallingDisk(mount)
        try:
            mount.chmod(0o1777)
            yield disk
        finally:
            disk.thaw()
            subprocess.run(["umount", "--lazy", mount], check=True)


@contextmanager
def hanging_directory(mount: Path) -> Iterator[Path]:
    """A new directory on a file system whose server never answers: whatever looks at it waits. Skips without FUSE."""
    if os.geteuid():
        pytest.skip("needs root: mounts a file system")
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"needs FUSE: {error}")
    mount.mkdir()
    try:
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other"
        namespaces.mount("hanging", str(mount), "fuse.hanging", data=options)
        yield mount
    finally:
        os.close(server)  # who waits is let go with an error
        subprocess.run(["umount", "--lazy", mount], check=False)
