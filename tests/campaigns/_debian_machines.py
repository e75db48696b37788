"""The machines of the campaign ``debian``: qemu in software emulation, or a User Mode Linux; both are reached by ssh.

A machine has an overlay over a disk that ``_debian_image`` made, and a network card that leads to the other machine.
Nothing outside is reached from it: no package index. It ends with the campaign, and its disk, console and the log of
what was run on it stay.
"""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns._debian_image import EARLY, HOSTS, mac
from campaigns._systemd_hosts import run
from campaigns._uml import REGISTERS

#: The modules of this machine's User Mode Linux.
UML_MODULES = Path("/usr/lib/uml/modules")
_MEMORY_MB = 2048
_CPUS = ("-accel", "tcg,thread=multi", "-smp", "2")
_COUNTED = ("-accel", "tcg,thread=single", "-smp", "1", "-icount", "shift=0,sleep=on")
_PANIC = re.compile(rb"Kernel panic - [^\r\n]*")
#: So many unanswered questions, each asked ``factor`` seconds after the one before, end an ssh connection.
_UNANSWERED = 10
_BOOT_S = 30.0
_STOP_S = 10.0
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
_CONTROLLER = "10.88.0.1/24"


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port of the loopback that is free now."""
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Machine(ABC):
    """A host by name, from :meth:`start` to :meth:`close`.

    ``factor`` multiplies each time that is waited for: how many times slower than this machine it is taken to be.
    """

    def __init__(self, name: str, directory: Path, image: Path, disk: Path, factor: float) -> None:
        """``disk`` is the lower one, which stays as it is."""
        self.name, self.directory, self.factor = name, directory, factor
        self._image, self._lower = image, disk
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self.disk = directory / "disk"
        self._console = directory / "console.log"
        self._console_start = 0

    @abstractmethod
    def fresh(self) -> None:
        """Forget all that was written to the disk."""

    @abstractmethod
    def key(self) -> None:
        """Press and release a key of the machine's keyboard."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """What starts the machine; its console is the standard output."""

    @abstractmethod
    def _way(self) -> tuple[Sequence[str], str, int]:
        """What an ssh begins with, and the address and the port that it goes to."""

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process; None where it has not been started."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it."""
        with self._console.open("ab") as console:
            self._console_start = console.tell()
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=console, stderr=console, process_group=0
            )
        _, address, port = self._way()
        kind, key, *_ = (self._image / "known_host").read_text(encoding="ascii").split()
        (self.directory / "known_hosts").write_text(f"[{address}]:{port} {kind} {key}\n{address} {kind} {key}\n")

    def until_up(self) -> None:
        """Wait until its ssh server answers. Raises RuntimeError with the console's end."""
        self._until(lambda: bool(self.at(_BOOT_ID, base_s=1)))

    def _until(self, holds: Callable[[], bool]) -> None:
        end_s = time.monotonic() + _BOOT_S * self.factor
        while True:
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                if holds():
                    return
            if not self.running or time.monotonic() > end_s:
                raise RuntimeError(f"{self.name} does not come up: {self._console.read_text(errors='replace')[-2000:]}")
            time.sleep(1)

    def at(self, line: str, *, user: str = "root", base_s: float = 10) -> str:
        """The output of a shell's line in a login session; it may take ``base_s`` times the factor.

        Raises RuntimeError, TimeoutExpired.
        """
        before, address, port = self._way()
        words = self._options(base_s)
        key = str(self._image / "id_ed25519")
        bounded = f"timeout {round(base_s * self.factor)} bash -lc {shlex.quote(line)}"
        began, said = time.monotonic(), ""
        try:
            said = run(
                *before, "ssh", "-n", *words, "-i", key, "-p", str(port), f"{user}@{address}", bounded,
                timeout_s=base_s * self.factor + 30,
            )  # fmt: skip
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            said = f"FAILED {error}\n"
            if panic := _PANIC.search(self._console.read_bytes(), self._console_start):
                line = panic[0].decode("ascii", "replace")
                raise RuntimeError(f"the kernel of {self.name} panicked: {line} (see {self._console})") from error
            raise
        finally:
            with (self.directory / "commands.log").open("a", encoding="utf-8") as log:
                log.write(f"{user}@{self.name}$ {line}\n{said}[{time.monotonic() - began:.1f} s]\n")
        return said

    def _options(self, base_s: float) -> list[str]:
        """Words of ssh and scp: this host's key, and how long a connection may take."""
        known = f"UserKnownHostsFile={self.directory / 'known_hosts'}"
        options = (
            known, "BatchMode=yes", f"ConnectTimeout={round(base_s * self.factor)}", "LogLevel=ERROR",
            f"ServerAliveInterval={round(self.factor)}", f"ServerAliveCountMax={_UNANSWERED}",
        )  # fmt: skip
        return [word for option in options for word in ("-o", option)]

    def bring(self, source: Path, directory: str, base_s: float = 30) -> None:
        """Copy a directory of this machine into a directory there, as root. Raises RuntimeError, TimeoutExpired."""
        before, address, port = self._way()
        key, words = str(self._image / "id_ed25519"), self._options(base_s)
        there = f"root@{address}:{directory}"
        run(*before, "scp", "-qr", *words, "-i", key, "-P", str(port), source, there, timeout_s=base_s * self.factor)

    @property
    def prefix(self) -> Sequence[str]:
        """What a command begins with that reaches this host's ssh port."""
        return self._way()[0]

    def reached(self) -> dict[str, Any]:
        """An Ansible inventory's variables of this host."""
        _, address, port = self._way()
        return {"ansible_host": address, "ansible_port": port}

    def reboot(self) -> None:
        """Have the machine start anew, and wait for it. Raises RuntimeError."""
        before = self.at(_BOOT_ID)
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            self.at("systemctl reboot", base_s=1)
        self._until(lambda: self.at(_BOOT_ID, base_s=1) != before)

    def close(self) -> None:
        """Shut it down as its power switch does, or end it."""
        if self._process is None:
            return
        if self.running:
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                self.at("systemctl poweroff", base_s=1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S * self.factor)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Emulated(Machine):
    """The release's own kernel and initrd on a qemu without hardware virtualisation."""

    def __init__(
        self,
        name: str,
        directory: Path,
        image: Path,
        disk: Path,
        factor: float,
        lan: Mapping[str, int],
        *,
        counted: bool,
    ) -> None:
        """``lan`` has each machine's UDP port on the loopback.

        ``counted``: one CPU whose clock counts its instructions, one a nanosecond, while it computes: it does not see
        what else runs here.
        """
        super().__init__(name, directory, image, disk, factor)
        self._cpus = _COUNTED if counted else _CPUS
        (other,) = [port for each, port in lan.items() if each != name]
        self._lan = f"socket,id=lan,udp=127.0.0.1:{other},localaddr=127.0.0.1:{lan[name]}"
        self._port = free_port()
        self._monitor = directory / "monitor"

    def fresh(self) -> None:
        self.disk.unlink(missing_ok=True)
        run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", self._lower, self.disk)

    def key(self) -> None:
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(self.factor)
            monitor.connect(str(self._monitor))
            for line in ("sendkey a", "info version"):
                while not monitor.recv(4096).endswith(b"(qemu) "):
                    pass
                monitor.sendall(f"{line}\n".encode())

    def _way(self) -> tuple[Sequence[str], str, int]:
        return (), "127.0.0.1", self._port

    def _command(self) -> Sequence[str]:
        append = f"root=/dev/vda rw quiet console=ttyS0 systemd.hostname={self.name}"
        ssh = f"user,id=ssh,restrict=on,hostfwd=tcp:127.0.0.1:{self._port}-:22"
        return [
            "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-cpu", "max", *self._cpus,
            "-m", str(_MEMORY_MB), "-display", "none", "-serial", "stdio",
            "-monitor", f"unix:{self._monitor},server=on,wait=off",
            "-kernel", str(self._image / "vmlinuz"), "-initrd", str(self._image / "initrd.img"), "-append", append,
            "-drive", f"file={self.disk},if=virtio,format=qcow2,cache=unsafe",
            "-netdev", ssh, "-device", f"virtio-net,netdev=ssh,mac={mac(self.name, 0)}",
            "-netdev", self._lan, "-device", f"virtio-net,netdev=lan,mac={mac(self.name, 1)}",
        ]  # fmt: skip


