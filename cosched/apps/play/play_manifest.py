"""The manifest of a play: what was played, on what, by which command lines, and what came out."""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

import cosched
from cosched.apps.play.play_log import Part, PlayLog
from cosched.report.manifest import FileDigest, digest, packages
from cosched.wire.api import ClusterDoc, NodeDoc


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


def made(
    log: PlayLog, cluster: ClusterDoc, nodes: Sequence[NodeDoc], inputs: Sequence[Path], outputs: Sequence[Path]
) -> PlayManifest:
    """The manifest of what this log says."""
    assert log.begun is not None
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
            nodes={node.name: node.procs for node in nodes},
        ),
        parts=log.parts,
        inputs=[digest(path) for path in inputs],
        outputs=[digest(path) for path in outputs],
    )


def digests(inputs: Sequence[Path]) -> Mapping[str, str]:
    """SHA-256 of each file, by its place among them and its name."""
    return {f"{at} {path.name}": digest(path).sha256 for at, path in enumerate(inputs, 1)}
