"""Users by name on this machine, and how a process becomes one of them for good."""

import contextlib
import os
import pwd
from typing import Final, NamedTuple

from cosched.linux import files

#: ``nobody``, and the kernel's overflow uid: any user that has no number in this user namespace appears as it.
NOBODY: Final = 65_534
#: The uid of a submitter whose name the scheduler's host does not know.
NO_ACCOUNT: Final = -1
#: A value of ``security.users``: jobs run as the account of their submitter's name, whatever its uid.
BY_NAME: Final = "by-name"
_OR_BY_NAME: Final = ', or say users = "by-name" in [security] of node.toml where no directories are shared'
_NO_LOGIN: Final = frozenset({"nologin", "false"})


class User(NamedTuple):
    """An account, as the password database of this machine has it."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    def environment(self) -> dict[str, str]:
        """What a login would set."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


class UserRefused(Exception):
    """Jobs don't run as that user here, and why."""


def uid_conflict(name: str, here: int, submitter: int | None, users: str) -> str:
    """Why jobs that ``name`` submitted do not run as the account ``name`` of this machine; empty where they do.

    ``here`` is the account's uid, ``submitter`` the one that the scheduler's host has for the name: :data:`NO_ACCOUNT`
    where it has none, None where a scheduler of an earlier version did not say. ``users``: as in node.toml.
    """
    if users == BY_NAME or submitter is None:
        return ""
    if submitter == NO_ACCOUNT:
        return (
            f"the scheduler's host has no account {name}, so nothing shows that uid {here} here is the same user: "
            f"make that account there with this uid{_OR_BY_NAME}"
        )
    if submitter == here:
        return ""
    return (
        f"{name} has uid {here} here and uid {submitter} on the scheduler's host, which are two users to a shared file "
        f"system: give {name} one uid{_OR_BY_NAME}"
    )


def of_uid(uid: int) -> User:
    """The account of a number; one that has no name (as in some containers) gets its number for a name."""
    try:
        return _user(pwd.getpwuid(uid))
    except KeyError:
        return User(str(uid), uid, os.getgid(), "/", "/bin/sh")


def local_name(uid: int, run: str = "/run", passwd: str = "/etc/passwd") -> str:
    """The name of a user who is logged in here or has a local account; the number of any other.

    Files of this machine alone are read: a directory of names may not answer.
    """
    with contextlib.suppress(OSError):
        for line in files.read(f"{run}/systemd/users/{uid}").splitlines():
            if line.startswith("NAME="):
                return line.removeprefix("NAME=")
    with contextlib.suppress(OSError):
        for line in files.read(passwd).splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2] == str(uid):
                return fields[0]
    return str(uid)


def resolve(name: str, *, users: str, min_uid: int, allow_root: bool, submitter: int | None = None) -> User:
    """The account that jobs of ``name`` run as on this machine. Raises :class:`UserRefused`.

    ``users`` as in node.toml; "self": everything runs as the guard's own user, and nobody else's jobs are taken.
    ``submitter`` as in :func:`uid_conflict`.
    """
    user = _resolved(name, switch=users != "self", min_uid=min_uid, allow_root=allow_root)
    if conflict := uid_conflict(name, user.uid, submitter, users):
        raise UserRefused(conflict)
    return user


def _resolved(name: str, *, switch: bool, min_uid: int, allow_root: bool) -> User:
    if not switch:
        own = of_uid(os.getuid())
        if name != own.name:
            raise UserRefused(f"this node runs jobs of {own.name} alone, not of {name}")
        if own.uid == 0 and not allow_root:
            raise UserRefused("jobs would run as root here, which is not allowed (security.allow_root)")
        return own
    try:
        user = _user(pwd.getpwnam(name))
    except (KeyError, ValueError):
        raise UserRefused(f"there is no user {name} on this node") from None
    if user.uid == 0 or user.gid == 0:
        if not (allow_root and user.uid == 0):
            raise UserRefused(f"jobs of {name} (uid {user.uid}, gid {user.gid}) are not allowed (security.allow_root)")
    elif user.uid < min_uid:
        raise UserRefused(f"{name} has uid {user.uid}, below this node's minimum of {min_uid} (security.min_uid)")
    if os.path.basename(user.shell) in _NO_LOGIN:
        raise UserRefused(f"{name} may not log in on this node (shell {user.shell})")
    return user


def become(user: User) -> None:
    """Become that user with all his groups, for good. Raises OSError; afterwards there is no way back."""
    if user.uid < 0 or user.gid < 0:  # to the kernel, -1 means: as it is
        raise PermissionError(f"no user has uid {user.uid} and gid {user.gid}")
    os.initgroups(user.name, user.gid)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if os.getresuid() != (user.uid,) * 3 or os.getresgid() != (user.gid,) * 3:
        raise PermissionError(f"the kernel did not make this process {user.name}")
    if user.uid != 0:
        try:
            os.setuid(0)
        except PermissionError:
            return
        raise PermissionError(f"root's rights were not given up when becoming {user.name}")


def _user(entry: pwd.struct_passwd) -> User:
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell or "/bin/sh")
