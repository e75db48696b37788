"""The settings that the guides list, of node.toml and of cluster.yaml, are those declared."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cosched.config.cluster import ClusterConfig
from cosched.config.node import NodeConfig

DOCS = Path(__file__).parents[3] / "docs"
#: Declared for experiments or for other programs alone.
UNDOCUMENTED = {"coscheduling.clock_shift_us", "note"}
REQUIRED = object()


def declared(settings: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting's key and default."""
    for field in msgspec.structs.fields(settings):
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        kind = field.type
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            given = default if isinstance(default, msgspec.Struct) else None
            for key, value in declared(kind, f"{prefix}{field.encode_name}."):
                yield key, value if given is None else getattr(given, key.rpartition(".")[2])
        else:
            yield prefix + field.encode_name, REQUIRED if default is msgspec.NODEFAULT else default


def flat(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def test_documented_node_toml_has_each_setting_with_its_default() -> None:
    """Goal: a setting's default is typed once, and its documentation cannot drift from it."""
    (written,) = re.findall(
        r"^```toml\n(name = .*?)^```", (DOCS / "guide/agent.md").read_text(), re.MULTILINE | re.DOTALL
    )
    documented = dict(flat(tomllib.loads(re.sub(r"^# (?=\w+ = )", "", written, flags=re.MULTILINE))))
    settings = {key: value for key, value in declared(NodeConfig) if key not in UNDOCUMENTED}
    assert documented.keys() == settings.keys()
    differing = {key for key, value in settings.items() if value not in (REQUIRED, documented[key])}
    example, of_a_preset = "launch.network", "presence.away_after_s"
    assert differing == {example, of_a_preset}


def test_documented_cluster_yaml_has_each_setting_once() -> None:
    table = re.findall(r"^\| (`[^|]*) \|", (DOCS / "guide/settings.md").read_text(), re.MULTILINE)
    documented: list[str] = []
    for cell in table:
        section = ""
        for key in re.findall(r"`([a-z_.]+)`", cell):
            documented.append(f"{section}{key}" if key.startswith(".") else key)
            section = section if key.startswith(".") or "." not in key else key.partition(".")[0]
    sections = {key.partition(".")[0] for key, _ in declared(ClusterConfig) if "." in key}
    settings = {key for key, _ in declared(ClusterConfig) if key not in UNDOCUMENTED}
    whole = {key for key in documented if key in sections}
    assert {key for key in settings if key.partition(".")[0] not in whole} == {*documented} - whole
    assert len(documented) == len({*documented})
