"""The steps of taking a host into a cluster and out of it; several hosts side by side, a bounded number at a time.

In: look at the host; have it make its key; sign what it asks for; have the scheduler admit the name; send certificate
and settings, and have guard and agent started. What fails on one host costs no other, and leaves none admitted.
Out: the scheduler refuses the node and revokes its certificates first, whether or not the host can be reached.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cosched
from cosched.apps.enrol.ssh import Access, Host
from cosched.client.client import Client
from cosched.config.templates import node_toml
from cosched.errors import BadInput, Failed
from cosched.identity import issued
from cosched.identity.authority import serials_of, sign_node
from cosched.identity.names import CA_PEM, GRANT_PUB
from cosched.identity.requests import requested_key
from cosched.install.layout import Layout
from cosched.install.settings import NodeFacts, node_settings


@dataclass(frozen=True)
class Wanted:
    """What nodes are made of. ``procs`` and ``memory_bytes`` are the host's own where None; ``extra`` is more of
    ``node.toml``, as plain data, and prevails."""

    cluster: str
    authority: Path
    url: str
    network: str
    agent_port: int
    procs: int | None = None
    memory_bytes: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    etc: str = "/etc/cosched"
    state: str = "/var/lib/cosched"
    run: str = "/run/cosched"
    services: str = "auto"
    again: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of one host; ``problem`` is empty where all is well. ``notes`` are worth a look."""

    name: str
    address: str
    problem: str = ""
    notes: list[str] = field(default_factory=list)
    services: str = ""
    procs: int = 0
    memory_bytes: int = 0
    place: str = ""
    jobs_ended: int = 0

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return not self.problem


def added(
    places: Mapping[str, str], wanted: Wanted, access: Access, client: Client, parallel: int
) -> Iterator[Outcome]:
    """Enrol hosts (name -> address), at most ``parallel`` at a time; each outcome as soon as it is there."""
    lock = threading.Lock()  # the client speaks for one at a time
    known = {node.name for node in client.nodes()}

    def one(name: str, address: str) -> Outcome:
        with Host(address, access) as host:
            found = host.step("look")
            if not found["root"]:
                raise Failed(f"{address}: {access.user} is not root there (--sudo, or --user root)")
            request = host.step("key", etc=wanted.etc, name=name, again=wanted.again)["request"]
            procs = wanted.procs or int(found["procs"])
            memory_bytes = wanted.memory_bytes or int(found["memory_bytes"])
            how = wanted.services
            if how == "auto":
                how = "systemd" if found["systemd"] else "detached"
            with lock:
                client.admit(name)
            try:
                installed = host.step(
                    "install",
                    etc=wanted.etc,
                    **answered(wanted.authority, request, name, address),
                    settings=settings_of(name, address, wanted, procs, memory_bytes, found["place"], how == "systemd"),
                    services=how,
                )
            except BaseException:
                if name not in known:
                    with lock:
                        client.remove(name, serials_of(wanted.authority, "node", name))
                raise
        return Outcome(name, address, "", _notes(found), installed["services"], procs, memory_bytes, found["place"])

    return _each(places, one, parallel)


def removed(
    places: Mapping[str, str],
    authority: Path | None,
    serials: Sequence[str],
    etc: str,
    access: Access | None,
    client: Client,
    parallel: int,
) -> Iterator[Outcome]:
    """Remove nodes (name -> address); hosts are told where ``access`` is given, and what fails there is a note.

    Revoked are the certificates that the ``authority`` made for them, where it is here, and those of ``serials``.
    """
    lock = threading.Lock()

    def one(name: str, address: str) -> Outcome:
        known = issued.read(authority) if authority is not None else issued.Listed([], [])
        made = [each.serial for each in known.of("node", name)]
        with lock:
            client.remove(name, list(dict.fromkeys([*made, *serials])))
        outcome = Outcome(name, address, notes=known.damaged)
        if access is None:
            told = "its host was not told: an agent there is refused, and ends its jobs"
            return replace(outcome, notes=[*known.damaged, told])
        try:
            with Host(address, access) as host:
                ended = host.step("remove", etc=etc, name=name)
        except Failed as error:
            untidy = f"refused from now on, but its host was not tidied: {error}"
            return replace(outcome, notes=[*known.damaged, untidy])
        services = ", ".join(ended["stopped"]) or "nothing ran"
        return replace(outcome, services=services, jobs_ended=int(ended["jobs"]))

    return _each(places, one, parallel)


def renewed(places: Mapping[str, str], authority: Path, etc: str, access: Access, parallel: int) -> Iterator[Outcome]:
    """New keys and certificates for nodes (name -> address); agents take them by themselves, jobs go on."""

    def one(name: str, address: str) -> Outcome:
        with Host(address, access) as host:
            request = host.step("key", etc=etc, name=name, again=True)["request"]
            host.step("renew", etc=etc, name=name, **answered(authority, request, name, address))
        return Outcome(name, address)

    return _each(places, one, parallel)


def settings_of(
    name: str, address: str, wanted: Wanted, procs: int, memory_bytes: int, place: str, systemd: bool
) -> str:
    """The host's ``node.toml``. ``place`` is the parallel side's group where systemd has one for it; ``systemd``:
    guard and agent are its services, and the agent is an account of its own.
    """
    facts = NodeFacts(
        name=name,
        cluster=wanted.cluster,
        url=wanted.url,
        address=address,
        procs=procs,
        memory_bytes=memory_bytes,
        port=wanted.agent_port,
        network=wanted.network,
        placed=bool(place) and systemd and "cgroup" not in wanted.extra,
        account=systemd,
        extra=wanted.extra,
    )
    return node_toml(node_settings(facts, Layout(wanted.etc, wanted.state, wanted.run)))


def answered(authority: Path, request: str, name: str, address: str) -> dict[str, str]:
    """The authority's answer to a host's request: an :class:`cosched.apps.enrol.identity.Answer` as plain data.

    Raises :class:`BadInput`.
    """
    made = sign_node(authority, requested_key(request), name, [address] if address != name else [])
    return {"certificate": made["node.pem"], "authority": made[CA_PEM], "grant_pub": made[GRANT_PUB]}


def _each(places: Mapping[str, str], one: Callable[[str, str], Outcome], parallel: int) -> Iterator[Outcome]:
    def safely(name: str, address: str) -> Outcome:
        try:
            return one(name, address)
        except (BadInput, Failed) as error:
            return Outcome(name, address, str(error))

    with ThreadPoolExecutor(max_workers=max(1, min(parallel, len(places)))) as pool:
        begun = [pool.submit(safely, name, address) for name, address in places.items()]
        for each in as_completed(begun):
            yield each.result()


def _notes(found: dict[str, Any]) -> list[str]:
    if found["version"] != cosched.__version__:
        return [f"it has version {found['version']}, this is {cosched.__version__}: upgrade the older one"]
    return []
