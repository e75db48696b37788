"""``cosched doctor``: is everything as it should be, and if not, what to do."""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final

import click

import cosched
from cosched.apps.cli.shared.checks import Check, Level, agreement, clock_level, expiry, grouped, judged
from cosched.apps.cli.shared.verb import json_option, service, tell_each
from cosched.apps.cli.shared.words import ago, lasting, stalls, this_user
from cosched.client import places
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.client.transport import identity_dir
from cosched.config.node import NodeConfig
from cosched.config.units import memory_text
from cosched.errors import BadInput, Failed
from cosched.identity.names import WARN_DAYS
from cosched.model.node import Presence
from cosched.wire.api import ClusterDoc, NodeDoc
from cosched.wire.messages import EXPIRED, NO_GUARD, NO_ROOM

_CLUSTER: Final = Path("/etc/cosched/cluster.yaml")
_MOST_USERS: Final = 50
#: A service that lets the first and smallest question wait for longer hangs, or is so slow that it comes to the same.
_PATIENCE_S: Final = 10.0
_FREE_WARN_BYTES: Final = 1 << 30
_FREE_FAIL_BYTES: Final = 100 << 20


@click.command("doctor")
@service
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"The scheduler's settings [{_CLUSTER}, if there].",
)
@click.option(
    "--node-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"A node's settings [{places.NODE_TOML}, if there].",
)
@click.option(
    "--user",
    "users",
    metavar="NAME",
    multiple=True,
    help="Compare this user over the nodes; repeatable [those with jobs, for operators; else you].",
)
@json_option
def command(
    server: str | None,
    lab: str | None,
    config: Path | None,
    node_config: Path | None,
    users: tuple[str, ...],
    as_json: bool,
) -> int:
    """Check service, users, clocks, versions, certificates, disk, nodes, programs; say what to do about what is wrong.

    The exit status is 1 when a check fails; --json has {ok, checks: [{what, level: ok|warn|fail, found, advice}]}.

    \b
    Example: cosched doctor --lab default
    """
    checks = tell_each(
        _checks(server, lab, config, node_config, list(users)),
        _lines,
        lambda checks: {"ok": _passed(checks), "checks": checks},
        as_json=as_json,
    )
    return 0 if _passed(checks) else 1


def _passed(checks: list[Check]) -> bool:
    return all(check.level != "fail" for check in checks)


def _lines(checks: Iterable[Check]) -> Iterator[str]:
    """A line for each; what to do stands once, after the last of those that want the same."""
    for advice, alike in groupby(checks, key=attrgetter("advice")):
        for check in alike:
            yield f"{check.level:<5}  {check.what}: {check.found}"
        if advice and check.level != "ok":
            yield f"       {advice}"


def _checks(
    server: str | None, lab: str | None, config: Path | None, node_config: Path | None, users: list[str]
) -> Iterator[Check]:
    try:
        with connect(server, lab) as client:
            asked = datetime.now(UTC)
            cluster = client.cluster(timeout_s=_PATIENCE_S)
            yield from _service(client, cluster, asked)
            yield from _nodes(client.nodes())
            yield from _agreement(client, cluster, users)
    except (BadInput, Failed) as error:
        yield Check(
            "service",
            "fail",
            str(error),
            "start it, start it anew where it hangs (docs/guide/runbooks.md), or name it: --server, --lab",
        )
    yield from _settings(config, node_config)
    yield from _programs()


def _service(client: Client, cluster: ClusterDoc, asked: datetime) -> Iterator[Check]:
    about = (
        f"{cluster.name} at {client.server}, policy {cluster.policy}, {cluster.running} jobs run, {cluster.queued} wait"
    )
    note = f" ({cluster.note})" if cluster.note else ""
    yield judged(
        "service",
        cluster.accepting,
        about + (note if cluster.accepting else f"; takes no jobs: {cluster.note or 'no reason given'}"),
        "what runs goes on; free the disk of its state directory, or see its log",
        bad="fail",
    )
    yield _restart(cluster)
    if cluster.set_aside:
        yield Check(
            "jobs set aside",
            "warn",
            f"{cluster.set_aside} are left out of passes, which fail with them; others start",
            "'cosched queue' names them, 'cosched explain JOB' has the error: docs/guide/runbooks.md",
        )
    yield judged(
        "version",
        cluster.version == cosched.__version__,
        f"service {cluster.version}, this command {cosched.__version__}",
        "upgrade the older one: client and service speak version 1 of the API, and may differ in what they know",
    )
    try:
        apart_s = abs((datetime.fromisoformat(cluster.time) - asked).total_seconds())
    except (ValueError, TypeError):
        yield Check("clock", "fail", f"the service says {cluster.time!r}", "a service of another version?")
        return
    yield Check(
        "clock",
        clock_level(apart_s),
        f"{lasting(apart_s)} between the service's and this machine's",
        "set both clocks by NTP: certificates and times for people go by them",
    )


