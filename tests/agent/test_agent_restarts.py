"""An agent is killed and started anew while commands run over the launch route: they notice nothing."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from kit.agents import Cluster, Node, until
from kit.clocks import Clock
from kit.processes import standing_still
from kit.routes import EPOCH, JOB, Job, Route, call, sleeping, wanted

from cosched.wire import messages as wire
from cosched.wire.stream import Kind
from node_agent.service.rsh_proxy import Call

_STREAM = """
import hashlib, os, sys
# Echoes what comes, in other pieces, and a line on standard error for each; slow enough to be interrupted.
seen = hashlib.sha256()
while data := os.read(0, 7001):
    seen.update(data)
    at = 0
    while at < len(data):
        at += os.write(1, data[at:])
    os.write(2, b"%d\\n" % len(data))
print(seen.hexdigest(), file=sys.stderr)
sys.exit(3)
"""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.slow
async def test_streams_go_on_over_restarts_of_both_agents_and_nothing_is_lost_or_doubled(route: Route) -> None:
    a, b, base = route.a, route.b, route.place
    program = base / "echo.py"
    program.write_text(_STREAM)
    job = await route.job(a, b)
    await job.start(
        f"""
        head -c 3000000 /dev/urandom > "$TMPDIR/in"
        cksum < "$TMPDIR/in"
        (for part in 0 1 2; do
            dd if="$TMPDIR/in" bs=1000000 skip=$part count=1 status=none
            touch {base}/wrote-$part
            until [ -e {base}/go-$part ]; do sleep 0.02; done
        done) | $RSH b '/usr/bin/python3 -I {program}' > "$TMPDIR/out" 2> "$TMPDIR/err"
        echo "status $?"
        cksum < "$TMPDIR/out"
        sha256sum < "$TMPDIR/in" | cut -d' ' -f1
        tail -n1 "$TMPDIR/err"
        awk 'length($0) < 9 {{ sum += $1 }} END {{ print sum }}' "$TMPDIR/err"
        """
    )
    kill, end = signal.SIGKILL, signal.SIGTERM
    for part, restarted in enumerate((((b, kill),), ((a, end),), ((a, kill), (b, end)))):
        await until((base / f"wrote-{part}").exists, f"part {part}")
        for node, how in restarted:
            route.restart(node, how)
        (base / f"go-{part}").touch()
    ended = await route.scheduler.next("a", wire.ProgramEnded, job_id=job.number)
    assert ended.exit == wire.Exit(0)
    lines = (await job.out()).splitlines()
    assert lines[1] == "status 3", lines
    assert lines[2] == lines[0]
    assert lines[4] == lines[3]
    assert lines[5] == "3000000"
    assert await job.out("stderr") == ""


_WRITES = """
import os, sys
# Writes a million bytes; says when no more are taken for a second.
os.set_blocking(1, False)
left, tries = 1_000_000, 0
while left:
    try:
        left -= os.write(1, bytes(min(left, 60_000)))
        tries = 0
    except BlockingIOError:
        import time
        time.sleep(0.02)
        tries += 1
        if tries == 50:
            open(sys.argv[1], "w").close()
"""
_READS = """
import os, select, sys, time
# Reads nothing until it may, then all that is there, says so, then the rest, and prints how much there was.
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
count = 0
while select.select([0], [], [], 1.0)[0]:
    count += len(os.read(0, 65536))
open(sys.argv[2], "w").close()
while data := os.read(0, 65536):
    count += len(data)
