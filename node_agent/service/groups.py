"""What happens to the attempts on this node: what the guard reports, and how both are brought to agree again."""

import logging
import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cosched.config.node import NodeConfig
from cosched.linux.interfaces import interface_of
from cosched.wire.grant import Grant
from cosched.wire.messages import Exit, FromAgent, GroupEnded, Prepare, ProgramEnded
from node_agent.guard import requests
from node_agent.guard.client import GuardRefused, Message
from node_agent.service.attempts import Attempt, Attempts
from node_agent.service.files import NodeFiles
from node_agent.service.guard import Guard
from node_agent.service.spool import Spool

_log = logging.getLogger("cosched.agent")
_UNKNOWN = Exit(cause="unknown")
_SCRIPT = 0


class Groups:
    """The attempts, their files, and the guard that holds their processes."""

    def __init__(
        self, config: NodeConfig, attempts: Attempts, spool: Spool, files: NodeFiles, rsh: str, socket: str
    ) -> None:
        self.config = config
        self.attempts = attempts
        self.spool = spool
        self.files = files
        self._rsh, self._socket = rsh, socket
        self._private_tmp = True
        self.guard = Guard(os.path.join(config.paths.run, "guard.sock"), self._on_event, self._agree)
        #: Where messages for the scheduler go; whoever has the link sets it. What is lost is sent again later.
        self.tell: Callable[[FromAgent], None] = lambda message: None
        #: Called after each connection to the guard (its limits are then armed).
        self.on_guard: list[Callable[[], None]] = []

    async def spawn(
        self,
        attempt: Attempt,
        number: int,
        argv: Sequence[str],
        fds: Sequence[int],
        *,
        script: bool = False,
        output: str | None = None,
        error: str | None = None,
        stream: str | None = None,
    ) -> int:
        """Have the guard start a command in the attempt's cgroup; its pid.

        The caller keeps its own copies of ``fds``. Raises GuardGone, GuardRefused, ValueError.
        """
        assert attempt.prepare is not None
        attempt.empty = None
        request = requests.Spawn(
            job=attempt.job_id,
            attempt=attempt.attempt,
            n=number,
            argv=tuple(argv),
            env=self._environment(attempt, attempt.prepare),
            cwd=attempt.prepare.directory,
            script=script,
            output=output,
            error=error,
            stream=stream,
        )
        answer = await self.guard.ask(request, fds)
        return int(answer["pid"])

    def next_command(self, attempt: Attempt) -> int:
        """The number of the attempt's next command (the script is 0)."""
        attempt.commands += 1
        self.attempts.keep(attempt)
        return attempt.commands

    async def kill(self, attempt: Attempt, grace_us: int) -> None:
        """Have everything of it killed, and no more begun. Raises GuardGone (then again once it is back)."""
        attempt.asked_kill_us = grace_us
        self.attempts.keep(attempt)
        if attempt.ended:
            return
        attempt.empty = None  # each kill is followed by the guard's word that nothing is left
        try:
            await self.guard.ask(requests.Kill(attempt.job_id, attempt.attempt, grace_us))
        except GuardRefused as error:
            if error.code != "unknown":
                raise
            attempt.empty = GroupEnded(attempt.job_id, attempt.attempt)
            self._close(attempt)

    def never_here(self, attempt: Attempt) -> None:
        """Nothing of it was ever asked of the guard: it is empty at once, guard or none, and nothing may come later."""
        attempt.asked_kill_us = 0
        attempt.empty = GroupEnded(attempt.job_id, attempt.attempt)
        self._close(attempt)

    async def forget(self, attempt: Attempt) -> None:
        """Have its cgroup, private directories and records removed. Raises GuardRefused, GuardGone."""
        try:
            await self.guard.ask(requests.Forget(attempt.job_id, attempt.attempt))
        except GuardRefused as error:
            if error.code != "unknown":
                raise
        self.files.remove(attempt.job_id, attempt.attempt)
        attempt.forgotten = True
        attempt.prepare = None
        self.attempts.keep(attempt)

    def discard(self, attempt: Attempt) -> None:
        """Remove its output, and all memory of it."""
        self.spool.remove(attempt.job_id, attempt.attempt)
        self.attempts.drop(attempt)

    def uid(self, attempt: Attempt) -> int | None:
        """Whose processes it has here; None where nobody has the name."""
        if self.config.security.users == "self":
            return os.geteuid()
        if attempt.prepare is None:
            return None
        try:
            return pwd.getpwnam(attempt.prepare.user).pw_uid
        except KeyError:
            return None

    def _environment(self, attempt: Attempt, prepare: Prepare) -> dict[str, str]:
        """What the scheduler made, with this node's own paths and names."""
        local = {
            "{node_file}": str(self.files.path(attempt.job_id, attempt.attempt)),
            "{mpich_hosts}": str(self.files.path(attempt.job_id, attempt.attempt, "mpich")),
            "{pvm_hosts}": str(self.files.path(attempt.job_id, attempt.attempt, "pvm")),
            "{rsh}": self._rsh,
            "{rank}": str(Path(self._rsh).with_name("cosched-rank")),
            "{pvmd}": str(Path(self._rsh).with_name("cosched-pvmd")),
            "{interface}": interface_of("127.0.0.1" if len(prepare.peers) == 1 else self.config.launch.address),
            "{tmp}": "/tmp" if self._private_tmp else f"{self.config.paths.state}/jobs/{attempt.key}/tmp",
        }
        made = {name: local.get(value, value) for name, value in prepare.environment.items() if local.get(value) != ""}
        made |= {"COSCHED_NODE": self.config.name, "COSCHED_AGENT_SOCKET": self._socket}
        uid = self.uid(attempt)
        try:
            entry = pwd.getpwuid(uid if uid is not None else os.geteuid())
        except KeyError:
            return {"HOME": "/", **made}
        return {
            "HOME": entry.pw_dir,
            "USER": entry.pw_name,
            "LOGNAME": entry.pw_name,
            "SHELL": entry.pw_shell or "/bin/sh",
            **made,
        }

    def _on_event(self, message: Message) -> None:
        kind = message.get("event")
        if kind in {"armed", "desk"}:
            if kind == "armed":
                _log.warning("the guard has armed by itself: %s", message.get("why"))
            for each in self.on_guard:
                each()
            return
        attempt = self.attempts.get(int(message["job"]), int(message["attempt"]))
        if kind == "exited":
            self._ended(attempt, message)
        elif kind == "empty" and attempt is not None:
            used = int(message.get("cpu_us") or 0), int(message.get("memory_peak_bytes") or 0)
            attempt.empty = GroupEnded(attempt.job_id, attempt.attempt, *used)
            self._close(attempt)

    def _ended(self, attempt: Attempt | None, message: Message) -> None:
        if attempt is not None and message["n"] == _SCRIPT:
            self._program_ended(attempt, exit_of(message))

    def _program_ended(self, attempt: Attempt, how: Exit) -> None:
        if attempt.exit is not None or attempt.forgotten:
            return
        attempt.ran, attempt.exit = True, how
        attempt.error_tail = self.spool.tail(attempt.job_id, attempt.attempt)
        self.attempts.keep(attempt)
        _log.info("job %s: its script has ended: %s", attempt.key, how)
        self.tell(ProgramEnded(attempt.job_id, attempt.attempt, how, attempt.error_tail))

    def _close(self, attempt: Attempt) -> None:
        """Report the end of an attempt that was killed and is empty. (Between commands it may be empty and go on.)"""
        if attempt.asked_kill_us is None or attempt.empty is None or attempt.ended is not None:
            return
        if attempt.ran and attempt.exit is None:
            self._program_ended(attempt, _UNKNOWN)  # the guard tells an exit before it tells of emptiness
        attempt.ended = attempt.empty
        self.attempts.keep(attempt)
        _log.info("job %s: nothing of it is left here", attempt.key)
        self.tell(attempt.ended)

    async def _agree(self) -> None:
        """After each connection: what the guard has is what is true."""
        can = (await self.guard.ask(requests.Status())).get("can") or {}
        self._private_tmp = can.get("private /tmp") == "yes"
        groups = {
            (int(group["job"]), int(group["attempt"])): group
            for group in (await self.guard.ask(requests.List())).get("groups", ())
        }
        there = {key for key, group in groups.items() if group.get("state") in {"preparing", "running", "ending"}}
        for attempt in self.attempts:
            if attempt.forgotten:
                continue
            group = groups.pop((attempt.job_id, attempt.attempt), None)
            if group is None:
                self._gone(attempt)
            else:
                self._compare(attempt, group)
        for (job_id, number), group in groups.items():
            _log.warning("job %d.%d is the guard's, and not known to this agent", job_id, number)
            stranger = self.attempts.new(job_id, number, "")
            self._compare(stranger, group)
            self.attempts.keep(stranger)
        for each in self.on_guard:
            each()
        for attempt in self.attempts:
            if attempt.asked_kill_us is not None and not attempt.ended:
                await self.kill(attempt, attempt.asked_kill_us)
            elif attempt.ended and (attempt.job_id, attempt.attempt) in there:  # it was said not to be here
                await self.guard.ask(requests.Kill(attempt.job_id, attempt.attempt, grace_us=0))

    def _gone(self, attempt: Attempt) -> None:
        """The guard knows nothing of it: the machine was started anew, or its cgroup was removed by hand."""
        if attempt.ended is not None:
            return
        _log.warning("job %s is not known to the guard any more", attempt.key)
        if attempt.ran and attempt.exit is None:
            self._program_ended(attempt, _UNKNOWN)
        attempt.empty = attempt.empty or GroupEnded(attempt.job_id, attempt.attempt)
        attempt.asked_kill_us = attempt.asked_kill_us or 0
        self._close(attempt)

    def _compare(self, attempt: Attempt, group: dict[str, Any]) -> None:
        """Take over what the guard knows of an attempt."""
        for command in group.get("commands", ()):
            number = int(command["n"])
            attempt.commands = max(attempt.commands, number)
            if number == _SCRIPT:
                attempt.ran = True
            if command.get("state") == "ended":
                self._ended(attempt, {**command, "job": attempt.job_id, "attempt": attempt.attempt})


def exit_of(message: Message) -> Exit:
    """How a command ended, from what the guard says."""
    status, signal = message.get("status"), message.get("signal")
    return Exit(
        int(status) if status is not None else None,
        int(signal) if signal is not None else None,
        str(message.get("cause") or "own"),
    )


def granted(grant: Grant, prepare: Prepare, node: str) -> str:
    """Why a grant is not the one that goes with a Prepare for this node; empty when it is."""
    order = prepare.order
    if (grant.job_id, grant.attempt) != (order.job_id, order.attempt):
        return f"the grant is for job {grant.job_id}.{grant.attempt}"
    if grant.cluster_id != prepare.fence.cluster_id or grant.epoch > prepare.fence.epoch:
        return f"the grant is of epoch {grant.epoch} of another cluster or scheduler"
    if grant.user != prepare.user:
        return f"the grant is for user {grant.user!r}, the order for {prepare.user!r}"
    if node not in grant.nodes:
        return f"the grant does not name {node}"
    strangers = {peer.name for peer in prepare.peers} - set(grant.nodes)
    return f"the grant does not name {', '.join(sorted(strangers))}" if strangers else ""
