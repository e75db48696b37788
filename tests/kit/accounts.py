"""Ordinary users, made for a test and removed after it."""

import itertools
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.waiting import BOUND_S

_numbers = itertools.count(1)


@contextmanager
def account(number: int | None = None) -> Iterator[pwd.struct_passwd]:
    """A user with a home directory and a shell, for as long as the block lasts. ``number``: its uid and gid."""
    if os.geteuid() or shutil.which("useradd") is None:
        pytest.skip("needs root and useradd, to make an ordinary user")
    name = f"cosched-{os.getpid()}-{next(_numbers)}"
    numbers = [] if number is None else ["--uid", str(number), "--gid", name, "--no-log-init"]
    if number is not None:
        subprocess.run(["groupadd", "--gid", str(number), name], check=True, timeout=BOUND_S)
    try:
        command = ["useradd", "--create-home", "--shell", "/bin/sh", *numbers, name]
        subprocess.run(command, check=True, capture_output=True, timeout=BOUND_S)
        yield pwd.getpwnam(name)
    finally:
        for remove in (["userdel", "--remove", name], ["groupdel", name]):
            subprocess.run(remove, check=False, capture_output=True, timeout=BOUND_S)


def copy_of_etc(directory: Path) -> Path:
    """A copy of ``/etc`` there, to be changed and mounted over it.

    A file that is mounted over ``/etc/passwd`` alone is gone as soon as anybody on this machine makes an account:
    ``useradd`` renames a new file to that name, and the kernel takes every mount off a name that is replaced.
    """
    copy = directory / "etc"
    subprocess.run(["cp", "--archive", "/etc", copy], check=True, timeout=BOUND_S)
    return copy


@contextmanager
def acting_as(user: pwd.struct_passwd) -> Iterator[None]:
    """Have this process be that user to whomever it connects to meanwhile."""
    group = os.getegid()
    os.setegid(user.pw_gid)
    os.seteuid(user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
