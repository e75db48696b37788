"""A D-Bus of a test's own, and on it logind as python-dbusmock plays it. Debian: dbus, python3-dbusmock."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from kit.guards import SYSTEM_PYTHON
from kit.waiting import BOUND_S

LOGIND, LOGIND_PATH, MANAGER = "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"
_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={path}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


@contextmanager
def private_bus(directory: Path) -> Iterator[dict[str, str]]:
    """The environment in which a new bus is the system's."""
    socket, config = directory / "bus", directory / "bus.conf"
    config.write_text(_CONFIG.format(path=socket))
    daemon = subprocess.Popen(["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile"])
    try:
        _await(socket.exists, "the bus")
        yield {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={socket}"}
    finally:
        daemon.kill()
        daemon.wait()


@contextmanager
def logind(environment: dict[str, str]) -> Iterator[None]:
    """Logind, played, on the bus of that environment."""
    command = [SYSTEM_PYTHON, "-m", "dbusmock", "--system", "--template", "logind"]
    mock = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        mock.kill()
        mock.wait()


@asynccontextmanager
async def caller(environment: dict[str, str], *, descriptors: bool = False) -> AsyncIterator[Any]:
    """Somebody on the bus who asks: ``await ask(name, path, interface, member, signature, *values)``.

    ``descriptors``: who may send some.
    """
    from dbus_fast import Message  # noqa: PLC0415 (an extra)
    from dbus_fast.aio import MessageBus  # noqa: PLC0415

    address = environment["DBUS_SYSTEM_BUS_ADDRESS"]
    bus = await MessageBus(address, negotiate_unix_fd=descriptors).connect()

    async def ask(name: str, path: str, interface: str, member: str, signature: str = "", *values: object) -> Any:
        call = Message(name, path, interface, member, signature=signature, body=list(values))
        async with asyncio.timeout(BOUND_S):
            return await bus.call(call)

    ask.bus = bus  # type: ignore[attr-defined]
    try:
        yield ask
    finally:
        bus.disconnect()


def _await(holds: Any, what: str) -> None:
    end_s = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < end_s, f"waited for {what}"
        time.sleep(0.01)
