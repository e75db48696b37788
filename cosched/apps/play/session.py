"""A play's service as it was found, what its record says of a play that begins or goes on there, and its manifest.

The manifest: what was played, on what, by which command lines, and what came out.
"""

import platform
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

import cosched
from cosched.apps.play.play_log import Begun, Part, PlayLog, new_tag
from cosched.apps.play.submissions import PlaySettings
from cosched.client.client import Client
from cosched.errors import Failed
from cosched.report.manifest import FileDigest, digest, packages
from cosched.wire.api import ClusterDoc, NodeDoc


class Found(NamedTuple):
    """The service, its nodes, and its clock less this machine's in seconds."""

    cluster: ClusterDoc
    nodes: list[NodeDoc]
    ahead_s: float


def found(client: Client) -> Found:
    """The service as it is now. Raises :class:`Failed` where it accepts no jobs."""
    cluster = client.cluster()
    ahead_s = datetime.fromisoformat(cluster.time).timestamp() - time.time()
    if not cluster.accepting:
        raise Failed(f"{cluster.name} accepts no jobs: {cluster.note}")
    return Found(cluster, [node for node in client.nodes() if node.state == "up"], ahead_s)


def begun(inputs: Sequence[Path], settings: PlaySettings, more: Mapping[str, str], cluster: ClusterDoc) -> Begun:
    """The first line of a play's record: the settings, ``more`` of them, and what its files hold."""
    said = {key: str(value) for key, value in msgspec.to_builtins(settings).items()}
    digests = {f"{at} {path.name}": digest(path).sha256 for at, path in enumerate(inputs, 1)}
    return Begun(new_tag(), cluster.cluster_id, {**said, **more}, digests)


def part(record: PlayLog, service: Found, command: Sequence[str]) -> Part:
    """A part of the play that begins now, where the schedule has got to."""
    at_s = record.at_s
    return Part(at_s, time.time() - at_s, service.ahead_s, list(command), cosched.__version__, service.cluster.policy)


class PlayedOn(msgspec.Struct, frozen=True, kw_only=True):
    """The service: its policy when the last part began, and its nodes then with their processors."""

    name: str
    cluster_id: str
    version: str
    policy: str
    nodes: dict[str, int]


class PlayManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decided what was submitted when; what came of it depends on the service, too."""

    command: str
    cosched: str
    python: str
    platform: str
    packages: dict[str, str]
    tag: str
    settings: dict[str, str]
    service: PlayedOn
    parts: list[Part]
    inputs: list[FileDigest]
    outputs: list[FileDigest]


def manifest(log: PlayLog, service: Found, inputs: Sequence[Path], outputs: Sequence[Path]) -> PlayManifest:
    """The manifest of what this log says, of a play on that service."""
    assert log.begun is not None
    cluster = service.cluster
    return PlayManifest(
        command="workload play",
        cosched=cosched.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        packages=packages("msgspec", "numpy", "pyarrow"),
        tag=log.begun.tag,
        settings=log.begun.settings,
        service=PlayedOn(
            name=cluster.name,
            cluster_id=cluster.cluster_id,
            version=cluster.version,
            policy=cluster.policy,
            nodes={node.name: node.procs for node in service.nodes},
        ),
        parts=log.parts,
        inputs=[digest(path) for path in inputs],
        outputs=[digest(path) for path in outputs],
    )
