"""What an attempt at a job needs before its first command and leaves behind: cgroup, private directories, records."""

import contextlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from cosched.linux import files, namespaces, process, users
from node_agent.guard.base.children import Errand, Result
from node_agent.guard.base.requests import Refusal
from node_agent.guard.base.settings import Settings
from node_agent.guard.launcher import command
from node_agent.guard.launcher.groups import Group, Shared
from node_agent.guard.launcher.stalls import Stalls

_PATIENCE_US: Final = 10 * process.US_PER_S
_AGAIN_US: Final = 50_000
_ATTEMPTS: Final = 40

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Done = Callable[[Result], None]


class Sandboxes:
    """Makes and removes them. Whatever a user's name or files may delay is done in a child of the guard."""

    def __init__(self, settings: Settings, shared: Shared, stalls: Stalls, jobs_fd: int, *, private_tmp: bool) -> None:
        """``jobs_fd`` is the directory ``state/jobs``, open: whoever moves that path about moves nothing of ours."""
        self._settings = settings
        self._shared = shared
        self._stalls = stalls
        self._jobs_fd = jobs_fd
        self._private_tmp = private_tmp and settings.security.private_tmp
        self._strays: dict[str, list[Errand]] = {}  # being removed -> what is to be done afterwards

    def place(self, group: Group, user: users.User) -> command.Place:
        """Where a group's commands run, and what they see."""
        directory = f"{self._settings.paths.state}/jobs/{_directory(group)}"
        return command.Place(
            user,
            switch=self._settings.security.users != "self",
            private_tmp=self._private_tmp,
            directory=directory,
            keep=(*self._settings.paths.keep, self._settings.paths.run, directory),
            bounded=group.memory_bytes is not None,
            umask=group.request.umask,
        )

    def make(self, group: Group, shm_bytes: int, done: Done, ended: Callable[[], None]) -> None:
        """Make them; ``done`` gets {user} or the refusal, in the end. Raises :class:`Refusal`.

        What takes too long is killed; while it does not end, it is the group's ``errand``, and ``ended`` follows.
        """
        try:
            group.problems = self._shared.cgroups.create(group.name, group.memory_bytes, group.processes)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._shared.cgroups.remove(group.name)
            raise Refusal("failed", f"making the job's cgroup: {error.strerror}") from None
        self._shared.cgroups.watch_over(group.name, group.mark, None, group.memory_bytes)
        making = Errand(lambda: self._made(group, shm_bytes), done, ended, [self._jobs_fd])
        if (stray := self._strays.get(_directory(group))) is not None:
            stray.append(making)  # a predecessor had made it, perhaps in part
        else:
            try:
                self._shared.loop.fork(making)
            except Refusal:
                self._shared.cgroups.remove(group.name)
                raise

        def give_up(waiting: list[dict[str, Any]]) -> None:
            if making.settled:
                return
            seconds = _PATIENCE_US // process.US_PER_S
            stat = process.stat_of(making.pid)
            group.errand = making.pid or None
            if stat is not None and stat.command == command.ASKS_USERS:
                why = f"this node's user database does not answer for {group.request.user}: no start within {seconds} s"
                making.give_up("slow-users", why)
            else:
                on = next((f" on {each['mount']}" for each in waiting if each["mount"]), "")
                what = group.request.directory if making.pid else "removing what was left of this attempt"
                making.give_up("directory", f"{what}{on}: no answer within {seconds} s")

        def late() -> None:
            if not making.settled:
                self._stalls.look({making.pid} - {0}, give_up)

        self._shared.loop.later(_PATIENCE_US, late)

    def remove(self, group: Group, done: Done) -> None:
        """Remove them; ``done`` gets {} or the refusal. Raises :class:`Refusal`."""
        self._remove_directory(_directory(group), lambda found: self._remove_cgroup(group, found, done))

    def remove_stray(self, groups: Iterable[Group]) -> None:
        """Remove directories of attempts other than these. Who makes one of that name meanwhile waits for it."""
        for name in set(os.listdir(self._jobs_fd)) - {_directory(group) for group in groups}:
            self._remove_directory(name, partial(self._make_instead, name))
            self._strays[name] = []

    def _make_instead(self, name: str, _: Result) -> None:
        """Make the attempts that have waited until a directory of that name was removed."""
        for making in self._strays.pop(name):
            try:
                if not making.settled:
                    self._shared.loop.fork(making)
            except Refusal as refusal:
                making.settle(refusal)

    def _remove_directory(self, name: str, done: Done) -> None:
        self._shared.loop.fork(Errand(lambda: self._removed(name), done, keep=[self._jobs_fd]))

    def _remove_cgroup(self, group: Group, found: Result, done: Done, attempts: int = _ATTEMPTS) -> None:
        try:
            self._shared.cgroups.remove(group.name)
        except OSError as error:
            if attempts:  # its last process is on its way out
                self._shared.loop.later(_AGAIN_US, lambda: self._remove_cgroup(group, found, done, attempts - 1))
                return
            found = Refusal("failed", f"removing cgroup {group.name}: {error.strerror}")
        done(found)

    def _made(self, group: Group, shm_bytes: int) -> dict[str, Any]:
        """In a child: resolve the user, make the directories, see whether the user can enter his."""
        process.set_name(command.ASKS_USERS)  # until the user's groups are known, too
        try:
            user = self._settings.security.account(group.request.user, group.request.uid)
        except users.UserRefused as error:
            raise Refusal("user", str(error)) from None
        where = self.place(group, user)
        directory = _directory(group)
        os.umask(0o077)
        os.mkdir(directory, 0o700, dir_fd=self._jobs_fd)
        fd = os.open(directory, _DIRECTORY, dir_fd=self._jobs_fd)
        for name in ("tmp", "shm"):
            os.mkdir(name, 0o700, dir_fd=fd)
            if where.switch:
                os.chown(name, user.uid, user.gid, dir_fd=fd, follow_symlinks=False)
        os.fchmod(fd, 0o711)  # the guard's own, so that nobody else moves what is in it
        if where.private_tmp:
            shm = os.open("shm", _DIRECTORY, dir_fd=fd)
            with contextlib.suppress(OSError):  # a directory on disk will do: slower, but as private
                namespaces.mount_memory(shm, user.uid, user.gid, shm_bytes)
            with contextlib.suppress(OSError):  # a kernel without: the node's own, as without a private /tmp
                namespaces.make_ipc(fd, "ipc")
        os.umask(0o022)
        command.settle(where, group.request.directory)
        return {"user": list(user)}

    def _removed(self, name: str) -> dict[str, Any]:
        """In a child: remove a job's directory with what it left there."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            fd = os.open(name, _DIRECTORY, dir_fd=self._jobs_fd)
            for kept in ("shm", "ipc"):
                namespaces.unmount(f"/proc/self/fd/{fd}/{kept}")
            os.close(fd)
        files.remove_tree(name, self._jobs_fd)
        return {}


def _directory(group: Group) -> str:
    return f"{group.request.job}.{group.request.attempt}"