def _restart(cluster: ClusterDoc) -> Check:
    """What the service found when it was started last."""
    restart = cluster.restart
    awaited = f", {', '.join(restart.awaited)} not heard yet" if restart.awaited else ""
    found = [f"epoch {cluster.epoch}, {restart.jobs} jobs taken over{awaited}", *restart.differed]
    advice = "what had to be done was done: 'cosched show' tells of each job"
    return judged("restart", not restart.differed, "; ".join(found), advice)


def _nodes(nodes: list[NodeDoc]) -> Iterator[Check]:
    up = [node for node in nodes if node.state == "up"]
    if not nodes:
        yield Check("nodes", "warn", "none", "name them in cluster.yaml, under nodes")
        return
    closed = sum(node.state == "closed" for node in nodes)
    yield Check(
        "nodes",
        "ok" if up or closed else "fail",
        f"{len(up)} of {len(nodes)} up" + (f", {closed} closed at this hour" if closed else ""),
        "start 'cosched agent' on them; 'cosched agent --check' says what is missing",
    )
    for look in (_out_of_use, _stalled, _expiring):
        for node in nodes:
            yield from look(node)
    blind = [node.name for node in up if node.presence is Presence.UNKNOWN]
    if blind:
        advice = "they count as occupied, so jobs there are limited always: 'cosched agent --check' names the sources"
        yield Check("presence", "warn", f"not known on {', '.join(blind)}", advice)
    elif up and all(node.presence is None for node in up):
        yield Check("presence", "ok", "told to operators alone")
    elif up:
        sources = sorted({node.presence_source for node in up if node.presence_source})
        yield Check("presence", "ok", "known on all nodes" + (f", by {', '.join(sources)}" if sources else ""))
    yield from _enforced(up)


def _out_of_use(node: NodeDoc) -> Iterator[Check]:
    """What keeps jobs from a node, and what brings it back."""
    on, reason, heard = f"on {node.name}: ", f": {node.reason}" if node.reason else "", ago(node.last_heard)
    level: Level = "warn"
    if node.state in ("lost", "unknown"):
        advice = f"{on}is it on, does its agent run, can it reach the scheduler's port?"
        reason = f", last heard {heard}{reason}"
    elif node.reason.startswith(NO_GUARD):
        level, advice = "fail", f"{on}is cosched-guard running, what is in its log? It works again by itself"
    elif node.reason.startswith(NO_ROOM):
        advice = f"{on}mend that; jobs start there again by themselves"
    elif node.state in ("draining", "drained") and not node.reason.startswith(EXPIRED):
        advice = f"cosched node resume {node.name}, when it may work again"
    else:
        return
    yield Check(f"node {node.name}", level, node.state + reason, advice)


def _stalled(node: NodeDoc) -> Iterator[Check]:
    """What of jobs cannot be ended on a node."""
    advice = f"on {node.name}: bring that file system back; what waits for it then ends by itself"
    return (Check(f"node {node.name}", "warn", words, advice) for words in stalls(node.stalled))


def _expiring(node: NodeDoc) -> Iterator[Check]:
    """A node's certificate that ends soon, or has ended."""
    if words := expiry(node):
        level: Level = "fail" if "has expired" in words else "warn"
        yield Check(f"node {node.name}", level, words, f"cosched node renew {node.name}")


def _agreement(client: Client, cluster: ClusterDoc, users: list[str]) -> Iterator[Check]:
    """Whether the nodes agree on users, time and software."""
    asked = users or sorted({job.user for job in [*client.jobs(), *client.history(limit=200)]})[:_MOST_USERS]
    try:
        survey = client.survey(asked)
    except Failed as error:
        if users:
            yield Check("users", "fail", str(error), "ask as an operator")
            return
        asked = [this_user()]  # others' accounts are for operators to see
        survey = client.survey([])
    yield from agreement(survey, asked, cluster.version)


