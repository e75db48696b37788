"""``cosched lab``: workstations made out of this machine."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from cosched.apps.cli.shared.values import one_of, read_by
from cosched.apps.cli.shared.verb import Answer, says
from cosched.apps.lab.commands import CannotRun, Command, at_terminal, attached, terminal_size
from cosched.apps.lab.lab import DEFAULT_NAME, Lab, standing, status, take_down
from cosched.apps.lab.plan import HEAD
from cosched.client import places
from cosched.config.units import duration_us, memory_text, rate_bit_s, rate_text, size_bytes
from cosched.errors import BadInput
from cosched.report.table import Table

_NODES = 4
_NAME = click.option(
    "--name", "--lab", metavar="NAME", help=f"The lab's name [default: {DEFAULT_NAME}, or the one that is up]."
)


def _tier(tier: int, option: str) -> int:
    if tier not in (1, 2, 3):
        raise BadInput(option, str(tier), "1, 2 or 3")
    return tier


def _directories(keep: tuple[Path, ...], option: str) -> tuple[Path, ...]:
    for directory in keep:
        if not directory.is_dir():
            raise BadInput(option, f"{directory} is no directory", "one that is there")
    return keep


def _policy(name: str, option: str) -> str:
    from space_scheduler.plugins import resolve  # noqa: PLC0415 (only for this verb)

    resolve(name, where=option)
    return name


@click.group("lab")
def command() -> None:
    """Workstations made out of this machine: with agents, a scheduler, and users at the desks.

    \b
    Example: cosched lab up --nodes 4
    """


@command.command("up")
@click.option("--nodes", type=int, help="How many workstations [default: 4, or those of --clusters].")
@click.option("--clusters", default="", metavar="N,N…", help="Several labs: how many of the nodes are in c1, c2, ….")
@click.option(
    "--delay",
    "delay_us",
    metavar="TIME",
    default="0s",
    callback=read_by(duration_us),
    help="How long a packet takes from one cluster to another, such as 5ms.",
)
@click.option(
    "--rate",
    "rate_bit_s",
    metavar="RATE",
    default="0kbit",
    callback=read_by(rate_bit_s),
    help="How much passes between clusters each second, such as 100Mbit.",
)
@click.option("--cpus", type=int, default=1, show_default=True, help="CPUs of each.")
@click.option(
    "--mem",
    "memory_bytes",
    metavar="SIZE",
    callback=read_by(size_bytes),
    help="Memory of each, such as 512MiB [default: an equal part of what is free].",
)
@click.option("--name", "--lab", default=DEFAULT_NAME, show_default=True, metavar="NAME", help="The lab's name.")
@click.option("--tier", type=int, callback=read_by(_tier), help="1, 2 or 3 [default: the best there is].")
@click.option(
    "--policy", default="easy", show_default=True, metavar="NAME", callback=read_by(_policy), help="Scheduling policy."
)
@click.option("--users", default="0", show_default=True, metavar="K|P%", help="Desks with a synthetic user.")
@click.option("--user-profile", default="", metavar="NAME|FILE", help="What kind of user [default: the paper's mix].")
@click.option("--presence", type=click.Path(path_type=Path), metavar="FILE", help="They come and go as in this trace.")
@click.option("--cap", is_flag=True, help="Give each node a hard ceiling at its share of 85 % of the CPUs (tier 1).")
@click.option("--pin", is_flag=True, help="Give each node CPUs of its own (tier 1; one node for each CPU at most).")
@click.option("--mpl", type=int, default=1, show_default=True, help="Tasks of parallel jobs that may share a CPU.")
@click.option(
    "--coscheduling",
    metavar="MODE",
    default="none",
    show_default=True,
    callback=one_of("none", "ccs", "dcs", "spin", "gang"),
    help="How jobs that share nodes run together.",
)
@click.option(
    "--keep", multiple=True, type=click.Path(path_type=Path), metavar="DIR", callback=read_by(_directories),
    help="A directory of /tmp, /var/tmp, /dev/shm or /run that the nodes see too; may be given several times.",
)  # fmt: skip
@click.option("--page", is_flag=True, help="Show it in a browser until Ctrl-C; the lab stays.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def up(
    nodes: int | None,
    users: str,
    user_profile: str,
    presence: Path | None,
    keep: tuple[Path, ...],
    page: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a lab and wait until all its agents have joined. A lab that is up with the same settings is left as it is.

    \b
    Examples:
      cosched lab up --nodes 4 --users 25%
      cosched lab up --clusters 3,3 --delay 5ms --rate 100Mbit
    """
    from local_load.profile import is_file  # noqa: PLC0415 (only for this verb)

    if page and as_json:
        raise BadInput("--page", "together with --json", "one of the two")
    if nodes is None:
        nodes = _sum(given["clusters"]) if given["clusters"] else _NODES
    lab = Lab.up(
        nodes,
        users=_users(users, nodes),
        user_profile=os.path.abspath(user_profile) if is_file(user_profile) else user_profile,
        presence=str(presence.absolute()) if presence else "",
        keep=keep,
        say=lambda text: click.echo(text, err=as_json),
        **given,
    )
    click.echo(msgspec.json.encode(status(lab.name)) if as_json else _welcome(lab))
    if page:
        from cosched.apps.cli.page import show  # noqa: PLC0415 (only for this option)

        with lab.client() as client:
            show(client)


