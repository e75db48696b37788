"""A play's service as it was found, and what the play's record says of a play that begins or goes on there."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

import cosched
from cosched.apps.play import play_manifest
from cosched.apps.play.play_log import Begun, Part, PlayLog, new_tag
from cosched.apps.play.submissions import PlaySettings
from cosched.client.client import Client
from cosched.errors import Failed
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
    return Begun(new_tag(), cluster.cluster_id, {**said, **more}, dict(play_manifest.digests(inputs)))


def part(record: PlayLog, service: Found, command: Sequence[str]) -> Part:
    """A part of the play that begins now, where the schedule has got to."""
    at_s = record.at_s
    return Part(at_s, time.time() - at_s, service.ahead_s, list(command), cosched.__version__, service.cluster.policy)
