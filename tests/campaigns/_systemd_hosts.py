"""Hosts with systemd as process 1 and an ssh server, on one machine: Debian by debootstrap, an overlay for each host.

The image is made once and kept. A host is a ``systemd-nspawn`` on a bridge in a network namespace of its own: it has
the other hosts and nothing else, so no package index. The controller's commands run in that namespace. Its ssh keys
are made for each run. Control groups are this machine's (version 1 where the machine has that), but for hosts that
have a kernel of their own (``_uml``).
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from campaigns._uml import Uml

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "python3-venv", "sudo", "iproute2", "procps",
    "openmpi-bin", "python3-mpi4py", "udev", "ca-certificates",
)  # fmt: skip
CONTROLLER = "10.88.0.1"
NETWORK = "10.88.0.0/24"
USER = "ada"
USER_UID = 2001
HOME = Path("/", "home", USER)
#: The commands that make and run the hosts, and the Debian package of each.
COMMANDS = {
    "debootstrap": "debootstrap", "systemd-nspawn": "systemd-container", "ssh": "openssh-client", "ip": "iproute2",
    "curl": "curl",
}  # fmt: skip
_IMAGE_S = 1800
BOOT_S = 120.0
_STOP_S = 30.0
#: systemd-nspawn mounts the controllers of version 1 read-only; on a real machine root may write there.
_WRITABLE = """\
[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=-/bin/sh -c 'for each in /sys/fs/cgroup/*; do mount -o remount,bind,rw $each; done'
"""
_HIERARCHIES = Path("/sys/fs/cgroup")


def run(*argv: str | Path, timeout_s: float = 60, stdin: str | None = None) -> str:
    """A command's output. Raises RuntimeError with what it said."""
    ended = subprocess.run(
        [*map(str, argv)], capture_output=True, text=True, timeout=timeout_s, check=False, input=stdin
    )
    if ended.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: status {ended.returncode}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def require(parser: argparse.ArgumentParser, commands: Mapping[str, str]) -> None:
    """End with a usage error without root, or without one of the commands, each given with its Debian package."""
    if os.geteuid():
        parser.error("needs root: namespaces, control groups and mounts")
    if missing := sorted({package for command, package in commands.items() if not shutil.which(command)}):
        parser.error(f"needs Debian's packages: apt-get install {' '.join(missing)}")


def image(directory: Path, mirror: str = MIRROR) -> Path:
    """The root of a fresh Debian, made if it is missing. Takes minutes, and a network, once."""
    root, partial = directory / SUITE, directory / f"{SUITE}.partial"
    if root.is_dir():
        return root
    directory.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    packages = ",".join(PACKAGES)
    run("debootstrap", "--variant=minbase", f"--include={packages}", SUITE, partial, mirror, timeout_s=_IMAGE_S)
    prepare(partial)
    partial.rename(root)
    return root


def prepare(root: Path) -> None:
    """What makes an image of a debootstrap: no machine's identity, an ordinary user, the same on all hosts."""
    for name in ("machine-id", "resolv.conf", "hostname"):
        (root / "etc" / name).unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("uninitialized\n", encoding="ascii")
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    run("chroot", root, "useradd", "--create-home", "--uid", str(USER_UID), "--shell", "/bin/bash", USER)
    shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)


