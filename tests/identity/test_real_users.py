"""What one real user of this machine can do to another's jobs, and to the node, through his own: nothing.

A scheduler as a process, a real agent and guard, two accounts made for the test.
"""

import contextlib
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.agents import Cluster as Nodes
from kit.waiting import BOUND_S

from cosched.client.client import Client
from cosched.client.transport import Transport
from cosched.wire.api import JobDoc

pytestmark = pytest.mark.xdist_group("desk")

ENDED = {"completed", "failed", "cancelled", "timed out", "launch failed", "node lost"}


class Desk:
    """One node, its scheduler, and the accounts ``ada`` and ``bob`` (by names of their own)."""

    names: tuple[str, ...] = ("a",)

    def __init__(self) -> None:
        self.base = Path("/var/tmp") / f"cosched-{uuid.uuid4().hex[:8]}"
        self.base.mkdir(mode=0o755)
        self.users: list[str] = []
        self.nodes = Nodes(self.base / "lab", f"cosched-test-{uuid.uuid4().hex[:12]}")
        self.process: subprocess.Popen[bytes] | None = None
        self.client = Client(Transport(str(self.base / "s.sock")))
        self.socket = self.base / "s.sock"

    def begin(self) -> None:
        tag = uuid.uuid4().hex[:6]
        for name in ("ada", "bob"):
            account = f"cs{name}{tag}"
            home = self.base / name
            made = ["useradd", "--create-home", "--home-dir", str(home), "--shell", "/bin/sh", account]
            subprocess.run(made, check=True, capture_output=True, timeout=BOUND_S)
            self.users.append(account)
            home.chmod(0o700)
        self.ada, self.bob = self.users
        settings = self.base / "cluster.yaml"
        settings.write_text(
            json.dumps(
                {
                    "name": "test", "nodes": list(self.names), "state": str(self.base / "journal"),
                    "identity": str(self.nodes.identity), "heartbeat": "200ms", "pass_interval": "10ms",
                    "listen": {"socket": str(self.socket), "address": "127.0.0.1", "port": self.nodes.port},
                }
            )
        )  # fmt: skip
        self.log = self.base / "scheduler.log"
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "cosched.apps.cli.main", "scheduler", "--config", str(settings)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.make_nodes()
        self.node = self.nodes.nodes["a"]
        wait_for(self.socket.exists, "the scheduler to listen")
        wait_for(lambda: {each.state for each in self.client.nodes()} == {"up"}, "the nodes to join")

    def make_nodes(self) -> None:
        self.nodes.node("a")

    def curl(self, user: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Ask the scheduler as a real process of that user."""
        entry = pwd.getpwnam(user)
        become = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
        call = ["curl", "-sS", "-m", "30", "-w", "\n%{http_code}", "-X", method, "--unix-socket", str(self.socket)]
        data = ["--data-binary", "@-"] if body is not None else []
        ended = subprocess.run(
            [*become, *call, *data, f"http://localhost{path}"],
            input=json.dumps(body) if body is not None else "",
            capture_output=True, text=True, timeout=BOUND_S, check=True,
        )  # fmt: skip
        text, _, status = ended.stdout.rpartition("\n")
        return int(status), json.loads(text) if text.startswith("{") else text

    def submit(self, user: str, script: str, **more: Any) -> int:
        given = {"script": f"#!/bin/sh\n{script}\n", "directory": pwd.getpwnam(user).pw_dir} | more
        status, job = self.curl(user, "POST", "/v1/jobs", given)
        assert status == 201, job
        assert job["user"] == user
        return int(job["job_id"])

    def ended(self, job_id: int) -> JobDoc:
        job = self.client.wait(job_id, BOUND_S)
        assert job.state in ENDED, job
        return job

    def ran(self, user: str, script: str, **more: Any) -> tuple[JobDoc, str, str]:
        """A job's end, its output and its error output."""
        job = self.ended(self.submit(user, script, **more))
        texts = []
        for stream in ("stdout", "stderr"):
            status, text = self.curl(user, "GET", f"/v1/jobs/{job.job_id}/output?stream={stream}")
            texts.append(text if status == 200 and isinstance(text, str) else "")
        return job, texts[0], texts[1]

    def close(self) -> None:
        try:
            self.client.close()
            if self.process is not None:
                self.process.terminate()
                try:
                    self.process.wait(BOUND_S)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait(BOUND_S)
            self.nodes.close()
        finally:
            for user in self.users:
                subprocess.run(["userdel", "--force", user], check=False, capture_output=True, timeout=BOUND_S)
            shutil.rmtree(self.base, ignore_errors=True)


def wait_for(condition: Any, what: str) -> None:
    end_s = time.monotonic() + BOUND_S
    while True:
        with contextlib.suppress(Exception):
            if condition():
                return
        assert time.monotonic() < end_s, f"waited {BOUND_S:g} s for {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    if os.geteuid() != 0:
        pytest.skip("needs root: accounts, and a guard that becomes them")
    for command in ("useradd", "setpriv", "curl"):
        if shutil.which(command) is None:
            pytest.skip(f"needs {command}")
    made = Desk()
    try:
        made.begin()
        yield made
    finally:
        made.close()


def test_a_job_is_its_submitter_with_no_way_to_more(desk: Desk) -> None:
    job, said, error = desk.ran(
        desk.ada, "id -un; id -G; grep -E '^(NoNewPrivs|CapEff|CapPrm)' /proc/self/status; echo $HOME; umask; pwd"
    )
    assert job.state == "completed", (job, error)
    entry = pwd.getpwnam(desk.ada)
    lines = said.splitlines()
    assert lines[:2] == [desk.ada, str(entry.pw_gid)]
    assert {line.split()[0]: int(line.split()[1], 16) for line in lines[2:5]} == {
        "CapPrm:": 0, "CapEff:": 0, "NoNewPrivs:": 1,
    }  # fmt: skip
    assert lines[5] == entry.pw_dir


def test_root_runs_nothing_where_the_lab_does_not_say_so(desk: Desk) -> None:
    status, problem = desk.curl("root", "POST", "/v1/jobs", {"script": "#!/bin/sh\nid\n", "directory": "/"})
    assert (status, problem["found"]) == (403, "root")


def test_bob_sees_nothing_of_what_ada_writes(desk: Desk) -> None:
    job_id = desk.submit(desk.ada, "echo a secret; echo another >&2; sleep 600", environment={"SECRET": "hush"})
    try:
        path = f"/v1/jobs/{job_id}"
        wait_for(lambda: desk.curl(desk.ada, "GET", f"{path}/output")[1] == "a secret\n", "her output")
        for stream in ("stdout", "stderr"):
            status, problem = desk.curl(desk.bob, "GET", f"{path}/output?stream={stream}")
            assert (status, problem["found"]) == (403, desk.bob)
        status, shown = desk.curl(desk.bob, "GET", path)
        assert status == 200
        assert shown["directory"] == ""
        assert "hush" not in json.dumps(shown)
        # nor on the node itself, with the files: a job of his looks everywhere
        places = f"{desk.node.state} {desk.node.run} {desk.base}/ada {desk.base}/journal"
        looks = (
            f"grep -rs secret {places}; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep SECRET=;"
            f"ls {desk.node.state}/spool {desk.base}/ada; cat {desk.node.identity}/node.key {desk.base}/journal/*; true"
        )
        job, said, error = desk.ran(desk.bob, looks)
        assert job.state == "completed", job
        assert said == ""
        assert error.count("Permission denied") >= 4
    finally:
        desk.curl(desk.ada, "POST", f"/v1/jobs/{job_id}/cancel")
        desk.ended(job_id)


def test_bob_ends_holds_and_signals_no_job_of_adas(desk: Desk) -> None:
    job_id = desk.submit(desk.ada, "echo $$; exec sleep 600")
    try:
        wait_for(lambda: desk.client.job(job_id).state == "running", "her job")
        wait_for(lambda: desk.curl(desk.ada, "GET", f"/v1/jobs/{job_id}/output")[1].strip() != "", "its pid")
        pid = desk.curl(desk.ada, "GET", f"/v1/jobs/{job_id}/output")[1].strip()
        for verb in ("cancel", "hold", "release"):
            status, problem = desk.curl(desk.bob, "POST", f"/v1/jobs/{job_id}/{verb}")
            assert (status, problem["expected"]) == (403, desk.ada)
        job, _, error = desk.ran(desk.bob, f"kill -9 {pid}")
        assert (job.state, "ermitted" in error or "ermission" in error) == ("failed", True), error
        assert desk.client.job(job_id).state == "running"
        assert Path(f"/proc/{pid}").exists()
    finally:
        desk.curl(desk.ada, "POST", f"/v1/jobs/{job_id}/cancel")
    assert desk.ended(job_id).state == "cancelled"


def test_bob_submits_as_nobody_else_whatever_the_request_says(desk: Desk) -> None:
    good = {"script": "#!/bin/sh\nid -un\n", "directory": "/"}
    for more in ({"user": desk.ada}, {"uid": 0}, {"submitter": desk.ada}):
        status, problem = desk.curl(desk.bob, "POST", "/v1/jobs", good | more)
        assert (status, "unknown" in problem["message"]) == (400, True), problem
    made = {"USER": desk.ada, "LOGNAME": desk.ada, "SUDO_USER": desk.ada, "HOME": f"{desk.base}/ada"}
    job, said, _ = desk.ran(desk.bob, "id -un; echo $HOME $USER $LOGNAME", environment=made)
    assert job.user == desk.bob
    assert said == f"{desk.bob}\n{desk.base}/bob {desk.bob} {desk.bob}\n"


def test_bob_is_no_node_and_no_operator(desk: Desk) -> None:
    for path in ("/v1/nodes/a/drain", "/v1/nodes/a/resume", "/v1/nodes/a/remove", "/v1/nodes/evil/admit"):
        assert desk.curl(desk.bob, "POST", path)[0] == 403
    assert desk.curl(desk.bob, "GET", "/v1/agent")[0] == 403
    assert desk.curl(desk.bob, "POST", "/v1/tokens", {"life_s": 60, "user": desk.ada})[0] == 403
    assert desk.curl(desk.bob, "GET", f"/v1/survey?user={desk.ada}")[0] == 403
    # from inside a job, with all that a node has lying about: no key to read, no guard that listens
    probe = (
        f"import socket, sys\n"
        f"for path in ({str(desk.node.run / 'guard.sock')!r},):\n"
        f"    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        f"    try:\n"
        f"        s.connect(path)\n"
        f'        s.send(b\'{{"do": "relax", "until_us": 1, "epoch": 99, "re": 1}}\')\n'
        f"        print('answered', s.recv(1000))\n"
        f"    except OSError as error:\n"
        f"        print('refused', type(error).__name__)\n"
    )
    script = f"/usr/bin/python3 - <<'END'\n{probe}END\ncat {desk.node.identity}/node.key {desk.nodes.identity}/*.key"
    job, said, error = desk.ran(desk.bob, script)
    assert job.state == "failed"
    assert said in ("refused PermissionError\n", "refused ConnectionRefusedError\n"), (said, error)
    assert error.count("Permission denied") >= 2


def test_bobs_process_is_in_no_job_of_adas(desk: Desk) -> None:
    """The launch route believes cgroup and user, not the environment; and no cgroup lets him in."""
    job_id = desk.submit(desk.ada, "echo $COSCHED_JOB_ID; exec sleep 600")
    try:
        wait_for(lambda: desk.client.job(job_id).state == "running", "her job")
        rsh, socket = desk.node.run / "bin" / "cosched-rsh", desk.node.run / "agent.sock"
        pretend = f"COSCHED_JOB_ID={job_id} COSCHED_AGENT_SOCKET={socket} {rsh} a id -un"
        outside = subprocess.run(
            ["su", "-s", "/bin/sh", desk.bob, "-c", pretend],
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
        assert outside.returncode == 255
        assert "is not part of a job" in outside.stderr
        enter = (
            f"for each in /sys/fs/cgroup/*/{desk.nodes.group}/a/cosched/job-{job_id}.1/cgroup.procs"
            f" /sys/fs/cgroup/{desk.nodes.group}/a/cosched/job-{job_id}.1/cgroup.procs; do"
            " [ ! -e $each ] || echo $$ > $each && echo entered; done; true"
        )
        job, said, _ = desk.ran(desk.bob, f"{pretend}; {enter}")
        assert desk.ada not in said  # in his own job the agent runs it as him
        assert said.splitlines()[0] == desk.bob
        inside = Path(f"/proc/{os.getpid()}/cgroup").read_text()
        assert f"job-{job_id}" not in inside
        assert job.state == "completed"
    finally:
        desk.curl(desk.ada, "POST", f"/v1/jobs/{job_id}/cancel")
        desk.ended(job_id)


@pytest.fixture
def treasure(desk: Desk) -> Iterator[Path]:
    """A file of root's that root may write, and others may not even read."""
    path = desk.base / "treasure"
    path.write_text("as it was\n")
    path.chmod(0o600)
    yield path
    path.unlink()


def test_output_goes_where_its_user_may_write_and_nowhere_else(desk: Desk, treasure: Path) -> None:
    base, home = desk.base, desk.base / "bob"
    entry = pwd.getpwnam(desk.bob)
    for name, aim in (("symlink", treasure), ("dangling", base / "made"), ("above", base)):
        (home / name).symlink_to(aim)
        os.lchown(home / name, entry.pw_uid, entry.pw_gid)
    os.mkfifo(base / "fifo", 0o600)  # root's
    targets = [
        treasure, home / "symlink", home / "dangling", home / "above" / "made", f"{home}/../made",
        base / "ada" / "made", base / "fifo",
    ]  # fmt: skip
    jobs = {target: desk.submit(desk.bob, "echo mine now", output=str(target)) for target in targets}
    for target, job_id in jobs.items():
        assert desk.ended(job_id).state in ("failed", "launch failed"), target
        assert "Permission denied" in json.dumps(desk.curl(desk.bob, "GET", f"/v1/jobs/{job_id}")[1]), target
    assert treasure.read_text() == "as it was\n"
    assert not (base / "made").exists()
    assert not (base / "ada" / "made").exists()


def test_output_that_its_user_may_write_is_his(desk: Desk) -> None:
    job, _, _ = desk.ran(desk.bob, "echo mine", output="sub/../out")
    assert job.state == "completed", job
    made = (desk.base / "bob" / "out").stat()
    assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (pwd.getpwnam(desk.bob).pw_uid, 0o644)


def test_a_directory_is_entered_as_its_user(desk: Desk) -> None:
    home = desk.base / "bob"
    (home / "her-home").symlink_to(desk.base / "ada")
    places = (desk.base / "ada", home / "her-home", f"{home}/../ada", home / "none")
    jobs = {place: desk.submit(desk.bob, "touch here", directory=str(place)) for place in places}
    for place, job_id in jobs.items():
        assert desk.ended(job_id).state == "launch failed", place
    assert not (desk.base / "ada" / "here").exists()


def test_what_he_sets_in_the_environment_reaches_no_process_but_his(desk: Desk) -> None:
    """A library of his that is preloaded anywhere with more rights than his would leave its mark as another user."""
    home = desk.base / "bob"
    source, library, marks = home / "mark.c", home / "mark.so", home / "marks"
    marks.mkdir(mode=0o777, exist_ok=True)
    marks.chmod(0o777)
    home.chmod(0o711)
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\n#include <fcntl.h>\n"
        "__attribute__((constructor)) static void mark(void) {\n"
        f'    char path[256]; snprintf(path, sizeof path, "{marks}/%u", (unsigned)geteuid());\n'
        "    close(open(path, O_CREAT | O_WRONLY, 0600));\n}\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=BOUND_S)
    library.chmod(0o755)
    evil = {
        "LD_PRELOAD": str(library), "LD_LIBRARY_PATH": str(home), "PYTHONPATH": str(home), "PYTHONSTARTUP": str(source),
        "BASH_ENV": str(source), "ENV": str(source), "PATH": f"{home}:/usr/bin:/bin", "IFS": "/",
        "COSCHED_JOB_ID": "1", "COSCHED_AGENT_SOCKET": "/nowhere", "COSCHED_NODE": "elsewhere",
        "COSCHED_NODE_FILE": "/etc/passwd",
    }  # fmt: skip
    seen = "env | grep ^COSCHED_ | sort; $COSCHED_RSH a true 2>/dev/null; true"
    job, said, error = desk.ran(desk.bob, seen, environment=evil)
    assert job.state == "completed", (job, error)
    assert sorted(each.name for each in marks.iterdir()) == [str(pwd.getpwnam(desk.bob).pw_uid)], "his alone"
    values = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    assert values["COSCHED_JOB_ID"] == str(job.job_id)
    assert values["COSCHED_AGENT_SOCKET"] == str(desk.node.run / "agent.sock")
    assert values["COSCHED_NODE"] == "a"
    assert values["COSCHED_NODE_FILE"] != "/etc/passwd"


def test_names_with_dots_and_slashes_name_no_files(desk: Desk) -> None:
    before = sorted(path.name for path in desk.node.state.glob("*"))
    good = {"script": "#!/bin/sh\nexit 0\n", "directory": "/"}
    answers = {
        name: desk.curl(desk.bob, "POST", "/v1/jobs", good | {"name": name})
        for name in ("../../etc/cron.d/x", "a/b", "..", "x\ny", "\x1b[2J")
    }
    assert {name for name, (status, _) in answers.items() if status == 400} == {"x\ny", "\x1b[2J"}
    for job_id in (job["job_id"] for status, job in answers.values() if status == 201):
        desk.ended(job_id)
    assert sorted(path.name for path in desk.node.state.glob("*")) == before
    for stream in ("../stdout", "..%2f..%2fepoch", "/etc/passwd"):
        assert desk.curl(desk.bob, "GET", f"/v1/jobs/1/output?stream={stream}")[0] in (400, 403, 404)
