"""``cosched doctor``: is everything as it should be, and if not, what to do."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import click

import cosched
from cosched.apps.cli.shared.checks import Check, agreement, clock_level, expiry
from cosched.apps.cli.shared.verb import echo_json, json_option, service
from cosched.apps.cli.shared.words import ago, lasting, stalls, this_user
from cosched.client import places
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.client.transport import identity_dir
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
    checks: list[Check] = []
    for check in _checks(server, lab, config, node_config, list(users)):
        checks.append(check)
        if not as_json:
            if checks[:-1] and checks[-2].advice != check.advice:
                _advise(checks[-2])
            click.echo(f"{check.level:<5}  {check.what}: {check.found}")
    if checks and not as_json:
        _advise(checks[-1])
    failed = any(check.level == "fail" for check in checks)
    if as_json:
        echo_json({"ok": not failed, "checks": checks})
    return 1 if failed else 0


def _advise(check: Check) -> None:
    """What to do: once, after the last of those that want the same."""
    if check.advice and check.level != "ok":
        click.echo(f"       {check.advice}")


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
        advice = "start it, start it anew where it hangs (docs/guide/runbooks.md), or name it: --server, --lab"
        yield Check("service", "fail", str(error), advice)
    yield from _settings(config, node_config)
    yield from _programs()


def _service(client: Client, cluster: ClusterDoc, asked: datetime) -> Iterator[Check]:
    about = (
        f"{cluster.name} at {client.server}, policy {cluster.policy}, {cluster.running} jobs run, {cluster.queued} wait"
    )
    if cluster.accepting:
        yield Check("service", "ok", about + (f" ({cluster.note})" if cluster.note else ""))
    else:
        advice = "what runs goes on; free the disk of its state directory, or see its log"
        yield Check("service", "fail", f"{about}; takes no jobs: {cluster.note or 'no reason given'}", advice)
    yield _restart(cluster)
    if cluster.set_aside:
        found = f"{cluster.set_aside} are left out of passes, which fail with them; others start"
        advice = "'cosched queue' names them, 'cosched explain JOB' has the error: docs/guide/runbooks.md"
        yield Check("jobs set aside", "warn", found, advice)
    same = cluster.version == cosched.__version__
    advice = "upgrade the older one: client and service speak version 1 of the API, and may differ in what they know"
    found = f"service {cluster.version}, this command {cosched.__version__}"
    yield Check("version", "ok" if same else "warn", found, "" if same else advice)
    try:
        apart_s = abs((datetime.fromisoformat(cluster.time) - asked).total_seconds())
    except (ValueError, TypeError):
        yield Check("clock", "fail", f"the service says {cluster.time!r}", "a service of another version?")
        return
    advice = "set both clocks by NTP: certificates and times for people go by them"
    yield Check("clock", clock_level(apart_s), f"{lasting(apart_s)} between the service's and this machine's", advice)


def _restart(cluster: ClusterDoc) -> Check:
    """What the service found when it was started last."""
    restart = cluster.restart
    about = f"epoch {cluster.epoch}, {restart.jobs} jobs taken over"
    if restart.awaited:
        about += f", {', '.join(restart.awaited)} not heard yet"
    if restart.differed:
        advice = "what had to be done was done: 'cosched show' tells of each job"
        return Check("restart", "warn", f"{about}; {'; '.join(restart.differed)}", advice)
    return Check("restart", "ok", about)


def _nodes(nodes: list[NodeDoc]) -> Iterator[Check]:
    up = [node for node in nodes if node.state == "up"]
    if not nodes:
        yield Check("nodes", "warn", "none", "name them in cluster.yaml, under nodes")
        return
    closed = sum(node.state == "closed" for node in nodes)
    level: Literal["ok", "fail"] = "ok" if up or closed else "fail"
    advice = "start 'cosched agent' on them; 'cosched agent --check' says what is missing"
    found = f"{len(up)} of {len(nodes)} up" + (f", {closed} closed at this hour" if closed else "")
    yield Check("nodes", level, found, advice)
    for node in nodes:
        if node.state in ("lost", "unknown"):
            found = f"{node.state}, last heard {ago(node.last_heard)}" + (f": {node.reason}" if node.reason else "")
            advice = f"on {node.name}: is it on, does its agent run, can it reach the scheduler's port?"
            yield Check(f"node {node.name}", "warn", found, advice)
        elif node.reason.startswith(NO_GUARD):
            advice = f"on {node.name}: is cosched-guard running, what is in its log? It works again by itself"
            yield Check(f"node {node.name}", "fail", f"{node.state}: {node.reason}", advice)
        elif node.reason.startswith(NO_ROOM):
            advice = f"on {node.name}: mend that; jobs start there again by themselves"
            yield Check(f"node {node.name}", "warn", f"{node.state}: {node.reason}", advice)
        elif node.state in ("draining", "drained") and not node.reason.startswith(EXPIRED):
            found = node.state + (f": {node.reason}" if node.reason else "")
            yield Check(f"node {node.name}", "warn", found, f"cosched node resume {node.name}, when it may work again")
    for node in nodes:
        for words in stalls(node.stalled):
            advice = f"on {node.name}: bring that file system back; what waits for it then ends by itself"
            yield Check(f"node {node.name}", "warn", words, advice)
    yield from _expiring(nodes)
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


def _expiring(nodes: list[NodeDoc]) -> Iterator[Check]:
    """Nodes whose certificate ends soon, or has ended."""
    for node in nodes:
        if words := expiry(node):
            level: Literal["warn", "fail"] = "fail" if "has expired" in words else "warn"
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
    missing: dict[tuple[str, str], list[str]] = {}
    for node in up:
        for what, whether in node.enforces.items():
            if not whether.startswith("yes"):
                missing.setdefault((what, whether), []).append(node.name)
    for (what, why), names in missing.items():
        advice = "docs/guide/agent.md says what each of these needs"
        yield Check("enforcement", "warn", f"no {what} on {', '.join(names)}: {why}", advice)


def _settings(config: Path | None, node_config: Path | None) -> Iterator[Check]:
    """What the files of this machine say, where it is a scheduler's or a node's."""
    from cosched.config.cluster import load_cluster  # noqa: PLC0415 (needs YAML, and comes late)
    from cosched.config.node import load_node  # noqa: PLC0415

    identities = [identity_dir()]
    if config or _CLUSTER.exists():
        path = config or _CLUSTER
        try:
            cluster = load_cluster(path)
        except BadInput as error:
            yield Check("settings", "fail", str(error), "mend the file; the service does not start with it")
        else:
            yield Check("settings", "ok", str(path))
            identities.append(Path(cluster.identity))
            yield from _free(Path(cluster.state))
    if node_config or places.NODE_TOML.exists():
        path = node_config or places.NODE_TOML
        try:
            node = load_node(path)
        except BadInput as error:
            yield Check("settings", "fail", str(error), "mend the file; the agent does not start with it")
        else:
            yield Check("settings", "ok", str(path))
            identities.append(Path(node.paths.identity))
    for directory in dict.fromkeys(identities):
        yield from _certificates(directory)


def _free(state: Path) -> Iterator[Check]:
    place = next((each for each in (state, *state.parents) if each.exists()), Path("/"))
    try:
        free_bytes = shutil.disk_usage(place).free
    except OSError as error:
        yield Check("journal", "fail", f"{place}: {error.strerror}", "the service keeps its journal there")
        return
    found = f"{memory_text(free_bytes)} free at {place}"
    level: Literal["ok", "warn", "fail"] = (
        "ok" if free_bytes >= _FREE_WARN_BYTES else "warn" if free_bytes >= _FREE_FAIL_BYTES else "fail"
    )
    yield Check("journal", level, found, "make room: a full disk stops the service from taking jobs")


def _certificates(directory: Path) -> Iterator[Check]:
    try:
        if not any(directory.glob("*.pem")):
            return
        from cosched.identity.authority import validities  # noqa: PLC0415 (its library takes long to load)

        for each in validities(directory):
            left = f"{each.path}: valid until {each.until:%Y-%m-%d}, {each.days_left:.0f} days"
            advice = "renew it: docs/guide/keys.md"
            if each.days_left <= 0:
                yield Check("certificate", "fail", f"{each.path}: expired on {each.until:%Y-%m-%d}", advice)
            else:
                yield Check("certificate", "warn" if each.days_left < WARN_DAYS else "ok", left, advice)
    except BadInput as error:
        yield Check("certificate", "fail", str(error))
    except PermissionError:
        yield Check("certificate", "warn", f"{directory}: not readable by this user", "ask again as its owner or root")


def _programs() -> Iterator[Check]:
    yield Check("python", "ok", f"{sys.version.split()[0]} ({sys.executable})")
    advice = "jobs that start ranks need one: Debian's openmpi-bin, or the package's extra 'lab'"
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        yield Check("mpi", "warn", "no mpirun on this machine's PATH", advice)
        return
    try:
        said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False)
        version = (said.stdout or said.stderr).strip().splitlines()[:1]
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Check("mpi", "warn", f"{mpirun} does not run: {error}", advice)
        return
    yield Check("mpi", "ok", f"{mpirun}: {version[0] if version else 'unknown version'}; {_mpi4py()}")


def _mpi4py() -> str:
    """Whether the Python that jobs of this user start has mpi4py: the first on PATH, which jobs are given."""
    python = shutil.which("python3")
    if python is None:
        return "no python3 on PATH"
    program = "import importlib.util as u, sys; sys.exit(u.find_spec('mpi4py') is None)"
    try:
        without = subprocess.run([python, "-c", program], capture_output=True, timeout=20, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} does not run: {error}"
    return f"{python} {'without' if without.returncode else 'with'} mpi4py"
