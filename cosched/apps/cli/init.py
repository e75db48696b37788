"""``cosched init``: a cluster's authority and first settings, in one directory. A node's key is made on the node."""

import ipaddress
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from cosched.apps.cli.shared.cluster_directory import first_node, given_scheduler, named_places, nodes_of
from cosched.apps.cli.shared.values import read_by, refuse, whole_number
from cosched.apps.cli.shared.verb import Answer, says
from cosched.config.cluster import load_cluster
from cosched.config.hosts import agents_url, check_spellings, is_host
from cosched.config.templates import cluster_yaml, node_toml
from cosched.config.units import size_bytes
from cosched.errors import BadInput
from cosched.identity.names import SCHEDULER, checked_name
from cosched.install.layout import SCHEDULER as ACCOUNT
from cosched.install.layout import Layout
from cosched.install.settings import NodeFacts, node_settings
from cosched.linux import machine as machine_here

_AGENT_PORT: Final = 7421
_MANUAL: Final = "docs/guide/installation.md has it step by step"


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="The cluster's name [the directory's].")
@click.option("--scheduler", metavar="HOST", help="Name or address at which nodes reach the scheduler.")
@click.option("--node", "nodes", metavar="NAME[=ADDRESS]", multiple=True, help="A workstation; repeatable.")
@click.option("--user", "users", metavar="NAME", multiple=True, help="A user who submits from elsewhere; repeatable.")
@click.option(
    "--port",
    metavar="N",
    default="7420",
    callback=whole_number(1, 65535),
    show_default=True,
    help="The scheduler's port.",
)
@click.option("--network", metavar="CIDR", default="", help="The network that ranks talk over [any].")
@click.option("--procs", metavar="N", callback=whole_number(1, 1 << 16), help="CPUs of each node [this machine's].")
@click.option(
    "--mem", "memory_bytes", metavar="SIZE", callback=read_by(size_bytes), help="Memory of each node [this machine's]."
)
@click.option("--here", is_flag=True, help="The scheduler runs on this machine: make its key in DIRECTORY.")
@click.option("--add", is_flag=True, help="Add nodes and users to a cluster made before.")
@says
def command(
    directory: Path,
    name: str | None,
    scheduler: str | None,
    nodes: tuple[str, ...],
    users: tuple[str, ...],
    port: int,
    network: str,
    procs: int | None,
    memory_bytes: int | None,
    here: bool,
    add: bool,
) -> Answer:
    """Make a cluster: a certificate authority, cluster.yaml, and node.toml for each node.

    DIRECTORY must not exist: nothing is ever written over. Scheduler, nodes and users make their keys themselves; what
    to do for each is said at the end. 'authority' stays with you.

    \b
    Examples:
      cosched init office --scheduler head.example --node desk1 --node desk2=192.0.2.12 --user ada
      cosched init office --add --node desk3
    """
    if unfinished := [each for each in nodes if each.endswith("=")]:
        raise BadInput("--node", f"{unfinished[0]!r}", "NAME or NAME=ADDRESS")
    places = named_places(nodes, "--node")
    check_spellings(places, "--node")
    for user in users:
        checked_name("user", user)
    if len(set(users)) != len(users):
        raise BadInput("--user", "a user is named twice", "each name once")
    machine = (procs or os.cpu_count() or 1, memory_bytes or machine_here.memory_bytes())
    if add:
        made = _added(directory, places, users, scheduler, port, network, machine)
    else:
        made = _created(directory, name, places, scheduler, port, network, machine, here=here)
    files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    document = {"directory": str(directory), "cluster": made, "nodes": list(places), "users": users, "files": files}
    address = "" if here or add else scheduler or ""
    return Answer(document, _next(directory, list(places), users, address, add=add))


def _created(
    directory: Path,
    name: str | None,
    places: dict[str, str],
    scheduler: str | None,
    port: int,
    network: str,
    machine: tuple[int, int],
    *,
    here: bool,
) -> str:
    """Make the directory, whole or not at all. The cluster's name."""
    from cosched.identity import authority  # noqa: PLC0415 (its library takes long to load)

    name = name if name is not None else directory.absolute().name
    where, parent = str(directory), directory.absolute().parent
    refuse(
        (directory.exists(), where, "is there already", "a new directory (--add adds to a cluster made before)"),
        (not parent.is_dir(), where, f"no directory {parent}", "an existing one"),
        (not places, "--node", "no node", "at least one, such as --node desk1"),
    )
    scheduler = given_scheduler(scheduler)
    with TemporaryDirectory(prefix=f".{directory.name}.", dir=parent) as made:
        partial = Path(made)
        if not _is_place(scheduler):
            raise BadInput("address", f"{scheduler!r}", "a host's name or an IP address")
        authority.create_authority(partial / "authority", name, grants=here)
        if here:
            identity = partial / "scheduler" / "identity"
            authority.issue(partial / "authority", "scheduler", SCHEDULER, identity, addresses=[scheduler])
        settings = partial / "scheduler" / "cluster.yaml"
        settings.parent.mkdir(exist_ok=True)
        listen = "::" if ":" in scheduler else "0.0.0.0"
        settings.write_text(cluster_yaml(name, list(places), address=listen, port=port, network=network), "utf-8")
        load_cluster(settings)
        _handed_out(partial, name, places, agents_url(scheduler, port), network, machine)
        (partial / "authority").chmod(0o700)
        partial.chmod(0o755)
        partial.rename(directory)
    return name


