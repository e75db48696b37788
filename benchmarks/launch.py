"""From ``submit`` to the first rank that runs, on four nodes of a lab, beside plain ``mpirun`` on the same nodes.

``plain`` is Open MPI's own launch with the cheapest remote shell there is, ``nsenter`` into the other nodes' networks:
no daemon, no identity, no control group. ``ssh`` is the same with its own remote shell, between real servers with keys
and nothing else to do. ``api`` is a submission over the service's socket, ``command`` the whole process ``cosched
submit``. One of each in turn; the first round warms up. Every rank prints the time at which it runs, and the earliest
counts. Needs root, for a lab of tier 1 with namespaces that ``nsenter`` may enter, and Debian's openssh-server.

    ./run bench launch [ROUNDS]
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.agent import processes
from benchmarks.measure import machine, p99, ratios, spread, until
from cosched.apps.experiments.jobs import ENDED
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.wire.api import Submission

RANK = "sh -c 'date +%s%N'"
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def plain(lab: Lab, folder: Path, shell: str) -> float:
    """Seconds of a plain ``mpirun`` from node 1 until the first rank runs; ``shell`` takes it to the other nodes."""
    environment = {
        "PATH": PATH,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_agent": shell,
        "PRTE_MCA_prte_default_hostfile": str(folder / "hosts"),
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    first = lab.nodes[0]
    command = [str(folder / "shell"), first, f"mpirun {RANK}"]
    began_ns = time.time_ns()
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if ended.returncode:
        raise SystemExit(f"plain mpirun failed: {ended.stderr}")
    return _first(ended.stdout, began_ns)


def prepare_plain(lab: Lab, folder: Path) -> None:
    """The host file and the remote shell of the plain launch."""
    (folder / "hosts").write_text("".join(f"{node} slots=1\n" for node in lab.nodes))
    agents = processes(lab)["agent"]
    cases = "\n".join(f"{node}) pid={pid} ;;" for pid, node in agents.items())
    shell = folder / "shell"
    shell.write_text(
        f'#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}\nesac\nexec nsenter -t $pid -n -u sh -c "$*"\n',
        encoding="utf-8",
    )
    shell.chmod(0o755)


def start_ssh(lab: Lab, folder: Path, ended: ExitStack) -> str:
    """A server on every node; returns the remote shell that reaches them with a key."""
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True, timeout=60)
    host_key = (folder / "host_key.pub").read_text()
    settings = folder / "sshd_config"
    settings.write_text(
        f"Port 22\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/key.pub\nPidFile none\nUsePAM no\nUseDNS no\n"
        "StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
    )
    (folder / "known_hosts").write_text("".join(f"{node} {host_key}" for node in lab.nodes))
    addresses = {each["name"]: each["address"] for each in lab.state["nodes"]}
    (folder / "ssh_config").write_text(
        "".join(f"Host {node}\n  HostName {addresses[node]}\n  HostKeyAlias {node}\n" for node in lab.nodes)
        + f"Host *\n  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
        "  BatchMode yes\n"
    )
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd confines itself before it knows who calls
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
    if sshd is None:
        raise SystemExit("needs sshd (Debian: openssh-server)")
    for pid in processes(lab)["agent"]:
        command = ["nsenter", "-t", str(pid), "-n", "-u", sshd, "-D", "-f", str(settings)]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ended.callback(server.wait)
        ended.callback(server.terminate)
    shell = f"ssh -F {folder}/ssh_config"

    def reached(node: str) -> bool:
        reach = [str(folder / "shell"), lab.nodes[0], f"{shell} {node} true"]
        return not subprocess.run(reach, capture_output=True, timeout=60, check=False).returncode

    until(lambda: all(map(reached, lab.nodes[1:])), "all nodes to be reached over ssh", 30, 0.2)
    return shell


def by_api(client: Client) -> float:
    """Seconds from a submission over the socket until the first rank runs."""
    began_ns = time.time_ns()
    job = client.submit(
        Submission(
            script=f"#!/bin/sh\nexec mpirun {RANK}\n",
            tasks=4,
            time_limit_s=60,
            directory="/",
            environment={"PATH": PATH},
        )
    )
    return _first(_output(client, job.job_id), began_ns)


def by_command(lab: Lab, client: Client, folder: Path) -> float:
    """Seconds from the start of the process ``cosched submit`` until the first rank runs."""
    script = folder / "job.sh"
    script.write_text(f"#!/bin/sh\nexec mpirun {RANK}\n")
    command = [sys.executable, "-m", "cosched.apps.cli.main", "submit", "-n", "4", "--time", "60s", str(script)]
    environment = {**os.environ, "PATH": PATH, "COSCHED_LAB": lab.name}
    began_ns = time.time_ns()
    ended = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=True)
    number = next(int(word) for word in ended.stdout.replace(":", " ").split() if word.isdigit())
    return _first(_output(client, number), began_ns)


def _output(client: Client, job_id: int) -> str:
    until(lambda: client.wait(job_id, 30).state in ENDED, f"the end of job {job_id}", 60, 0.0)
    if (job := client.job(job_id)).state != "completed":
        raise SystemExit(f"job {job_id} {job.state}: {job.failure}")
    return client.output(job_id, "stdout").data.decode()


def _first(output: str, began_ns: int) -> float:
    return (min(map(int, output.split())) - began_ns) / 1e9


def main() -> None:
    """Measure, and print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    taken: dict[str, list[float]] = {"plain": [], "ssh": [], "api": [], "command": []}
    with (
        tempfile.TemporaryDirectory() as name,
        Lab.up(nodes=4, name=f"launch-{os.getpid()}") as lab,
        lab.client() as client,
        ExitStack() as ended,
    ):
        if lab.tier != 1:
            raise SystemExit(f"needs a lab of tier 1: {lab.why}")
        folder = Path(name)
        prepare_plain(lab, folder)
        ssh = start_ssh(lab, folder, ended)
        for round_ in range(rounds + 1):
            once = (
                plain(lab, folder, str(folder / "shell")),
                plain(lab, folder, ssh),
                by_api(client),
                by_command(lab, client, folder),
            )
            if round_:
                for values, value in zip(taken.values(), once, strict=True):
                    values.append(value)
    print(f"{machine()}; {rounds} rounds, one of each in turn\n")
    print("| launch | median s [lowest … highest] | p99 s | × plain, round by round |\n|---|---|---|---|")
    for name, values in taken.items():
        print(f"| {name} | {spread(values)} | {p99(values):.3g} | {spread(ratios(values, taken['plain']))} |")
    print("\n| promised: 1.3 × plain plus 150 ms | at most s | api | command |\n|---|---|---|---|")
    for base in ("plain", "ssh"):
        for what, figure in (("median", statistics.median), ("p99", p99)):
            most_s = 1.3 * figure(taken[base]) + 0.15
            found = [figure(taken[launch]) for launch in ("api", "command")]
            told = " | ".join(f"{value:.3g} {'kept' if value <= most_s else 'broken'}" for value in found)
            print(f"| {what}, beside {base} | {most_s:.3g} | {told} |")


if __name__ == "__main__":
    main()
