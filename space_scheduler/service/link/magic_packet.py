"""Wake-on-LAN: the *magic packet* that wakes a machine whose network card listens for it while it sleeps.

Six octets of ones, then the card's Ethernet address sixteen times (AMD, "Magic Packet Technology", 1995), as UDP to the
broadcast address of the card's network, port 9 (discard). Nobody answers; who sent it is not proven, and it wakes only.
"""

import socket
from typing import Final

PORT: Final = 9
_REPEATED: Final = 16


def magic_packet(mac: str) -> bytes:
    """The packet's 102 octets. ``mac``: six octets in hexadecimal, with colons between."""
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * _REPEATED


def send_magic_packet(mac: str, broadcast: str, port: int = PORT) -> None:
    """Send one, by the route to that IPv4 address. Raises OSError where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        any_socket.sendto(magic_packet(mac), (broadcast, port))
