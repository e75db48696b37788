"""``cosched node render``: the files of an installation, shown or written, with owners and modes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import yaml

from cosched.apps.cli.shared.values import absolute_path, one_of, read_by, toml_table, whole_number
from cosched.apps.cli.shared.verb import Answer, says
from cosched.apps.enrol.laying import write
from cosched.config.cluster import cluster_config
from cosched.config.hosts import agents_url
from cosched.config.load import plain
from cosched.config.templates import cluster_yaml
from cosched.config.units import size_bytes
from cosched.errors import BadInput
from cosched.install import roles
from cosched.install.layout import ROLES, Installation, Layout
from cosched.install.settings import NodeFacts, node_settings
from cosched.linux import machine
from cosched.linux.users import BY_NAME

_SLICES: Final = ("auto", "yes", "no")
_USERS: Final = ("switch", BY_NAME)


@click.command("render")
@click.option("--role", default="node", callback=one_of(*ROLES), metavar="|".join(ROLES), help="[node]")
@click.option("--name", metavar="NAME", help="The node's name, as in its certificate; with scheduler, unused.")
@click.option("--cluster", "cluster", metavar="NAME", default="", help="The cluster's name.")
@click.option("--scheduler", metavar="HOST", help="Name or address at which the node reaches the scheduler.")
@click.option("--scheduler-port", metavar="N", default="7420", callback=whole_number(1, 65535), help="[7420]")
@click.option("--address", metavar="ADDRESS", help="Where others reach this host [node: its name; scheduler: 0.0.0.0].")
@click.option("--agent-port", metavar="N", default="7421", callback=whole_number(1, 65535), help="[7421]")
@click.option("--network", metavar="CIDR", default="", help="The network that ranks talk over [any].")
@click.option("--procs", metavar="N", callback=whole_number(1, 1 << 16), help="CPUs of the node [this machine's].")
@click.option("--mem", metavar="SIZE", callback=read_by(size_bytes), help="Memory of the node [this machine's].")
@click.option("--slice", "in_slice", default="auto", callback=one_of(*_SLICES), metavar="auto|yes|no",
              help="Parallel work in a slice of systemd's, with cgroup v2 [auto: as this machine has it].")  # fmt: skip
@click.option("--users", default="switch", callback=one_of(*_USERS), metavar="|".join(_USERS),
              help="by-name: for a node without shared directories, where uids may be others than on the scheduler's "
              "host [switch].")  # fmt: skip
@click.option("--node", "nodes", metavar="NAME", multiple=True, help="scheduler: a node that is let in; repeatable.")
@click.option("--extra", type=click.Path(path_type=Path), metavar="FILE",
              help="More of node.toml (TOML) or of cluster.yaml (YAML), which prevails.")  # fmt: skip
@click.option("--profile", default="xwindows", show_default=True, metavar="NAME", help="local-load: what kind of user.")
@click.option("--listen", default="127.0.0.1:7425", show_default=True, metavar="HOST:PORT", help="local-load.")
@click.option("--etc", default=Layout().etc, show_default=True, callback=read_by(absolute_path), metavar="DIR")
@click.option("--state", default=Layout().state, show_default=True, callback=read_by(absolute_path), metavar="DIR")
@click.option("--run", default=Layout().run, show_default=True, callback=read_by(absolute_path), metavar="DIR")
@click.option(
    "--python",
    default=sys.executable,
    callback=read_by(absolute_path),
    metavar="PATH",
    help="There, with cosched installed [this one].",
)
@click.option("--into", type=click.Path(path_type=Path), metavar="DIR",
              help="Write the files below DIR, with their modes, instead of showing them.")  # fmt: skip
@says
def render_command(into: Path | None, **given: Any) -> Answer:
    """All files of a node, of the scheduler or of a synthetic user, with the owner and mode of each.

    Nothing on this machine is changed without --into. Keys and certificates are none of them: 'node request' and
    'node accept' make them on their host. --json has {role, accounts, directories, files, identity, services, units}.

    \b
    Examples:
      cosched node render --name desk1 --cluster office --scheduler head.example
      cosched node render --role scheduler --cluster office --node desk1 --node desk2 --json
    """
    layout = Layout(*(given[key] for key in ("etc", "state", "run", "python")))
    made = _made(given, layout)
    if into is not None:
        write(made, into)
    return Answer(made, _shown(made, texts=into is None))


def _made(given: dict[str, Any], layout: Layout) -> Installation:
    if given["role"] == "local-load":
        return roles.local_load(layout, profile=given["profile"], listen=given["listen"])
    if not given["cluster"]:
        raise BadInput("--cluster", "not given", "the cluster's name")
    if given["role"] == "scheduler":
        return roles.scheduler(_cluster(given, layout), layout)
    for key in ("name", "scheduler"):
        if not given[key]:
            raise BadInput(f"--{key}", "not given", "a host's name")
    facts = NodeFacts(
        name=given["name"],
        cluster=given["cluster"],
        url=agents_url(given["scheduler"], given["scheduler_port"]),
        address=given["address"] or given["name"],
        procs=given["procs"] or machine.cpus(),
        memory_bytes=given["mem"] or machine.memory_bytes(),
        port=given["agent_port"],
        network=given["network"],
        placed=machine.gives_slices() if given["in_slice"] == "auto" else given["in_slice"] == "yes",
        users=given["users"],
        extra=toml_table(given["extra"], "--extra") if given["extra"] else {},
    )
    return roles.node(node_settings(facts, layout), layout)


def _cluster(given: dict[str, Any], layout: Layout) -> str:
    """The text of ``cluster.yaml``, checked; with ``--extra`` it is written without the remarks."""
    text = cluster_yaml(
        given["cluster"],
        given["nodes"],
        address=given["address"] or "0.0.0.0",
        port=given["scheduler_port"],
        network=given["network"],
        run=layout.run,
        state=layout.state,
        identity=layout.identity,
    )
    if given["extra"] is None:
        return text
    more = plain(given["extra"])
    if not isinstance(more, dict):
        raise BadInput(str(given["extra"]), "no keys and values", "some of cluster.yaml")
    settings = yaml.safe_load(text) | more
    cluster_config(settings, str(given["extra"]))
    return "# The cluster's settings, read by 'cosched scheduler'.\n" + yaml.safe_dump(settings, sort_keys=False)


def _shown(made: Installation, *, texts: bool) -> Iterator[str]:
    yield from (f"account    {each.name}{''.join(f' +{group}' for group in each.groups)}" for each in made.accounts)
    for what, entries in (("directory", made.directories), ("file", made.files), ("identity", made.identity)):
        yield from (f"{what:<10} {each.mode} {each.owner:<18} {each.path}" for each in entries)
    yield f"services   {' '.join(made.services)}"
    if texts:
        for file in made.files:
            yield f"\n### {file.path}\n{file.text.rstrip(chr(10))}"
