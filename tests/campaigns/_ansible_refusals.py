"""The campaign ``ansible``: what preflight refuses, each provoked on a host, and each taken back again."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from campaigns._ansible_lab import DESKS, HEAD, Lab, as_before, changed, need
from campaigns._systemd_hosts import USER

FAKED = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
ONLY_SSH = ("sh", "-c", "mkdir -p /run/sshd; exec /usr/sbin/sshd -D")


def refused(lab: Lab, wheels: Path, old_python: Path | None) -> None:
    """All of it, on hosts on which nothing was installed yet, and nothing is afterwards."""
    before = {name: lab.state(name) for name in (HEAD, *DESKS)}
    on_hosts(lab, wheels)
    without_python(lab)
    other_users(lab, wheels, old_python)
    on_the_controller(lab, wheels)
    lab.inventory(DESKS, wheels)
    for name, was in before.items():
        as_before(name, was, lab.state(name))


def says(lab: Lab, *words: str, extra: dict[str, object] | None = None) -> None:
    """site.yml ends in the preflight with these words, and changes nothing."""
    recap = lab.play("site", *(("-e", json.dumps(extra)) if extra else ()), fails=True)
    need(not changed(recap), f"changed: {changed(recap)}")
    said = " ".join(lab.said.split())
    for each in words:
        need(each in said, f"not said: {each!r}\n{lab.said[-6000:]}")


def on_hosts(lab: Lab, wheels: Path) -> None:
    """A different fault on each host; one run names all of them."""
    lab.inventory(DESKS, wheels)
    with (
        listening(lab, "desk1"),
        meanwhile(lab, "desk1", "mount -t tmpfs -o size=64m tmpfs /opt", "umount /opt"),
        without_systemd(lab, "desk2"),
        meanwhile(lab, "desk3", "mount -t tmpfs tmpfs /sys/fs/cgroup", "umount /sys/fs/cgroup"),
        ahead(lab, "desk3"),
    ):
        says(
            lab,
            "head: no account for nobody-knows: make it, with the uid that it has on the other hosts",
            "desk1: another program listens on TCP port 7421: 'ss -ltnp' on it says which",
            "MiB are free below /opt; needed are 1024: make room",
            "desk2: systemd does not run it (process 1 is sshd)",
            "desk3: there are no control groups that divide CPU time below /sys/fs/cgroup",
            "s ahead of the controller's, more than 5",
            extra={"cosched_users": [USER, "nobody-knows"]},
        )


def without_python(lab: Lab) -> None:
    """Nothing can be run in its place, and Ansible itself can do nothing there."""
    with meanwhile(lab, "desk1", "mount --bind /dev/null /usr/bin/python3.11", "umount /usr/bin/python3.11"):
        says(lab, "desk1: there is no /usr/bin/python3: 'apt-get install python3' on it")


def other_users(lab: Lab, wheels: Path, old_python: Path | None) -> None:
    """A user with another uid on one desk; an old Python on another, where there is one to try it with."""
    with meanwhile(lab, "desk2", f"usermod -u 2100 {USER}", f"usermod -u 2001 {USER}"):
        says(lab, f"desk2: {USER} has uid 2100 here and 2001 on head", f"'usermod -u 2001 {USER}'")
    if old_python is None:
        print("  an old Python: not tried (--old-python)", flush=True)
        return
    there = lab.hosts.root("desk3") / str(old_python)[1:]
    left_out = shutil.ignore_patterns("test", "site-packages", "__pycache__", "*.a", "config-*", "share", "include")
    shutil.copytree(old_python, there, ignore=left_out, symlinks=True)
    try:
        interpreter = f"{old_python}/bin/python3"
        lab.inventory(DESKS, wheels, desk3={"cosched_python": interpreter})
        says(lab, f"desk3: {interpreter} is Python 3.", "needed is 3.11 or later: bring it to Debian 12 or later")
    finally:
        shutil.rmtree(there)


def on_the_controller(lab: Lab, wheels: Path) -> None:
    """A wheelhouse for other hosts, or without the scheduler's part, and no command that signs."""
    other = lab.work / "other-wheels"
    other.mkdir()
    for path in wheels.iterdir():
        if "-cp311-cp311-" not in path.name:
            (other / path.name).symlink_to(path)
    requirements = (wheels / "requirements.txt").read_text()
    (other / "requirements.txt").unlink()
    (other / "requirements.txt").write_text(
        requirements.replace("cosched-testbed[scheduler,local-load]", "cosched-testbed")
    )
    lab.inventory(DESKS, other)
    says(
        lab, f"desk1: {other} has nothing for Python 3.11 on x86_64", "--python 3.11 --machine x86_64",
        f"head: {other} was made without 'scheduler'",
    )  # fmt: skip
    lab.inventory(DESKS, wheels)
    says(lab, "controller: '/nowhere/cosched --version' does not run", extra={"cosched_command": "/nowhere/cosched"})
    nothing = str(lab.work / "hosts")
    says(lab, f"controller: {nothing} must have one cosched_testbed-*.whl", extra={"cosched_wheelhouse": nothing})


@contextmanager
def meanwhile(lab: Lab, name: str, line: str, undo: str) -> Iterator[None]:
    """A line of root's shell changes a host while the block lasts, and another takes that back."""
    lab.hosts.at(name, line)
    try:
        yield
    finally:
        lab.hosts.at(name, undo)


@contextmanager
def listening(lab: Lab, name: str) -> Iterator[None]:
    """Something else listens on the agent's port."""
    server = "systemd-run --quiet --unit=other python3 -m http.server 7421 --directory /usr/share/doc"
    with meanwhile(lab, name, server, "systemctl stop other"):
        lab.until(lambda: "7421" in lab.hosts.at(name, "ss -ltn"), "the other program listens")
        yield


@contextmanager
def ahead(lab: Lab, name: str) -> Iterator[None]:
    """A clock that is an hour ahead for every program that ssh starts there (sshd itself bears no such library)."""
    root = lab.hosts.root(name)
    library, settings = root / "usr/lib/faked.so", root / "etc/environment"
    was = settings.read_bytes() if settings.exists() else None
    shutil.copy(FAKED, library)
    settings.write_text("LD_PRELOAD=/usr/lib/faked.so\nFAKETIME=+3600\n")
    try:
        yield
    finally:
        if was is None:
            settings.unlink()
        else:
            settings.write_bytes(was)
        library.unlink()


@contextmanager
def without_systemd(lab: Lab, name: str) -> Iterator[None]:
    """A host that was started with an ssh server as its first process."""
    lab.hosts.halt(name)
    lab.hosts.boot(name, ONLY_SSH)
    try:
        yield
    finally:
        lab.hosts.halt(name)
        lab.hosts.boot(name)
