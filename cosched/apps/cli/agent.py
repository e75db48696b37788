"""``cosched agent``: run a workstation's agent, or look at what it could enforce."""

from pathlib import Path

import click

from cosched.apps.cli.shared.verb import json_option, tell_each
from cosched.client import places
from cosched.config.node import load_node


@click.command("agent")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=places.NODE_TOML,
    show_default=True,
    metavar="FILE",
    help="The node's settings.",
)
@click.option("--check", is_flag=True, help="Say what this machine can enforce and why not the rest, and end.")
@json_option
def command(config: Path, check: bool, as_json: bool) -> int:
    """Run the agent of this workstation until SIGTERM; jobs go on without it.

    With --check the exit status is 1 where no agent could serve; what is merely not enforced is a warning.
    --json, with --check, has {ok, node, findings: [{what, level: ok|warn|fail, found}]}.

    \b
    Example: cosched agent --config /etc/cosched/node.toml --check
    """
    settings = load_node(config)
    if not check:
        from node_agent.service.app import start  # noqa: PLC0415 (a check needs no event loop)

        start(settings)
        return 0
    from node_agent.service.check import Finding, findings  # noqa: PLC0415 (an agent that runs needs none of it)

    def serves(found: list[Finding]) -> bool:
        return all(finding.level != "fail" for finding in found)

    found = tell_each(
        findings(settings),
        lambda found: (f"{each.level:<5} {each.what:<22} {each.found}" for each in found),
        lambda found: {"ok": serves(found), "node": settings.name, "findings": found},
        as_json=as_json,
    )
    return 0 if serves(found) else 1
