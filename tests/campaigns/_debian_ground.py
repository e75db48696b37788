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
from campaigns._debian_image import HOSTS, LAUNCHERS, RELEASES, inside
from campaigns._debian_image import image as made_image
from campaigns._debian_machines import UML_MODULES, Emulated, Machine, UserMode, free_port
from campaigns._systemd_hosts import HOME, USER, run

HEAD, DESK = HOSTS
#: Where the machines have a clone of this checkout.
CHECKOUT: Final = "/srv/cosched"
_WHEELS_S: Final = 1800.0
#: Where the node of the scheduler's own host lies.
ASIDE: Final = {"etc": "/etc/cosched-node", "state": "/var/lib/cosched-node", "run": "/run/cosched-node"}
_ENDED: Final = ("completed", "failed", "cancelled", "timed out", "launch failed", "node lost")
#: A job's program: each rank takes part in a sum; with an argument, only once that file is there on rank 0's node. With
#: a number after it, ranks compute and talk to each other so often before.
_PROGRAM: Final = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char host[64] = {0}, hosts[64 * 64];
    int rank, size, number, sum, go = argc < 2;
    long rounds = argc > 2 ? atol(argv[2]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    gethostname(host, sizeof host - 1);
    MPI_Gather(host, 64, MPI_CHAR, hosts, 64, MPI_CHAR, 0, MPI_COMM_WORLD);
    number = rank + 1;
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (; rounds > 0; rounds--) {
        for (volatile long at = 0; at < 200000; at++) continue;
        MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    while (!go) {
        if (rank == 0) go = access(argv[1], F_OK) == 0;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!go) usleep(100000);
    }
    if (rank == 0) {
        printf("verified %d %d", size, sum);
        for (int at = 0; at < size; at++) printf(" %s", hosts + 64 * at);
        printf("\n");
    }
    return MPI_Finalize();
}
"""
#: Job scripts by name: what ends by itself, what talks before, what waits for a file, and what computes until there is
#: that file.
_SCRIPTS: Final = {
    "once": "exec mpirun ./ranks\n",
    "talks": "exec mpirun ./ranks / 1000\n",
    "waits": "exec mpirun ./ranks $1\n",
    "burns": f"while [ ! -e {HOME}/go ]; do :; done; echo burnt\n",
    "holds": f"echo held >/dev/shm/kept; while [ ! -e {HOME}/go ]; do sleep 1; done; cat /dev/shm/kept\n",
}


def work_of(cache: Path, release: str, *, user_mode: bool) -> Path:
    """Where the disks of the last run are."""
    return cache / f"run{release}-{'user-mode' if user_mode else 'qemu'}"


class Ground:
    """Two machines of one release, ``head`` and ``desk2``, and the directory of their disks."""

    def __init__(self, release: str, cache: Path, factor: float, space: str | None, *, counted: bool = False) -> None:
        """The image is made where it is missing. With ``space``, a network namespace, they are User Mode Linux.

        ``counted``: see :class:`Emulated`.
        """
        self.release, self.factor = release, factor
        image = made_image(cache, release)
        self.work = work_of(cache, release, user_mode=space is not None)
        self.disk, self.supply = self.work / "disk.img", self.work / "supply"
        self._image = image / "disk.img"
        self.image = image
        self.machines: dict[str, Machine] = {}
        lan = {name: free_port(socket.SOCK_DGRAM) for name in HOSTS}
        for name in HOSTS:
            place = (name, self.work / name, image, self.disk, factor)
            self.machines[name] = UserMode(*place, space) if space else Emulated(*place, lan, counted=counted)
        self.head, self.desk = self.machines.values()

    def supplied(self) -> None:
        """A disk as the image has it, and what is brought to it from this checkout's commit."""
        python = RELEASES[self.release].python
        shutil.rmtree(self.supply, ignore_errors=True)
        self.supply.mkdir(parents=True)
        run("git", "-C", ROOT, "bundle", "create", "-q", self.supply / "cosched.bundle", "HEAD", timeout_s=_WHEELS_S)
        for name, extra in (("wheels", "scheduler"), ("readme-wheels", "dev")):
            made = (ROOT / "lock/wheelhouse.py", self.supply / name, "--python", python, "--extra", extra)
            run(sys.executable, *made, timeout_s=_WHEELS_S)
        run("cp", "--sparse=always", self._image, self.disk, timeout_s=_WHEELS_S)
        if isinstance(self.head, UserMode):  # a lab's network needs some
            shutil.copytree(UML_MODULES, self.supply / "modules")
            self.laid("cp -r /mnt/modules/. /usr/lib/modules/")

    def laid(self, lines: str) -> str:
        """What lines of root's shell say in the system of the disk that both machines start from."""
        return inside(self.disk, self.supply, lines, _WHEELS_S)

    def debs(self) -> Path:
        """A directory with the packages of the launchers that the image has not; from a network, once."""
        kept = self._image.with_name("debs")
        if not kept.is_dir():
            partial = self._image.with_name("debs.partial")
            (partial / "partial").mkdir(parents=True, exist_ok=True)
            copy = self.work / "copy" / "disk.img"
            copy.parent.mkdir(exist_ok=True)
            run("cp", "--sparse=always", self._image, copy, timeout_s=_WHEELS_S)
            names = f"$(apt-cache pkgnames | grep -xE '{'|'.join(LAUNCHERS)}')"  # a release need not have all
            get = f"apt-get -qq install -y --download-only --no-install-recommends {names}"
            resolv = "cat >/etc/resolv.conf <<'END'\n" + Path("/etc/resolv.conf").read_text(encoding="ascii") + "END\n"
            inside(copy, partial, f"{resolv}apt-get -qq update; {get} -o Dir::Cache::archives=/mnt", _WHEELS_S)
            shutil.rmtree(copy.parent)
            shutil.rmtree(partial / "partial")
            partial.rename(kept)
        return kept

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

    def render(self, name: str) -> str:
        """The command that renders a node, in root's home directory; that of the scheduler's host at other places."""
        places = " ".join(f"--{key} {place}" for key, place in ASIDE.items()) if name == HEAD else ""
        return f"cosched node render --name {name} --cluster office --scheduler {HEAD} {places} --into /"

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

    def programs(self, *names: str) -> None:
        """Compile the job's program on these machines, for the ordinary user."""
        for name in names:
            machine = self.machines[name]
            machine.at(f"cat >ranks.c <<'END'\n{_PROGRAM}END\nmpicc -O1 -o ranks ranks.c", user=USER, base_s=20)
            for script, text in _SCRIPTS.items():
                machine.at(f"cat >{script}.sh <<'END'\n#!/bin/sh\n{text}END", user=USER)

    def submit(self, arguments: str) -> int:
        """Submit a job; its number."""
        return int(self.cosched(f"submit {arguments}")["job_id"])

    def job(self, number: int) -> dict[str, Any]:
        """What the scheduler has of a job."""
        found: dict[str, Any] = self.cosched(f"show {number}")
        return found

    def runs(self, number: int) -> None:
        """Wait until a job runs."""
        self.until(lambda: self._state(number) == "running", f"job {number} runs")

    def _state(self, number: int) -> str:
        state = str(self.job(number)["state"])
        need(state not in _ENDED, f"job {number}: {state}")
        return state

    def places(self, *names: str) -> list[str]:
        """The host of each task of a job that has all CPUs of these nodes, sorted."""
        procs = {node["name"]: int(node["procs"]) for node in self.cosched("nodes")["nodes"]}
        return sorted(name for name in names for _ in range(procs[name]))

    def output(self, number: int) -> list[str]:
        """The words of a job that must complete, which is waited for."""
        self.until(lambda: self.job(number)["state"] in _ENDED, f"job {number} ends")
        job = self.job(number)
        need(job["state"] == "completed", f"job {number}: {job['state']}: {job.get('failure') or job.get('reason')}")
        return self.head.at(f"cosched logs {number}", user=USER).split()

    def verified(self, number: int, places: list[str]) -> None:
        """Wait for the end of a job of ranks at these places; each must have taken part."""
        word, size, total, *hosts = self.output(number)
        tasks = len(places)
        need((word, size, total) == ("verified", str(tasks), str(tasks * (tasks + 1) // 2)), f"job {number}: {total}")
        need(sorted(hosts) == places, f"job {number} ran on {hosts}")
