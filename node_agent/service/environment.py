"""The environment of a job's commands on this node, and whose processes they are."""

import os
import re
from pathlib import Path
from typing import Final

from cosched.config.node import NodeConfig
from cosched.linux.interfaces import interface_of
from cosched.wire.messages import Prepare
from node_agent.core.attempt import Attempt, Key, key_name
from node_agent.service.files import NodeFiles

#: What ends a path in a command line.
_DELIMITER: Final = re.compile(r"([\s\"'=:,;]+)")
_PROGRAM: Final = re.compile(r"/(cosched-(?:rsh|rank|pvmd))(?![\w.-])")


class Environment:
    """What the scheduler made, with this node's own paths and names. ``private_tmp``: jobs have a /tmp of their own.

    ``address`` is where other nodes reach this one: dotted as soon as the agent listens there.
    """

    def __init__(self, config: NodeConfig, files: NodeFiles, rsh: str, socket: str, job_socket: str) -> None:
        """``rsh`` is the path of ``cosched-rsh`` here, ``socket`` where it finds this agent.

        ``job_socket`` is where ranks of malleable jobs do.
        """
        self._config = config
        self._files = files
        self._rsh, self._socket, self._job_socket = rsh, socket, job_socket
        self.private_tmp = True
        self.address = config.launch.address
        self._uids: dict[Key, int] = {}

    def learn(self, key: Key, uid: object) -> None:
        """The guard says whose the processes of an attempt are. Name services are not asked here: they may not answer,
        and nothing else would go on meanwhile.
        """
        if isinstance(uid, int):
            self._uids[key] = uid

    def forget(self, key: Key) -> None:
        """Nothing of an attempt is left."""
        self._uids.pop(key, None)

    def uid(self, attempt: Attempt) -> int | None:
        """Whose processes an attempt has here; None where that is not known."""
        if attempt.prepare is None:
            return None
        return os.geteuid() if self._config.security.users == "self" else self._uids.get(attempt.id)

    def of(self, key: Key, prepare: Prepare) -> dict[str, str]:
        """The environment of an attempt's commands, without what the guard adds of the account that they run as."""
        config, path = self._config, self._files.path
        local = {
            "{node_file}": str(path(*key)),
            "{mpich_hosts}": str(path(*key, "mpich")),
            "{pvm_hosts}": str(path(*key, "pvm")),
            "{rsh}": self._rsh,
            "{rank}": str(Path(self._rsh).with_name("cosched-rank")),
            "{pvmd}": str(Path(self._rsh).with_name("cosched-pvmd")),
            "{interface}": interface_of("127.0.0.1" if len(prepare.peers) == 1 else self.address),
            "{tmp}": "/tmp" if self.private_tmp else f"{config.paths.state}/jobs/{key_name(*key)}/tmp",
        }
        made = {name: local.get(value, value) for name, value in prepare.environment.items() if local.get(value) != ""}
        made |= {"COSCHED_NODE": config.name, "COSCHED_AGENT_SOCKET": self._socket}
        if prepare.map is not None:
            made["COSCHED_JOB_SOCKET"] = self._job_socket
        return made

    def localized(self, key: Key, command: str) -> str:
        """A command line of another node's launcher, with this node's paths of our programs and of the node files.

        Launchers pass on those of the node that they run on (Open MPI 4 the remote shell, which its daemons look for).
        Linear in the command's length: a job's user chooses the command, and the agent's loop waits.
        """
        node_file = re.compile(rf"/jobs/{re.escape(key_name(*key))}/(nodes(?:\.mpich|\.pvm)?)(?![\w.-])")
        places = ((_PROGRAM, Path(self._rsh).parent), (node_file, self._files.path(*key).parent))
        words = _DELIMITER.split(command)
        for pattern, directory in places:
            words = [_moved(word, pattern, directory) for word in words]
        return "".join(words)


def _moved(word: str, pattern: re.Pattern[str], directory: Path) -> str:
    """A word in which the path up to the last name that the pattern finds is that name in ``directory``."""
    found = [*pattern.finditer(word)]
    first = word.find("/")
    if not found or found[-1].start() == first:
        return word
    return f"{word[:first]}{directory / found[-1][1]}{word[found[-1].end() :]}"
