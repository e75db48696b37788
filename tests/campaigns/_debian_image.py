"""A disk with a fresh Debian or Ubuntu, its kernel and its initrd: made once a release by mmdebstrap, and kept."""

import shutil
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple

from campaigns._systemd_hosts import MIRROR, USER, prepare, run


class Release(NamedTuple):
    """A release: its suite and mirror, the version of its Python, and the packages that others have no need of."""

    suite: str
    python: str
    mirror: str = MIRROR
    components: str = "main"
    packages: tuple[str, ...] = ("linux-image-cloud-amd64",)
    #: A package with the archive's keys where Debian has none, and the fingerprint of the one that signs.
    keys: str = ""
    signed_by: str = ""


_UBUNTU: Final = "http://archive.ubuntu.com/ubuntu"
#: The releases that are tried.
RELEASES: Final = {
    "12": Release("bookworm", "3.11"),
    "13": Release("trixie", "3.13"),
    "ubuntu24.04": Release(
        "noble",
        "3.12",
        _UBUNTU,
        "main,universe",
        ("linux-image-virtual", "initramfs-tools", "apparmor", "netbase"),
        f"{_UBUNTU}/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
        "F6ECB3762474EDA9D21B7022871920D1991BC93C",
    ),
}
PACKAGES: Final = (
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "udev", "iproute2", "openssh-server", "python3",
    "python3-venv", "git", "ca-certificates", "sudo", "procps", "openmpi-bin", "libopenmpi-dev", "gcc", "libc6-dev",
)  # fmt: skip
#: For the other launchers, in a directory beside the disk: not installed, as most hosts have none of them.
LAUNCHERS: Final = ("mpich", "libmpich-dev", "pvm", "pvm-dev", "netbase")
#: The hosts' addresses on the network that they share, by name.
HOSTS: Final = {"head": "10.88.0.11", "desk2": "10.88.0.12"}
#: Starts systemd after it has done what an initrd does, for a kernel that is started without one.
EARLY: Final = "/usr/local/sbin/without-initrd"
_EARLY: Final = """\
#!/bin/sh
mount -t tmpfs -o nosuid,nodev,noexec,size=10%,mode=0755 tmpfs /run
exec /lib/systemd/systemd
"""
_LABEL: Final = "debian"
#: A shell's environment for root; this one may say where packages come from.
_ENVIRONMENT: Final = ("HOME=/var/tmp", "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
_IMAGE_S: Final = 3600.0
_SIZE: Final = "8G"
_NETWORKS: Final = Path("etc/systemd/network")


def mac(name: str, card: int) -> str:
    """The address of a host's network card: 0 is for ssh, 1 for the other host."""
    return f"52:54:00:88:0{card}:{list(HOSTS).index(name) + 1:02x}"


def image(directory: Path, release: str) -> Path:
    """The directory with ``disk.img``, ``vmlinuz``, ``initrd.img``, ``id_ed25519`` and ``known_host`` of a release.

    It is made if it is missing, which takes minutes and a network.
    """
    made = directory / (f"debian{release}" if release.isdigit() else release)
    partial = made.with_name(f"{made.name}.partial")
    if made.is_dir():
        return made
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    root = partial / "root"
    suite, _, mirror, components, packages, keys, signed_by = RELEASES[release]
    options = ["--variant=minbase", f"--components={components}", f"--include={','.join((*PACKAGES, *packages))}"]
    if keys:
        options.append(f"--keyring={_keyring(partial, keys, signed_by)}")
    # What it mounts and starts ends with it, also where the time is up.
    bounded = ("unshare", "--mount", "--", "timeout", "--kill-after=60", str(_IMAGE_S))
    run(*bounded, "mmdebstrap", *options, suite, root, mirror, timeout_s=_IMAGE_S + 120)
    disk(partial)
    partial.rename(made)
    return made


def _keyring(directory: Path, address: str, signed_by: str) -> Path:
    """The archive's keys, from a package that is taken for good where it has the key with this fingerprint."""
    package, keys = directory / "keys.deb", directory / "keys"
    with urllib.request.urlopen(address, timeout=60) as answer:
        package.write_bytes(answer.read())
    run("dpkg-deb", "--extract", package, keys)
    (keyring,) = keys.glob("usr/share/keyrings/*-archive-keyring.gpg")
    only = directory / "archive.gpg"
    export = 'gpg --homedir "$1" --no-default-keyring --keyring "$2" --export "$3" >"$4"'
    run("sh", "-c", export, "sh", directory, keyring, signed_by, only)
    return only


def disk(directory: Path) -> None:
    """Make the disk of ``directory/root``, which goes."""
    root = directory / "root"
    prepare(root)
    key = directory / "id_ed25519"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    for home in ("root", f"home/{USER}"):
        ssh = root / home / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(key.with_suffix(".pub"), ssh / "authorized_keys")
    run("chroot", root, "sh", "-c", f"chown -R {USER}: ~{USER}/.ssh")
    host_key = root / "etc/ssh/ssh_host_ed25519_key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key)
    shutil.copyfile(host_key.with_suffix(".pub"), directory / "known_host")
    _networks(root)
    (root / "etc/fstab").write_text(f"LABEL={_LABEL} / ext4 errors=remount-ro 0 1\n", encoding="ascii")
    early = root / EARLY[1:]
    early.write_text(_EARLY, encoding="ascii")
    early.chmod(0o755)
    run("chroot", root, "systemctl", "enable", "systemd-networkd", "ssh")
    for name in ("vmlinuz", "initrd.img"):
        kernel = max((root / "boot").glob(f"{name}-*"))
        shutil.copyfile(kernel, directory / name)
    run("mke2fs", "-q", "-t", "ext4", "-L", _LABEL, "-d", root, directory / "disk.img", _SIZE, timeout_s=_IMAGE_S)
    shutil.rmtree(root)


def inside(disk: Path, supply: Path, lines: str, timeout_s: float) -> str:
    """The output of lines of root's shell in the system of a disk, ``supply`` at ``/mnt``.

    It is as fast as this machine, and for what needs neither systemd nor a kernel of the disk's own: pip in emulation
    takes a quarter of an hour. Raises RuntimeError, TimeoutExpired.
    """
    root = disk.parent / "root"
    root.mkdir(exist_ok=True)
    here = "mount -o loop {disk} {root}; mount -t proc proc {root}/proc; mount --bind {supply} {root}/mnt"
    mounts = " && ".join(here.format(disk=disk, root=root, supply=supply).split("; "))
    chroot = f'{mounts} && exec env -i {" ".join(_ENVIRONMENT)} chroot {root} sh -ec "$1"'
    try:
        return run("unshare", "--mount", "--", "sh", "-c", chroot, "sh", lines, timeout_s=timeout_s)
    finally:
        run("sync", timeout_s=timeout_s)


def _networks(root: Path) -> None:
    """One image for all hosts: the card's address says which host it is."""
    for name, address in HOSTS.items():
        for card, line in enumerate(("DHCP=ipv4", f"Address={address}/24")):
            text = f"[Match]\nMACAddress={mac(name, card)}\n[Network]\n{line}\n"
            (root / _NETWORKS / f"10-{name}-{card}.network").write_text(text, encoding="ascii")
    lines = [f"{address} {name}" for name, address in HOSTS.items()]
    (root / "etc/hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]), encoding="ascii")
