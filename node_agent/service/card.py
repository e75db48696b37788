"""The network card by which this machine is reached, and could be woken."""

import re
import socket
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final, NamedTuple

import psutil

#: Six octets: others, as of InfiniBand, are not woken like that.
_ETHERNET: Final = re.compile("([0-9a-f]{2}:){5}[0-9a-f]{2}")


class Card(NamedTuple):
    """A network interface: its name, Ethernet address, and the IPv4 address of all machines of its network."""

    name: str
    mac: str
    broadcast: str


def card_of(host: str) -> Card | None:
    """The Ethernet card that has that IPv4 address, or the first of that name; None where there is none."""
    try:
        address = socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return None
    for name, found in psutil.net_if_addrs().items():
        masks = [each.netmask for each in found if each.family is socket.AF_INET and each.address == address]
        macs = [each.address.lower() for each in found if each.family == psutil.AF_LINK]
        if masks and masks[0] and macs and _ETHERNET.fullmatch(macs[0]) and macs[0].strip("0:"):
            network = IPv4Network(f"{address}/{masks[0]}", strict=False)
            return Card(name, macs[0], str(network.broadcast_address))
    return None


def listens_asleep(card: Card) -> bool:
    """Whether the machine may be woken by that card while it sleeps, by what the kernel says of its device."""
    try:
        return Path(f"/sys/class/net/{card.name}/device/power/wakeup").read_text().strip() == "enabled"
    except OSError:
        return False