class UserMode(Machine):
    """This machine's User Mode Linux on the release's disk, ``/run`` noexec as the release's initrd mounts it.

    One CPU and no cpuset: for a quick look at everything else.
    """

    def __init__(self, name: str, directory: Path, image: Path, disk: Path, factor: float, space: str) -> None:
        """``space`` is the network namespace with both machines' TAP devices."""
        super().__init__(name, directory, image, disk, factor)
        self._space = space
        self._registers = directory / "registers.so"
        self._memory = directory / "memory"

    def fresh(self) -> None:
        self.disk.unlink(missing_ok=True)  # the kernel makes it

    def key(self) -> None:
        raise RuntimeError("a User Mode Linux has no keyboard")

    def _way(self) -> tuple[Sequence[str], str, int]:
        return ("nsenter", f"--net=/run/netns/{self._space}", "--"), HOSTS[self.name], 22

    def start(self) -> None:
        self._memory.mkdir(exist_ok=True)
        if not self._memory.is_mount():
            run("mount", "-t", "tmpfs", "-o", f"size={_MEMORY_MB + 200}m", "tmpfs", self._memory)
        run("gcc", "-shared", "-fPIC", "-O2", "-o", self._registers, REGISTERS)
        super().start()

    def _command(self) -> Sequence[str]:
        return [
            "ip", "netns", "exec", self._space, "env", "-i", f"PATH={os.environ['PATH']}",
            f"LD_PRELOAD={self._registers}", f"TMPDIR={self._memory}", f"HOME={self._memory}",
            "linux.uml", f"mem={_MEMORY_MB}M", f"ubd0={self.disk},{self._lower}", "root=/dev/ubda", "rw",
            f"init={EARLY}", f"eth0=tuntap,tap-{self.name},{mac(self.name, 1)}", "con=null", "con0=fd:0,fd:1",
            f"systemd.hostname={self.name}",
        ]  # fmt: skip

    def close(self) -> None:
        super().close()
        subprocess.run(["umount", "--lazy", self._memory], check=False, capture_output=True)


@contextlib.contextmanager
def bridged() -> Iterator[str]:
    """A network namespace with a bridge and a TAP device for each host; its name."""
    space = f"debian-{os.getpid()}"
    run("ip", "netns", "add", space)
    try:
        run("ip", "-n", space, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", space, "address", "add", _CONTROLLER, "dev", "br0")
        run("ip", "-n", space, "link", "set", "br0", "up")
        for name in HOSTS:
            run("ip", "-n", space, "tuntap", "add", "dev", f"tap-{name}", "mode", "tap")
            run("ip", "-n", space, "link", "set", f"tap-{name}", "master", "br0", "up")
        yield space
    finally:
        subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)
