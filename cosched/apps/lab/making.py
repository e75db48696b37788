"""How a lab is made: settings checked, directory claimed, files written, holder started, agents joined.

Whatever goes wrong on the way, also an interruption, what was made is removed again.
"""

import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psutil

from cosched.apps.lab import cgroups, control, files, rooms, state, tiers
from cosched.apps.lab.joined import joined
from cosched.apps.lab.plan import (
    AGENT_PORT,
    HEAD,
    HEAD_ADDRESS,
    LEAST_RATE_BIT_S,
    MAX_CLUSTERS,
    MAX_DELAY_US,
    MAX_NODES,
    MAX_RATE_BIT_S,
    NETWORK,
    NOEXEC_REMEDY,
    SCHEDULER_PORT,
    LabPlan,
    Node,
    Settings,
    own_cpus,
    python,
)
from cosched.client import places
from cosched.config.units import rate_text
from cosched.errors import BadInput, Failed, NoAnswer
from cosched.linux.files import exec_problem
from local_load.profile import find, seated
from local_load.schedule import recorded

Say = Callable[[str], None]

_STEP_S: Final = 0.02
#: From one look at the agents to the next: each asks the scheduler and every process 1.
_LOOK_S: Final = 0.05
_HOLDER_S: Final = 30.0
_TAIL_LINES: Final = 15
_LEAST_MEMORY: Final = 64 << 20
#: Decides which kind of synthetic user sits at which of the first desks; the same in every lab.
SEATS_SEED: Final = 1
#: Below the ports that the kernel gives to those who ask for none.
_PORTS: Final = range(20_000, 32_000)


def checked(wanted: Settings) -> Settings:
    """The settings, if a lab can have them. Raises :class:`BadInput`."""
    if not 1 <= wanted.nodes <= MAX_NODES:
        raise BadInput("--nodes", str(wanted.nodes), f"1 to {MAX_NODES}")
    if not 1 <= wanted.cpus <= 64:
        raise BadInput("--cpus", str(wanted.cpus), "1 to 64 for each node")
    if wanted.tier not in (0, 1, 2, 3):
        raise BadInput("--tier", str(wanted.tier), "1, 2 or 3")
    if not 0 <= wanted.users <= wanted.nodes:
        raise BadInput("--users", str(wanted.users), f"0 to {wanted.nodes}, or a percentage of the nodes such as 25%")
    _check_clusters(wanted)
    if not 1 <= wanted.mpl <= 16:
        raise BadInput("--mpl", str(wanted.mpl), "1 to 16 tasks for each CPU")
    if wanted.pin and not own_cpus(wanted.nodes, wanted.cpus):
        found = f"{wanted.nodes} nodes of {wanted.cpus} CPUs"
        raise BadInput("--pin", found, f"at most the {len(os.sched_getaffinity(0))} CPUs of this machine")
    if wanted.memory_bytes is not None:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if not _LEAST_MEMORY <= wanted.memory_bytes <= total:
            raise BadInput(
                "--mem", f"{wanted.memory_bytes} B for each node", f"64 MiB to this machine's {total >> 20} MiB"
            )
    return wanted


def _check_clusters(wanted: Settings) -> None:
    expected = f"nodes of each cluster, 2 to {MAX_CLUSTERS} of them, such as 3,3"
    try:
        sizes = wanted.cluster_sizes
    except ValueError:
        raise BadInput("--clusters", repr(wanted.clusters), expected) from None
    if sizes and not (2 <= len(sizes) <= MAX_CLUSTERS and min(sizes) >= 1 and sum(sizes) == wanted.nodes):
        raise BadInput("--clusters", f"{wanted.clusters!r} with {wanted.nodes} nodes", expected)
    if not sizes and (wanted.delay_us or wanted.rate_bit_s):
        raise BadInput("--delay, --rate", "given for a lab of one cluster", "--clusters with them")
    if not 0 <= wanted.delay_us <= MAX_DELAY_US:
        raise BadInput("--delay", f"{wanted.delay_us} us", f"0us to {MAX_DELAY_US // 1000}ms")
    if wanted.rate_bit_s and not LEAST_RATE_BIT_S <= wanted.rate_bit_s <= MAX_RATE_BIT_S:
        expected = f"{rate_text(LEAST_RATE_BIT_S)} to {rate_text(MAX_RATE_BIT_S)}"
        raise BadInput("--rate", rate_text(wanted.rate_bit_s), expected)


class Patience:
    """A time limit, in seconds, that begins anew with each sign of progress which was not seen before."""

    def __init__(self, limit_s: float, now_s: float) -> None:
        self._limit_s = limit_s
        self._end_s = now_s + limit_s
        self._seen: set[str] = set()

    def exhausted(self, signs: set[str], now_s: float) -> bool:
        """Whether the limit has passed since the last new sign."""
        if not signs <= self._seen:
            self._seen |= signs
            self._end_s = now_s + self._limit_s
        return now_s > self._end_s


