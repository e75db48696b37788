"""The machines of the campaign ``debian``: what is brought to them, and what is asked of them."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from campaigns._ansible_lab import ROOT, need
from campaigns._debian_image import HOSTS, RELEASES, inside
from campaigns._debian_image import image as made_image
from campaigns._debian_machines import Emulated, Machine, UserMode, free_port
from campaigns._systemd_hosts import USER, run

HEAD, DESK = HOSTS
_WHEELS_S: Final = 1800.0


def work_of(cache: Path, release: str, *, user_mode: bool) -> Path:
    """Where the disks of the last run are."""
    return cache / f"run{release}-{'user-mode' if user_mode else 'qemu'}"


class Ground:
    """Two machines of one release, ``head`` and ``desk2``, and the directory of their disks."""

    def __init__(self, release: str, cache: Path, factor: float, space: str | None) -> None:
        """The image is made where it is missing. With ``space``, a network namespace, they are User Mode Linux."""
        self.release, self.factor = release, factor
        image = made_image(cache, release)
        self.work = work_of(cache, release, user_mode=space is not None)
        self.disk, self.supply = self.work / "disk.img", self.work / "supply"
        self._image = image / "disk.img"
        self.machines: dict[str, Machine] = {}
        lan = {name: free_port(socket.SOCK_DGRAM) for name in HOSTS}
        for name in HOSTS:
            place = (name, self.work / name, image, self.disk, factor)
            self.machines[name] = UserMode(*place, space) if space else Emulated(*place, lan)
        self.head, self.desk = self.machines.values()

    def supplied(self) -> None:
        """A disk as the image has it, and what is brought to it from this checkout's commit."""
        _, python = RELEASES[self.release]
        shutil.rmtree(self.supply, ignore_errors=True)
        self.supply.mkdir(parents=True)
        made = (ROOT / "lock/wheelhouse.py", self.supply / "wheels", "--python", python, "--extra", "scheduler")
        run(sys.executable, *made, timeout_s=_WHEELS_S)
        run("cp", "--sparse=always", self._image, self.disk, timeout_s=_WHEELS_S)

    def laid(self, lines: str) -> str:
        """What lines of root's shell say in the system of the disk that both machines start from."""
        return inside(self.disk, self.supply, lines, _WHEELS_S)

    def fresh(self) -> None:
        """Forget what the machines wrote."""
        for machine in self.machines.values():
            machine.fresh()

    def up(self, *names: str) -> None:
        """Have these machines run."""
        down = [self.machines[name] for name in names if not self.machines[name].running]
        for machine in down:
            machine.start()
        for machine in down:
            machine.until_up()

    def close(self) -> None:
        """End the machines."""
        for machine in self.machines.values():
            machine.close()

    def cosched(self, arguments: str, base_s: float = 10) -> Any:
        """The JSON of a command of the ordinary user's on the scheduler's host."""
        verb, _, rest = arguments.partition(" ")
        return json.loads(self.head.at(f"cosched {verb} --json {rest}", user=USER, base_s=base_s))

    def nodes(self) -> dict[str, str]:
        """The nodes and their states."""
        return {node["name"]: node["state"] for node in self.cosched("nodes")["nodes"]}

    def until(self, holds: Callable[[], object], what: str, base_s: float = 30) -> None:
        """Wait until something holds; a command that fails meanwhile counts as not yet. Raises :class:`Broken`."""
        end_s = time.monotonic() + base_s * self.factor
        while True:
            try:
                if holds():
                    return
                said = ""
            except (RuntimeError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
                said = f" ({error})"
            need(time.monotonic() < end_s, f"not within {base_s * self.factor:g} s: {what}{said}")
            time.sleep(1)
