"""What is refused at submission: one case a kind, with status and message."""

import os
import re
from collections.abc import Callable
from io import BytesIO
from typing import Any

import msgspec
import pytest
from kit.service import ME, Cluster, Running, running

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput
from cosched.wire import messages as wire
from space_scheduler.service.access.problems import TooLarge
from space_scheduler.service.api.submissions import checked, decoded

FOREIGN = "#!/bin/sh\n# a comment\n#PBS -l nodes=2\n\n#SBATCH --mem=1G\ntrue\n#SBATCH -n 9\n"
GOOD: dict[str, Any] = {"script": "#!/bin/sh\ntrue\n", "directory": "/tmp"}


BAD: list[tuple[str, dict[str, Any], int, str]] = [
    ("script", {"script": ""}, 400, "submission: script: found ''; expected a script"),
    ("script", {"script": "echo hello"}, 400, "its first line is 'echo hello'; expected a script whose first"),
    ("script", {"script": "\x7fELF\x02\0"}, 400, "its first line is"),
    ("script", {"script": "#!/bin/sh\0\n"}, 400, "its first line is"),
    ("script", {"script": "#!\n"}, 400, "its first line is '#!'"),
    ("script", {"script": "#!/bin/sh\r\ntrue\r\n"}, 400, "its lines end with CR LF"),
    ("script", {"script": "#!/bin/sh\n" + "#" * (1 << 20)}, 413, "1048586 bytes; expected at most 1048576"),
    ("script", {"script": 7}, 400, "submission: script: found 7; expected str"),
    ("arguments", {"arguments": ["a", "b\0"]}, 400, "submission: arguments[1]: a NUL character in it"),
    ("arguments", {"arguments": ["a" * 200_000]}, 413, "200001 bytes; expected at most 131072"),
    ("arguments", {"arguments": ["x"] * 5000}, 413, "arguments: 5000 of them; expected at most 4000"),
    ("arguments", {"arguments": ["ü" * 40_000]}, 413, "arguments and environment: 240"),
    ("arguments", {"arguments": ["x" * 100_000], "environment": {"A": "y" * 100_000}}, 413, "bytes together"),
    ("output", {"directory": "/" + "d" * 3000, "output": "o" * 3000}, 400, "output: found"),
    ("tasks", {"tasks": 0}, 400, "submission: tasks: found 0; expected a number of tasks of at least 1"),
    ("tasks", {"tasks": -3}, 400, "submission: tasks: found -3"),
    ("tasks", {"tasks": "four"}, 400, "submission: tasks: found 'four'; expected int"),
    ("tasks", {"tasks": True}, 400, "submission: tasks: found True; expected int"),
    ("tasks", {"tasks": 2, "sizes": "1-8"}, 400, "submission: tasks: 2 beside other sizes; expected one number of"),
    ("sizes", {"sizes": "pow3"}, 400, "submission: sizes: 'pow3'; expected a number, a range such as 1-8"),
    ("sizes", {"sizes": 8}, 400, "submission: sizes: found 8; expected str"),
    ("sizes", {"sizes": "99999999"}, 400, "submission: sizes: found '99999999'; expected a size of at most 16777216"),
    ("sizes", {"sizes": "4;" * 2000 + "4"}, 413, "4001 characters; expected at most 4000"),
    ("sizes", {"sizes": "1-8", "max_tasks": 4}, 400, "submission: sizes: '1-8' beside a minimum or a maximum"),
    ("min_tasks", {"min_tasks": 0}, 400, "submission: min_tasks: found 0; expected a number of tasks of at least 1"),
    ("max_tasks", {"max_tasks": 1 << 25}, 400, "submission: max_tasks: found 33554432"),
    ("evolve_tasks", {"sizes": "pow2", "evolve_tasks": 2}, 400, "submission: evolve_tasks: 2 beside sizes"),
    ("evolve_tasks", {"evolve_tasks": 0}, 400, "submission: evolve_tasks: found 0"),
    ("min_tasks", {"min_tasks": 4, "max_tasks": 2}, 400, "submission: min_tasks: 4, above the maximum of 2"),
    ("components", {"components": [2, 1], "tasks": 4}, 400, "components: 2+1, 3 together, for 4 tasks; expected"),
    ("tasks", {"components": [0], "tasks": 0}, 400, "submission: tasks: found 0"),
    ("components", {"components": [], "tasks": 2}, 400, "tasks of 1 to 1000 components, each at least 1"),
    ("components", {"components": [3, 0], "tasks": 3}, 400, "tasks of 1 to 1000 components, each at least 1"),
    ("components", {"components": [1, 1], "sizes": "1-4"}, 400, "components: 1+1 beside other sizes"),
    ("components", {"components": [1, 1], "min_tasks": 1}, 400, "components: 1+1 beside other sizes"),
    ("components", {"components": "2+2", "tasks": 4}, 400, "components: found '2+2'; expected"),
    ("fold", {"fold": "yes"}, 400, "submission: fold: found 'yes'; expected bool"),
    ("job_class", {"job_class": "lang"}, 400, "job_class: found 'lang'; expected long or short; did you mean 'long'?"),
    ("time_limit_s", {"time_limit_s": 0}, 400, "time_limit_s: found 0.0; expected more than 0, at most 86400"),
    ("time_limit_s", {"time_limit_s": 1e9}, 400, "at most 86400 (1 d)"),
    ("time_limit_s", {"time_limit_s": 1e-9}, 400, "expected more than 0"),
    ("crossing", {"crossing": -0.1}, 400, "submission: crossing: found -0.1; expected from 0, at most "),
    ("crossing", {"crossing": 24, "time_limit_s": 3600}, 400, "crossing: found 24.0; expected from 0, at most 23: so"),
    ("crossing", {"crossing": 1e300}, 400, "submission: crossing: found 1e+300"),
    ("memory_bytes", {"memory_bytes": 0}, 400, "memory_bytes: found 0; expected a number of bytes of at least 1"),
    ("kind", {"kind": "cpi"}, 400, "submission: kind: found 'cpi'; expected cpu or comm; did you mean 'cpu'?"),
    ("directory", {"directory": "tmp"}, 400, "submission: directory: found 'tmp'; expected an absolute path"),
    ("directory", {"directory": "/a\0b"}, 400, "expected a path of at most 4095 bytes"),
    ("output", {"output": "logs/"}, 400, "submission: output: found 'logs/'; expected the path of a file"),
    ("error", {"error": ""}, 400, "submission: error: found ''"),
    ("output", {"output": "a%q"}, 400, "submission: output: found 'a%q'; expected %j (number), %x (name)"),
    ("output", {"output": "100%"}, 400, "%% is a % itself"),
    ("output", {"output": "%x" * 40, "name": "n" * 128}, 400, "submission: output: found "),
    ("script", {"script": FOREIGN, "foreign_directives": "refuse"}, 400, "line 3, '-l nodes=2' (its tasks are counted"),
    ("foreign_directives", {"foreign_directives": "war"}, 400, "expected warn or refuse; did you mean 'warn'?"),
    ("name", {"name": "a\nb"}, 400, "submission: name: found 'a\\nb'; expected at most 128 printable characters"),
    ("name", {"name": "x" * 129}, 400, "expected at most 128 printable characters"),
    ("environment", {"environment": {"A-B": "1"}}, 400, "environment.'A-B': not a variable's name"),
    ("environment", {"environment": {"A": "x\0"}}, 400, "environment.A: a value with a NUL character"),
    ("environment", {"environment": {"A": 1}}, 400, "submission: environment[...]: found {'A': 1}; expected str"),
    ("taks", {"taks": 4}, 400, "submission: taks: unknown key; expected one of script, arguments"),
    ("user", {"user": "root"}, 400, "submission: user: unknown key"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "change", "status", "words"), BAD)
