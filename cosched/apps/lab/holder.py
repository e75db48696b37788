"""The process that holds a lab together, ``python -m cosched.apps.lab.holder DESCRIPTOR``, started by ``lab up``.

With namespaces it forks process 1 of the lab's own pid namespace, the head, and waits: whoever kills either of them
ends everything, because the kernel kills a pid namespace with its process 1, and namespaces go when nobody is in them.
Without, it is head itself, adopts every orphan, and kills what is below it before it ends.

Over the socket it is given: it is told the wanted tier (one digit), says what is possible and its number, gets the
:class:`LabPlan`, says when everything is started, and gets a word when the lab is to stay. Until then it ends with its
caller.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from cosched.apps.lab import cgroups, control, kernel, rooms, tiers, wiring
from cosched.apps.lab.init import Init
from cosched.apps.lab.keeping import Service
from cosched.apps.lab.netlink import Network
from cosched.apps.lab.plan import (
    AGENTS,
    HEAD,
    HEAD_ADDRESS,
    LINK_SOCKET,
    NOEXEC_REMEDY,
    PEER_PORT,
    RUN,
    USER_PORT,
    USER_PRESENCE,
    USER_PROFILE,
    LabPlan,
    Node,
    own_cpus,
    python,
    run_directory,
)
from cosched.apps.lab.sweep import kill_descendants
from cosched.install.modules import MODULES
from cosched.linux import files
from cosched.linux.process import become_subreaper, die_with_parent, set_name
from node_agent.guard.base.requests import SOCKET_NAME

_PREFIX: Final = 24
_GUARD_S: Final = 3.0
_USER_S: Final = str(30 * 86_400)
_WATCHDOG_S: Final = 10.0  # a guard that hangs for so long is killed, and its successor arms the contract


def main() -> None:
    """Hold a lab until somebody ends it."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    if os.fork():  # whoever called has no child to wait for
        os._exit(0)
    possible = tiers.best(int(channel.recv(1) or b"3"))
    channel.sendall(json.dumps(possible._asdict() | {"pid": os.getpid()}).encode())
    data = channel.recv(1 << 20)
    if not data:
        return
    plan = LabPlan.decoded(data)
    try:
        if plan.tier == 1:
            cgroups.make(plan.name, _shares(plan))
        if plan.tier < 3:
            _in_namespaces(plan, channel)
        else:
            _on_one_host(plan, channel)
    except OSError as error:
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps({"error": kernel.told(error)}).encode())
        sys.exit(1)


def _shares(plan: LabPlan) -> dict[str, cgroups.Share]:
    wanted = plan.settings
    share = cgroups.Share(wanted.cpus, plan.memory_bytes, wanted.cap_cpus)
    own = own_cpus(len(plan.nodes), wanted.cpus) if wanted.pin else [""] * len(plan.nodes)
    shares = {node.name: share._replace(own_cpus=cpus) for node, cpus in zip(plan.nodes, own, strict=True)}
    agents = {AGENTS: cgroups.Share(len(plan.nodes), 0)} if wanted.agents_apart else {}
    return shares | agents | {HEAD: cgroups.Share(1, 0)}


def _in_namespaces(plan: LabPlan, channel: socket.socket) -> None:
    """Fork the head into new namespaces and wait for its end, which a signal to us brings about."""
    if plan.user_namespace:
        kernel.enter_user_namespace()
    kernel.unshare(tiers.NAMESPACES, "namespaces")
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        _child(lambda: _head_in_namespaces(plan, channel), channel)
    channel.close()

    def end(number: int, frame: FrameType | None) -> None:
        os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    os.waitpid(pid, 0)


def _child(do: Callable[[], None], channel: socket.socket) -> None:
    """Run a forked child's part and end it. An error is told to the caller."""
    try:
        do()
    except BaseException as error:
        traceback.print_exc()  # into the holder's log
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps({"error": kernel.told(error)}).encode())
    finally:
        os._exit(1)