def _welcome(lab: Lab) -> str:
    cpus: int = lab.state["settings"]["cpus"]
    nodes = f"{len(lab.nodes)} nodes ({lab.nodes[0]} … {lab.nodes[-1]})" if len(lab.nodes) > 1 else "1 node (node1)"
    named = f" --name {lab.name}" if lab.name != DEFAULT_NAME else ""
    links = [f"\n  {one}–{other}: {us / 1000:.2f} ms there and back" for (one, other), us in lab.measured_us.items()]
    return (
        f"{lab.name} {'was up already' if lab.was_up else 'is up'}: {nodes} of {cpus} CPU{'s' if cpus > 1 else ''} "
        f"and {memory_text(lab.state['memory_bytes'])} each{''.join(links)}\n"
        f"  cosched nodes\n  cosched lab run{named} {lab.nodes[0]} -- hostname\n  cosched lab down{named}"
    )


@command.command("status")
@_NAME
@says
def status_(name: str | None) -> Answer:
    """Show a lab's nodes and what runs on them. What a crashed lab left is removed.

    \b
    Example: cosched lab status --json
    """
    told = status(_meant(name))
    return Answer(told, _status(told) if told["state"] == "up" else [_not_up(told)])


def _status(told: dict[str, Any]) -> Iterator[str | Table]:
    yield told["headline"]
    several = told["link"] is not None
    link = _link(told["link"], told["settings"]) if several else ""
    table = Table(
        f"{told['name']}: up since {told['created']}, policy {told['settings']['policy']}",
        ("node", *(["cluster"] if several else []), "address", "state", "presence", "jobs", "services"),
        notes=[*filter(None, (link, told["problem"])), f"socket   {told['socket']}", f"logs     {told['directory']}"],
    )
    for node in told["nodes"]:
        cluster = [node["cluster"]] if several else []
        jobs, services = " ".join(map(str, node["jobs"])), _services(node["services"])
        table.add(node["name"], *cluster, node["address"], node["state"], node["presence"], jobs, services)
    cluster = (told["link"].get("clusters") or [""])[:1] if several else []
    table.add(HEAD, *cluster, told["scheduler_address"], "", "", "", _services(told["scheduler"]))
    yield table


@command.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_NAME
@click.option("-q", "--quiet", is_flag=True, help="Do not say first which tier of lab this is.")
@click.argument("node")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD…")
def run(name: str | None, quiet: bool, node: str, argv: tuple[str, ...]) -> int:
    """Run a command at a node's desk, with this terminal or these pipes; exits with its status.

    \b
    Example: cosched lab run node1 -- hostname
    """
    argv = argv[1:] if argv[:1] == ("--",) else argv
    lab = Lab(_meant(name))
    if not quiet:
        click.echo(lab.headline, err=True)
        sys.stderr.flush()
    terminal = os.isatty(0) and os.isatty(1)

    def start() -> Command:
        streams = () if terminal else (0, 1, 2)
        started = lab.start(node, argv, streams=streams, size=terminal_size(0) if terminal else (24, 80))
        if started.directory != os.getcwd():
            click.echo(
                f"cosched: {os.getcwd()} is not to be seen on {node}; started in {started.directory} "
                "('lab up --keep DIR' shows it)",
                err=True,
            )
        return started

    try:
        return at_terminal(start) if terminal else attached(start)
    except CannotRun as error:
        click.echo(f"cosched: {error}", err=True)
        return error.shell_status