def _enforced(up: list[NodeDoc]) -> Iterator[Check]:
    advice = "docs/guide/agent.md says what each of these needs"
    enforced = ((each, node.name) for node in up for each in node.enforces.items() if not each[1].startswith("yes"))
    for (what, why), names in grouped(enforced).items():
        yield Check("enforcement", "warn", f"no {what} on {', '.join(names)}: {why}", advice)


def _settings(config: Path | None, node_config: Path | None) -> Iterator[Check]:
    """What the files of this machine say, where it is a scheduler's or a node's."""
    from cosched.config.cluster import load_cluster  # noqa: PLC0415 (needs YAML, and comes late)
    from cosched.config.node import load_node  # noqa: PLC0415

    identities = [identity_dir()]
    files = ((config, _CLUSTER, load_cluster, "service"), (node_config, places.NODE_TOML, load_node, "agent"))
    for given, usual, load, program in files:
        path = given or usual
        if not given and not usual.exists():
            continue
        try:
            settings = load(path)
        except BadInput as error:
            yield Check("settings", "fail", str(error), f"mend the file; the {program} does not start with it")
            continue
        yield Check("settings", "ok", str(path))
        if isinstance(settings, NodeConfig):
            identities.append(Path(settings.paths.identity))
        else:
            identities.append(Path(settings.identity))
            yield _free(Path(settings.state))
    for directory in dict.fromkeys(identities):
        yield from _certificates(directory)


def _free(state: Path) -> Check:
    place = next((each for each in (state, *state.parents) if each.exists()), Path("/"))
    try:
        free_bytes = shutil.disk_usage(place).free
    except OSError as error:
        return Check("journal", "fail", f"{place}: {error.strerror}", "the service keeps its journal there")
    level: Level = "ok" if free_bytes >= _FREE_WARN_BYTES else "warn" if free_bytes >= _FREE_FAIL_BYTES else "fail"
    advice = "make room: a full disk stops the service from taking jobs"
    return Check("journal", level, f"{memory_text(free_bytes)} free at {place}", advice)


def _certificates(directory: Path) -> Iterator[Check]:
    try:
        if not any(directory.glob("*.pem")):
            return
        from cosched.identity.authority import validities  # noqa: PLC0415 (its library takes long to load)

        for each in validities(directory):
            level: Level = "ok" if each.days_left >= WARN_DAYS else "warn" if each.days_left > 0 else "fail"
            left = f"valid until {each.until:%Y-%m-%d}, {each.days_left:.0f} days"
            found = left if each.days_left > 0 else f"expired on {each.until:%Y-%m-%d}"
            yield Check("certificate", level, f"{each.path}: {found}", "renew it: docs/guide/keys.md")
    except BadInput as error:
        yield Check("certificate", "fail", str(error))
    except PermissionError:
        yield Check("certificate", "warn", f"{directory}: not readable by this user", "ask again as its owner or root")


def _programs() -> Iterator[Check]:
    yield Check("python", "ok", f"{sys.version.split()[0]} ({sys.executable})")
    found, said = _ran("mpirun", "--version")
    if said:
        version = (said.stdout or said.stderr).strip().splitlines() or ["unknown version"]
        found = f"{found}: {version[0]}; {_mpi4py()}"
    advice = "jobs that start ranks need one: Debian's openmpi-bin, or the package's extra 'lab'"
    yield judged("mpi", said is not None, found or "no mpirun on this machine's PATH", advice)


def _mpi4py() -> str:
    """Whether the Python that jobs of this user start has mpi4py: the first on PATH, which jobs are given."""
    found, ran = _ran("python3", "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('mpi4py') is None)")
    if ran:
        found += " without mpi4py" if ran.returncode else " with mpi4py"
    return found or "no python3 on PATH"


def _ran(name: str, *arguments: str) -> tuple[str, subprocess.CompletedProcess[str] | None]:
    """A program's path, and how it ended; None and why where it does not run, None and "" where PATH has none."""
    if not (path := shutil.which(name)):
        return "", None
    try:
        ran = subprocess.run((path, *arguments), capture_output=True, text=True, timeout=20, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}", None
    return path, ran
