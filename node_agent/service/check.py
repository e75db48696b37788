"""What this machine can enforce, and why not the rest; and whether an agent could serve here at all."""

import contextlib
import errno
import os
import socket
from collections.abc import Collection, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from cosched.client.desk_socket import SOCKET, ask
from cosched.config.node import NodeConfig
from cosched.errors import BadInput, Failed
from cosched.identity import tls
from cosched.identity.grants import load_grant_pub
from cosched.identity.names import SCHEDULER, certificate
from cosched.linux import sessions
from cosched.linux.cgroups import YES
from cosched.linux.check import what_can
from cosched.linux.devices import Devices
from cosched.linux.files import exec_problem
from cosched.linux.presence import KeyWatch, Terminals
from cosched.linux.presence_reading import Reading
from cosched.linux.pressure import Pressure
from cosched.linux.users import BY_NAME
from cosched.linux.weights import LAST, idle_class_on_disks
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardClient, GuardGone, GuardRefused
from node_agent.service.card import card_of, listens_asleep
from node_agent.service.files import interpreter, programs_directory, script_problem
from node_agent.service.load import Load

_PATIENCE_S = 5.0
_KINDS = ("v1", "v2")
#: What the types of file systems begin with on which a uid means the same user for several machines.
_SHARED = ("nfs", "cifs", "smb", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "afs", "orangefs", "9p", "virtiofs")

_HIDING_NONE = ("hidepid=0", "hidepid=off")


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at. ``fail``: no agent can serve like that; ``warn``: something is not enforced, or not seen."""

    what: str
    level: Literal["ok", "warn", "fail"]
    found: str


def _looked_at(what: str, problem: str, fine: str, level: Literal["warn", "fail"] = "warn") -> Finding:
    """``fine`` where there is no problem."""
    return Finding(what, level if problem else "ok", problem or fine)


def findings(config: NodeConfig) -> Iterator[Finding]:
    """Look at everything an agent with these settings needs."""
    yield from _asker(config)
    yield from _identity(config)
    yield _scheduler(config)
    yield _port(config)
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    yield users_found(config, mounts)
    yield processes_found(config, mounts)
    yield from _programs(config)
    yield from _enforcement(config)
    if config.weights.io == LAST:
        found = idle_class_on_disks()  # whether jobs read and write behind the owner
        yield Finding("disks", "warn" if found.startswith("no") else "ok", found)
    yield from _presence(config)
    yield from _waking(config)


def _asker(config: NodeConfig) -> Iterator[Finding]:
    """Who asks, where that is neither root nor the agent's account: what such a one finds is not what holds here."""
    _, key = certificate("node", Path(config.paths.identity))
    try:
        key.open("rb").close()
    except PermissionError:
        found = "not the agent's account: below is what this user could do here, not what the guard does; ask as root"
        yield Finding("asked by", "warn", found)
    except OSError:
        return  # the certificate's line tells it


def _identity(config: NodeConfig) -> Iterator[Finding]:
    identity = Path(config.paths.identity)
    for what, loads, files in (
        ("certificate", (tls.agent_server_context, tls.client_context), "ca.pem, node.pem, node.key"),
        ("grant key", (load_grant_pub,), "grant.pub"),
    ):
        try:
            for load in loads:
                load(identity)
            yield Finding(what, "ok", f"{identity}: {files}")
        except BadInput as error:
            yield Finding(what, "fail", str(error))


def _scheduler(config: NodeConfig) -> Finding:
    url = urlsplit(config.scheduler.url)
    if url.scheme != "wss" or not url.hostname:
        return Finding(
            "scheduler", "fail", f"scheduler.url is {config.scheduler.url!r}, expected wss://HOST:PORT/v1/agent"
        )
    try:
        context = tls.client_context(Path(config.paths.identity))
        with (
            socket.create_connection((url.hostname, url.port or 443), _PATIENCE_S) as connection,
            context.wrap_socket(connection, server_hostname=SCHEDULER) as secure,
        ):
            tls.expect(secure, "scheduler")
    except (BadInput, OSError) as error:
        return Finding("scheduler", "fail", f"{config.scheduler.url}: {error}")
    return Finding("scheduler", "ok", f"{config.scheduler.url} answers, and is this cluster's")


