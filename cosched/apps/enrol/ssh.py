"""A host over ssh: keys of hosts are compared strictly, and a step of ``cosched.apps.enrol.remote`` is run as root.

What is sent goes to standard input, what is answered comes as one line of JSON: nothing of it is quoted into a command.
"""

import base64
import hashlib
import logging
import os
import shlex
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import msgspec
import paramiko

from cosched.errors import Failed

_CONNECT_S: Final = 15.0
_STEP_S: Final = 120.0
_MOST_BYTES: Final = 1 << 20
KNOWN_HOSTS: Final = Path("~/.ssh/known_hosts")
SYSTEM_KNOWN_HOSTS: Final = Path("/etc/ssh/ssh_known_hosts")

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it has to say is said here


class Access(NamedTuple):
    """How hosts are reached; ``keys`` beside the ssh agent's.

    ``python`` is the interpreter there that has cosched; "": that beside the host's command ``cosched``, else python3.
    """

    user: str = "root"
    port: int = 22
    keys: tuple[Path, ...] = ()
    known_hosts: Path | None = None
    sudo: bool = False
    sudo_password: str = ""
    python: str = ""


class StepFailed(Failed):
    """A step was refused on the host; the message is the host's."""


class _Strict(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        del client
        raise Failed(
            f"its host key is not known ({key.get_name()} {fingerprint(key)}): compare that with what "
            "'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub' says at the machine itself, then add it by connecting "
            f"once with ssh, or by 'ssh-keyscan' (known hosts: --known-hosts); here it is called {hostname}"
        )


def remote_command(python: str, step: str) -> str:
    """The shell's line that takes a step on a host. An environment's command is a link, its interpreter beside it."""
    if python:
        return shlex.join([python, "-m", "cosched.apps.enrol.remote", step])
    found = (
        'at=$(command -v cosched) && at=$(dirname "$(readlink -f "$at")")/python3; [ -x "$at" ] || at=python3; '
        'exec "$at" -m cosched.apps.enrol.remote "$1"'
    )
    return shlex.join(["sh", "-c", found, "sh", step])


def fingerprint(key: paramiko.PKey) -> str:
    """A host key's fingerprint as ssh shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")


class Host:
    """One connection. Raises :class:`Failed` with what to do for everything that goes wrong."""

    def __init__(self, address: str, access: Access) -> None:
        self.address = address
        self._access = access
        self._client = paramiko.SSHClient()
        self._client.set_missing_host_key_policy(_Strict())
        try:
            self._connect()
        except BaseException:
            self._client.close()
            raise

    def _connect(self) -> None:
        access = self._access
        where = f"{access.user}@{self.address} port {access.port}"
        self._trust()
        try:
            self._client.connect(
                self.address,
                port=access.port,
                username=access.user,
                key_filename=[os.fspath(key) for key in access.keys] or None,
                look_for_keys=not access.keys,
                allow_agent=not access.keys,
                timeout=_CONNECT_S,
                banner_timeout=_CONNECT_S,
                auth_timeout=_CONNECT_S,
            )
        except paramiko.BadHostKeyException as error:
            raise Failed(
                f"{where}: its host key has CHANGED: {fingerprint(error.key)}, known is "
                f"{fingerprint(error.expected_key)}. Somebody may be listening in. If the machine was set up anew, "
                "compare the fingerprint at the machine itself, then "
                f"'ssh-keygen -R {_known_name(self.address, access.port)}' and add the new key"
            ) from None
        except paramiko.AuthenticationException as error:
            raise Failed(f"{where}: not let in ({error}): is the key right (--key), the user (--user)?") from None
        except (paramiko.SSHException, EOFError) as error:
            raise Failed(f"{where}: no ssh there: {error or 'the connection was closed'}") from None
        except OSError as error:
            raise Failed(f"{where}: cannot be reached: {_said(error)}") from None
        except Failed as error:
            raise Failed(f"{where}: {error}") from None

    def _trust(self) -> None:
        given = self._access.known_hosts
        files = [given] if given is not None else [KNOWN_HOSTS.expanduser(), SYSTEM_KNOWN_HOSTS]
        for path in files:
            if given is None and not path.exists():
                continue
            try:
                self._client.load_system_host_keys(os.fspath(path))
            except (OSError, paramiko.SSHException) as error:
                raise Failed(f"{path}: known hosts cannot be read: {error}") from None

    def step(self, name: str, /, **request: Any) -> dict[str, Any]:
        """Have the host take a step as root; its answer. Raises :class:`StepFailed`, :class:`Failed`."""
        access = self._access
        command = remote_command(access.python, name)
        given = msgspec.json.encode(request) + b"\n"
        if access.sudo:
            command = f"sudo -S -p '' -- {command}" if access.sudo_password else f"sudo -n -- {command}"
            given = (access.sudo_password.encode() + b"\n" if access.sudo_password else b"") + given
        status, out, err = self._run(command, given)
        try:
            answer = msgspec.json.decode(out.splitlines()[-1] if out.strip() else b"", type=dict[str, Any])
        except msgspec.DecodeError:
            raise Failed(self._no_answer(status, out + err)) from None
        if problem := answer.get("problem"):
            raise StepFailed(f"{self.address}: {problem}")
        return answer

    def _no_answer(self, status: int, said: bytes) -> str:
        access = self._access
        words = " ".join(said.decode(errors="replace").split())[-400:]
        python = access.python or "the Python of its command 'cosched', else python3"
        advice = f"is cosched installed there, for {python} (--python)?"
        if "sudo" in words or "password" in words:
            advice = "may this user become root by sudo (--ask-sudo-password, or NOPASSWD)?"
        return f"{self.address}: no answer (status {status}: {words or 'nothing was said'}); {advice}"

    def _run(self, command: str, given: bytes) -> tuple[int, bytes, bytes]:
        try:
            stdin, stdout, stderr = self._client.exec_command(command, timeout=_STEP_S)
            try:
                stdin.write(given)
                stdin.channel.shutdown_write()
            except OSError:  # it has ended before it read: what it says tells why
                pass
            out, err = stdout.read(_MOST_BYTES), stderr.read(_MOST_BYTES)
            return stdout.channel.recv_exit_status(), out, err
        except TimeoutError:
            raise Failed(f"{self.address}: no answer within {_STEP_S:g} s") from None
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise Failed(f"{self.address}: the connection has ended: {error}") from None

    def __enter__(self) -> "Host":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def _known_name(address: str, port: int) -> str:
    return address if port == 22 else f"'[{address}]:{port}'"


def _said(error: OSError) -> str:
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, socket.gaierror):
        return f"no address is known for it ({error.strerror})"
    return error.strerror or str(error)
