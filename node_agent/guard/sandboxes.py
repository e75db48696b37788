"""What an attempt at a job needs before its first command and leaves behind: cgroup, private directories, records."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from cosched.linux import files, namespaces, process, users
from cosched.linux.cgroups import Cgroups
from node_agent.guard import command
from node_agent.guard.children import Children
from node_agent.guard.groups import Group
from node_agent.guard.loop import Loop
from node_agent.guard.requests import Refusal
from node_agent.guard.settings import Settings
from node_agent.guard.stalls import Stalls

_PATIENCE_US: Final = 10 * process.US_PER_S
_AGAIN_US: Final = 50_000
_ATTEMPTS: Final = 40

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Done = Callable[[dict[str, Any]], None]


class Sandboxes:
    """Makes and removes them. Whatever a user's name or files may delay is done in a child of the guard."""

    def __init__(
        self,
        settings: Settings,
        cgroups: Cgroups,
        children: Children,
        stalls: Stalls,
        loop: Loop,
        jobs_fd: int,
        *,
        private_tmp: bool,
    ) -> None:
        """``jobs_fd`` is the directory ``state/jobs``, open: whoever moves that path about moves nothing of ours."""
        self._settings = settings
        self._cgroups = cgroups
        self._children = children
        self._stalls = stalls
        self._loop = loop
        self._jobs_fd = jobs_fd
        self._private_tmp = private_tmp and settings.security.private_tmp
        self._strays: dict[str, list[Callable[[], None]]] = {}  # being removed -> what is to be done afterwards

    def place(self, group: Group, user: users.User) -> command.Place:
        """Where a group's commands run, and what they see."""
        directory = f"{self._settings.paths.state}/jobs/{_directory(group)}"
        keep = (*self._settings.paths.keep, self._settings.paths.run, directory)
        switch, bounded = self._settings.security.users != "self", group.memory_bytes is not None
        return command.Place(user, switch, self._private_tmp, directory, keep, bounded, group.request.umask)

    def make(self, group: Group, shm_bytes: int, done: Done, ended: Callable[[], None]) -> None:
        """Make them; ``done`` gets {user} or {error, message}, in the end. Raises :class:`Refusal`.

        What takes too long is killed; while it does not end, it is the group's ``errand``, and ``ended`` follows.
        """
        try:
            group.problems = self._cgroups.create(group.name, group.memory_bytes, group.processes)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._cgroups.remove(group.name)
            raise Refusal("failed", f"making the job's cgroup: {error.strerror}") from None
        self._cgroups.watch_over(group.name, group.mark, None, group.memory_bytes)
        answers: list[dict[str, Any]] = []

        def once(found: dict[str, Any]) -> None:
            if not answers:
                answers.append(found)
                done(found)

        pids: list[int] = []

        def gone(found: dict[str, Any]) -> None:
            once(found)
            ended()

        def begin() -> None:
            if not answers:
                pids.append(self._children.errand(lambda: self._made(group, shm_bytes), gone))

        def begin_late() -> None:
            try:
                begin()
            except Refusal as refusal:
                once({"error": refusal.code, "message": str(refusal)})

        stray = self._strays.get(_directory(group))
        try:
            if stray is None:
                begin()
            else:  # a predecessor had made it, perhaps in part
                stray.append(begin_late)
        except Refusal:
            self._cgroups.remove(group.name)
            raise

        def give_up(waiting: list[dict[str, Any]]) -> None:
            if answers:
                return
            stats = [stat for pid in pids if (stat := process.stat_of(pid)) is not None]
            for pid in pids:
                group.errand = pid
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            seconds = _PATIENCE_US // process.US_PER_S
            if any(stat.command == command.ASKS_USERS for stat in stats):
                why = f"this node's user database does not answer for {group.request.user}: no start within {seconds} s"
                once({"error": "slow-users", "message": why})
                return
            on = next((f" on {each['mount']}" for each in waiting if each["mount"]), "")
            what = group.request.directory if pids else "removing what was left of this attempt"
            once({"error": "directory", "message": f"{what}{on}: no answer within {seconds} s"})

        self._loop.later(_PATIENCE_US, lambda: None if answers else self._stalls.look(pids, give_up))

    def remove(self, group: Group, done: Done) -> None:
        """Remove them; ``done`` gets {} or {error, message}. Raises :class:`Refusal`."""
        name = _directory(group)
        self._children.errand(lambda: self._removed(name), lambda found: self._remove_cgroup(group, found, done))

    def remove_stray(self, groups: Iterable[Group]) -> None:
        """Remove directories of attempts other than these. Who makes one of that name meanwhile waits for it."""
        known = {_directory(group) for group in groups}

        def removed(name: str) -> None:
            for begin in self._strays.pop(name):
                begin()

        for name in set(os.listdir(self._jobs_fd)) - known:
            self._children.errand(partial(self._removed, name), lambda _, name=name: removed(name))  # type: ignore[misc]
            self._strays[name] = []

    def _remove_cgroup(self, group: Group, found: dict[str, Any], done: Done, attempts: int = _ATTEMPTS) -> None:
        try:
            self._cgroups.remove(group.name)
        except OSError as error:
            if attempts:  # its last process is on its way out
                self._loop.later(_AGAIN_US, lambda: self._remove_cgroup(group, found, done, attempts - 1))
                return
            found = {"error": "failed", "message": f"removing cgroup {group.name}: {error.strerror}"}
        done(found)

    def _made(self, group: Group, shm_bytes: int) -> dict[str, Any]:
        """In a child: resolve the user, make the directories, see whether the user can enter his."""
        process.set_name(command.ASKS_USERS)  # until the user's groups are known, too
        security = self._settings.security
        switch = security.users != "self"
        try:
            user = users.resolve(
                group.request.user,
                users=security.users,
                min_uid=security.min_uid,
                allow_root=security.allow_root,
                submitter=group.request.uid,
            )
        except users.UserRefused as error:
            raise command.StepFailed("user", str(error)) from None
        where = self.place(group, user)
        directory = _directory(group)
        os.umask(0o077)
        os.mkdir(directory, 0o700, dir_fd=self._jobs_fd)
        fd = os.open(directory, _DIRECTORY, dir_fd=self._jobs_fd)
        for name in ("tmp", "shm"):
            os.mkdir(name, 0o700, dir_fd=fd)
            if switch:
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
