"""What may be a host's name, and a network."""

import re
from collections.abc import Iterable
from ipaddress import ip_network

from cosched.errors import BadInput

_HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
#: A certificate's common name has at most 64 characters.
MAX_NODE_NAME = 63

MAX_CLUSTER_NAME = 255


def is_cluster(name: str) -> bool:
    """Whether this may be the name of a cluster (a lab)."""
    return bool(name.strip()) and name.isprintable() and len(name) <= MAX_CLUSTER_NAME


def is_host(name: str) -> bool:
    """Whether this is a host's name, as DNS has them."""
    return len(name) <= 253 and bool(_HOST.fullmatch(name))


def check_spellings(names: Iterable[str], where: str) -> None:
    """Raise :class:`BadInput` where two names differ in case alone: they are one host, and would be two nodes."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            expected = "one spelling of a host's name: upper and lower case are the same to DNS"
            raise BadInput(where, f"{name!r} beside {other!r}", expected)


def agents_url(host: str, port: int) -> str:
    """Where agents reach a scheduler."""
    return f"wss://{f'[{host}]' if ':' in host else host}:{port}/v1/agent"


def is_network(text: str) -> bool:
    """Whether this is a network in CIDR notation, or an address alone."""
    try:
        ip_network(text)
    except ValueError:
        return False
    return True
