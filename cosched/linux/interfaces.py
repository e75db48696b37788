"""Which network interface has an address: some launchers want them by name, and a machine is woken by its card."""

import fcntl
import socket
import struct
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final, NamedTuple

import psutil

_GET_ADDRESS: Final = 0x8915  # SIOCGIFADDR
_NAME_BYTES: Final = 16


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
        if masks and masks[0] and macs and macs[0].strip("0:"):
            network = IPv4Network(f"{address}/{masks[0]}", strict=False)
            return Card(name, macs[0], str(network.broadcast_address))
    return None


def listens_asleep(card: Card) -> bool:
    """Whether the machine may be woken by that card while it sleeps, by what the kernel says of its device."""
    try:
        return Path(f"/sys/class/net/{card.name}/device/power/wakeup").read_text().strip() == "enabled"
    except OSError:
        return False


def interface_of(address: str) -> str:
    """The name of the interface that has that IPv4 address (dotted); empty where none has, or it is no such address."""
    try:
        wanted = socket.inet_aton(address) if address.count(".") == 3 else b""
    except OSError:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_NAME_BYTES}s24x", name.encode())
            try:
                answer = fcntl.ioctl(any_socket, _GET_ADDRESS, request)
            except OSError:  # without an address
                continue
            if answer[_NAME_BYTES + 4 : _NAME_BYTES + 8] == wanted:
                return name
    return ""