def _head_in_namespaces(plan: LabPlan, channel: socket.socket) -> None:
    """Process 1 of the lab: the network, the nodes, the scheduler."""
    die_with_parent(0)
    set_name(f"lab-{plan.name}")
    socket.sethostname(HEAD)
    rooms.separate_mounts()
    if plan.tier == 1:
        cgroups.enter(cgroups.doors(plan.name, HEAD, "system"))
    with contextlib.suppress(OSError):  # smaller tables for the nodes' connections: a look at all of them is cheap
        files.write("/proc/sys/net/ipv4/tcp_child_ehash_entries", "1024")
    head = _head(plan, channel)
    lans = wiring.lans(plan.clusters, f"{HEAD_ADDRESS}/{_PREFIX}")
    if plan.clusters:
        wanted = plan.settings
        wiring.start_link(plan.name, list(lans.values()), plan.path(LINK_SOCKET), wanted.delay_us, wanted.rate_bit_s)
    _start_scheduler(head, plan)
    lines = [_fork_node(plan, node, channel) for node in plan.nodes]
    for node, line in zip(plan.nodes, lines, strict=True):
        _, (namespace,) = _heard(line, node)
        lans[node.cluster].attach(node.name, namespace)
        os.close(namespace)
        line.send(b"wired")
    _serve(head, plan, channel, lines)


def _fork_node(plan: LabPlan, node: Node, channel: socket.socket) -> socket.socket:
    """Fork process 1 of a node; the line to it. What stands between us ends at once, and the node becomes our child."""
    ours, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(30)
    between = os.fork()
    if between == 0:
        ours.close()

        def divide() -> None:
            kernel.unshare(tiers.NAMESPACES, f"{node.name}: namespaces")
            if os.fork():
                os._exit(0)
            _child(lambda: _node_in_namespaces(plan, node, line), channel)

        _child(divide, channel)
    line.close()
    os.waitpid(between, 0)
    return ours


def _node_in_namespaces(plan: LabPlan, node: Node, line: socket.socket) -> None:
    """Process 1 of a node: its network, its mounts, its services."""
    set_name(f"{plan.name}-{node.name}")
    namespace = kernel.own_network()
    control.send(line, {}, [namespace])
    os.close(namespace)
    listener = control.listen(node.control)
    rooms.furnish(node.name, str(plan.path("hosts")), (*plan.keep, node.directory, str(plan.path("api"))))
    try:  # jobs' scripts and their private /tmp lie there; what is looked at from outside lies beside it
        rooms.allow_programs(f"{node.directory}/state/jobs")
    except OSError as error:
        raise OSError(0, f"{node.directory} is mounted noexec; {kernel.told(error)}; remedy: {NOEXEC_REMEDY}") from None
    os.makedirs(RUN, exist_ok=True)  # the client looks there first
    os.symlink(plan.path("api", "scheduler.sock"), f"{RUN}/scheduler.sock")
    line.recv(16)
    with Network() as network:
        network.set_up("lo")
        network.set_up("eth0")
        network.add_address("eth0", f"{node.address}/{_PREFIX}")
    init = _node(plan, node, listener)
    control.send(line, {})
    line.close()
    init.run()


def _on_one_host(plan: LabPlan, channel: socket.socket) -> None:
    """Everything as plain processes below this one."""
    become_subreaper()
    set_name(f"lab-{plan.name}")
    parent = os.getpid()
    head = _head(plan, channel)
    try:
        _start_scheduler(head, plan)
        lines = []
        for node in plan.nodes:
            ours, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.settimeout(30)
            if os.fork() == 0:
                ours.close()
                _child(lambda node=node, line=line: _plain_node(plan, node, line, parent), channel)  # type: ignore[misc]
            line.close()
            lines.append(ours)
        _serve(head, plan, channel, lines)
    finally:
        kill_descendants()


def _plain_node(plan: LabPlan, node: Node, line: socket.socket, parent: int) -> None:
    die_with_parent(parent)
    become_subreaper()
    set_name(f"{plan.name}-{node.name}")
    init = _node(plan, node, control.listen(node.control))
    control.send(line, {})
    line.close()
    init.run()
    kill_descendants()