class Making:
    """One ``lab up``. ``say`` gets lines on what happens, ``interrupted`` is asked often whether to give up."""

    def __init__(
        self,
        name: str,
        wanted: Settings,
        keep: Iterable[str | Path],
        say: Say,
        interrupted: Callable[[], bool],
        timeout_s: float,
    ) -> None:
        self._name = name
        self._directory = places.lab_dir(name)
        self._wanted = checked(wanted)
        if wanted.user_profile:
            find(wanted.user_profile, "--user-profile")
        if wanted.presence:
            recorded(Path(wanted.presence))
        self._keep = tuple(rooms.kept([*rooms.own_places(), *keep]))
        self._say = say
        self._interrupted = interrupted
        self._timeout_s = timeout_s
        self._note = ""

    def make(self) -> bool:
        """Make the lab; whether it was up already. Raises :class:`BadInput`, :class:`Failed`, KeyboardInterrupt."""
        before = os.umask(0o022)  # the guard refuses settings that others may write, users must reach their agent
        try:
            return self._claim()
        finally:
            os.umask(before)

    def _claim(self) -> bool:
        while True:
            with state.locked(self._directory, make=True):
                found = state.read(self._directory)
                if found.get("state") == state.UP and state.is_held(found):
                    self._say(tiers.headline(self._name, found["tier"], found["why"], found["remedy"]))
                    self._same(found)
                    return True
                if any(self._directory.iterdir()):
                    self._note = f"an earlier lab {self._name} had crashed; what it left is removed"
                    state.scrap(self._directory, found)
                    continue
                try:
                    self._make()
                except BaseException:
                    state.scrap(self._directory, state.read(self._directory))
                    raise
                return False

    def _same(self, found: dict[str, Any]) -> None:
        """Raise :class:`BadInput` where what is up is not what is wanted; what was not asked for may be anything."""
        for key, value in asdict(self._wanted).items():
            there = found["tier"] if key == "tier" else found["settings"].get(key, "")
            if value != there and not (key == "tier" and value == 0) and value is not None:
                option = {"memory_bytes": "mem"}.get(key, key).replace("_", "-")
                raise BadInput(
                    f"--{option}", f"{value}, but the lab {self._name} is up with {there}",
                    f"the same, another name, or 'cosched lab down --name {self._name}' first",
                )  # fmt: skip

    def _make(self) -> None:
        self._pause()
        cookie = os.urandom(8).hex()
        with _holder(self._directory, cookie) as channel:
            channel.send(str(self._wanted.tier).encode())
            answer = self._answer(channel, patient=True)  # it ends what it tries before it ends itself
            pid = answer.pop("pid")
            possible = tiers.Possible(**answer)
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            told: dict[str, Any] = {"version": 1, "name": self._name, "state": state.MAKING, "created": now}
            told |= {"cookie": cookie, "holder": {"pid": pid, "start": state.start_time(pid)}}
            told |= {"tier": possible.tier, "why": possible.why, "remedy": possible.remedy}
            state.write(self._directory, told)
            self._say(tiers.headline(self._name, possible.tier, possible.why, possible.remedy))
            if self._note:
                self._say(self._note)
            if self._wanted.tier and possible.tier > self._wanted.tier:
                raise Failed(f"tier {self._wanted.tier} cannot be had here: {possible.why}; remedy: {possible.remedy}")
            if possible.tier == 3 and (problem := exec_problem(self._directory)):
                raise Failed(
                    f"{problem}: no job's script could be executed in {self._directory}, and without namespaces "
                    f"({possible.why}) nothing can be mounted over it; remedy: {NOEXEC_REMEDY}"
                )
            plan = self._plan(possible, cookie)
            told |= {"settings": asdict(plan.settings), "memory_bytes": plan.memory_bytes}
            told |= {"network": NETWORK if plan.tier < 3 else "", "scheduler_address": plan.scheduler_address}
            told |= {"scheduler_port": plan.scheduler_port}
            told |= {"nodes": [asdict(node) for node in plan.nodes]}
            state.write(self._directory, told)
            files.write_all(plan, possible)
            self._pause()
            channel.send(plan.encoded())
            self._answer(channel)
            self._wait_for_agents(plan)
            state.write(self._directory, told | {"state": state.UP})
            channel.send(b"stay")

    def _plan(self, possible: tiers.Possible, cookie: str) -> LabPlan:
        wanted = self._wanted
        if possible.tier == 1 and cgroups.occupied(self._name):
            raise Failed(
                f"the control groups cosched-lab/{self._name} hold processes of a lab in another runtime directory; "
                "give --name"
            )
        one_host = possible.tier == 3
        if one_host and wanted.clusters:
            remedy = f"; remedy: {possible.remedy}" if possible.remedy else ""
            raise Failed(f"several clusters need networks of their own: {possible.why}{remedy}")
        clusters = [f"c{at}" for at, size in enumerate(wanted.cluster_sizes, 1) for _ in range(size)]
        ports = _free_ports(wanted.nodes + 1) if one_host else [SCHEDULER_PORT, *[AGENT_PORT] * wanted.nodes]
        users = [wanted.user_profile] * wanted.users if wanted.user_profile else seated(wanted.users, SEATS_SEED)
        users += [""] * (wanted.nodes - wanted.users)
        nodes = tuple(
            Node(
                f"node{i}",
                "127.0.0.1" if one_host else f"10.77.0.{i}",
                ports[i],
                str(self._directory / "nodes" / f"node{i}"),
                users[i - 1],
                clusters[i - 1] if clusters else "",
            )
            for i in range(1, wanted.nodes + 1)
        )
        longest = max((len(str(node.control)), str(node.control)) for node in nodes)
        if longest[0] > 100:
            raise BadInput("--name", f"{longest[1]} is too long for a socket's path", "a shorter name")
        memory = wanted.memory_bytes or _equal_part(wanted.nodes)
        address = "127.0.0.1" if one_host else HEAD_ADDRESS
        return LabPlan(
            self._name, cookie, str(self._directory), possible.tier, possible.user_namespace, wanted, memory, address,
            ports[0], nodes, self._keep,
        )  # fmt: skip

    def _pause(self, seconds: float = 0.0) -> None:
        if self._interrupted():
            raise KeyboardInterrupt
        time.sleep(seconds)

    def _answer(self, channel: socket.socket, *, patient: bool = False) -> dict[str, Any]:
        """What the holder says. Raises :class:`Failed` when it says that something went wrong, nothing, or ends."""
        end = time.monotonic() + _HOLDER_S
        channel.settimeout(_STEP_S)
        while True:
            if not patient:
                self._pause()
            try:
                data = channel.recv(1 << 16)
                break
            except TimeoutError:
                if time.monotonic() > end:
                    raise Failed(f"the lab's holder says nothing{self._logs('holder.log')}") from None
        if not data:
            raise Failed(f"the lab's holder has ended{self._logs('holder.log')}")
        answer: dict[str, Any] = json.loads(data)
        if "error" in answer:
            raise Failed(f"the lab could not be made: {answer['error']}")
        return answer

    def _wait_for_agents(self, plan: LabPlan) -> None:
        """Come back when the scheduler counts every node as up. Raises :class:`Failed` with the logs' last lines."""
        patience = Patience(self._timeout_s, time.monotonic())
        missing = [node.name for node in plan.nodes]
        up: set[str] = set()
        problem = "nothing"
        while True:
            self._pause(_LOOK_S)
            try:
                up = {node.name for node in joined(plan.path("api", "scheduler.sock")) if node.state == "up"}
                missing = [node.name for node in plan.nodes if node.name not in up]
                if not missing:
                    return
                problem = f"{', '.join(missing)} did not join"
            except NoAnswer as error:
                problem = str(error)
            dead = self._dead(plan)
            begun = {
                str(log)
                for where in ("*.log", "nodes/*/*.log")
                for log in plan.path().glob(where)
                if log.stat().st_size
            }
            if dead or patience.exhausted(begun | up, time.monotonic()):
                logs = [
                    "scheduler.log",
                    *(f"nodes/{name}/{log}.log" for name in missing[:2] for log in ("guard", "agent")),
                ]
                story = dead or f"nothing new for {self._timeout_s:.0f} s: {problem}"
                raise Failed(f"the lab did not come up: {story}{self._logs(*logs)}")

    def _dead(self, plan: LabPlan) -> str:
        """The first service that has ended, which none should; empty when there is none."""
        for name, path in ((HEAD, plan.path("init.sock")), *((node.name, node.control) for node in plan.nodes)):
            for service, how in control.services(path).items():
                if how != control.RUNNING:
                    return f"{service} of {name} {how}"
        return ""

    def _logs(self, *names: str) -> str:
        told = ""
        for name in names:
            try:
                lines = (self._directory / name).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            told += "".join(f"\n{name}: {line}" for line in lines[-_TAIL_LINES:])
        return told


