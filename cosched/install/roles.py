"""What a node, the scheduler's host and a desk with a synthetic user consist of."""

from collections.abc import Sequence
from typing import Final

from cosched.config.node import NodeConfig
from cosched.config.templates import node_toml
from cosched.identity.names import CA_PEM, GRANT_KEY, GRANT_PUB
from cosched.install import notices, units
from cosched.install.layout import (
    AGENT,
    LOCAL_LOAD,
    ROOT,
    SCHEDULER,
    SYSUSERS,
    TMPFILES,
    UNITS,
    Account,
    Directory,
    File,
    Installation,
    Layout,
    Role,
)

#: Whose processes see keyboards and mice.
_INPUT: Final = "input"


def node(config: NodeConfig, layout: Layout) -> Installation:
    """A workstation: guard and agent, and the place of parallel work where the settings have it in systemd's slice."""
    placed = config.cgroup.cosched == units.PLACE
    texts = {units.SLICE: units.slice_unit(), units.JOBS: units.jobs_unit()} if placed else {}
    texts |= {
        units.GUARD_UNIT: units.guard_unit(layout, placed=placed),
        units.AGENT_UNIT: units.agent_unit(layout, watch_messages=config.coscheduling.watch_messages),
    }
    return _installation(
        "node",
        Account(AGENT, "cosched's agent", (_INPUT,)),
        [
            Directory(layout.etc, ROOT, "0755"),
            Directory(layout.identity, ROOT, "0755"),
            Directory(layout.state, AGENT, "0711"),
            Directory(layout.run, AGENT, "0755", volatile=True),
        ],
        [
            File(layout.settings, "0644", node_toml(config)),
            *(File(path, "0644", text) for path, text in notices.texts(layout).items()),
        ],
        node_identity(layout, AGENT),
        texts,
        (units.GUARD_UNIT, units.AGENT_UNIT),
    )


def scheduler(cluster_yaml: str, layout: Layout) -> Installation:
    """The scheduler's host; ``cluster_yaml`` is the text of its settings."""
    return _installation(
        "scheduler",
        Account(SCHEDULER, "cosched's scheduler"),
        [
            Directory(layout.etc, ROOT, "0755"),
            Directory(layout.identity, ROOT, "0755"),
            Directory(layout.state, SCHEDULER, "0711"),
            Directory(layout.run, SCHEDULER, "0755", volatile=True),
        ],
        [File(layout.cluster, "0644", cluster_yaml)],
        _identity(layout, SCHEDULER, ("scheduler.pem", CA_PEM), ("scheduler.key", GRANT_KEY)),
        {units.SCHEDULER_UNIT: units.scheduler_unit(layout)},
        (units.SCHEDULER_UNIT,),
    )


def local_load(layout: Layout, *, profile: str = "xwindows", listen: str = "127.0.0.1:7425") -> Installation:
    """A synthetic user at a desk, who comes and goes by his profile's day; ``listen`` is for Prometheus."""
    return _installation(
        "local-load",
        Account(LOCAL_LOAD, "a synthetic user of cosched's"),
        [],
        [],
        (),
        {units.LOCAL_LOAD_UNIT: units.local_load_unit(layout, profile=profile, listen=listen)},
        (units.LOCAL_LOAD_UNIT,),
    )


def node_identity(layout: Layout, owner: str) -> tuple[File, ...]:
    """The files of a node's identity; ``owner`` is who reads its key."""
    return _identity(layout, owner, ("node.pem", CA_PEM, GRANT_PUB), ("node.key",))


def _installation(
    role: Role,
    account: Account,
    directories: Sequence[Directory],
    settings: Sequence[File],
    identity: Sequence[File],
    texts: dict[str, str],
    services: tuple[str, ...],
) -> Installation:
    files = [*settings, *(File(f"{UNITS}/{name}", "0644", text) for name, text in texts.items())]
    files.append(File(f"{SYSUSERS}/cosched-{role}.conf", "0644", _sysusers(account)))
    if directories:
        files.append(File(f"{TMPFILES}/cosched-{role}.conf", "0644", _tmpfiles(directories)))
    return Installation(role, (account,), tuple(directories), tuple(files), tuple(identity), services, tuple(texts))


def _identity(layout: Layout, owner: str, public: Sequence[str], secret: Sequence[str]) -> tuple[File, ...]:
    return (
        *(File(f"{layout.identity}/{name}", "0644", "") for name in public),
        *(File(f"{layout.identity}/{name}", "0600", "", owner) for name in secret),
    )


def _sysusers(account: Account) -> str:
    lines = ["# An account of cosched's; systemd-sysusers makes it.", f'u {account.name} - "{account.what}" /']
    lines += [f"m {account.name} {group}" for group in account.groups]
    return "\n".join(lines) + "\n"


def _tmpfiles(directories: Sequence[Directory]) -> str:
    lines = ["# Directories of cosched's; systemd-tmpfiles makes them, also after a boot."]
    lines += [f"d {each.path} {each.mode} {each.owner} {each.owner} -" for each in directories]
    return "\n".join(lines) + "\n"
