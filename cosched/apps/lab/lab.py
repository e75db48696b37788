"""A lab from the outside: make it, look at it, run commands in it, end it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from cosched.apps.lab import control, link, state, tiers
from cosched.apps.lab.commands import Command
from cosched.apps.lab.interrupt import deferred, like_ctrl_c
from cosched.apps.lab.plan import HEAD, USER_PORT, Settings, python
from cosched.client import places
from cosched.errors import BadInput, Failed, NoAnswer, nearest

if TYPE_CHECKING:  # half of what a command at a desk would import
    from cosched.client.client import Client
    from cosched.monitoring.rendering import Site
    from cosched.wire.api import NodeDoc

DEFAULT_NAME: Final = "lab"


class Lab:
    """A lab that is up. As a context manager, it is taken down at the end.

    ``tier`` and ``why`` (not a better one), ``headline`` (that in a line), ``nodes`` (names), ``socket`` (of the
    scheduler's API), ``journal`` (its file), ``widest_job`` (most tasks of one job), ``directory``; of
    several clusters ``measured_us``, a packet's way there and back, as ``up`` found it.
    """

    def __init__(self, name: str) -> None:
        """The lab of that name. Raises :class:`Failed` where it is not up."""
        self.directory = places.lab_dir(name)
        found = state.read(self.directory)
        if found.get("state") != state.UP or not state.is_held(found):
            up = places.labs_up()
            told = f"those that are: {', '.join(up)}" if up else "none is; 'cosched lab up' makes one"
            near = nearest(name, up)
            raise Failed(f"no lab {name!r} is up ({told})" + (f"; did you mean {near!r}?" if near else ""))
        self.name = name
        self.state = found
        self.tier: int = found["tier"]
        self.why: str = found["why"]
        self.headline = tiers.headline(name, self.tier, self.why, found["remedy"])
        self.nodes: list[str] = [node["name"] for node in found["nodes"]]
        self.socket = self.directory / places.SOCKET_NAME
        self.journal = self.directory / "state" / "journal.db"
        cpus: int = found["settings"]["cpus"]
        self.widest_job = cpus if self.tier == 3 else cpus * len(self.nodes)
        self.was_up = False
        self.measured_us: dict[tuple[str, str], int] = {}
        self._asked = ExitStack()

    @classmethod
    def up(
        cls,
        nodes: int = 4,
        *,
        name: str = DEFAULT_NAME,
        cpus: int = 1,
        memory_bytes: int | None = None,
        tier: int | None = None,
        policy: str = "easy",
        users: int = 0,
        cap: bool = False,
        pin: bool = False,
        mpl: int = 1,
        coscheduling: str = "none",
        clock_shift_us: int = 0,
        decoys: bool = True,
        events: bool = True,
        user_profile: str = "",
        presence: str = "",
        clusters: str = "",
        delay_us: int = 0,
        rate_bit_s: int = 0,
        keep: Iterable[str | Path] = (),
        say: Callable[[str], None] | None = None,
        timeout_s: float = 60.0,
    ) -> Self:
        """Make a lab, and come back when all agents have joined; one that is up with these settings is taken as it is.

        ``tier`` None is the best there is. A ``policy`` that is ``module:name`` is looked for in the current directory.
        The ``users`` sit at the first desks: ``user_profile`` is a built-in's name or a file (empty: the paper's
        mixture), ``presence`` a trace's file (empty: they stay). ``clusters`` divides the nodes into several labs
        ("3,3"), with ``delay_us`` one way between them, and at most ``rate_bit_s``. ``keep`` names directories of /tmp
        and the like that stay visible on the nodes; ``say`` gets lines on what happens. Raises :class:`BadInput`,
        :class:`Failed` and, when interrupted, KeyboardInterrupt: then nothing is left.
        """
        wanted = Settings(
            nodes,
            cpus,
            memory_bytes,
            tier or 0,
            policy,
            users,
            cap,
            pin,
            mpl,
            str(coscheduling),  # a mode of the enumeration, too: settings are written as YAML
            user_profile,
            presence,
            clock_shift_us,
            decoys,
            events,
            os.getcwd() if ":" in policy else "",
            clusters,
            delay_us,
            rate_bit_s,
        )
        from cosched.apps.lab.making import Making  # noqa: PLC0415 (half of what a command on a lab that is up would import)

        was_up = True
        try:
            with deferred() as interrupted:
                making = Making(name, wanted, keep, say or (lambda text: None), interrupted, timeout_s)
                was_up = making.make()
                made = cls(name)
                made.was_up = was_up
            made._check_link(down=not was_up)
        except KeyboardInterrupt:
            if not was_up:
                take_down(name)  # it came too late for the making to give up
            raise
        return made

    def __enter__(self) -> Self:
        self._asked.enter_context(like_ctrl_c())
        return self

    def __exit__(self, *_: object) -> None:
        with self._asked:
            self.down()

    def down(self) -> None:
        """End it and all that runs in it; nothing is left."""
        take_down(self.name)

    def client(self) -> "Client":
        """A client of its scheduler."""
        from cosched.client.client import Client  # noqa: PLC0415
        from cosched.client.transport import Transport  # noqa: PLC0415

        return Client(Transport(str(self.socket)))

    def start(
        self,
        node: str,
        argv: Sequence[str],
        *,
        streams: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
        size: tuple[int, int] = (24, 80),
    ) -> Command:
        """Start a command at a node's desk: with three descriptors of the caller's, or at a terminal of the node's."""
        if not argv:
            raise BadInput("command", "none", "a program and its arguments")
        where = os.fspath(directory) if directory is not None else _here()
        environment = os.environ if env is None else env
        return Command(self.control(node), [os.fspath(each) for each in argv], environment, where, streams, size)

    def run(
        self,
        node: str,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command at a node's desk and wait for its end; its output is kept. Raises TimeoutError."""
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            source.write(stdin)
            source.seek(0)
            streams = (source.fileno(), out.fileno(), err.fileno())
            with self.start(node, argv, streams=streams, env=env, directory=directory) as command:
                status = command.wait(timeout_s)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(argv), status, out.read(), err.read())

    def popen(self, node: str, argv: Sequence[str], **how: Any) -> "subprocess.Popen[Any]":
        """The same as a process of this machine, ``cosched lab run``; ``how`` as for :class:`subprocess.Popen`."""
        ours = python("-m", "cosched.apps.cli.main", "lab", "run", "--quiet", "--name", self.name, node, "--")
        return subprocess.Popen([*ours, *argv], **how)

    @property
    def clusters(self) -> dict[str, list[str]]:
        """The nodes of each cluster; empty: there is one."""
        found: dict[str, list[str]] = {}
        for node in self.state["nodes"]:
            if node.get("cluster"):
                found.setdefault(node["cluster"], []).append(node["name"])
        return found

    def site(self) -> "Site":
        """What a Prometheus on the lab's head scrapes: the scheduler, and each desk's user (not in tier 3)."""
        from cosched.monitoring.rendering import Site  # noqa: PLC0415

        seated = [node for node in self.state["nodes"] if node["user"] and self.tier < 3]
        return Site(
            scheduler=f"{self.state['scheduler_address']}:{self.state['scheduler_port']}",
            cluster=self.name,
            desks={node["name"]: f"{node['address']}:{USER_PORT}" for node in seated},
        )

    def link(self, do: str = "status", pair: tuple[str, str] | None = None) -> dict[str, Any]:
        """How the link between the clusters is, after it was cut or mended between two of them (:mod:`link`)."""
        return link.asked(self.directory, do, pair)

    def round_trips_us(self, node: str, other: str, times: int = 5) -> list[int]:
        """How long it takes to connect from one node to another's agent, in microseconds. Raises :class:`Failed`."""
        there = next(each for each in self.state["nodes"] if each["name"] == other)
        probe = python("-m", "cosched.apps.lab.probe", there["address"], str(there["port"]), str(times))
        ended = self.run(node, probe)
        if ended.returncode:
            raise Failed(f"{node} does not reach {other}: {ended.stderr.decode(errors='replace').strip()}")
        took_us: list[int] = json.loads(ended.stdout)
        return took_us

    def _check_link(self, *, down: bool) -> None:
        """Measure the link between each two clusters. Raises :class:`Failed` where it is not what was asked for."""
        delay_us: int = self.state["settings"].get("delay_us", 0)
        for one, other in combinations(self.clusters, 2):
            if [one, other] in self.link()["cut"]:
                continue
            try:
                took_us = self.round_trips_us(self.clusters[one][0], self.clusters[other][0])
                if min(took_us) < 2 * delay_us:
                    raise Failed(
                        f"{one} and {other} are {min(took_us)} us apart, there and back, with {delay_us} us one way"
                    )
            except Failed:
                if down:
                    self.down()
                raise
            self.measured_us[one, other] = sorted(took_us)[len(took_us) // 2]

    def control(self, node: str) -> Path:
        """The socket of a node's process 1. Raises :class:`BadInput` for what is no node of the lab."""
        if node == HEAD:
            return self.directory / "init.sock"
        for known in self.state["nodes"]:
            if known["name"] == node:
                return Path(known["directory"]) / "init.sock"
        choices = ", ".join(self.nodes)
        raise BadInput("node", f"no node {node!r} in the lab {self.name}", choices, nearest=nearest(node, self.nodes))

    def services(self, node: str) -> dict[str, str]:
        """How the services of a node are, or of the head: running, or how they ended."""
        return control.services(self.control(node))


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def _link_of(lab: Lab) -> dict[str, Any] | None:
    """How the link is; with ``problem`` where it does not say so; None: there is one cluster."""
    if not lab.clusters:
        return None
    try:
        return lab.link()
    except Failed as error:
        return {"problem": str(error)}


def standing(name: str) -> str:
    """How a lab is: up, making (or being ended, by another command), crashed, or down."""
    directory = places.lab_dir(name)
    found = state.read(directory)
    if found.get("state") == state.UP and state.is_held(found):
        return state.UP
    if not directory.is_dir():
        return "down"
    return state.MAKING if state.in_work(directory) else "crashed"


def take_down(name: str) -> bool:
    """End a lab and remove what it left; whether there was one. Raises :class:`BadInput`, :class:`Failed`.

    Half an end is no end: KeyboardInterrupt comes when it is whole.
    """
    directory = places.lab_dir(name)
    with deferred(), state.locked(directory) as there:
        if there:
            state.scrap(directory, state.read(directory))
        return there


def status(name: str) -> dict[str, Any]:
    """What there is to know of a lab; ``state`` as in :func:`standing`. What a crashed one left is removed."""
    stands = standing(name)
    if stands != state.UP:
        if stands == "crashed":
            take_down(name)
        return {"name": name, "state": stands, "nodes": []}
    from cosched.apps.lab.joined import joined  # noqa: PLC0415

    directory = places.lab_dir(name)
    found = state.read(directory)
    lab = Lab(name)
    known: dict[str, NodeDoc] = {}
    problem = ""
    try:
        known = {node.name: node for node in joined(lab.socket)}
    except NoAnswer as error:
        problem = str(error)
    nodes = []
    for node in found["nodes"]:
        doc = known.get(node["name"])
        nodes.append(
            {"name": node["name"], "address": node["address"], "cluster": node.get("cluster", "")}
            | {"state": doc.state if doc else "unknown", "presence": doc.desk if doc else "unknown"}
            | {"jobs": doc.jobs if doc else [], "services": lab.services(node["name"])}
        )
    return {
        "name": name,
        "state": state.UP, "tier": lab.tier, "why": lab.why, "remedy": found["remedy"], "headline": lab.headline,
        "scheduler_address": found["scheduler_address"],
        "directory": str(directory), "socket": str(lab.socket), "network": found["network"],
        "created": found["created"], "settings": found["settings"], "holder": found["holder"]["pid"],
        "scheduler": lab.services(HEAD), "problem": problem, "nodes": nodes,
        "link": _link_of(lab),
    }  # fmt: skip
