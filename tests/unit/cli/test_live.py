"""Users' verbs against a real service, whose one node is a puppet that plays every end a job can have."""

import contextlib
import fcntl
import json
import os
import pty
import pwd
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kit.command import Call, Ended
from kit.puppet import Live, live
from kit.snapshots import Snapshot, session
from kit.waiting import BOUND_S, wait_for

from cosched.apps.cli.shared.words import clock

pytestmark = pytest.mark.xdist_group("verbs")

SCRIPT = "#!/bin/sh\n#COSCHED -n 2 --time 10min --name sit\n#COSCHED --mem 64MiB --kind comm --env A=1\necho hello\n"
WHEN = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("live")) as service:
        yield service


@pytest.fixture
def call(service: Live, cosched: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.setenv("COSCHED_SERVER", str(service.socket))
    (tmp_path / "job.sh").write_text(SCRIPT)
    return cosched


Submit = Callable[..., int]
Stories = Callable[..., Snapshot]


@pytest.fixture
def submit(call: Call) -> Iterator[Submit]:
    """Submit a job that goes as its name says; what is left of it is cancelled at the end."""
    made: list[int] = []

    def submitted(name: str, *options: object) -> int:
        ended = call("submit", "--json", "--name", name, *options, "job.sh")
        assert ended.status == 0, ended.err
        made.append(json.loads(ended.out)["job_id"])
        return made[-1]

    yield submitted
    for job_id in made:
        if call("cancel", job_id).status == 0:
            call("wait", job_id)


def shown(call: Call, job_id: object) -> dict[str, Any]:
    ended = call("show", job_id, "--json")
    assert ended.status == 0, ended.err
    document: dict[str, Any] = json.loads(ended.out)
    return document


@pytest.fixture
def stories(snapshot: Snapshot) -> Stories:
    """The test's snapshot, in which these jobs are called A, B and so on, and times are hidden."""

    def of(*jobs: int | str) -> Snapshot:
        snapshot.patterns |= {
            r"\d{4}-\d\d-\d\dT[\d:.+-]+": "WHEN",
            WHEN: "WHEN",
            r"(?<!-t )(?<!:)(\b[A-Z][a-z]{2} |\d{4}-\d\d-\d\d )?\b\d\d:\d\d(:\d\d)?\b": "CLOCK",
            r"(?<=[ \t])(?<!used )(\d+ min )?[\d.]+ (ms|s)\b": "T",  # but for the CPU time, which is the puppet's
            r"\tT( ago)?$": r"\tnow",  # when a node was heard
            rf"\b{pwd.getpwuid(os.geteuid()).pw_name}\b": "USER",
        }
        before = r"(job |logs |--stderr |cancel |show |explain |hold |release |[A-D] |^  |\t(?=\d+\tnow))"
        snapshot.patterns |= {rf"{before}{job}\b": rf"\1{name}" for name, job in zip("ABCD", jobs, strict=False)}
        snapshot.patterns[r"(job )\d+"] = r"\1N"
        return snapshot

    return of


def until(call: Call, job_id: int, *states: str) -> dict[str, Any]:
    end_s = time.monotonic() + 30
    while (document := shown(call, job_id))["state"] not in states:
        assert time.monotonic() < end_s, document
        time.sleep(0.02)
    return document


@contextlib.contextmanager
def background(service: Live, *arguments: object, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, which does not outlive the test."""
    command = [sys.executable, "-m", "cosched.apps.cli.main", *map(str, arguments)]
    environment = {**os.environ, "COSCHED_SERVER": str(service.socket)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, **{"stdout": pipe, "stderr": pipe, "text": True} | more) as process:
        try:
            yield process
        finally:
            process.kill()


def test_submit_says_the_number_and_takes_the_scripts_lines(call: Call, tmp_path: Path) -> None:
    ended = call("submit", "--hold", "job.sh", "a", "--time", "b")
    assert ended.status == 0, ended.err
    found = re.fullmatch(r"job (\d+)\n", ended.out)
    assert found, ended.out
    job = shown(call, int(found[1]))
    assert (job["state"], job["name"], job["tasks"], job["time_limit_s"]) == ("waiting", "sit", 2, 600.0)
    assert (job["kind"], job["memory_bytes"], job["directory"]) == ("comm", 64 << 20, str(tmp_path))
    assert call("cancel", found[1]).out == f"job {found[1]} cancelled\n"


#: Lines of other batch systems in a job script.
FOREIGN = [
    "#SBATCH -n 4 -t 00:05:00 -J name -o out-%j.txt\n#SBATCH --gres=gpu:1",
    "#PBS -l nodes=2:ppn=2\n#PBS -N name\n#PBS -j oe",
    "# text\n#BSUB -n 4\n#COSCHED -n 2",
    "#FLUX: -N 2",
    "#$ -pe mpi 4",
]


def test_what_a_script_has_and_does_not_mean_is_told_at_submission(
    stories: Stories, call: Call, tmp_path: Path
) -> None:
    """Directives of other batch systems, options after its name, a command that reads another's lines."""
    told = ""
    for lines in FOREIGN:
        (tmp_path / "other.sh").write_text(f"#!/bin/sh\n{lines}\necho hello\n#SBATCH -n 9\n")
        commands = ("submit --hold other.sh", "submit --foreign-directives refuse other.sh")
        told += f"\n# {lines!r}\n" + session(call, *commands)
    options = ("a -n4", "--time=5min", "--help", "--grid -x 4")
    told += "\n# Options after the script's name\n" + session(
        call, *(f"submit --hold job.sh {each}" for each in options)
    )
    (tmp_path / "loop.sh").write_text("#!/bin/sh\nwhile read x; do mpirun ./prog; done <list\n")
    told += "\n# Lines that mpirun takes\n" + session(call, "submit --hold loop.sh")
    jobs = re.findall(r"^  job (\d+)$", told, re.MULTILINE)
    assert len(jobs) == len(FOREIGN) + len(options) + 1
    stories(jobs[-1])(told + session(call, f"show {jobs[-1]}"))
    assert call("cancel", *jobs).status == 0


def test_lines_of_slurm_are_the_jobs_options_behind_those_of_cosched_and_the_command_line(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "#COSCHED -t 2h\n#SBATCH -n 4 -t 1-0 -J heat\n#SBATCH --mem-per-cpu=1M --export=NONE,A=1 -o x-%A"
    (tmp_path / "other.sh").write_text(f"#!/bin/sh\n{lines}\necho hello\n")
    ended = call("submit", "--hold", "--foreign-directives", "refuse", "-n", 3, "--parsable", "other.sh")
    assert (ended.status, ended.err) == (0, "")
    job = shown(call, int(ended.out))
    assert (job["tasks"], job["time_limit_s"], job["name"], job["memory_bytes"]) == (3, 7200, "heat", 1 << 20)
    assert job["output"] == str(tmp_path / f"x-{job['job_id']}")
    assert shown(call, "last")["job_id"] == job["job_id"]
    monkeypatch.setenv("COSCHED_OUTPUT", "slurm-%j.out")
    assert call("submit", "--hold", "-Q", "job.sh").out == ""
    other = shown(call, "last")
    assert other["output"] == str(tmp_path / f"slurm-{other['job_id']}.out")
    assert (
        call("cancel", "last", job["job_id"], other["job_id"]).out
        == f"job {other['job_id']} cancelled\njob {job['job_id']} cancelled\n"
    )


def test_the_command_line_wins_over_the_script(call: Call) -> None:
    options = ("-n", 1, "--time", "90s", "--mem", "1GB", "--kind", "cpu", "--name", "mine", "--directory", "/tmp")
    ended = call("submit", "--hold", "--json", *options, "job.sh")
    job = json.loads(ended.out)
    assert (job["tasks"], job["time_limit_s"], job["memory_bytes"], job["kind"]) == (1, 90.0, 10**9, "cpu")
    assert (job["name"], job["directory"]) == ("mine", "/tmp")
    assert call("cancel", job["job_id"]).status == 0


def test_a_job_of_several_sizes_is_told_which_one_it_has(stories: Stories, call: Call, tmp_path: Path) -> None:
    """Its answer, lists and stories say which size, of which, and that it keeps it."""
    (tmp_path / "sizes.sh").write_text("#!/bin/sh\n#COSCHED --sizes pow2 --class long --fold no\n")
    note = "of its sizes it has 4, the largest that could ever start here, and keeps it: "
    note += "the policy in force gives jobs no other shapes"
    ended = call("submit", "--hold", "sizes.sh")
    found = re.fullmatch(r"job (\d+)\n", ended.out)
    assert found, ended
    assert ended.err == f"cosched: job {found[1]}: {note}\n"
    document = shown(call, int(found[1]))
    assert document["tasks"] == 4
    assert document["shape"] == {
        **{"min_tasks": 1, "max_tasks": 4, "sizes": [1, 2, 4], "malleable": False, "evolve": 0},
        **{
            "fold": False,
            "job_class": "long",
            "note": note,
            "components": [],
            "most_components": 0,
        },
    }
    (row,) = [line for line in call("queue", "--wide").out.splitlines() if "sizes.sh" in line]
    assert "4 of 1, 2, 4" in row
    stories(found[1])(session(call, f"show {found[1]}", f"explain {found[1]}"))
    assert call("cancel", found[1]).status == 0


def test_a_malleable_job_and_one_that_is_rigid(stories: Stories, call: Call, submit: Submit) -> None:
    malleable, rigid = submit("sit", "--hold", "-n", 1, "--max", 8), submit("sit", "--hold")  # the script says 2
    job = shown(call, malleable)
    assert (job["tasks"], job["shape"]["min_tasks"], job["shape"]["max_tasks"]) == (4, 1, 4)
    stories(malleable, rigid)(session(call, f"show {malleable}", f"show {rigid}"))


def test_a_script_from_standard_input(call: Call, service: Live, tmp_path: Path) -> None:
    piped = {"stdin": subprocess.PIPE, "cwd": tmp_path}
    with background(service, "submit", "--wait", "--name", "ok", "-", **piped) as process:
        out, err = process.communicate(SCRIPT, timeout=BOUND_S)
    assert process.returncode == 0, err
    assert re.fullmatch(r"job (\d+)\njob \1 completed; output: cosched logs \1\n", out)


#: How a job goes -> the exit status of --wait, its state, its words.
ENDS = {
    "ok": (0, "completed", "completed"),
    "fail": (3, "failed", "failed (exit status 3)"),
    "crash": (139, "failed", "failed (signal 11)"),
    "refuse": (126, "launch failed", "launch failed"),
}


@pytest.mark.parametrize("name", ENDS)
def test_waiting_ends_with_the_jobs_exit_status(name: str, call: Call) -> None:
    status, state, words = ENDS[name]
    ended = call("submit", "--wait", "--name", name, "job.sh")
    assert ended.status == status, ended
    number = re.match(r"job (\d+)\n", ended.out)
    assert number
    assert f"job {number[1]} {words}; output: cosched logs {number[1]}" in ended.out
    assert re.search(rf"^{WHEN}  job {number[1]} starting", ended.err, re.MULTILINE)
    assert call("wait", number[1]) == Ended(status, f"job {number[1]} {words}\n", "")
    document = call("submit", "--wait", "--json", "--name", name, "job.sh")
    assert document.status == status
    assert json.loads(document.out)["state"] == state


def test_wait_has_the_status_of_the_first_that_did_not_complete(call: Call, submit: Submit) -> None:
    good, bad, worse = submit("ok"), submit("fail"), submit("crash")
    ended = call("wait", good, bad, worse)
    assert ended.status == 3
    assert ended.out.splitlines()[2] == f"job {worse} failed (signal 11)"
    document = call("wait", "--json", worse, good)
    assert document.status == 139
    assert [job["job_id"] for job in json.loads(document.out)["jobs"]] == [worse, good]


def test_show_tells_a_failures_story(stories: Stories, call: Call, submit: Submit) -> None:
    failed = submit("fail", "--time", "5min")
    assert call("wait", failed).status == 3
    refused = submit("refuse")
    assert call("wait", refused).status == 126
    stories(failed, refused)(session(call, f"show {failed}", f"show {refused}"))
    assert shown(call, failed)["failure"]["tail"][-1] == "ValueError: no such grid"


def test_limit_of_a_running_jobs_node_is_told_by_queue_show_and_explain(
    stories: Stories, call: Call, submit: Submit, service: Live
) -> None:
    job_id = submit("sit", "-n", 2)
    until(call, job_id, "running")
    assert not shown(call, job_id)["slowed"]
    service.node.limited_cpus = 0.5
    try:
        wait_for(lambda: shown(call, job_id)["slowed"], "the limit")
        stories(job_id)(session(call, "queue", f"show {job_id}", f"explain {job_id}"))
    finally:
        service.node.limited_cpus = None
    wait_for(lambda: not shown(call, job_id)["slowed"], "the limit to be gone, also for the next test")


def test_promised_start_is_whole_on_a_terminal_of_80_columns(call: Call, submit: Submit, service: Live) -> None:
    first = submit("sit", "-n", 4, "--time", "30min")
    until(call, first, "running")
    second = submit("ok a name that is long", "-n", 3, "--time", "20min")
    wait_for(lambda: shown(call, second)["promised_start"] is not None, "the second job to be promised a start")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with background(service, "queue", stdout=theirs) as listing:
        assert listing.wait(BOUND_S) == 0
    os.close(theirs)
    header, running, waiting = os.read(ours, 4096).decode().splitlines()[:3]
    os.close(ours)
    at = header.index("starts by")
    assert waiting[at:].startswith(clock(shown(call, second)["promised_start"]) + " ")
    assert running[at : at + len("starts by")].isspace()
    assert max(map(len, (header, running, waiting))) <= 80


def test_queue_hold_release_cancel_explain(stories: Stories, call: Call, submit: Submit) -> None:
    first = submit("sit", "-n", 4, "--time", "30min")
    until(call, first, "running")
    second = submit("ok", "-n", 3, "--time", "20min")
    third = submit("ok", "-n", 4)
    wait_for(lambda: shown(call, second)["promised_start"] is not None, "the second job to be promised a start")
    wait_for(lambda: shown(call, third)["reason"]["why"] == "not_enough_free", "a pass to decide about the third")
    rows = [line.split("\t") for line in call("queue").out.splitlines()][1:]
    assert rows[1][4] == clock(shown(call, second)["promised_start"])
    assert shown(call, second)["reason"]["why"] == "not_enough_free"
    assert json.loads(call("explain", second, "--json").out)["reason"]["numbers"]
    commands = ("queue", f"explain {second}", f"hold {second} {third}", f"explain {third}", f"release {third}")
    story = stories(first, second, third)
    story.patterns[r"because of: JobSubmitted job [BC]"] = "because of: JobSubmitted job B or C"
    story(session(call, *commands))
    assert [job["job_id"] for job in json.loads(call("queue", "--json").out)["jobs"]] == [first, third, second]
    assert call("cancel", third, second, first).status == 0  # the first gives its nodes back
    assert call("wait", first).status == 130
    late = call("cancel", first)
    assert late.status == 1
    assert f"job {first} is cancelled: it cannot be cancelled any more" in late.err


def test_moment_in_a_list_has_its_date_unless_that_is_today() -> None:
    now = datetime.now().astimezone()
    told = clock(now.isoformat())
    assert told == f"{now:%H:%M:%S}" or datetime.now().astimezone().date() > now.date()  # since midnight
    past = now - timedelta(days=2)
    assert clock(past.isoformat()) == f"{past:%Y-%m-%d %H:%M}"
    assert clock(None) == ""


@pytest.mark.parametrize(("days", "form"), [(2, "%a %H:%M"), (6, "%a %H:%M"), (8, "%Y-%m-%d"), (400, "%Y-%m-%d")])
def test_moment_to_come_in_a_list_has_ten_characters_at_most(days: int, form: str) -> None:
    moment = datetime.now().astimezone() + timedelta(days=days)
    assert clock(moment.isoformat()) == moment.strftime(form)
    assert len(clock(moment.isoformat())) <= 10


def test_one_job_that_refuses_does_not_keep_others_from_being_cancelled(call: Call, submit: Submit) -> None:
    job_id = submit("sit", "--hold")
    ended = call("cancel", 999_999, job_id)
    assert ended.status == 2
    assert ended.err == "cosched: there is no job 999999\n"
    assert ended.out == f"job {job_id} cancelled\n"


def test_history_has_the_newest_first(call: Call, submit: Submit) -> None:
    jobs = [submit("ok"), submit("fail")]
    call("wait", *jobs)
    listed = call("history", "-n", 2)
    assert "why one did not complete: cosched show ID" in listed.err
    found = json.loads(call("history", "-n", 2, "--json").out)["jobs"]
    assert sorted(job["job_id"] for job in found) == jobs
    assert json.loads(call("history", "--user", "nobody-here", "--json").out) == {"jobs": []}
    assert call("queue", "--all", "--user", "me").out.count("exit status 3") >= 1


def test_logs_gives_bytes_as_they_were_written(call: Call, submit: Submit, service: Live, tmp_path: Path) -> None:
    job_id = submit("fail")
    call("wait", job_id)
    with background(service, "logs", job_id, "--stderr") as process:
        out, _ = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out.splitlines()[-1]) == (0, "ValueError: no such grid")
    document = json.loads(call("logs", "--json", "--stderr", job_id).out)
    assert document["stream"] == "stderr"
    assert document["final"] is True
    assert document["size_bytes"] == len(document["text"])


def test_logs_follows_to_the_end(call: Call, submit: Submit, service: Live) -> None:
    job_id = submit("sit", "--hold")
    assert "nothing written yet" in call("logs", job_id).err
    with background(service, "logs", "-f", job_id) as process:
        assert process.stdout is not None
        call("release", job_id)
        until(call, job_id, "running")
        service.node.write(job_id, b"one\n")
        assert process.stdout.readline() == "one\n"
        service.node.write(job_id, b"two\n" * 100_000)
        for _ in range(100_000):
            assert process.stdout.readline() == "two\n"
        call("cancel", job_id)
        assert process.stdout.read() == ""
        assert process.wait(BOUND_S) == 0


def test_output_in_a_file_is_said_to_be_there(stories: Stories, call: Call, submit: Submit) -> None:
    job_id = submit("ok", "--output", "out.txt")
    assert call("wait", job_id).status == 0
    stories(job_id)(session(call, f"logs {job_id}", f"show {job_id}"))


def test_ctrl_c_of_a_waiting_submission_leaves_the_job(call: Call, service: Live, tmp_path: Path) -> None:
    with background(service, "submit", "--wait", "job.sh", cwd=tmp_path) as process:
        assert process.stdout is not None
        job_id = int(process.stdout.readline().split()[1])
        until(call, job_id, "running")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130
    assert f"job {job_id} goes on without this command ('cosched cancel {job_id}' ends it)" in err
    assert shown(call, job_id)["state"] == "running"
    assert call("cancel", job_id).status == 0
    assert call("wait", job_id).status == 130  # and its place is free for the next test


def test_what_the_service_refuses(snapshot: Snapshot, call: Call) -> None:
    snapshot.replay(call)


def test_nodes_and_drain_and_resume(stories: Stories, call: Call, submit: Submit) -> None:
    wait_for(lambda: "\taway\t0/4\t0 B/4 GiB\t0.5\t" in call("nodes").out, "the node to tell what it uses")
    told = session(call, "nodes")
    job_id = submit("sit", "-n", 1)
    until(call, job_id, "running")
    told += session(call, "node drain desk1 --reason 'new disk'", "nodes", "set-aside")
    nodes = {node["name"]: node for node in json.loads(call("nodes", "--json").out)["nodes"]}
    assert (nodes["desk1"]["state"], nodes["desk1"]["jobs"]) == ("draining", [job_id])
    stories(job_id)(told + session(call, "node resume desk1", "set-aside", "set-aside --json"))


AILING = """
from space_scheduler.policy.presets import compose
class Ailing:
    order = staticmethod(compose("fcfs", "jfirst").order)
    def plan(self, snapshot):
        if any(job.estimate_us == 780_000_000 for job in snapshot.queue):
            raise ArithmeticError("thirteen minutes")
        return compose("fcfs", "jfirst").plan(snapshot)
"""


def test_set_aside_job_is_shown_to_user_and_operators_and_waiting_commands_survive_a_restart(
    tmp_path: Path, cosched: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy fails for one job: the next one runs, and each command says what is the matter with the first."""
    words = "set aside by the pass: planning fails with this job in it; it is tried again"
    error = "policy ailing:Ailing: ArithmeticError: thirteen minutes"
    (tmp_path / "job.sh").write_text(SCRIPT)
    (tmp_path / "live" / "policies").mkdir(parents=True)
    (tmp_path / "live" / "policies" / "ailing.py").write_text(AILING)
    with live(tmp_path / "live", "ailing:Ailing") as service:
        monkeypatch.setenv("COSCHED_SERVER", str(service.socket))
        bad, good = (
            json.loads(cosched("submit", "--json", "--name", "ok", "--time", limit, "job.sh").out)["job_id"]
            for limit in ("13min", "12min")
        )
        assert cosched("wait", good).status == 0, "it starts beside the other"
        assert words.partition(":")[0] in cosched("queue", "--wide").out
        shown, explained = cosched("show", bad).out, cosched("explain", bad).out
        assert f"why           {words}" in shown
        assert f"job {bad} is waiting: {words}" in explained
        assert error in shown
        assert error in explained
        assert "tried again when its request, the nodes, what jobs hold or the policy change" in explained
        document = json.loads(cosched("show", bad, "--json").out)
        assert (document["state"], document["reason"]["why"]) == ("waiting", "set_aside")
        assert re.search("^warn +jobs set aside: 1 are left out of passes", cosched("doctor").out, re.MULTILINE)
        held = ("submit", "--wait", "--hold", "--name", "fail", "job.sh")
        with (
            background(service, "wait", bad, cwd=tmp_path) as waiting,
            background(service, *held, cwd=tmp_path) as submitting,
        ):
            assert waiting.stderr is not None
            assert submitting.stdout is not None
            assert submitting.stderr is not None
            assert waiting.stderr.readline().startswith(f"cosched: job {bad} is waiting: {words}")
            job_id = submitting.stdout.readline().split()[1]
            service.stop()
            for command in (waiting, submitting):
                assert next(line for line in command.stderr or () if "asking again" in line)
            service.start()
            assert cosched("release", job_id).status == 0
            out, err = submitting.communicate(timeout=BOUND_S)
            assert (submitting.returncode, out.partition(";")[0]) == (3, f"job {job_id} failed (exit status 3)"), err
            assert words in cosched("show", bad).out, "also after a restart"
            assert cosched("policy", "set", "easy").status == 0
            out, err = waiting.communicate(timeout=BOUND_S)
        assert out.startswith(f"job {bad} completed"), err
        assert "jobs set aside" not in cosched("doctor").out


def test_over_tls_with_a_users_certificate(call: Call, service: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    from cosched.identity import authority  # noqa: PLC0415

    other = f"not-{pwd.getpwuid(os.geteuid()).pw_name}"  # who runs this is the operator
    authority.issue(service.identity, "user", other, service.place / other)
    monkeypatch.setenv("COSCHED_IDENTITY", str(service.place / other))
    monkeypatch.setenv("COSCHED_SERVER", f"https://127.0.0.1:{service.port}")
    ended = call("submit", "--hold", "--json", "job.sh")
    assert ended.status == 0, ended.err
    job = json.loads(ended.out)
    assert job["user"] == other
    assert call("cancel", job["job_id"]).status == 0
    drained = call("node", "drain", "desk1")
    assert (drained.status, "operators" in drained.err) == (1, True)
    chosen = call("policy", "set", "fcfs")
    assert (chosen.status, "the policy is chosen by operators" in chosen.err) == (1, True)
    (service.place / other / "ca.pem").write_bytes(_other_authority(service.place / "unknown"))
    ended = call("queue")
    assert ended.status == 3
    assert "certificate" in ended.err


def _other_authority(place: Path) -> bytes:
    from cosched.identity import authority  # noqa: PLC0415

    authority.create_authority(place, "other")
    return (place / "ca.pem").read_bytes()


def test_doctor_of_a_service_with_a_node_missing(call: Call, service: Live) -> None:
    ended = call("doctor", "--config", service.settings)
    assert ended.status == 0, ended.out
    assert re.search(r"^ok +service: puppets at ", ended.out, re.MULTILINE)
    assert re.search(r"^ok +nodes: 1 of 2 up", ended.out, re.MULTILINE)
    assert re.search(r"^warn +node desk2: unknown, last heard never", ended.out, re.MULTILINE)
    assert re.search(r"^ok +presence: known on all nodes, by terminals", ended.out, re.MULTILINE)
    assert re.search(r"^ok +certificate: .*scheduler.pem: valid until", ended.out, re.MULTILINE)
    assert re.search(r"^ok +journal: .* free at ", ended.out, re.MULTILINE)
    document = json.loads(call("doctor", "--json").out)
    assert document["ok"] is True
    assert {check["level"] for check in document["checks"]} <= {"ok", "warn"}