def _added(
    directory: Path,
    places: dict[str, str],
    users: tuple[str, ...],
    scheduler: str | None,
    port: int,
    network: str,
    machine: tuple[int, int],
) -> str:
    """Add nodes and users, or nothing. The cluster's name."""
    config = load_cluster(directory / "scheduler" / "cluster.yaml")
    if not places and not users:
        raise BadInput("--add", "nothing to add", "--node NAME or --user NAME")
    for target in [directory / "nodes" / name for name in places]:
        if target.exists():
            raise BadInput(str(target), "is there already", "a new name: nothing is written over")
    check_spellings([*config.nodes, *nodes_of(directory), *places], "--node")
    first = first_node(directory) if places and not scheduler else None
    url = ""
    if places:
        url = first.scheduler.url if first else agents_url(given_scheduler(scheduler), port)
    network = network or (first.launch.network if first else "")
    with TemporaryDirectory(prefix=".adding.", dir=directory) as partial:
        _handed_out(Path(partial), config.name, places, url, network, machine)
        for made in sorted(Path(partial).glob("nodes/*")):
            target = directory / made.relative_to(partial)
            target.parent.mkdir(exist_ok=True)
            made.rename(target)
    return config.name


def _handed_out(
    base: Path, cluster: str, places: dict[str, str], url: str, network: str, machine: tuple[int, int]
) -> None:
    procs, memory_bytes = machine
    for name, address in places.items():
        facts = NodeFacts(name, cluster, url, address, procs, memory_bytes, _AGENT_PORT, network)
        node = base / "nodes" / name
        node.mkdir(parents=True)
        (node / "node.toml").write_text(node_toml(node_settings(facts, Layout())), encoding="utf-8")


def _is_place(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return is_host(text)
    return True


def _next(directory: Path, nodes: list[str], users: tuple[str, ...], scheduler: str, *, add: bool) -> list[str]:
    lines = [f"{directory}: {'added' if add else 'made'}. Next:"]
    sign = f"cosched identity sign --authority {directory}/authority"
    if scheduler:
        own = "--into /etc/cosched/identity"
        accept = f"cosched identity accept --kind scheduler {own} --account {ACCOUNT}"
        lines += [
            f"  scheduler's host   {directory}/scheduler/cluster.yaml -> /etc/cosched/; mkdir -p /etc/cosched/identity",
            f"  {'':<18} cosched identity request scheduler {own} >scheduler.csr",
            f"  here               {sign} --address {scheduler} scheduler <scheduler.csr >scheduler.json",
            f"  scheduler's host   {accept} scheduler.json",
            f"  {'':<18} cosched scheduler --config /etc/cosched/cluster.yaml",
        ]
    elif not add:
        lines.append(f"  scheduler          cosched scheduler --config {directory}/scheduler/cluster.yaml")
    elif nodes:
        lines.append(f"  cluster.yaml       add to 'nodes': {', '.join(nodes)}; then restart the scheduler")
    lines += [f"  {name:<18} cosched node add {name} --cluster {directory}" for name in nodes[:3]]
    if len(nodes) > 3:
        lines.append(f"  {'':<18} and so on for the other {len(nodes) - 3}")
    if nodes:
        lines.append(f"  {'':<18} (over ssh; by hand: 'node render', 'request', 'sign', 'accept')")
    for user in users:
        lines += [
            f"  {user:<18} cosched identity request --kind user --into ~/.config/cosched {user} >{user}.csr",
            f"  {'here':<18} {sign} --kind user {user} <{user}.csr >{user}.json",
            f"  {user:<18} cosched identity accept --kind user --into ~/.config/cosched {user}.json",
        ]
    return [
        *lines,
        "  then               cosched doctor",
        f"Keep {directory}/authority/ to yourself: who has ca.key makes certificates. ({_MANUAL})",
    ]
