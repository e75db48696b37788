"""The launch route between real agents: from a job on one node into the same job on another, and what is refused."""

import asyncio
import os
import pwd
import ssl
import sys

import msgspec
import pytest
from kit.agents import Cluster, until
from kit.routes import EPOCH, Job, Route, call, sleeping, wanted

from cosched.identity.authority import create_authority, issue
from cosched.wire import messages as wire
from cosched.wire.grant import Grant
from cosched.wire.stream import Kind
from node_agent.service.rsh_proxy import Call

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_command_runs_in_the_jobs_cgroup_on_the_other_node(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    ended = await job.run(
        """
        echo in | $RSH -x b 'cat; echo "at $COSCHED_NODE $(id -un) $HOME"; grep -m1 /job- /proc/self/cgroup; exit 7'
        echo "status $?"
        $RSH a 'echo "at $COSCHED_NODE too"'
        $RSH b 'kill -9 $$'; echo "status $?"
        $RSH b 'echo problem >&2'
        """
    )
    assert ended.exit == wire.Exit(0)
    lines = (await job.out()).splitlines()
    assert lines[:2] == ["in", f"at b root {pwd.getpwnam('root').pw_dir}"]
    assert lines[2].endswith(f"/{b.group}/cosched/job-{job.number}.1")
    assert lines[3:] == ["status 7", "at a too", "status 137"]
    assert await job.out("stderr") == "problem\n"


async def test_command_names_this_nodes_programs_where_it_named_the_callers(route: Route) -> None:
    """Open MPI 4's daemon refuses a remote shell whose path, the first node's, is not there."""
    a, b = route.a, route.b
    job = await route.job(a, b)
    theirs = f'-mca agent "{a.run}/bin/cosched-rsh" rank={a.run}/bin/cosched-rank {a.run}/jobs/{job.number}.1/nodes'
    await job.run(f"$RSH b 'echo {theirs} {a.run}/bin/cosched-rshd {a.run}/jobs/{job.number}.11/nodes'")
    ours = theirs.replace(str(a.run), str(b.run)).replace('"', "")
    assert await job.out() == f"{ours} {a.run}/bin/cosched-rshd {a.run}/jobs/{job.number}.11/nodes\n"


async def test_any_node_may_call_any_other(route: Route) -> None:
    nodes = [route.a, route.b, route.c]
    job = await route.job(*nodes)
    ended = await job.run("""$RSH b '$RSH c "\\$RSH a hostname -s >/dev/null && echo \\$COSCHED_NODE"' """)
    assert (ended.exit, await job.out()) == (wire.Exit(0), "c\n")


async def test_big_output_and_input_go_through_whole(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    await job.run(
        """
        head -c 20000000 /dev/urandom > "$TMPDIR/big"
        cksum < "$TMPDIR/big"
        $RSH b cat < "$TMPDIR/big" | (sleep 0.2; cksum)
        $RSH b cksum < "$TMPDIR/big"
        $RSH b 'exec <&-; echo deaf' < "$TMPDIR/big"
        rm "$TMPDIR/big"
        """
    )
    first, *others = (await job.out()).splitlines()
    assert others == [first, first, "deaf"]


async def test_output_after_the_commands_own_end_is_not_lost_and_a_daemon_holds_nobody_up(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    ended = await job.run("""$RSH -n b 'head -c 60000 /dev/zero; sleep 600 & exit 4' | wc -c; exit 5""")
    assert (ended.exit, await job.out()) == (wire.Exit(5), "60000\n")


async def test_when_the_caller_is_killed_its_command_is_and_nothing_else(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    await job.start(
        f"""
        $RSH -n b 'exec sleep 601' & first=$!
        $RSH b 'exec sleep 602' < /dev/zero & second=$!
        $RSH -n b 'exec sleep 603' &
        until [ -e {route.place}/go ]; do sleep 0.05; done
        kill -9 $first $second
        wait
        """
    )
    await until(lambda: len(sleeping(b, job.number)) == 3, "the commands to run")
    (route.place / "go").touch()
    await until(lambda: sleeping(b, job.number) == ["603"], "two of them to be killed")
    assert sleeping(b, job.number) == ["603"]


async def test_signals_reach_the_command(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    await job.run(
        f"""
        $RSH -n b 'trap "echo caught; exit 9" TERM; touch {route.place}/ready; while :; do sleep 0.05; done' & pid=$!
        until [ -e {route.place}/ready ]; do sleep 0.05; done
        kill -TERM $pid; wait $pid; echo "status $?"
        """
    )
    assert await job.out() == "caught\nstatus 9\n"


async def test_a_host_that_is_not_the_jobs_is_refused(route: Route) -> None:
    job = await route.job(route.a, route.b)
    await job.run("$RSH c true; echo $?; $RSH localhost true; echo $?")
    assert await job.out() == "255\n255\n"
    words = f"is not a node of job {job.number}; its nodes are a, b"
    assert await job.out("stderr") == f"cosched-rsh: c: c {words}\ncosched-rsh: localhost: localhost {words}\n"


async def test_outside_any_job_it_is_refused(route: Route) -> None:
    await route.job(route.a, route.b)
    ended = await asyncio.to_thread(route.a.rsh, "-n", "b", "true")
    assert ended.returncode == 255
    assert b"is not part of a job" in ended.stderr


async def test_another_users_process_in_the_jobs_cgroup_is_refused(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    probe = route.place / "probe.py"
    probe.write_text(
        "import os, socket\n"
        'request = b\'{"host": "b", "command": "true", "id": "%s", "stdout": 0, "stderr": 0, "again": false}\'\n'
        "request = request.replace(b'%s', b'0' * 32)\n"
        "os.chdir(os.path.dirname(os.environ['COSCHED_AGENT_SOCKET']))\n"  # the job's /tmp is closed to others
        "for uid in (0, 2):\n"
        "    os.setresuid(uid, uid, 0)\n"
        "    with socket.socket(socket.AF_UNIX) as s:\n"
        "        s.connect('agent.sock')\n"
        "        s.sendall(b'\\1' + len(request).to_bytes(4, 'big') + request)\n"
        "        said = b''\n"
        "        while b'status' not in said and b'user' not in said:\n"
        "            said += s.recv(1000)\n"
        "        print(said.split(b'\\0')[-1][1:].decode())\n"
    )
    await job.run(f"{sys.executable} {probe}")
    assert await job.out("stderr") == ""
    assert await job.out() == f'{{"status": 0}}\nuser 2 is not the one whose job {job.number}.1 is\n'


def ordinary_user() -> str:
    """Somebody who may log in, such as Debian's ``sync``."""
    for entry in pwd.getpwall():
        if entry.pw_uid != 0 and os.path.basename(entry.pw_shell) not in {"nologin", "false"}:
            return entry.pw_name
    pytest.skip("needs a user other than root who may log in")


async def test_an_ordinary_users_job_reaches_its_nodes_as_that_user(route: Route) -> None:
    a, b = route.a, route.b
    user = ordinary_user()
    job = await route.job(a, b, user=user)
    await job.run("id -un; $RSH -n b 'id -un; touch $TMPDIR/own && stat -c %U $TMPDIR/own; cat $COSCHED_NODE_FILE'")
    lines = (await job.out()).splitlines()
    assert await job.out("stderr") == ""
    assert lines == [user, user, user, "127.0.0.1 slots=1", "127.0.0.1 slots=1"]


@pytest.mark.slow
async def test_a_node_that_is_not_there_is_told(route: Route) -> None:
    d = route.cluster.node("d", start=False)
    job = await route.job(route.a, d)
    await job.run("$RSH -n d true; echo $?")
    assert await job.out() == "255\n"
    assert f"d (127.0.0.1 port {d.port}) cannot be reached" in await job.out("stderr")


async def test_the_route_needs_no_scheduler(cluster: Cluster) -> None:
    a, b = cluster.node("a"), cluster.node("b")
    async with cluster.scheduler() as scheduler:
        job = Job(cluster, scheduler, a, b)
        await job.prepare()
        go, done = a.base / "go", a.base / "done"
        await job.start(
            f"until [ -e {go} ]; do sleep 0.05; done; $RSH -n b true && echo $? > {done}.new; mv {done}.new {done}"
        )
    go.touch()
    assert (await until(lambda: done.exists() and done.read_text(), "the job to go on")) == "0\n"


async def test_what_the_target_refuses(route: Route) -> None:
    """From node a's own certificate, so that each refusal is for the reason that is tested."""
    a, b, c = route.a, route.b, route.c
    job = await route.job(a, b)
    mark = route.place / "ran"
    n, grant = job.number, route.cluster.grant
    good = grant(n, ("a", "b"), epoch=4)
    touch = wanted(f"touch {mark}")
    forged = good[:64] + msgspec.msgpack.encode(Grant("c" * 32, 4, n, 1, "root", ("a", "b", "c")))
    refused: dict[str, Call | bytes] = {
        "a signature that is not the scheduler's": Call(forged, "b", "a", touch),
        "epoch 3; this job was prepared in epoch 4": Call(grant(n, ("a", "b"), epoch=3), "b", "a", touch),
        f"job {n + 1}.1 is not prepared on b": Call(grant(n + 1, ("a", "b"), epoch=4), "b", "a", touch),
        f"job {n}.2 is not prepared on b": Call(grant(n, ("a", "b"), epoch=4, attempt=2), "b", "a", touch),
        "this is b": Call(good, "a", "a", touch),
        f"is not a node of job {n}": Call(grant(n, ("b", "c"), epoch=4), "b", "a", touch),
        f"job {n}.1 is root's": Call(grant(n, ("a", "b"), "daemon", epoch=4), "b", "a", touch),
        "is not a call": b"\x93\x01\x02\x03",
    }
    for words, what in refused.items():
        kind, message = await call(b, a.identity, what)
        assert kind is Kind.FAIL
        assert words in message.decode()
    replayed = Call(good, "b", "a", touch, challenge=bytes(16))  # of a connection that was recorded
    kind, message = await call(b, a.identity, replayed)
    assert kind is Kind.FAIL
    assert message == b"the call of a answers another connection's challenge: it was replayed"
    kind, message = await call(b, c.identity, Call(good, "b", "a", touch))  # a's call, with c's certificate
    assert (kind, message) == (Kind.FAIL, f"c is not a node of job {n}".encode())
    assert not mark.exists()
    assert (await call(b, a.identity, Call(good, "b", "a", touch)))[0] is Kind.EXIT
    assert mark.exists()


async def test_a_node_that_has_left_a_job_calls_in_vain_with_its_old_grant(route: Route) -> None:
    """The node that is called goes by the newest grant of the two, as the job's nodes may be told one after another."""
    a, b, c = route.a, route.b, route.c
    job = await route.job(a, b, c)
    of_before = route.cluster.grant(job.number, ("a", "b", "c"), epoch=EPOCH)
    for caller in (a, c):
        assert (await call(b, caller.identity, Call(of_before, "b", caller.name, wanted("true"))))[0] is Kind.EXIT
    renewed = route.cluster.grant(job.number, ("a", "b"), epoch=EPOCH, serial=1)
    peers = (a.peer(), b.peer())
    resize = wire.Resize(route.scheduler.fence, wire.OrderId(job.number, 1, 5), 1, 1, peers, renewed)
    await route.scheduler.tell("b", resize)
    resized = await route.scheduler.next("b", wire.Resized)
    assert (resized.order, len(resized.cpus)) == (resize.order, 1)
    kind, message = await call(b, c.identity, Call(of_before, "b", "c", wanted("true")))
    assert (kind, message.decode()) == (
        Kind.FAIL, f"c is not a node of job {job.number}.1 any more: its grant is of before",
    )  # fmt: skip
    assert (await call(b, a.identity, Call(of_before, "b", "a", wanted("true"))))[0] is Kind.EXIT
    await route.scheduler.tell(
        "b", msgspec.structs.replace(resize, order=wire.OrderId(job.number, 1, 6), grant=of_before)
    )
    refused = await route.scheduler.next("b", wire.Refused)
    assert (refused.code, refused.message) == ("stale", "a grant of epoch 4, serial 0; here is 4, 1")


async def test_a_call_is_worth_nothing_once_the_job_is_being_killed(route: Route) -> None:
    a, b = route.a, route.b
    job = await route.job(a, b)
    replayed = Call(route.cluster.grant(job.number, ("a", "b"), epoch=EPOCH), "b", "a", wanted("true"))
    assert (await call(b, a.identity, replayed))[0] is Kind.EXIT
    await route.kill(job, b)
    assert await call(b, a.identity, replayed) == (Kind.FAIL, f"job {job.number}.1 is not prepared on b".encode())


async def test_certificates_of_others_get_nowhere(route: Route) -> None:
    b, cluster = route.b, route.cluster
    create_authority(cluster.base / "other", "other")
    stranger, user = cluster.base / "stranger", cluster.base / "user"
    issue(cluster.base / "other", "node", "a", stranger)
    (stranger / "ca.pem").write_bytes((b.identity / "ca.pem").read_bytes())
    issue(cluster.authority, "user", "ann", user)
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        await call(b, stranger, b"")
    kind, message = await call(b, user, b"")
    assert kind is Kind.FAIL
    assert message == b"certificate: of user 'ann'; expected of node"
    with pytest.raises(ssl.SSLCertVerificationError):
        await call(b, user, b"", name="c")


async def test_what_is_no_request_is_refused_at_the_local_door(route: Route) -> None:
    a = route.a
    job = await route.job(a)
    probe = route.place / "probe.py"
    probe.write_text(
        "import os, socket\n"
        "for said in ('0900000000', '01000000027b7d', '01ffffffff', '01000000046e756c6c'):\n"
        "    with socket.socket(socket.AF_UNIX) as s:\n"
        "        s.connect(os.environ['COSCHED_AGENT_SOCKET'])\n"
        "        s.sendall(bytes.fromhex(said))\n"
        "        print(s.recv(1000)[5:].decode())\n"
    )
    await job.run(f"{sys.executable} {probe}")
    assert (await job.out()).splitlines() == ["what was said is not a request"] * 4
