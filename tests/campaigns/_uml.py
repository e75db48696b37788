"""A host with a kernel of its own: User Mode Linux, whose systemd has control groups of version 2 on any machine.

Its root is a directory here (hostfs), its memory a file system in memory, its network card a TAP device on the bridge.
"""

import os
import subprocess
from pathlib import Path

MEMORY = "700M"
_MEMORY_HERE = "size=900m"
REGISTERS = Path(__file__).resolve().parents[1] / "agent/guard/uml_registers.c"
_CARD = """\
[Unit]
DefaultDependencies=no
Before=network.target sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'ip link set lo up; ip address add {address}/24 dev eth0; ip link set eth0 up'
"""


class Uml:
    """What a kernel of its own takes beside the root; made at the first start, and gone with :meth:`close`."""

    def __init__(self, directory: Path, name: str, address: str, tap: str) -> None:
        self._name, self._address, self._tap = name, address, tap
        self._memory = directory / "memory"
        self._registers = directory / "registers.so"

    def prepare(self, root: Path) -> None:
        """Have the host give itself its address. Raises CalledProcessError where memory or compiler are missing."""
        units = root / "etc/systemd/system"
        (units / "card.service").write_text(_CARD.format(address=self._address), encoding="ascii")
        (units / "sysinit.target.wants/card.service").symlink_to("../card.service")
        (units / "systemd-networkd-wait-online.service").symlink_to("/dev/null")  # it knows nothing of that card
        self._memory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", _MEMORY_HERE, "tmpfs", self._memory], check=True)
        built = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(self._registers), str(REGISTERS)]
        subprocess.run(built, check=True)

    def command(self, root: Path, space: str) -> list[str | Path]:
        """What starts it, in the network of the bridge."""
        return [
            "ip", "netns", "exec", space, "env", "-i", f"PATH={os.environ['PATH']}", f"LD_PRELOAD={self._registers}",
            f"TMPDIR={self._memory}", f"HOME={self._memory}", "linux.uml", f"mem={MEMORY}", "rootfstype=hostfs",
            f"rootflags={root}", "rw", "init=/lib/systemd/systemd", f"eth0=tuntap,{self._tap}", "con=null",
            "con0=fd:0,fd:1", f"systemd.hostname={self._name}",
        ]  # fmt: skip

    def close(self) -> None:
        """Give its memory back."""
        subprocess.run(["umount", "--lazy", self._memory], check=False, capture_output=True)
