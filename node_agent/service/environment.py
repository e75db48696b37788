"""The environment of a job's commands on this node, the files that it names, and whose processes they are."""

import os
import re
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from cosched.config.node import NodeConfig
from cosched.linux.interfaces import interface_of
from cosched.wire.messages import JobFile, Peer, Prepare
from cosched.wire.version_4 import files_of
from node_agent.core.attempt import Attempt, Key, key_name
from node_agent.service.files import OWN_PROGRAMS, put, witness_command

#: What ends a path in a command line.
_DELIMITER: Final = re.compile(r"([\s\"'=:,;]+)")
#: What may stand in a file for something of the node's own.
_VALUE: Final = re.compile(r"\{[a-z0-9_]+\}")


class Environment:
    """What the scheduler made, with this node's own paths and names. ``private_tmp``: jobs have a /tmp of their own.

    Texts of an attempt are in ``run/jobs/ID.ATTEMPT``, readable by its user, programs beside ``cosched-rsh``.
    ``address`` is where other nodes reach this one: dotted as soon as the agent listens there.
    """

    def __init__(self, config: NodeConfig, rsh: str, socket: str, job_socket: str) -> None:
        """``rsh`` is the path of ``cosched-rsh`` here, ``socket`` where it finds this agent.

        ``job_socket`` is where ranks of malleable jobs do.
        """
        self._config = config
        self._jobs = Path(config.paths.run, "jobs")
        self._rsh, self._socket, self._job_socket = Path(rsh), socket, job_socket
        self._witness = witness_command(self._rsh)
        self.private_tmp = True
        self.address = config.launch.address
        self._uids: dict[Key, int] = {}
        self._programs: dict[Path, str] = {}  # texts written: an unchanged one isn't written again, for a disk may hang

    def learn(self, key: Key, uid: object) -> None:
        """The guard says whose the processes of an attempt are. Name services are not asked here: they may not answer,
        and nothing else would go on meanwhile.
        """
        if isinstance(uid, int):
            self._uids[key] = uid

    def forget(self, key: Key) -> None:
        """Nothing of an attempt is left: remove its files."""
        self._uids.pop(key, None)
        shutil.rmtree(self._directory(key), ignore_errors=True)

    def uid(self, attempt: Attempt) -> int | None:
        """Whose processes an attempt has here; None where that is not known."""
        if attempt.prepare is None:
            return None
        return os.geteuid() if self._config.security.users == "self" else self._uids.get(attempt.id)

    def of(self, key: Key, prepare: Prepare) -> dict[str, str]:
        """The environment of an attempt's commands, without what the guard adds of the account that they run as."""
        local = self._values(key, files_of(prepare, self._config.name), prepare.peers)
        made = {name: local.get(value, value) for name, value in prepare.environment.items() if local.get(value) != ""}
        made |= {"COSCHED_NODE": self._config.name, "COSCHED_AGENT_SOCKET": self._socket}
        if prepare.map is not None:
            made["COSCHED_JOB_SOCKET"] = self._job_socket
        return made

    def write(self, key: Key, files: Collection[JobFile], peers: Collection[Peer]) -> None:
        """Write an attempt's files. Raises OSError; ValueError for a program that would replace one of the agent's."""
        values = self._values(key, files, peers)
        for directory in (self._jobs, self._directory(key)):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o755)
        for file in files:
            if file.program and (file.name in OWN_PROGRAMS or not file.name.startswith("cosched-")):
                raise ValueError(f"a launcher's program cannot be called {file.name}")
            text = _VALUE.sub(lambda found: values.get(found[0], found[0]), file.text)
            path = self._path(key, file)
            if not file.program:
                put(path, text, 0o644)
            elif self._programs.get(path) != text:
                put(path, text, 0o755)
                self._programs[path] = text

    def _directory(self, key: Key) -> Path:
        return self._jobs / key_name(*key)

    def _path(self, key: Key, file: JobFile) -> Path:
        return (self._rsh.parent if file.program else self._directory(key)) / file.name

    def _values(self, key: Key, files: Iterable[JobFile], peers: Collection[Peer]) -> dict[str, str]:
        """By what stands for it: what is this node's own, and where an attempt's files are here."""
        return {file.value: str(self._path(key, file)) for file in files} | {
            "{rsh}": str(self._rsh),
            "{witness}": self._witness,
            "{host_name}": os.uname().nodename,
            "{interface}": interface_of("127.0.0.1" if len(peers) == 1 else self.address),
            "{tmp}": "/tmp" if self.private_tmp else f"{self._config.paths.state}/jobs/{key_name(*key)}/tmp",
        }

    def localized(self, attempt: Attempt, command: str) -> str:
        """A command line of another node's launcher, with this node's paths of ``cosched-rsh`` and of the job's files.

        Launchers pass on those of the node that they run on (Open MPI 4 the remote shell, which its daemons look for).
        Linear in the command's length: a job's user chooses the command, and the agent's loop waits.
        """
        files = files_of(attempt.prepare, self._config.name) if attempt.prepare is not None else ()
        programs = _any_of("/", ["cosched-rsh", *(file.name for file in files if file.program)])
        texts = _any_of(f"/jobs/{attempt.key}/", [file.name for file in files if not file.program])
        words = _DELIMITER.split(command)
        for pattern, directory in ((programs, self._rsh.parent), (texts, self._directory(attempt.id))):
            words = [_moved(word, pattern, directory) for word in words]
        return "".join(words)


def _any_of(directory: str, names: list[str]) -> re.Pattern[str]:
    """What finds one of these files in a directory."""
    either = "|".join(map(re.escape, names)) or "(?!)"
    return re.compile(rf"{re.escape(directory)}({either})(?![\w.-])")


def _moved(word: str, pattern: re.Pattern[str], directory: Path) -> str:
    """A word in which the path up to the last name that the pattern finds is that name in ``directory``."""
    found = [*pattern.finditer(word)]
    first = word.find("/")
    if not found or found[-1].start() == first:
        return word
    return f"{word[:first]}{directory / found[-1][1]}{word[found[-1].end() :]}"