def _holder(directory: Path, cookie: str) -> socket.socket:
    """Start a holder; the line to it. It ends with the line, as long as it was not told to stay."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    root = str(Path(__file__).parents[3])
    search = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = dict(os.environ) | {"PYTHONPATH": search, "COSCHED_LAB_COOKIE": cookie, "PYTHONUNBUFFERED": "1"}
    with theirs, (directory / "holder.log").open("ab") as log:
        started = subprocess.run(
            python("-m", "cosched.apps.lab.holder", str(theirs.fileno())),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=environment, start_new_session=True,
            pass_fds=(theirs.fileno(),), check=False,
        )  # fmt: skip
    if started.returncode:
        ours.close()
        raise Failed(f"the lab's holder cannot be started: {(directory / 'holder.log').read_text(errors='replace')}")
    return ours


def _equal_part(nodes: int) -> int:
    """Four fifths of the memory that is free, in equal parts, whole MiB."""
    return max(_LEAST_MEMORY, (psutil.virtual_memory().available * 4 // 5 // nodes) >> 20 << 20)


def _free_ports(count: int) -> list[int]:
    """Ports of this host that nobody listens on, different ones."""
    found: dict[int, socket.socket] = {}
    try:
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            trial = socket.socket()
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                trial.close()
                continue
            found[port] = trial
            if len(found) == count:
                return list(found)
        raise Failed(f"{count} free ports were not to be found on 127.0.0.1")
    finally:
        for trial in found.values():
            trial.close()
