"""The files of a lab: identities, the scheduler's and the nodes' settings, the hosts they know."""

import os
import pwd
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from cosched.apps.lab import tiers
from cosched.apps.lab.plan import HEAD, NETWORK, USER_PRESENCE, USER_PROFILE, LabPlan, run_directory
from cosched.config.node import node_config
from cosched.config.templates import node_toml
from cosched.identity.authority import create_authority, issue
from local_load.profile import find

#: Short, so that a lab shows within seconds what takes a minute at a real desk.
AWAY_AFTER_S: Final = 3.0
_POLL_S: Final = 1.0
_CONTRACT: Final = {"cpu_ratio": 0.5, "memory_ratio": 0.5}


def write_all(plan: LabPlan, possible: tiers.Possible) -> None:
    """Write everything that the plan's programs read."""
    root = os.geteuid() == 0
    names = [node.name for node in plan.nodes]
    _identities(plan)
    plan.path("api").mkdir(mode=0o755 if root else 0o700)
    plan.path("scheduler.sock").symlink_to("api/scheduler.sock")
    hosts = [f"{plan.scheduler_address} {HEAD}", *(f"{node.address} {node.name}" for node in plan.nodes)]
    plan.path("hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]), encoding="utf-8")
    cluster: dict[str, Any] = {
        "name": plan.name,
        "nodes": names,
        "policy": plan.settings.policy,
        "policy_directory": plan.settings.policy_directory,
        "contract": {**_CONTRACT, "mpl": plan.settings.mpl},
        "place": "spread" if plan.settings.mpl > 1 else "first-fit",  # a job's tasks each on a node of their own
        "coscheduling": {"mode": plan.settings.coscheduling},
        "listen": {
            "socket": str(plan.path("api", "scheduler.sock")),
            "address": plan.scheduler_address,
            "port": plan.scheduler_port,
        },
        "state": str(plan.path("state")),
        "identity": str(plan.path("identity")),
        "network": NETWORK if plan.tier < 3 else "",
        "allow_root": root,
        "operators": [_me()],
        "note": tiers.headline(plan.name, plan.tier, possible.why, possible.remedy),
    }
    if plan.tier == 3:
        cluster["max_nodes_per_job"] = 1
    plan.path("cluster.yaml").write_text(yaml.safe_dump(cluster, sort_keys=False), encoding="utf-8")
    for number, node in enumerate(plan.nodes):
        directory = Path(node.directory)
        mode: dict[str, Any] = {"mode": "none"}
        if plan.tier == 1:
            mode = {
                "mode": "auto",
                "cosched": f"{_group(plan, node.name)}/cosched",
                "desk": f"{_group(plan, node.name)}/desk",
                # else all nodes would have theirs on the same processors
                "decoys": plan.settings.pin and plan.settings.decoys,
            }
        settings: dict[str, Any] = {
            "name": node.name,
            "cluster": node.cluster or plan.name,
            "procs": plan.settings.cpus,
            "memory_bytes": plan.memory_bytes,
            "scheduler": {"url": f"wss://{plan.scheduler_address}:{plan.scheduler_port}/v1/agent"},
            "launch": {
                "address": node.address,
                "port": node.port,
                "network": NETWORK if plan.tier < 3 else "",
            },
            "paths": {
                "run": str(run_directory(plan, node)),
                "state": f"{node.directory}/state",
                "identity": f"{node.directory}/identity",
                "keep": [*plan.keep, node.directory, str(plan.path("api"))],
            },
            "cgroup": mode,
            "security": {
                "users": "switch" if plan.tier == 1 and root else "self",
                "allow_root": root,
                "private_tmp": plan.tier < 3,
            },
            "contract": {**_CONTRACT, "mpl": plan.settings.mpl},
            "coscheduling": {"clock_shift_us": plan.settings.clock_shift_us * (number % 2)},
            "presence": {"away_after_s": AWAY_AFTER_S, "poll_s": _POLL_S, "events": plan.settings.events},
        }
        path = directory / "node.toml"
        path.write_text(node_toml(node_config(settings, str(path))), encoding="utf-8")
        if node.user:  # what they read lies where the node sees it
            user = find(node.user)
            if plan.tier == 1 and (cap_cpus := plan.settings.cap_cpus) is not None:
                user = user.on_part(cap_cpus / plan.settings.cpus)
            (directory / USER_PROFILE).write_bytes(msgspec.json.encode(user))
            if plan.settings.presence:
                (directory / USER_PRESENCE).write_bytes(Path(plan.settings.presence).read_bytes())


def _me() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a number without a name, as in containers
        return str(os.geteuid())


def _group(plan: LabPlan, node: str) -> str:
    return f"cosched-lab/{plan.name}/{node}"


def _identities(plan: LabPlan) -> None:
    authority = plan.path("identity")
    create_authority(authority, plan.name)
    authority.chmod(0o700)
    issue(authority, "scheduler", "scheduler", authority, addresses=[plan.scheduler_address])
    for node in plan.nodes:
        directory = Path(node.directory)
        directory.mkdir(mode=0o755, parents=True)
        for name in ("run", "state") if plan.tier == 3 else ("state",):
            (directory / name).mkdir(mode=0o755)
        issue(authority, "node", node.name, directory / "identity", addresses=[node.address])