def test_bad_submission_is_refused_by_its_key(key: str, change: dict[str, Any], status: int, words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(words)) as refused:
        checked(decoded(msgspec.json.encode(GOOD | change)), ClusterConfig(name="lab"))
    assert key in refused.value.where or key == "environment"
    assert isinstance(refused.value, TooLarge) == (status == 413)


async def test_refused_submission_is_answered_by_status_and_leaves_no_job(service: Running) -> None:
    for key, change, status, words in (BAD[0], next(each for each in BAD if each[2] == 413)):
        problem = await service.post("/v1/jobs", GOOD | change, status)
        assert words in problem["message"]
        assert key in problem["where"]
    problem = await service.post("/v1/jobs", GOOD | {"taks": 4}, 400)
    assert problem["nearest"] == "tasks"
    assert (await service.get("/v1/jobs"))["jobs"] == []


async def test_cluster_refuses_foreign_directives_unless_the_submission_warns(
    make_cluster: Callable[..., Cluster],
) -> None:
    async with running(make_cluster(foreign_directives="refuse")) as service, service.agent("n1"):
        foreign = GOOD | {"script": FOREIGN, "hold": True}
        problem = await service.post("/v1/jobs", foreign, 400)
        assert "of another batch system, and not read here; expected lines '#COSCHED OPTIONS'" in problem["message"]
        await service.post("/v1/jobs", foreign | {"foreign_directives": "warn"}, 201)
        await service.post("/v1/jobs", GOOD | {"script": "#!/bin/sh\n##SBATCH -n 4\n#HQ of ours\n"}, 201)