def _port(config: NodeConfig) -> Finding:
    where = f"{config.launch.address} port {config.launch.port}"
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            address = socket.gethostbyname(config.launch.address)
            if (unreached := known_to_itself_alone(config.launch.address, address)) is not None:
                return unreached
            probe.bind((address, config.launch.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return Finding("launch port", "ok", f"{where} is in use: by this node's agent, if it runs")
        return Finding("launch port", "fail", f"{where}: {error.strerror}")
    return Finding("launch port", "ok", f"{where} is free")


def known_to_itself_alone(name: str, address: str) -> Finding | None:
    """A warning where a host's name is an address of its loopback, as Debian's installer writes it; None elsewhere."""
    if name in {address, "localhost"} or not ip_address(address).is_loopback:
        return None
    remedy = f"give {name} its address of the network in /etc/hosts, or set launch.address to that"
    return Finding("launch port", "warn", f"{name} is {address} on this host, where no other node reaches it: {remedy}")


def users_found(config: NodeConfig, mounts: str) -> Finding:
    """Which uid jobs run under; ``by-name`` is a warning where ``mounts`` (proc_mounts(5)) has a shared file system."""
    if config.security.users != BY_NAME:
        who = "the agent's own user" if config.security.users == "self" else "their submitters"
        return Finding("users", "ok", f"jobs run as {who}, where the uid here is that on the scheduler's host")
    fields = (line.split() for line in mounts.splitlines())
    shared = [f"{each[1]} ({each[2]})" for each in fields if each[2].removeprefix("fuse.").startswith(_SHARED)]
    found = "jobs run as the account of their submitter's name, whatever its uid (security.users)"
    differing = f"{found}; files on {', '.join(shared)} are another user's where the uids differ"
    return _looked_at("users", differing if shared else "", found)


def processes_found(config: NodeConfig, mounts: str) -> Finding:
    """Whether an agent of its own account sees the processes of others; ``mounts``: proc_mounts(5)."""
    options = next((each[3].split(",") for line in mounts.splitlines() if (each := line.split())[1] == "/proc"), [])
    hiding = [option for option in options if option.startswith("hidepid=") and option not in _HIDING_NONE]
    if not config.security.agent_user or not hiding:
        return Finding("processes", "ok", "those of others are seen")
    group = next((option for option in options if option.startswith("gid=")), "gid=GROUP in its options")
    remedy = f"{group}, and SupplementaryGroups= with that group in a drop-in of the agent's unit"
    found = f"/proc is mounted {hiding[0]}: no film at the desk is seen, and not how jobs receive (coscheduling)"
    return Finding("processes", "warn", f"{found}; {remedy}")


def _programs(config: NodeConfig) -> Iterator[Finding]:
    """Whether jobs' users can run ``cosched-rsh``, and their scripts, which the guard puts below ``paths.state``."""
    others = config.security.users != "self"
    python = interpreter()
    if problem := exec_problem(python, others=others):
        yield Finding("cosched-rsh", "warn", f"{python}: {problem}; jobs of others stay on one node")
    else:
        try:
            there = programs_directory(config.paths, others=others)
            yield Finding("cosched-rsh", "ok", f"{there}, run by {python}")
        except OSError as error:
            yield Finding("cosched-rsh", "fail", str(error))
    problem = script_problem(config.paths, others=others)
    yield _looked_at("job scripts", problem, f"can be executed in {config.paths.state}/jobs", "fail")


def _enforcement(config: NodeConfig) -> Iterator[Finding]:
    path = os.path.join(config.paths.run, "guard.sock")
    decoys = "" if config.cgroup.decoys else "cgroup.decoys is false"
    try:
        with GuardClient(path) as guard:
            status = guard.ask(requests.Status(), timeout_s=_PATIENCE_S)
        can = status.get("can") or {}
        decoys = (status.get("decoys") or {}).get("problem", decoys)
        yield Finding("guard", "ok", f"answers at {path}")
    except (GuardGone, GuardRefused) as error:
        busy = "another agent is connected" in str(error)
        yield Finding("guard", "ok" if busy else "fail", f"serves this node's agent at {path}" if busy else str(error))
        told = _told_at_the_desk(config) if busy else {}
        can = told.get("can") or what_can(config)  # the guard's own word, else what the caller's rights allow
        decoys = (told.get("decoys") or {}).get("problem", decoys)
    for capability, answer in can.items():
        held = answer == YES or (capability == "cgroups" and answer in _KINDS)
        yield Finding(capability, "ok" if held else "warn", answer)
    waits = "beside a ceiling the owner's processes may wait for a tick when they wake each other"
    yield _looked_at("hand-offs", decoys and f"{decoys}: {waits}", "decoys, while a ceiling is in force")


def _told_at_the_desk(config: NodeConfig) -> dict[str, Any]:
    """What a guard that serves its agent tells at the desk's socket, in full to root alone; empty without an answer."""
    try:
        return ask(Path(config.paths.run) / SOCKET.name, {"do": "status"})
    except Failed:
        return {}


def _waking(config: NodeConfig) -> Iterator[Finding]:
    """Whether this machine could be woken for jobs, where that is its owner's word."""
    agreed = (_told_at_the_desk(config).get("word") or {}).get("wake")
    if agreed is None:
        return  # no guard, which is told, or one of an older version
    if not agreed:
        yield Finding("waking", "ok", "its owner has not agreed (cosched desk wake on)")
    elif (card := card_of(config.launch.address)) is None:
        yield Finding("waking", "warn", f"no Ethernet card has the address {config.launch.address}")
    else:
        deaf = f"{card.name} does not listen while the machine sleeps: ethtool -s {card.name} wol g"
        fine = f"by {card.name}, {card.mac}, at {card.broadcast}"
        yield _looked_at("waking", "" if listens_asleep(card) else deaf, fine)


def _presence(config: NodeConfig) -> Iterator[Finding]:
    asked = config.presence.sources
    left_out = [source for source in ("terminals", "sessions", "input") if source not in asked]
    yield from (Finding(f"presence: {each}", "ok", "left out of presence.sources: not looked at") for each in left_out)
    for reading in _readings(asked):
        if reading.error:
            yield Finding(f"presence: {reading.source}", "warn", f"{reading.error}; unknown counts as present")
        elif reading.idle_s is None:
            yield Finding(f"presence: {reading.source}", "warn", "none here to watch")
        else:
            idle = "nobody" if reading.idle_s == float("inf") else f"last sign {reading.idle_s:.0f} s ago"
            yield Finding(f"presence: {reading.source}", "ok", idle)
    if "terminals" in asked:
        yield _keys(config)
    pressure = Pressure(config.cgroup.mount, config.cgroup.desk)
    pressure.look(0.0)
    yield _looked_at("owner in pain", pressure.problem, pressure.sources)
    with contextlib.suppress(OSError):
        yield _load(config)


def _keys(config: NodeConfig) -> Finding:
    by = "the guard's inotify" if config.security.agent_user else "inotify"
    try:
        KeyWatch().close()
        problem = "" if config.presence.events else "presence.events is false"
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
    late = problem and f"{problem}; seen at the next look only"
    return _looked_at("presence: keys", late, f"seen at once, by {by} on /dev/pts")


def _readings(asked: Collection[str]) -> Iterator[Reading]:
    """What those sources see that can be asked from here, each once."""
    if "terminals" in asked:
        yield Terminals().reading(set)
    if "sessions" in asked:
        try:
            yield sessions.reading(sessions.active(), lambda _: None)
        except OSError as error:
            yield Reading("sessions", None, f"{error.filename}: {error.strerror}")
    if "input" in asked:
        with contextlib.closing(Devices()) as devices:
            yield devices.reading(0.0)


def _load(config: NodeConfig) -> Finding:
    load = Load(
        Path(config.cgroup.mount),
        config.cgroup.cosched,
        config.cgroup.desk,
        config.memory_bytes,
        own=set,
        tasks=set,
        use_cgroups=config.cgroup.mode != "none",
    )
    load.look()
    groups = f"by cgroups {config.cgroup.cosched} and {config.cgroup.desk}"
    found = groups if load.by_groups else "by /proc, every 5 s: there are not both cgroups to ask"
    return Finding("load is read", "ok", found)
