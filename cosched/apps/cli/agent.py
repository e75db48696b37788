"""``cosched agent``: run a workstation's agent, or look at what it could enforce."""

from pathlib import Path

import click
import msgspec

from cosched.apps.cli.shared.verb import echo_json, json_option
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

    found: list[Finding] = []
    for finding in findings(settings):
        found.append(finding)
        if not as_json:
            click.echo(f"{finding.level:<5} {finding.what:<22} {finding.found}")
    failed = any(finding.level == "fail" for finding in found)
    if as_json:
        echo_json({"ok": not failed, "node": settings.name, "findings": [msgspec.to_builtins(each) for each in found]})
    return 1 if failed else 0