class SystemdHosts:
    """Hosts by name, at 10.88.0.11 and up, until :meth:`close`. ``directory`` must not be on an overlay itself.

    Hosts without a kernel of their own that an earlier run left in ``directory`` are gone on with.
    """

    def __init__(
        self, directory: Path, base: Path, names: Sequence[str], kernels: Sequence[str] = (), boot_s: float = BOOT_S
    ) -> None:
        """``kernels`` are those of the names whose hosts have a kernel of their own; a host comes up in ``boot_s``."""
        self.directory, self._base, self._boot_s = directory, base, boot_s
        self.addresses = {name: f"10.88.0.{11 + at}" for at, name in enumerate(names)}
        self._kernels = {name: Uml(directory / name, name, self.addresses[name], f"tap-{name}") for name in kernels}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._spaces: list[str] = []
        self._mounts: list[Path] = []
        self.bridge = f"br-{os.getpid()}"
        try:
            self._keys()
            self._network()
            for name in names:
                self._root(name)
                self.boot(name)
        except BaseException:
            self.close()
            raise

    def _keys(self) -> None:
        self.key = self.directory / "id_ed25519"
        self.known_hosts = self.directory / "known_hosts"
        if not self.key.exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
            self.known_hosts.touch()

    def _network(self) -> None:
        self._space(self.bridge)
        run("ip", "-n", self.bridge, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.bridge, "address", "add", f"{CONTROLLER}/24", "dev", "br0")
        run("ip", "-n", self.bridge, "link", "set", "br0", "up")
        for name in self._kernels:
            tap = f"tap-{name}"
            run("ip", "-n", self.bridge, "tuntap", "add", "dev", tap, "mode", "tap")
            run("ip", "-n", self.bridge, "link", "set", tap, "master", "br0", "up")
        for at, (name, address) in enumerate(self.addresses.items()):
            if name in self._kernels:
                continue
            space = self.space(name)
            self._space(space)
            link = ("link", "add", f"port{at}", "type", "veth", "peer", "name", "host0", "netns", space)
            run("ip", "-n", self.bridge, *link)
            run("ip", "-n", self.bridge, "link", "set", f"port{at}", "master", "br0", "up")
            run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "host0")
            run("ip", "-n", space, "link", "set", "host0", "up")

    def space(self, name: str) -> str:
        """The name of a host's network namespace."""
        return f"{self.bridge}-{name}"

    def _space(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._spaces.append(name)
        run("ip", "-n", name, "link", "set", "lo", "up")

    def root(self, name: str) -> Path:
        """A host's file system, as it is mounted here."""
        return self.directory / name / "root"

    def written(self, name: str) -> Path:
        """What a host's file system has that the image has not."""
        return self.directory / name / "upper"

    def _root(self, name: str) -> None:
        for each in ("upper", "work", "root"):
            (self.directory / name / each).mkdir(parents=True, exist_ok=True)
        layers = f"lowerdir={self._base},upperdir={self.written(name)},workdir={self.directory / name / 'work'}"
        run("mount", "-t", "overlay", "overlay", "-o", layers, self.root(name))
        self._mounts.append(self.root(name))
        etc = self.root(name) / "etc"
        if (etc / "hostname").exists():  # a host that is gone on with
            return
        lines = [f"{address} {each}" for each, address in self.addresses.items()]
        (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]), encoding="ascii")
        (etc / "hostname").write_text(f"{name}\n", encoding="ascii")
        unit = etc / "systemd/system/writable-groups.service"
        unit.write_text(_WRITABLE, encoding="ascii")
        wanted = etc / "systemd/system/sysinit.target.wants"
        wanted.mkdir(exist_ok=True)
        (wanted / unit.name).symlink_to(f"../{unit.name}")
        (etc / "systemd/system/systemd-firstboot.service").symlink_to("/dev/null")
        ssh = self.root(name) / "root/.ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        (ssh / "authorized_keys").write_text(self.key.with_suffix(".pub").read_text(encoding="ascii"), encoding="ascii")
        host_key = etc / "ssh/ssh_host_ed25519_key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key)
        kind, key, *_ = host_key.with_suffix(".pub").read_text(encoding="ascii").split()
        with self.known_hosts.open("a", encoding="ascii") as file:
            file.write(f"{self.addresses[name]} {kind} {key}\n")
        if name in self._kernels:
            self._kernels[name].prepare(self.root(name))

    def boot(self, name: str, program: Sequence[str] = ()) -> None:
        """Start a host, and wait until its ssh server answers; its first process is systemd, or the ``program``.

        Raises RuntimeError.
        """
        log = (self.directory / name / "console.log").open("ab")
        own = self._kernels.get(name)
        command = own.command(self.root(name), self.bridge) if own else self._container(name, program)
        self._running[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        end_s = time.monotonic() + self._boot_s
        while True:
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                self.at(name, "true", timeout_s=10)
                return
            if self._running[name].poll() is not None or time.monotonic() > end_s:
                said = (self.directory / name / "console.log").read_text(errors="replace")
                raise RuntimeError(f"{name} does not come up: {said[-2000:]}")
            time.sleep(0.3)

    def _container(self, name: str, program: Sequence[str]) -> list[str | Path]:
        return [
            *self._grouped(name), "systemd-nspawn", "-q", "--register=no", "--keep-unit", "-D", self.root(name),
            f"--network-namespace-path=/run/netns/{self.space(name)}", f"--hostname={name}", "--console=pipe",
            "--resolv-conf=off", "--timezone=off", *(program or ["-b"]),
        ]  # fmt: skip

    def _grouped(self, name: str) -> list[str]:
        """What starts a command in control groups of this host's own: side by side, hosts would share their units'."""
        places = []
        for hierarchy in sorted(_HIERARCHIES.glob("*/cgroup.procs")):
            group = hierarchy.parent / self.bridge / name
            group.mkdir(parents=True, exist_ok=True)
            places.append(str(group / "cgroup.procs"))
            for each in (group.parent, group):
                for setting in ("cpuset.cpus", "cpuset.mems"):  # of version 1: empty until they are said
                    if (each / setting).exists():
                        (each / setting).write_text((each.parent / setting).read_text(encoding="ascii"), "ascii")
        joins = 'until [ $# -eq 0 ] || [ $1 = -- ]; do echo $$ >$1; shift; done; shift; exec "$@"'
        return ["sh", "-c", joins, "sh", *places, "--"]

    def halt(self, name: str) -> None:
        """Shut a host down, as its power switch does; what it wrote stays."""
        process = self._running.pop(name)
        if name in self._kernels:
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                self.at(name, "systemctl poweroff", timeout_s=10)
        else:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # of a kernel of its own all processes are this machine's too
            process.wait()

    def ssh(self, name: str) -> list[str]:
        """The command that runs what follows on a host, as root."""
        options = (f"UserKnownHostsFile={self.known_hosts}", "BatchMode=yes", "ConnectTimeout=5", "LogLevel=ERROR")
        words = [word for option in options for word in ("-o", option)]
        return [*self.inside(), "ssh", "-n", *words, "-i", str(self.key), f"root@{self.addresses[name]}"]

    def at(self, name: str, command: str, timeout_s: float = 60) -> str:
        """The output of a shell's line, run on a host as root. Raises RuntimeError."""
        return run(*self.ssh(name), command, timeout_s=timeout_s)

    def inside(self) -> list[str]:
        """What a command of the controller begins with: it is on the hosts' network, and on no other."""
        return ["nsenter", f"--net=/run/netns/{self.bridge}", "--"]

    def controller(
        self, argv: Sequence[str | Path], environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the controller, its output kept; it is ended with all that it started when time is up."""
        bounded = ["timeout", "--kill-after=5", str(timeout_s), *map(str, argv)]
        return subprocess.run(
            [*self.inside(), *bounded], env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout_s + 30, check=False,
        )  # fmt: skip

    def close(self) -> None:
        """End the hosts; take away their mounts, networks and groups. What they wrote goes with the directory."""
        for name in list(self._running):
            self.halt(name)
        for kernel in self._kernels.values():
            kernel.close()
        for mount in reversed(self._mounts):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        for space in reversed(self._spaces):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)
        for top in _HIERARCHIES.glob(f"*/{self.bridge}"):
            for directory, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
