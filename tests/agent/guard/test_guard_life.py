"""A job's way through a guard: made ready, its commands born in its group as its user, ended, forgotten."""

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kit.guards import DAEMON, MIB, RealGuard, alive, places
from kit.needs import need_mounts
from kit.waiting import wait_for

from cosched.apps.lab import kernel
from cosched.apps.lab.tiers import tried
from cosched.linux import users
from cosched.linux.cgroups import Cgroups
from cosched.linux.namespaces import mount
from node_agent.guard.base.requests import Spawn
from node_agent.guard.launcher.command import Place, become


def test_a_job_from_its_preparation_to_nothing_left(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    assert guard.listed()["state"] == "prepared"
    pid = guard.shell("echo pid $$; exit 3")
    exited = guard.event("exited", n=0)
    assert exited == {
        "event": "exited", "job": 1, "attempt": 1, "n": 0, "status": 3, "signal": None, "cause": "own"
    }  # fmt: skip
    assert guard.event("empty", job=1, attempt=1)["cpu_us"] > 0
    assert guard.told("pid") == [pid]
    assert guard.listed()["commands"] == [
        {"n": 0, "state": "ended", "pid": pid, "status": 3, "signal": None, "cause": "own"}
    ]
    guard.ask({"do": "forget", "job": 1, "attempt": 1})
    assert guard.ask({"do": "list"})["groups"] == []
    assert [path.name for path in guard.directory.glob("state/records/*")] == ["lock"]
    assert list(guard.directory.glob("state/jobs/*")) == []
    assert [job for place in places(guard.group) for job in place.glob("job-*")] == []


def test_a_command_finds_its_user_its_directory_and_its_environment(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    env = {"COLOUR": "red", "HOME": "/nowhere", "PATH": "/usr/bin:/bin"}
    argv = ["sh", "-c", 'id -un; pwd; echo "$COLOUR $HOME $USER $LOGNAME $PATH"; umask; ulimit -c; ls /proc/$$/fd']
    guard.spawn(argv, env=env)
    guard.event("exited", status=0)
    user, directory, variables, mask, core, *descriptors = guard.output().splitlines()
    assert (user, directory) == (guard.user, str(guard.work))
    assert variables == f"red {guard.account.pw_dir} {guard.user} {guard.user} /usr/bin:/bin"
    assert (mask, core) == ("0022", "0")
    assert set(descriptors) <= {"0", "1", "2", "10"}  # 10 is the shell's own


def test_files_and_output_have_the_modes_that_the_submitters_umask_leaves(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare(umask=0o027)
    guard.shell("umask; : > made", output=str(guard.work / "o"), error=str(guard.work / "e"))
    guard.event("exited", status=0)
    assert (guard.work / "o").read_text() == "0027\n"
    modes = {name: (guard.work / name).stat().st_mode & 0o777 for name in ("o", "e", "made")}
    assert modes == dict.fromkeys(modes, 0o640)


def test_a_user_gets_his_rights_and_no_others(guard: RealGuard) -> None:
    guard.prepare()
    guard.shell("grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|NoNewPrivs|SigBlk|SigIgn)' /proc/self/status")
    guard.event("exited", status=0)
    found = dict(line.split(":\t") for line in guard.output().splitlines())
    groups = subprocess.run(["id", "-G", guard.user], capture_output=True, text=True, check=True).stdout.split()
    assert set(found["Uid"].split()) == {str(guard.account.pw_uid)}
    assert set(found["Gid"].split()) == {str(guard.account.pw_gid)}
    assert sorted(found["Groups"].split()) == sorted(groups)
    assert int(found["CapPrm"], 16) == int(found["CapEff"], 16) == 0
    assert int(found["SigBlk"], 16) == int(found["SigIgn"], 16) == 0
    assert found["NoNewPrivs"] == "1"


def test_the_script_is_copied_and_run_with_its_arguments(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    script = os.memfd_create("script")
    os.write(script, b'#!/bin/sh\necho "$0" "$@"\nstat -c "%a %U" "$0"\n')
    guard.ask(guard.spawning(["job.sh", "a b", "c"], script=True), [*guard.null(), script])
    os.close(script)
    guard.event("exited", status=0)
    directory = f"{guard.directory}/state/jobs/1.1"
    line, mode = guard.output().splitlines()
    assert line == f"{directory}/script a b c"
    assert mode == f"500 {guard.user}"
    assert (guard.directory / "state/jobs/1.1").stat().st_mode & 0o777 == 0o711


def test_output_to_a_pipe_is_refused_and_to_a_device_taken(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    pipe = guard.work / "pipe"
    os.mkfifo(pipe)
    os.chmod(pipe, 0o666)
    for n in (0, 1):
        code, story = guard.refused(guard.spawning(["true"], n=n, output=str(pipe)), guard.null())
        assert (code, story) == ("failed", f"{pipe}: neither a file nor a device such as /dev/null")
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # also where somebody reads it
    os.close(reader)
    guard.shell("echo nothing", n=2, output="/dev/null")
    guard.event("exited", n=2)


def test_output_is_opened_as_the_user_and_appended_to(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    for n in range(2):
        guard.shell(f"echo out {n}; echo err {n} >&2", n=n, output=str(guard.work / "o"), error=str(guard.work / "e"))
        guard.event("exited", n=n)
    assert (guard.work / "o").read_text() == "out 0\nout 1\n"
    assert (guard.work / "e").read_text() == "err 0\nerr 1\n"
    assert (guard.work / "o").stat().st_uid == guard.account.pw_uid
    private = guard.work / "private"
    private.mkdir(mode=0o700)
    code, story = guard.refused(guard.spawning(["true"], n=2, output=str(private / "o")), guard.null())
    assert (code, story) == ("failed", f"{private}/o: Permission denied, as {guard.user} on this node")
    assert list(private.iterdir()) == []


def test_what_cannot_be_executed_is_the_answer(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    assert guard.refused(guard.spawning(["no-such-command"]), guard.null()) == (
        "failed",
        "no-such-command: command not found",
    )
    assert guard.refused(guard.spawning(["/bin/true"], cwd="/no/such"), guard.null()) == (
        "directory",
        f"/no/such: No such file or directory, as {guard.user} on this node",
    )
    assert guard.listed()["commands"] == []
    guard.shell("exit 0")  # the same n: nothing has been started yet
    guard.event("exited", n=0, status=0)
    assert guard.refused(guard.spawning(["true"]), guard.null()) == ("busy", "command 0 has been started already")


@pytest.mark.parametrize(
    ("program", "first_line", "told"),
    [
        ("noexec/program", "#!/bin/sh", ""),
        ("program", "#! {place}/noexec/sh -e", "its interpreter {place}/noexec/sh: "),
    ],
)
def test_program_on_noexec_mount_is_refused_as_noexec(tmp_path: Path, program: str, first_line: str, told: str) -> None:
    need_mounts()
    noexec, path = tmp_path / "noexec", tmp_path / program
    noexec.mkdir()

    def execute() -> None:
        kernel.unshare(kernel.NEW_MOUNTS, "mounts")
        mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        mount("tmpfs", str(noexec), "tmpfs", kernel.MS_NOEXEC)
        shutil.copy("/bin/sh", noexec)
        path.write_text(first_line.format(place=tmp_path))
        path.chmod(0o700)
        place = Place(users.of_uid(os.getuid()), False, False, str(tmp_path), (), False, 0o022)
        become(Spawn(1, 1, 0, (str(path),), {}, "/"), (0, 1, 2), place, Mock(spec=Cgroups), "job-1.1", ())

    assert tried(execute) == f"{path}: {told.format(place=tmp_path)}{noexec} is mounted noexec"


def test_all_of_a_jobs_processes_are_in_its_group(guard: RealGuard) -> None:
    guard.prepare()
    script = f"{DAEMON}; sleep 1000 & echo child $!; echo shell $$; wait"
    guard.shell(script)
    pids = guard.told("daemon", "child", "shell")
    for pid in pids:
        assert f"{guard.group}/job-1.1" in Path(f"/proc/{pid}/cgroup").read_text()
        assert {key: guard.ask({"do": "whose", "pid": pid})[key] for key in ("job", "attempt")} == {
            "job": 1,
            "attempt": 1,
        }
    (supervisor,) = guard.supervisors()
    assert guard.group not in Path(f"/proc/{supervisor}/cgroup").read_text()
    assert guard.refused({"do": "whose", "pid": os.getpid()})[0] == "unknown"


def test_commands_share_a_private_tmp_and_shm_that_nobody_else_sees(guard: RealGuard) -> None:
    mine = f"mine-{uuid.uuid4().hex}"  # no name that something else on this machine has
    guard.prepare()
    guard.shell(f"echo 1 > /tmp/{mine}; echo 2 > /dev/shm/{mine}; ls -A /tmp /dev/shm")
    guard.event("exited", n=0, status=0)
    guard.shell(f"cat /tmp/{mine} /dev/shm/{mine}; df --output=fstype /dev/shm | tail -1", n=1)
    guard.event("exited", n=1, status=0)
    assert guard.output().splitlines()[-3:] == ["1", "2", "tmpfs"]
    assert not Path(f"/tmp/{mine}").exists()
    assert not Path(f"/dev/shm/{mine}").exists()
    assert guard.output().splitlines()[:2] == ["/dev/shm:", mine]  # and nothing of the machine's own
    guard.prepare(job=2)
    guard.shell(f"ls /tmp/{mine} /dev/shm/{mine}", job=2)
    assert guard.event("exited", job=2)["status"] == 2


def test_without_privileges_tmpdir_is_the_jobs_own(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard("none")
    guard.prepare()
    guard.shell('echo "$TMPDIR"; touch "$TMPDIR/here"')
    guard.event("exited", status=0)
    assert guard.output().strip() == f"{guard.directory}/state/jobs/1.1/tmp"
    assert guard.status()["can"]["private /tmp"].startswith("no: ")


def test_what_is_not_made_ready_says_why_and_leaves_nothing(guard: RealGuard) -> None:
    refused: list[tuple[dict[str, Any], str, str]] = [
        ({"user": "no-such-user-here"}, "user", "there is no user no-such-user-here on this node"),
        ({"user": "root"}, "user", "jobs of root (uid 0, gid 0) are not allowed (security.allow_root)"),
        ({"user": "daemon"}, "user", "daemon has uid 1, below this node's minimum of 1000 (security.min_uid)"),
        ({"user": "nobody"}, "user", "nobody may not log in on this node (shell /usr/sbin/nologin)"),
        ({"uid": 3_000_000_000}, "user", "has uid {uid} here and uid 3000000000 on the scheduler's host"),
        ({"uid": -1}, "user", "the scheduler's host has no account {user}"),
        ({"directory": "/no/such"}, "directory", "/no/such: No such file or directory, as {user} on this node"),
        ({"directory": "/proc/1/cwd"}, "directory", "/proc/1/cwd: Permission denied, as {user} on this node"),
        ({"directory": "/etc/passwd"}, "directory", "/etc/passwd: Not a directory, as {user} on this node"),
        ({"directory": "/tmp/unseen"}, "directory", "(a job's /tmp is its own)"),
        ({"memory_bytes": 1025 * MIB}, "memory", f"{1025 * MIB} bytes wanted beside 0 of other jobs"),
    ]
    for fields, code, story in refused:
        found = guard.refused(guard.preparation(**fields))
        assert found[0] == code
        assert story.format(user=guard.user, uid=guard.account.pw_uid) in found[1]
        assert guard.ask({"do": "list"})["groups"] == []
        assert list(guard.directory.glob("state/jobs/*")) == []
        assert [job for place in places(guard.group) for job in place.glob("job-*")] == []


def test_guard_of_one_user_refuses_jobs_of_other_users(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard("none")
    assert guard.refused(guard.preparation(user="root")) == (
        "user",
        f"this node runs jobs of {guard.user} alone, not of root",
    )
    code, why = guard.refused(guard.preparation(uid=guard.account.pw_uid + 1))
    assert (code, f"and uid {guard.account.pw_uid + 1} on the scheduler's host" in why) == ("user", True)


@pytest.mark.parametrize(
    ("users_are", "submitter", "refused"),
    [
        ("switch", 1000, ""),
        ("switch", None, ""),  # a scheduler of an earlier version says no uid
        ("switch", 1001, 'ann has uid 1000 here and uid 1001 on the scheduler\'s host, .* users = "by-name"'),
        ("switch", users.NO_ACCOUNT, "the scheduler's host has no account ann, .* make that account there"),
        ("self", 1001, "and uid 1001 on the scheduler's host"),
        ("by-name", 1001, ""),
        ("by-name", users.NO_ACCOUNT, ""),
    ],
)
def test_account_runs_jobs_of_its_own_uid_or_by_name(users_are: str, submitter: int | None, refused: str) -> None:
    conflict = users.uid_conflict("ann", 1000, submitter, users_are)
    assert re.search(refused, conflict) if refused else conflict == ""


def test_uid_minus_one_is_nobodys_on_either_side() -> None:
    """2^32 - 1 in a user database: to the kernel it means no uid, to a scheduler no account."""
    assert users.uid_conflict("ann", users.NO_ACCOUNT, users.NO_ACCOUNT, "switch") != ""


def test_desk_by_name_runs_jobs_whatever_the_submitters_uid(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard(start=False)
    guard.config["security"]["users"] = "by-name"
    guard.start()
    for attempt, uid in enumerate((-1, guard.account.pw_uid + 1), start=1):
        guard.prepare(attempt=attempt, uid=uid)
    guard.shell("id -u", attempt=2)
    guard.event("exited", status=0)
    assert guard.output() == f"{guard.account.pw_uid}\n"


def test_a_signal_goes_to_the_commands_process_group_alone(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    guard.shell("sleep 1000 & echo child $!; echo shell $$; wait")
    child, shell = guard.told("child", "shell")
    other = guard.shell("exec sleep 1000", n=1)
    assert guard.ask({"do": "signal", "job": 1, "attempt": 1, "n": 0, "signal": 15})["sent"] == 2
    assert guard.event("exited", n=0)["signal"] == 15
    wait_for(lambda: not alive(child) and not alive(shell), "the end of the group")
    assert alive(other)
    assert guard.refused({"do": "signal", "job": 1, "attempt": 1, "n": 0, "signal": 15})[0] == "unknown"
