"""``cosched node add`` and ``node remove``: workstations enrolled over ssh, and taken out again."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cosched.apps.cli.shared.values import absolute_path, one_of, read_by, toml_table, whole_number
from cosched.apps.cli.shared.verb import echo_json, json_option, service
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.config.cluster import load_cluster
from cosched.config.hosts import MAX_CLUSTER_NAME, check_spellings, is_cluster
from cosched.config.node import load_node
from cosched.config.units import memory_text, size_bytes
from cosched.errors import BadInput
from cosched.identity.names import checked_name

_UP_S: Final = 30.0
_LOOK_S: Final = 0.2
_SERVICES: Final = ("auto", "systemd", "detached")
Command = TypeVar("Command", bound=Callable[..., Any])


def _ssh(command: Command) -> Command:
    """The options that say how hosts are reached; they arrive as ``user`` … ``python``."""
    for option in reversed(
        (
            click.option("--user", metavar="NAME", default="root", show_default=True, help="Who logs in there."),
            click.option(
                "--port", metavar="N", default="22", show_default=True, callback=whole_number(1, 65535), help="Of sshd."
            ),
            click.option(
                "--key",
                "keys",
                type=click.Path(path_type=Path),
                metavar="FILE",
                multiple=True,
                help="A private key [the ssh agent's, and ~/.ssh]; repeatable.",
            ),
            click.option(
                "--known-hosts",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Keys of hosts [~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts].",
            ),
            click.option("--sudo", is_flag=True, help="Become root there by sudo."),
            click.option("--ask-sudo-password", is_flag=True, help="With a password, asked for here."),
            click.option(
                "--python",
                metavar="PATH",
                default="",
                help="There, with cosched installed [that of its command cosched, else python3].",
            ),
            click.option(
                "--parallel",
                metavar="N",
                default="8",
                show_default=True,
                callback=whole_number(1, 64),
                help="So many hosts at a time.",
            ),
            click.option(
                "--etc",
                metavar="DIR",
                default="/etc/cosched",
                show_default=True,
                callback=read_by(absolute_path),
                help="Settings, on the host.",
            ),
            click.option(
                "--cluster",
                "directory",
                type=click.Path(path_type=Path),
                metavar="DIR",
                default=Path(),
                help="What 'cosched init' made [.].",
            ),
        )
    ):
        command = option(command)
    return command


@click.command("add")
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
@_ssh
@click.option("--scheduler", metavar="HOST", help="Where nodes reach the scheduler [its certificate's first address].")
@click.option("--cluster-name", metavar="NAME", help="The cluster (a lab) that they belong to [the scheduler's own].")
@click.option("--agent-port", metavar="N", default="7421", show_default=True, callback=whole_number(1, 65535))
@click.option("--procs", metavar="N", callback=whole_number(1, 1 << 16), help="CPUs of each [what the host says].")
@click.option("--mem", metavar="SIZE", help="Memory of each [what the host says].")
@click.option(
    "--state",
    metavar="DIR",
    default="/var/lib/cosched",
    show_default=True,
    callback=read_by(absolute_path),
    help="State, on the host.",
)
@click.option(
    "--run",
    metavar="DIR",
    default="/run/cosched",
    show_default=True,
    callback=read_by(absolute_path),
    help="Sockets, on the host.",
)
@click.option(
    "--extra", type=click.Path(path_type=Path), metavar="FILE", help="TOML of further settings for each node.toml."
)
@click.option(
    "--services", default="auto", show_default=True, callback=one_of(*_SERVICES), help="auto, systemd or detached."
)
@click.option("--again", is_flag=True, help="Also a host that is a node already: with a new key.")
@service
@json_option
def add_command(
    hosts: tuple[str, ...],
    scheduler: str | None,
    cluster_name: str | None,
    agent_port: int,
    procs: int | None,
    mem: str | None,
    state: str,
    run: str,
    extra: Path | None,
    services: str,
    again: bool,
    parallel: int,
    etc: str,
    directory: Path,
    server: str | None,
    lab: str | None,
    as_json: bool,
    **ssh: Any,
) -> int:
    """Enrol workstations over ssh, HOST or NAME=ADDRESS each: key made there, certificate, settings, guard and agent.

    The hosts' ssh keys must be known, cosched be installed there, and the scheduler run. The exit status is 1 where
    a host could not be enrolled; the others are.

    \b
    Examples:
      cosched node add desk1 desk2=192.0.2.12 --cluster office
      cosched node add pc1 pc2 --cluster office --cluster-name lab-b
      cosched node add desk3 --cluster office --user ada --sudo --ask-sudo-password
    """
    from cosched.apps.enrol import enrolment  # noqa: PLC0415 (paramiko is slow to import)

    places = _places(hosts)
    config = load_cluster(directory / "scheduler" / "cluster.yaml")
    check_spellings([*config.nodes, *nodes_of(directory), *places], "HOST")
    authority = directory / "authority"
    wanted = enrolment.Wanted(
        cluster=config.name if cluster_name is None else _cluster(cluster_name),
        authority=authority,
        url=_url(directory, scheduler, config.listen.port),
        network=config.network,
        agent_port=agent_port,
        procs=procs,
        memory_bytes=size_bytes(mem, "--mem") if mem else None,
        extra=toml_table(extra),
        etc=etc,
        state=state,
        run=run,
        services=services,
        again=again,
    )
    for name, address in places.items():  # what --extra has wrong is said before any host is touched
        enrolment.settings_of(name, address, wanted, procs or 1, wanted.memory_bytes or 1, "", False)
    access = _access(**ssh)
    outcomes = []
    with connect(server, lab) as client:
        client.cluster()
        for outcome in enrolment.added(places, wanted, access, client, parallel):
            outcomes.append(outcome)
            if outcome.ok:
                has = (outcome.procs, outcome.memory_bytes, outcome.place, outcome.services == "systemd")
                _remember(directory, outcome.name, enrolment.settings_of(outcome.name, outcome.address, wanted, *has))
                if problem := _comes_up(client, outcome.name):
                    outcome.notes.append(problem)
            if not as_json:
                size = f"{outcome.procs} CPUs, {memory_text(outcome.memory_bytes)}, {outcome.services}"
                _tell(outcome.name, outcome.problem, f"enrolled: {size}", outcome.notes)
    return _ended(outcomes, as_json)


@click.command("remove")
@click.argument("hosts", metavar="NAME...", nargs=-1, required=True)
@_ssh
@click.option("--no-ssh", is_flag=True, help="Do not go there: refuse it, and leave the host alone.")
@click.option(
    "--serial",
    "serials",
    metavar="HEX",
    multiple=True,
    help="Revoke this certificate of its too, where DIR is elsewhere (authority/issued has them); repeatable.",
)
@service
@json_option
def remove_command(
    hosts: tuple[str, ...],
    no_ssh: bool,
    serials: tuple[str, ...],
    parallel: int,
    etc: str,
    directory: Path,
    server: str | None,
    lab: str | None,
    as_json: bool,
    **ssh: Any,
) -> int:
    """Take nodes out of the cluster: refused at once by scheduler and agents, certificates revoked, services stopped.

    Jobs that run there end as "node lost". A host that cannot be reached is out all the same.

    \b
    Example: cosched node remove desk2 --cluster office
    """
    from cosched.apps.enrol import enrolment  # noqa: PLC0415

    places = _known_places(directory, hosts)
    if serials and len(places) > 1:
        raise BadInput("--serial", f"{len(places)} nodes", "one node, whose certificates these are")
    authority = directory / "authority"
    access = None if no_ssh else _access(**ssh)
    outcomes = []
    with connect(server, lab) as client:
        known = authority if authority.is_dir() else None
        for outcome in enrolment.removed(places, known, serials, etc, access, client, parallel):
            outcomes.append(outcome)
            if not as_json:
                jobs = f", {outcome.jobs_ended} jobs ended there" if outcome.jobs_ended else ""
                stopped = f"; stopped: {outcome.services}" if outcome.services else ""
                _tell(outcome.name, outcome.problem, f"removed{stopped}{jobs}", outcome.notes)
    return _ended(outcomes, as_json)


@click.command("renew")
@click.argument("hosts", metavar="NAME...", nargs=-1, required=True)
@_ssh
@service
@json_option
def renew_command(
    hosts: tuple[str, ...],
    parallel: int,
    etc: str,
    directory: Path,
    server: str | None,
    lab: str | None,
    as_json: bool,
    **ssh: Any,
) -> int:
    """Give nodes new keys and certificates over ssh: keys made there; agents take them by themselves, jobs go on.

    They trust from then on whom the authority says (see 'identity rotate').

    \b
    Example: cosched node renew desk1 desk2 --cluster office
    """
    from cosched.apps.enrol import enrolment  # noqa: PLC0415
    from cosched.identity.authority import serials_of  # noqa: PLC0415

    places = _known_places(directory, hosts)
    authority = directory / "authority"
    outcomes = []
    with connect(server, lab) as client:
        for outcome in enrolment.renewed(places, authority, etc, _access(**ssh), parallel):
            outcomes.append(outcome)
            if outcome.ok and not _shows(client, serials_of(authority, "node", outcome.name)[-1]):
                outcome.notes.append(f"its agent has not come with it after {_UP_S:g} s: its log says why")
            if not as_json:
                _tell(outcome.name, outcome.problem, "renewed", outcome.notes)
    return _ended(outcomes, as_json)


def _shows(client: Client, serial: str) -> bool:
    """Wait until somebody has shown that certificate to the scheduler; whether it was."""
    end_s = time.monotonic() + _UP_S
    while True:
        if any(each.serial == serial and each.until for each in client.certificates().certificates):
            return True
        if time.monotonic() > end_s:
            return False
        time.sleep(_LOOK_S)


def _ended(outcomes: list[Any], as_json: bool) -> int:
    if as_json:
        echo_json({"nodes": [{"ok": each.ok, **vars(each)} for each in outcomes]})
    return 0 if all(each.ok for each in outcomes) else 1


def _tell(name: str, problem: str, done: str, notes: list[str]) -> None:
    click.echo(f"{name}: {f'failed: {problem}' if problem else done}")
    for note in notes:
        click.echo(f"  note: {note}")


def _access(
    user: str,
    port: int,
    keys: tuple[Path, ...],
    known_hosts: Path | None,
    sudo: bool,
    ask_sudo_password: bool,
    python: str,
) -> Any:
    from cosched.apps.enrol.ssh import Access  # noqa: PLC0415

    for path in (*keys, *([known_hosts] if known_hosts else [])):
        if not path.is_file():
            raise BadInput(str(path), "no such file", "a file")
    password = click.prompt("sudo password", hide_input=True, err=True) if ask_sudo_password else ""
    return Access(user, port, keys, known_hosts, sudo or ask_sudo_password, password, python)


def _places(hosts: tuple[str, ...]) -> dict[str, str]:
    places: dict[str, str] = {}
    for each in hosts:
        name, _, address = each.partition("=")
        checked_name("node", name)
        if name in places:
            raise BadInput("HOST", f"{name!r} is named twice", "each name once")
        places[name] = address or name
    return places


def _known_places(directory: Path, hosts: tuple[str, ...]) -> dict[str, str]:
    """The same; where none is said, the address is the one that the cluster's directory knows."""
    return {
        name: address if address != name else known_address(directory, name) for name, address in _places(hosts).items()
    }