print(count)
"""


async def test_input_that_is_taken_while_an_agent_is_away_makes_room_for_more(route: Route) -> None:
    """All that a caller may have on its way had arrived, and was taken when nobody could be told: both waited on."""
    a, b = route.a, route.b
    writes, reads = route.place / "writes.py", route.place / "reads.py"
    writes.write_text(_WRITES)
    reads.write_text(_READS)
    full, go, took = (route.place / name for name in ("full", "go", "took"))
    job = await route.job(a, b)
    python = "/usr/bin/python3 -I"
    await job.start(f"{python} {writes} {full} | $RSH b '{python} {reads} {go} {took}'")
    await until(full.exists, "the window to be full")
    route.stop_agent(b)
    go.touch()
    await until(took.exists, "all of it to be taken")
    b.start_agent()
    await route.scheduler.next("a", wire.ProgramEnded, job_id=job.number)
    assert await job.out() == "1000000\n"


async def test_a_command_that_ends_while_its_agent_is_away_is_told_to_its_caller(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    line = (
        f"echo before; touch {route.place}/up; until [ -e {route.place}/go ]; do sleep 0.02; done; echo after; exit 6"
    )
    await job.start(f"$RSH -n b '{line}'; echo $?")
    await until((route.place / "up").exists, "the command to run")
    route.stop_agent(b)
    (route.place / "go").touch()
    exits = b.state / "records" / f"{job.number}.1.1.exit"
    await until(exits.exists, "its end to be on record")
    b.start_agent()
    await route.scheduler.next("a", wire.ProgramEnded, job_id=job.number)
    assert await job.out() == "before\nafter\n6\n"


_PROBE = """
import os, socket, sys, time
request = b'{"host": "b", "command": "true", "id": "%s", "stdout": 0, "stderr": 0, "again": true}' % (b"0" * 32)
while True:
    with socket.socket(socket.AF_UNIX) as agent:
        try:
            agent.connect(os.environ["COSCHED_AGENT_SOCKET"])
        except OSError:
            continue
        agent.sendall(b"\\1" + len(request).to_bytes(4, "big") + request)
        answer = agent.recv(1000)
    with open(sys.argv[1], "a") as told:
        print(answer[0], answer[5:].decode() if answer[0] in (8, 14) else "", file=told)
    if answer[0] != 14:
        break
    time.sleep(0.05)
"""


async def test_remote_command_is_retried_until_restarted_agent_has_heard_its_guard(route: Route) -> None:
    """Whose job it is, the guard says: before that a user cannot be refused, for the call would end for good."""
    a, b, base = route.a, route.b, route.place
    probe, told = base / "probe.py", base / "told"
    probe.write_text(_PROBE)
    job = await route.job(a, b)
    await job.start(f"until [ -e {base}/go ]; do sleep 0.02; done; /usr/bin/python3 -I {probe} {told}")
    assert a.guard is not None
    with standing_still([a.guard.pid]):
        route.restart(a)
        (base / "go").touch()
        await until(lambda: told.exists() and len(told.read_text().splitlines()) > 1, "some answers")
        first, *_ = told.read_text().splitlines()
        assert first == f"{int(Kind.AWAY)} the guard of a has not said yet whose job {job.number}.1 is"
    assert (await route.scheduler.next("a", wire.ProgramEnded, job_id=job.number)).exit == wire.Exit(0)
    assert told.read_text().splitlines()[-1].startswith(f"{int(Kind.ATTACHED)} ")


async def test_a_guard_that_is_killed_loses_no_stream(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    line = (
        f"echo before; touch {route.place}/up; until [ -e {route.place}/go ]; do sleep 0.02; done; echo after; exit 6"
    )
    again = f"until [ -e {route.place}/back ]; do sleep 0.02; done"  # for a guard that is away a call waits few seconds
    await job.start(f"$RSH -n b '{line}'; echo $?; {again}; $RSH -n b true; echo $?")
    await until((route.place / "up").exists, "the command to run")
    assert b.guard is not None
    met = b.log.read_text().count("connected to the guard")
    b.guard.kill()
    b.guard.wait()
    b.start_guard()
    (route.place / "go").touch()
    await until(lambda: b.log.read_text().count("connected to the guard") > met, "the agent to have the guard")
    (route.place / "back").touch()
    await route.scheduler.next("a", wire.ProgramEnded, job_id=job.number)
    assert await job.out() == "before\nafter\n6\n0\n"


async def test_a_caller_that_dies_with_its_agent_away_takes_its_command_along_when_the_job_is_killed(
    route: Route,
) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    await job.start("$RSH -n b 'exec sleep 611' & echo $!; wait")
    await until(lambda: sleeping(b, job.number) == ["611"], "the command to run")
    caller = int(await job.out())
    route.stop_agent(a)
    os.kill(caller, signal.SIGKILL)
    a.start_agent()
    assert sleeping(b, job.number) == ["611"]
    await route.kill(job, b)
    await until(lambda: not supervisors(b), "its supervisor to end")


def supervisors(node: Node) -> list[int]:
    """Living supervisors of a node's guard."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "comm").read_text() == "cosched-superv\n" and os.fsencode(node.config) in (
                path / "cmdline"
            ).read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