def _head(plan: LabPlan, channel: socket.socket) -> Init:
    head = Init(HEAD, control.listen(plan.path("init.sock")), os.environ, _marks(plan, HEAD), mortal=plan.tier == 3)

    def told() -> None:
        word = channel.recv(64)
        head.unwatch(channel)
        channel.close()
        if not word:  # the caller is gone, and never said that the lab is to stay
            head.end()

    head.watch(channel, told)
    return head


def _start_scheduler(head: Init, plan: LabPlan) -> None:
    argv = python("-m", "cosched.apps.cli.main", "scheduler", "--config", str(plan.path("cluster.yaml")))
    head.start("scheduler", Service(argv, str(plan.path("scheduler.log")), kept=True))
    if plan.settings.users and plan.tier < 3:
        argv = python("-m", "cosched.apps.cli.main", "local-load", "peer", "--listen", f"{HEAD_ADDRESS}:{PEER_PORT}")
        head.start("peer", Service(argv, str(plan.path("peer.log"))))


def _node(plan: LabPlan, node: Node, listener: socket.socket) -> Init:
    """A node's process 1 with guard, agent and, if there is to be one, its user at the desk."""
    desk: list[str] = []
    if plan.tier == 1:
        cgroups.enter(cgroups.doors(plan.name, AGENTS if plan.settings.agents_apart else node.name, "system"))
        desk = cgroups.doors(plan.name, node.name, "desk")
    init = Init(node.name, listener, os.environ, _marks(plan, node.name), desk, mortal=plan.tier == 3)
    config = f"{node.directory}/node.toml"
    for name in ("guard", "agent"):
        watchdog_s = _WATCHDOG_S if name == "guard" else 0.0
        log = f"{node.directory}/{name}.log"
        init.start(
            name,
            Service(
                python("-m", MODULES[f"cosched-{name}"], "--config", config), log, kept=True, watchdog_s=watchdog_s
            ),
        )
        if name == "guard":
            _wait_for(run_directory(plan, node) / SOCKET_NAME)  # an agent without its guard tries again only later
    if node.user:
        init.start("user", Service(_user(plan, node), f"{node.directory}/user.log", tuple(desk)))
    return init


def _user(plan: LabPlan, node: Node) -> tuple[str, ...]:
    """The synthetic user at a desk; Prometheus may look at him, and his messages go to the head."""
    run = ("-m", "cosched.apps.cli.main", "local-load", "run", "--profile", f"{node.directory}/{USER_PROFILE}")
    seed = str(plan.nodes.index(node) + 1)
    where: tuple[str, ...] = ("--node", f"{node.directory}/node.toml", "--seed", seed, "--seconds", _USER_S)
    if plan.tier < 3:
        where += ("--listen", f"{node.address}:{USER_PORT}", "--peer", f"{HEAD_ADDRESS}:{PEER_PORT}")
    if plan.settings.presence:
        where += ("--presence", f"{node.directory}/{USER_PRESENCE}")
    return python(*run, *where)


def _wait_for(path: Path) -> None:
    end = time.monotonic() + _GUARD_S
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.005)


def _serve(head: Init, plan: LabPlan, channel: socket.socket, lines: list[socket.socket]) -> None:
    for node, line in zip(plan.nodes, lines, strict=True):
        _heard(line, node)
        line.close()
    channel.sendall(b"{}")
    head.run()


def _heard(line: socket.socket, node: Node) -> tuple[dict[str, object], list[int]]:
    packet = control.receive(line)
    if packet is None:
        raise OSError(0, f"{node.name} has ended while it was made")
    return packet


def _marks(plan: LabPlan, node: str) -> dict[str, str]:
    """What every command in the lab finds in its environment."""
    config = {} if node == HEAD else {"COSCHED_NODE_CONFIG": str(plan.path("nodes", node, "node.toml"))}
    return config | {
        "COSCHED_LAB": plan.name,
        "COSCHED_LAB_COOKIE": plan.cookie,
        "COSCHED_NODE": node,
        "COSCHED_SERVER": str(plan.path("api", "scheduler.sock")),
    }


if __name__ == "__main__":
    main()
