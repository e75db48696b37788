"""Which network interface has an address: some launchers want interfaces by name."""

import fcntl
import socket
import struct
from typing import Final

_GET_ADDRESS: Final = 0x8915  # SIOCGIFADDR
_NAME_BYTES: Final = 16


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