async def test_supervisors_end_when_their_caller_has_heard_all(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    await job.start("for i in 1 2 3; do $RSH -n b true; $RSH -n a true; done; touch $TMPDIR/x; sleep 1000")
    await until(lambda: len(list((b.state / "records").glob(f"{job.number}.1.*.exit"))) == 3, "three commands to end")
    await until(lambda: not supervisors(b), "their supervisors to end")
    assert not [each for each in (b.state / "jobs" / f"{job.number}.1").iterdir() if each.is_socket()]


async def test_a_command_that_is_asked_for_twice_is_started_once(route: Route) -> None:
    """Two calls of one name at the same time, as when a call is renewed before the first was heard of."""
    a, b = route.a, route.b
    job = await route.job(a, b)
    mark = route.place / "ran"
    what = Call(
        route.cluster.grant(job.number, ("a", "b"), epoch=EPOCH), "b", "a", wanted(f"echo x >> {mark}; sleep 0.3")
    )
    ends = await asyncio.gather(*(call(b, a.identity, what) for _ in range(4)), return_exceptions=True)
    assert (Kind.EXIT, b'{"status": 0}') in ends, ends  # the others had to give way to it
    assert mark.read_text() == "x\n"


async def test_a_renewed_call_in_a_job_that_is_being_killed_ends_quietly(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    await job.start("$RSH -n b 'exec sleep 612'; echo $?")
    await until(lambda: sleeping(b, job.number) == ["612"], "the command to run")
    route.restart(b)
    await route.kill(job, b)
    await route.scheduler.next("a", wire.ProgramEnded, job_id=job.number)
    assert await job.out("stderr") == ""
    assert await job.out() in ("255\n", "137\n", "143\n")


async def test_after_a_power_cut_the_scheduler_hears_that_the_job_is_of_another_boot(
    cluster: Cluster,
) -> None:
    pair = a, b = cluster.node("a"), cluster.node("b")
    async with cluster.scheduler() as scheduler:
        job = Job(cluster, scheduler, a, b)
        await job.prepare()
        await job.start("exec sleep 613")
        await until(lambda: sleeping(a) == ["613"], "the script to run")
        before = scheduler.hellos[-1].boot_id
        for node in pair:
            node.reboot()
            scheduler.links.pop(node.name, None)
            node.start_guard()
            node.start_agent()
        for node in pair:
            await until(lambda node=node: node.name in scheduler.links, f"{node.name} to join")  # type: ignore[misc]
            hello = next(each for each in reversed(scheduler.hellos) if each.node == node.name)
            assert hello.boot_id != before
            (report,) = hello.groups
            assert (report.job_id, report.attempt, report.rebooted) == (JOB, 1, True)
        assert (await scheduler.next("a", wire.ProgramEnded)).exit == wire.Exit(cause="unknown")
        for name in ("a", "b"):
            await scheduler.tell(name, wire.Kill(scheduler.fence, wire.OrderId(JOB, 1, 3), 0))
            await scheduler.next(name, wire.GroupEnded)
            await scheduler.tell(name, wire.Forget(scheduler.fence, wire.OrderId(JOB, 1, 4)))
        await until(lambda: not [*(a.state / "jobs").iterdir(), *(b.state / "jobs").iterdir()], "nothing to be left")


@pytest.mark.system("gcc")
async def test_a_step_of_the_wall_clock_neither_ends_a_lease_nor_a_job_nor_a_relaxation(cluster: Cluster) -> None:
    """An hour forth and back, at agent and guard; the scheduler's stands still."""
    clock = Clock(cluster.base)
    node = cluster.node("a", start=False)
    node.environment = clock.environment
    node.start_guard()
    node.start_agent()
    async with cluster.scheduler() as scheduler:
        scheduler.lease_us = 600_000_000  # no stall of this machine ends it: a step of an hour would, if clocks counted
        job = Job(cluster, scheduler, node)
        order = cluster.prepare(scheduler.fence, JOB, "a", limit_us=600_000_000)
        await scheduler.tell("a", order)
        await scheduler.next("a", wire.Prepared)
        await job.start("exec sleep 614")
        await until(lambda: sleeping(node) == ["614"], "the script to run")
        link = scheduler.links["a"]
        for shift_s in (3600, -3600, 0):
            clock.step(shift_s)
            scheduler.beats.clear()
            began_s = time.monotonic()
            # a lease of wall-clock seconds, or a limit, would end now
            await until(lambda: "a" in scheduler.beats and time.monotonic() > began_s + 0.5, "heartbeats")  # noqa: B023
            assert scheduler.links["a"] is link
            assert sleeping(node) == ["614"]
        assert not [message for _, message in scheduler.got if isinstance(message, wire.ProgramEnded | wire.GroupEnded)]
        assert len(scheduler.hellos) == 1
        for count, shift_s in ((2, 3600), (3, -3600)):  # certificates and all
            clock.step(shift_s)
            node.stop_agent(signal.SIGKILL)
            node.start_agent()
            await until(lambda: len(scheduler.hellos) == count, f"the agent to join, {shift_s} s off")  # noqa: B023
            assert scheduler.hellos[-1].groups[0].state == "running"
        assert sleeping(node) == ["614"]
