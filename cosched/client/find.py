"""Which service is meant: the one that is named, else the system's on this machine, else the only lab that is up.

The lab of a demo that runs is meant by its name alone.
"""

import os

from cosched.client import places
from cosched.client.client import Client
from cosched.client.transport import Transport
from cosched.errors import BadInput, Failed, NoAnswer, nearest

_HOW = "--server or COSCHED_SERVER names one, 'cosched lab up' makes one on this machine"


def connect(server: str | None = None, lab: str | None = None) -> Client:
    """A client of the service that is meant; nothing is sent yet.

    ``server`` is the path of a Unix socket or ``https://HOST:PORT`` (else COSCHED_SERVER), ``lab`` a lab's name (else
    COSCHED_LAB). Raises :class:`BadInput` where several could be meant, and :class:`NoAnswer` where none is there.
    """
    if server and lab:
        raise BadInput("--lab", f"{lab!r}, together with --server", "one of the two")
    if not server and not lab:
        server, lab = os.environ.get("COSCHED_SERVER"), os.environ.get("COSCHED_LAB")
    if server:
        return Client(Transport(server))
    if lab:
        return Client(Transport(str(_lab(lab))))
    system = places.SYSTEM_SOCKET
    if os.environ.get("COSCHED_RUNTIME_DIR"):
        system = places.runtime_dir() / places.SOCKET_NAME
    if places.answers(system):
        return Client(Transport(str(system)))
    up = places.unnamed(places.labs_up())
    if len(up) > 1:
        raise BadInput("--lab", f"none named, and several are up: {', '.join(up)}", "--lab NAME, or COSCHED_LAB")
    if up:
        return Client(Transport(str(places.lab_socket(up[0]))))
    if system.exists() and not os.access(system, os.W_OK):
        raise Failed(f"{system} is there, but this user may not connect to it")
    raise NoAnswer(f"no scheduler answers: none at {system}, and no lab is up; {_HOW}")


def _lab(name: str) -> os.PathLike[str]:
    path = places.lab_socket(name)
    if not path.exists():
        up = places.labs_up()
        told = f"those that are: {', '.join(up)}" if up else f"none is; cosched lab up --name {name} makes it"
        near = nearest(name, up)
        raise NoAnswer(f"no lab {name!r} is up ({told})" + (f"; did you mean {near!r}?" if near else ""))
    return path