async def test_output_patterns_are_replaced_and_the_directorys_percents_kept(service: Running) -> None:
    async with service.agent("n1") as agent:
        asked = {"name": "a/b", "directory": "/d%j", "output": "%x-%j-%u-%N-%%", "error": "/e-%j"}
        job = await service.post("/v1/jobs", GOOD | asked | {"hold": True}, 201)
        assert (job["output"], job["error"]) == (f"/d%j/a_b-{job['job_id']}-{ME}-%N-%", f"/e-{job['job_id']}")
        await service.post(f"/v1/jobs/{job['job_id']}/release")
        run = await agent.heard(wire.Run)
        assert (run.output, run.error) == (f"/d%j/a_b-{job['job_id']}-{ME}-n1-%", f"/e-{job['job_id']}")


LOST = {"directory": "/tmp/x", "output": "/tmp/out.txt", "error": "/dev/shm/x/err"}


async def test_places_in_a_jobs_own_tmp_are_refused_where_all_nodes_have_it(service: Running) -> None:
    lost = {key: GOOD | {"hold": True, key: place} for key, place in LOST.items()}
    async with service.agent("n1", enforces={"private /tmp": "yes"}):
        for key, given in lost.items():
            problem = await service.post("/v1/jobs", given, 400)
            found = f"submission: {key}: {LOST[key]} is in a job's own /tmp, empty at its start; expected a place that"
            assert problem["message"].startswith(found)
        await service.post("/v1/jobs", GOOD | {"hold": True, "directory": "/tmp"}, 201)
        async with service.agent("n2", enforces={"private /tmp": "yes, but for /tmp/x"}):
            for given in lost.values():
                await service.post("/v1/jobs", given, 201)


async def test_a_body_that_is_no_submission(service: Running) -> None:
    async with service.http.post("/v1/jobs", data=b'{"script": ') as answer:
        assert answer.status == 400
        assert (await answer.json())["message"].startswith("body: not JSON: ")
    problem = await service.post("/v1/jobs", [], 400)
    assert problem["message"] == "submission: a list; expected keys and values"
    async with service.http.post("/v1/jobs", data=BytesIO(b"[" * 100_000)) as answer:
        assert answer.status == 400
    missing = await service.post("/v1/jobs", {"script": "#!/bin/sh\n"}, 400)
    assert "directory" in missing["message"]


async def test_a_body_that_is_too_long(service: Running) -> None:
    async with service.http.post("/v1/jobs", data=BytesIO(b" " * ((8 << 20) + 1))) as answer:
        assert answer.status == 413
        assert "longer than the 8388608 bytes" in (await answer.json())["message"]


async def test_a_job_that_could_never_start(make_cluster: Callable[..., Cluster]) -> None:
    remedy = "jobs over several nodes need user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    cluster = make_cluster(max_nodes_per_job=1, note=remedy)
    async with running(cluster) as service, service.agent("n1"), service.agent("n2"):
        wide = await service.post("/v1/jobs", GOOD | {"tasks": 9}, 422)
        assert wide["found"] == "wider_than_machine"
        assert "needs more processors than the machine has (procs=9, machine_procs=4)" in wide["message"]
        assert remedy not in wide["message"]
        spans = await service.post("/v1/jobs", GOOD | {"tasks": 3}, 422)
        assert spans["found"] == "spans_nodes"
        assert spans["message"].endswith(remedy)
        large = await service.post("/v1/jobs", GOOD | {"memory_bytes": 1 << 40}, 422)
        assert large["found"] == "task_too_large"


async def test_too_many_queued(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(max_queued=2)) as service, service.agent("n1"):
        for _ in range(2):
            await service.submit(hold=True)
        problem = await service.post("/v1/jobs", GOOD, 429)
        assert "2 jobs wait already" in problem["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be refused as root")
async def test_root_is_refused_unless_it_is_allowed(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(allow_root=False)) as service:
        problem = await service.post("/v1/jobs", GOOD, 403)
        assert "jobs of root are not accepted here (allow_root" in problem["message"]


async def test_a_full_journal_is_said_so(service: Running) -> None:
    async with service.agent("n1"):
        await service.submit(hold=True)
        await service.service.host.close()  # as if the core could not go on
        problem = await service.post("/v1/jobs", GOOD, 503)
        assert problem["message"]
