"""A workstation's own settings, ``node.toml``: read by its agent, and with the standard library alone by its guard.

TOML because the guard, which has privileges, imports nothing but the standard library (``tomllib``).
"""

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from cosched.config.load import convert
from cosched.errors import BadInput
from cosched.model.contract import SocialContract


class SchedulerLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the scheduler listens for agents."""

    url: str  # wss://HOST:PORT/v1/agent


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where other agents reach this one, and which network ranks talk over (CIDR; empty: any)."""

    address: str
    port: int = 7421
    network: str = ""


class Paths(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``run`` has the sockets, ``state`` what must survive (records, spool, epoch), ``identity`` the certificates.

    ``keep``: directories that stay visible when a job's private /tmp covers the place they are in.
    """

    run: str = "/run/cosched"
    state: str = "/var/lib/cosched"
    identity: str = "/etc/cosched/identity"
    keep: list[str] = []


class Cgroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``cosched`` is the parallel side, ``desk`` the owner's, both relative to the mount of each hierarchy."""

    mode: Literal["auto", "v2", "v1", "none"] = "auto"
    mount: str = "/sys/fs/cgroup"
    cosched: str = "cosched"
    desk: str = "user.slice"


class Security(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who jobs run as: ``switch`` to their submitter (needs root), or always the agent's ``self``."""

    users: Literal["switch", "self"] = "switch"
    min_uid: int = 1000
    allow_root: bool = False
    agent_user: str = ""  # who may talk to the guard; empty: the guard's own user
    private_tmp: bool = True


class PresenceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When somebody counts as being at the desk: at the first sign, and until there was none for ``away_after_s``.

    ``poll_s`` is how often the sources are asked (a key on a terminal is seen at once); others' processes are a sign of
    presence while they use more than ``busy_cpus`` CPUs.
    """

    away_after_s: float = 60.0
    poll_s: float = 1.0
    busy_cpus: float = 0.25


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``node.toml``. ``contract`` is the owner's maximum: what the scheduler asks for beyond it is cut."""

    name: str
    cluster: str
    procs: int
    memory_bytes: int
    scheduler: SchedulerLink
    launch: Launch
    paths: Paths = Paths()
    cgroup: Cgroups = Cgroups()
    security: Security = Security()
    presence: PresenceSettings = PresenceSettings()
    contract: SocialContract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1)


def load_node(path: Path) -> NodeConfig:
    """Read and check ``node.toml``. Raises :class:`BadInput` with the key's path."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(str(path), "no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(str(path), f"not TOML: {error}") from None
    config = convert(raw, NodeConfig, str(path))
    if config.procs < 1:
        raise BadInput(f"{path}: procs", f"found {config.procs}", "at least 1")
    for key in ("away_after_s", "poll_s", "busy_cpus"):
        if not (value := getattr(config.presence, key)) > 0:
            raise BadInput(f"{path}: presence.{key}", f"found {value!r}", "a number above 0")
    if problem := config.contract.impossible():
        key, found, expected = problem
        raise BadInput(f"{path}: contract.{key}", f"found {found!r}", expected)
    return config