@command.command("cut")
@_NAME
@click.argument("clusters", nargs=2, metavar="CLUSTER CLUSTER")
def cut(name: str | None, clusters: tuple[str, str]) -> None:
    """Cut the link between two clusters of a lab: nothing passes any more until it is mended.

    \b
    Example: cosched lab cut c1 c2
    """
    _change_link(name, "cut", clusters)


@command.command("mend")
@_NAME
@click.argument("clusters", nargs=2, metavar="CLUSTER CLUSTER")
def mend(name: str | None, clusters: tuple[str, str]) -> None:
    """Mend the link between two clusters of a lab.

    \b
    Example: cosched lab mend c1 c2
    """
    _change_link(name, "mend", clusters)


def _change_link(name: str | None, do: str, clusters: tuple[str, str]) -> None:
    lab = Lab(_meant(name))
    click.echo(lab.headline)
    click.echo(_link(lab.link(do, clusters), lab.state["settings"]))


@command.command("down")
@_NAME
@click.option("--all", "every", is_flag=True, help="All labs of this user.")
def down(name: str | None, every: bool) -> None:
    """End a lab and everything that runs in it. Nothing is left; a lab that is not up is no error.

    \b
    Example: cosched lab down
    """
    if every and name:
        raise BadInput("--all", f"together with --name {name}", "one of the two")
    names = places.labs() if every else [_meant(name)]
    if not names:
        click.echo("no lab is up")
    for each in names:
        stands = standing(each)
        if stands == "up":
            click.echo(Lab(each).headline)
        if stands != "down":
            take_down(each)
        told = {"down": "was not up", "crashed": "had crashed; what it left is removed"}
        click.echo(f"lab {each} {told.get(stands, 'is down')}")


def _meant(name: str | None) -> str:
    """The lab that is named, or COSCHED_LAB, or the only one there is, or the default."""
    name = name or os.environ.get("COSCHED_LAB")
    known = places.unnamed(places.labs())
    if name:
        places.lab_dir(name)
        return name
    if len(known) > 1 and DEFAULT_NAME not in known:
        raise BadInput("--name", f"none given, and there are several labs: {', '.join(known)}", "one of them")
    return known[0] if len(known) == 1 else DEFAULT_NAME


def _not_up(told: dict[str, Any]) -> str:
    words = {
        "down": "is not up; 'cosched lab up' makes one",
        "making": "is being made or ended by another command",
        "crashed": "had crashed; what it left is removed",
    }
    return f"lab {told['name']} {words[told['state']]}"


def _services(services: dict[str, str]) -> str:
    wrong = [f"{name} {how}" for name, how in services.items() if how != "running"]
    return ", ".join(wrong) or " ".join(services)


def _link(link: dict[str, Any], settings: dict[str, Any]) -> str:
    """A line on the link between clusters."""
    if "problem" in link:
        return str(link["problem"])
    rate = f", {rate_text(settings['rate_bit_s'])}" if settings["rate_bit_s"] else ""
    late = link["late_us"] if link.get("frames") else None  # the kernel tells nothing of that
    lateness = f"; frames {late['p50']} us late (99 %: {late['p99']}, most: {late['max']})" if late else ""
    cut = "; cut: " + ", ".join("–".join(pair) for pair in link["cut"]) if link["cut"] else ""
    return f"link     {settings['delay_us'] / 1000:g} ms one way{rate}, by {link['by']}{lateness}{cut}"


def _sum(clusters: str) -> int:
    """How many nodes there are in all; what is no number is told later."""
    return sum(int(each) for each in clusters.split(",") if each.isascii() and each.isdigit() and len(each) < 4)


def _users(text: str, nodes: int) -> int:
    match = re.fullmatch(r"([0-9]+)(%?)", text)
    if not match or (match[2] and int(match[1]) > 100):
        raise BadInput("--users", repr(text), "a number of desks such as 1, or a percentage of the nodes such as 25%")
    return -(-nodes * int(match[1]) // 100) if match[2] else int(match[1])