def nodes_of(directory: Path) -> list[str]:
    """The names of the nodes that the cluster's directory has settings of."""
    return [path.parent.name for path in sorted((directory / "nodes").glob("*/node.toml"))]


def known_address(directory: Path, name: str) -> str:
    """Where a node is, as far as the cluster's directory knows. Raises :class:`BadInput` for another spelling."""
    if name not in (nodes := nodes_of(directory)):
        check_spellings([*nodes, name], "node name")
    path = directory / "nodes" / name / "node.toml"
    return load_node(path).launch.address if path.exists() else name


def _url(directory: Path, scheduler: str | None, port: int) -> str:
    from cosched.identity.authority import addresses_of  # noqa: PLC0415

    if not scheduler:
        own = directory / "scheduler" / "identity" / "scheduler.pem"
        known = sorted((directory / "nodes").glob("*/node.toml"))
        if not own.exists() and known:
            return load_node(known[0]).scheduler.url
        found = addresses_of(own)
        if not found:
            raise BadInput("--scheduler", "not given", "the name or address at which nodes reach the scheduler")
        scheduler = found[0]
    return f"wss://{f'[{scheduler}]' if ':' in scheduler else scheduler}:{port}/v1/agent"


def _cluster(name: str) -> str:
    if not is_cluster(name):
        raise BadInput("--cluster-name", repr(name), f"printable, at most {MAX_CLUSTER_NAME} characters")
    return name


def _remember(directory: Path, name: str, settings: str) -> None:
    place = directory / "nodes" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "node.toml").write_text(settings, encoding="utf-8")


def _comes_up(client: Client, name: str) -> str:
    """Wait until the node is up; why it is not, else empty."""
    end_s = time.monotonic() + _UP_S
    while True:
        state = next((node.state for node in client.nodes() if node.name == name), "unknown")
        if state in ("up", "drained", "draining", "closed"):
            return ""
        if time.monotonic() > end_s:
            return f"it is {state} after {_UP_S:g} s: the scheduler's log and the agent's on the host say why"
        time.sleep(_LOOK_S)
