"""The part of an enrolment that runs on the host, as root: ``python -m cosched.apps.enrol.remote STEP``.

A step reads one line of JSON and prints one; ``problem`` in it says why nothing was done. The node's private key is
made here, by ``key``, and leaves the machine in no step: what is sent is a request for a certificate.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

import cosched
from cosched.apps.enrol import identity, services
from cosched.config.node import NodeConfig, load_node
from cosched.errors import BadInput, Failed
from cosched.install.layout import ROOT, Layout
from cosched.install.units import PLACE
from cosched.linux import machine

SETTINGS: Final = "node.toml"
_GRACE_US: Final = 1_000_000
_EMPTY_S: Final = 20.0


def look(_: dict[str, Any]) -> dict[str, Any]:
    """What this machine is."""
    return {
        "version": cosched.__version__,
        "root": os.geteuid() == 0,
        "procs": machine.cpus(),
        "memory_bytes": machine.memory_bytes(),
        "systemd": machine.has_systemd(),
        "place": PLACE if machine.gives_slices() else "",
        "time_s": time.time(),
    }


def key(asked: dict[str, Any]) -> dict[str, Any]:
    """A private key, made here, and a request for its certificate. Raises :class:`BadInput`."""
    etc = _place(asked["etc"])
    found = etc / SETTINGS
    if found.exists() and not asked["again"]:
        there = load_node(found)
        raise BadInput(str(found), f"this machine is node {there.name} of {there.cluster} already", "--again")
    return {"request": identity.request(etc, asked["name"])}


def install(asked: dict[str, Any]) -> dict[str, Any]:
    """Certificate and settings, in place whole or not at all; then guard and agent. Raises :class:`Failed`."""
    etc = _place(asked["etc"])
    answer = identity.answer({name: asked[name] for name in identity.Answer.__struct_fields__})
    fresh = etc / f".{SETTINGS}.new"
    fresh.write_text(asked["settings"], encoding="utf-8")
    config = load_node(fresh)
    fresh.unlink()
    identity.checked(etc, answer)
    if (etc / SETTINGS).exists():
        services.stop(load_node(etc / SETTINGS), "restart")
    layout = Layout(str(etc), config.paths.state, config.paths.run)
    how = _how(asked["services"])
    services.lay(config, layout, how)
    identity.accept(etc, answer, config.security.agent_user or ROOT)
    services.start(config, layout, how)
    return {"services": how, "name": config.name}


def renew(asked: dict[str, Any]) -> dict[str, Any]:
    """Another certificate, for a key that was made here; the agent takes it by itself. Raises :class:`Failed`."""
    etc = _place(asked["etc"])
    config = load_node(etc / SETTINGS)
    if config.name != asked["name"]:
        raise BadInput(str(etc / SETTINGS), f"this machine is node {config.name}", f"node {asked['name']}")
    answer = identity.answer({name: asked[name] for name in identity.Answer.__struct_fields__})
    identity.accept(etc, answer, config.security.agent_user or ROOT)
    return {"name": config.name}


def remove(asked: dict[str, Any]) -> dict[str, Any]:
    """No agent, no jobs, no guard, no identity. Output and logs stay in ``state``. Raises :class:`Failed`."""
    etc = _place(asked["etc"])
    path = etc / SETTINGS
    if not path.exists():
        return {"stopped": [], "jobs": 0}
    config = load_node(path)
    if config.name != asked["name"]:
        raise BadInput(str(path), f"this machine is node {config.name} of {config.cluster}", f"node {asked['name']}")
    agent, guard = services.NAMES[1], services.NAMES[0]
    stopped = [agent] if services.stop_one(agent, config) else []
    jobs = _end_jobs(config)  # the guard goes last: it is who ends them, and serves one at a time
    stopped += [guard] if services.stop_one(guard, config) else []
    services.stop(config)
    identity.forget(etc)
    path.rename(etc / f"{SETTINGS}.removed")
    return {"stopped": stopped, "jobs": jobs}


def _end_jobs(config: NodeConfig) -> int:
    """Have the guard end what there is of jobs; how many there were. Raises :class:`Failed` where some do not end."""
    from node_agent.guard.base import requests  # noqa: PLC0415
    from node_agent.guard.base.client import GuardClient, GuardGone, GuardRefused  # noqa: PLC0415

    ended: set[tuple[int, int]] = set()
    end_s = time.monotonic() + _EMPTY_S
    try:
        with GuardClient(os.path.join(config.paths.run, "guard.sock")) as guard:
            while groups := guard.ask(requests.List()).get("groups", []):
                if time.monotonic() > end_s:
                    raise Failed(f"{len(groups)} jobs do not end")
                for group in groups:
                    which = int(group["job"]), int(group["attempt"])
                    if which not in ended:
                        guard.ask(requests.Kill(*which, _GRACE_US))
                        ended.add(which)
                    try:
                        guard.ask(requests.Forget(*which))
                    except GuardRefused:
                        continue  # not empty yet
                time.sleep(0.1)
    except GuardGone:
        return len(ended)
    return len(ended)


def _how(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    return "systemd" if machine.has_systemd() else "detached"


def _place(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise BadInput("etc", f"{text!r}", "an absolute path")
    return path


STEPS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "look": look,
    "key": key,
    "install": install,
    "renew": renew,
    "remove": remove,
}


def main() -> None:
    """Take the step that is named, and say what came of it."""
    try:
        step = STEPS[sys.argv[1]]
        os.umask(0o022)
        answer = step(msgspec.json.decode(sys.stdin.buffer.readline(), type=dict[str, Any]))
    except (BadInput, Failed) as error:
        answer = {"problem": str(error)}
    except (OSError, KeyError, IndexError, ValueError) as error:
        where = getattr(error, "filename", None)
        answer = {"problem": f"{where or type(error).__name__}: {getattr(error, 'strerror', None) or error}"}
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")


if __name__ == "__main__":
    main()
