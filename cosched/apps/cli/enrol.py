"""``cosched node add`` and ``node remove``: workstations enrolled over ssh, and taken out again."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from cosched.apps.cli.shared.cluster_directory import first_node, given_scheduler, known_address, named_places, nodes_of
from cosched.apps.cli.shared.values import absolute_path, one_of, read_by, toml_table, whole_number
from cosched.apps.cli.shared.verb import json_option, options, service, tell_each
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.config.cluster import load_cluster
from cosched.config.hosts import MAX_CLUSTER_NAME, agents_url, check_spellings, is_cluster
from cosched.config.units import memory_text, size_bytes
from cosched.errors import BadInput

_UP_S: Final = 30.0
_LOOK_S: Final = 0.2
_SERVICES: Final = ("auto", "systemd", "detached")


def _cluster(name: str, option: str) -> str:
    if not is_cluster(name):
        raise BadInput(option, repr(name), f"printable, at most {MAX_CLUSTER_NAME} characters")
    return name


#: The options that say how hosts are reached; they arrive as ``user`` … ``python``.
_ssh: Final = options(
    click.option("--user", metavar="NAME", default="root", show_default=True, help="The account to log in as."),
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


@click.command("add")
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
@_ssh
@click.option("--scheduler", metavar="HOST", help="Where nodes reach the scheduler [its certificate's first address].")
@click.option(
    "--cluster-name",
    metavar="NAME",
    callback=read_by(_cluster),
    help="The cluster (a lab) that they belong to [the scheduler's own].",
)
@click.option("--agent-port", metavar="N", default="7421", show_default=True, callback=whole_number(1, 65535))
@click.option("--procs", metavar="N", callback=whole_number(1, 1 << 16), help="CPUs of each [what the host says].")
@click.option(
    "--mem", "memory_bytes", metavar="SIZE", callback=read_by(size_bytes), help="Memory of each [what the host says]."
)
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
    "--extra",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=read_by(toml_table),
    help="TOML of further settings for each node.toml.",
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
    memory_bytes: int | None,
    state: str,
    run: str,
    extra: dict[str, Any] | None,
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

    places = named_places(hosts, "HOST")
    config = load_cluster(directory / "scheduler" / "cluster.yaml")
    check_spellings([*config.nodes, *nodes_of(directory), *places], "HOST")
    authority = directory / "authority"
    wanted = enrolment.Wanted(
        cluster=config.name if cluster_name is None else cluster_name,
        authority=authority,
        url=_url(directory, scheduler, config.listen.port),
        network=config.network,
        agent_port=agent_port,
        procs=procs,
        memory_bytes=memory_bytes,
        extra=extra or {},
        etc=etc,
        state=state,
        run=run,
        services=services,
        again=again,
    )
    for name, address in places.items():  # what --extra has wrong is said before any host is touched
        enrolment.settings_of(name, address, wanted, procs or 1, wanted.memory_bytes or 1, "", False)
    access = _access(**ssh)

    def enrolled(outcome: Any) -> str:
        if outcome.ok:
            has = (outcome.procs, outcome.memory_bytes, outcome.place, outcome.services == "systemd")
            settings = enrolment.settings_of(outcome.name, outcome.address, wanted, *has)
            place = directory / "nodes" / outcome.name
            place.mkdir(parents=True, exist_ok=True)
            (place / "node.toml").write_text(settings, encoding="utf-8")
            if problem := _comes_up(client, outcome.name):
                outcome.notes.append(problem)
        return f"enrolled: {outcome.procs} CPUs, {memory_text(outcome.memory_bytes)}, {outcome.services}"

    with connect(server, lab) as client:
        client.cluster()
        return _each(enrolment.added(places, wanted, access, client, parallel), enrolled, as_json)


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
    known = authority if authority.is_dir() else None

    def taken_out(outcome: Any) -> str:
        jobs = f", {outcome.jobs_ended} jobs ended there" if outcome.jobs_ended else ""
        return f"removed{f'; stopped: {outcome.services}' if outcome.services else ''}{jobs}"

    with connect(server, lab) as client:
        return _each(enrolment.removed(places, known, serials, etc, access, client, parallel), taken_out, as_json)


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

    def renewed(outcome: Any) -> str:
        if outcome.ok:
            serial = serials_of(authority, "node", outcome.name)[-1]
            if not _until(
                lambda: any(each.serial == serial and each.until for each in client.certificates().certificates)
            ):
                outcome.notes.append(f"its agent has not come with it after {_UP_S:g} s: its log says why")
        return "renewed"

    with connect(server, lab) as client:
        return _each(enrolment.renewed(places, authority, etc, _access(**ssh), parallel), renewed, as_json)


def _each(outcomes: Iterable[Any], done: Callable[[Any], str], as_json: bool) -> int:
    """Tell of each host when its outcome comes, in the words of ``done``, which looks after it; the exit status."""
    told = tell_each(
        ((each, done(each)) for each in outcomes),
        _lines,
        lambda told: {"nodes": [{"ok": each.ok, **vars(each)} for each, _ in told]},
        as_json=as_json,
    )
    return 0 if all(each.ok for each, _ in told) else 1


def _lines(told: Iterable[tuple[Any, str]]) -> Iterator[str]:
    for outcome, words in told:
        yield f"{outcome.name}: {f'failed: {outcome.problem}' if outcome.problem else words}"
        yield from (f"  note: {note}" for note in outcome.notes)


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


def _known_places(directory: Path, hosts: tuple[str, ...]) -> dict[str, str]:
    """The same; where none is said, the address is the one that the cluster's directory knows."""
    return {
        name: address if address != name else known_address(directory, name)
        for name, address in named_places(hosts, "HOST").items()
    }


def _url(directory: Path, scheduler: str | None, port: int) -> str:
    """The one of the scheduler that is named, of the nodes that are there, or of the scheduler's certificate."""
    from cosched.identity.authority import addresses_of  # noqa: PLC0415

    own = directory / "scheduler" / "identity" / "scheduler.pem"
    if not scheduler and not own.exists() and (node := first_node(directory)):
        return node.scheduler.url
    return agents_url(given_scheduler(scheduler or next(iter(addresses_of(own)), None)), port)


def _comes_up(client: Client, name: str) -> str:
    """Wait until the node is up; why it is not, else empty."""

    def state() -> str:
        return next((node.state for node in client.nodes() if node.name == name), "unknown")

    if _until(lambda: state() in ("up", "drained", "draining", "closed")):
        return ""
    return f"it is {state()} after {_UP_S:g} s: the scheduler's log and the agent's on the host say why"


def _until(reached: Callable[[], bool]) -> bool:
    """Look until it is so, for a while; whether it is."""
    end_s = time.monotonic() + _UP_S
    while not reached():
        if time.monotonic() > end_s:
            return False
        time.sleep(_LOOK_S)
    return True
