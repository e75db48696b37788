"""The directory that ``cosched init`` makes: its nodes' settings, and where their agents reach the scheduler."""

from pathlib import Path

from cosched.config.hosts import check_spellings
from cosched.config.node import NodeConfig, load_node
from cosched.errors import BadInput
from cosched.identity.names import checked_name


def named_places(given: tuple[str, ...], where: str) -> dict[str, str]:
    """Addresses by node, each given as NAME or NAME=ADDRESS. Raises :class:`BadInput`."""
    places: dict[str, str] = {}
    for each in given:
        name, _, address = each.partition("=")
        checked_name("node", name)
        if name in places:
            raise BadInput(where, f"{name!r} is named twice", "each name once")
        places[name] = address or name
    return places


def _settings(directory: Path) -> list[Path]:
    return sorted((directory / "nodes").glob("*/node.toml"))


def nodes_of(directory: Path) -> list[str]:
    """The names of the nodes that the cluster's directory has settings of."""
    return [path.parent.name for path in _settings(directory)]


def first_node(directory: Path) -> NodeConfig | None:
    """The settings of one of these nodes; None where there is none."""
    return next(map(load_node, _settings(directory)), None)


def known_address(directory: Path, name: str) -> str:
    """Where a node is, as far as the cluster's directory knows. Raises :class:`BadInput` for another spelling."""
    if name not in (nodes := nodes_of(directory)):
        check_spellings([*nodes, name], "node name")
        return name
    return load_node(directory / "nodes" / name / "node.toml").launch.address


def given_scheduler(scheduler: str | None) -> str:
    """The scheduler's host. Raises :class:`BadInput` where it is not given."""
    if not scheduler:
        raise BadInput("--scheduler", "not given", "the name or address at which nodes reach the scheduler")
    return scheduler
