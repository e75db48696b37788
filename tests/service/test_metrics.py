"""/metrics: what Prometheus reads, with base units and few labels."""

from kit.service import Running
from prometheus_client.parser import text_string_to_metric_families

from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire

MORE = {"identity", "route", "method", "code", "user"}


async def samples(service: Running) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    async with service.http.get("/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await answer.text()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_is_measured(service: Running) -> None:
    async with service.agent("n1", cluster="lab-a") as agent:
        await agent.beat()
        await service.beaten("n1")
        await agent.connection.send(b"\xff")
        first = await service.runs()
        await agent.ends(first, wire.Exit(status=0))
        await service.job_in(first, "completed")
        await service.submit(hold=True)
        await service.runs(tasks=2)
        found = await samples(service)

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted(labels.items()))]

    assert value("cosched_jobs", state="running") == 1
    assert value("cosched_jobs", state="waiting") == value("cosched_jobs_waiting", reason="held") == 1
    assert value("cosched_jobs", state="queued") == 0
    assert value("cosched_jobs_ended_total", state="completed") == 1
    assert value("cosched_jobs_ended_total", state="failed") == 0
    assert value("cosched_nodes", state="up") == 1
    assert value("cosched_nodes", state="unknown") == 2
    assert (value("cosched_procs"), value("cosched_procs_free")) == (2, 0)
    assert (value("cosched_job_processes"), value("cosched_job_procs")) == (2, 2)
    assert value("cosched_agents_connected") == 1
    assert value("cosched_queue_wait_seconds_count") == 2
    assert value("cosched_journal_commit_seconds_count") >= 4
    assert value("cosched_events_total", kind="JobSubmitted") == 3
    assert value("cosched_instructions_total", kind="Start", reason="fits") == 2
    assert value("cosched_passes_total") >= 2
    assert value("cosched_messages_refused_total", kind="undecodable") == 1
    assert value("cosched_node_cpus_used", node="n1", side="parallel") == 0.5
    assert value("cosched_node_memory_used_bytes", node="n1", side="system") == 3
    assert value("cosched_node_available", node="n1", availability="limited") == 1
    assert value("cosched_node_available", node="n1", availability="free") == 0
    assert value("cosched_node_available", node="n2", availability="not_available") == 1
    assert value("cosched_node_state", node="n1", state="up") == 1
    assert value("cosched_node_state", node="n2", state="unknown") == 1
    assert (value("cosched_node_tasks", node="n1"), value("cosched_node_tasks_limit", node="n1")) == (2, 2)
    assert value("cosched_node_guard_up", node="n1") == 1
    assert value("cosched_node_last_heard_timestamp_seconds", node="n1") > value("process_start_time_seconds") > 1e9
    assert value("cosched_node_last_heard_timestamp_seconds", node="n2") == 0
    assert value("cosched_certificate_expiry_timestamp_seconds", identity="node/n1") > 1e9
    assert value("cosched_job_run_seconds_count") == value("cosched_job_bounded_slowdown_count") == 1
    assert value("cosched_queue_oldest_wait_seconds") == 0
    assert value("cosched_pass_duration_seconds_count") >= 1
    assert value("cosched_journal_bytes") > 0
    assert value("cosched_journal_free_bytes") > 0
    assert value("cosched_http_requests_total", route="/v1/jobs", method="POST", code="201") == 3
    assert value("cosched_http_requests_total", route="/v1/jobs/{id}", method="GET", code="200") >= 3
    assert value("cosched_node_presence_blind", node="n1") == 0
    assert value("cosched_node_limited_cpus", node="n1") == 1.5
    assert value("cosched_node_cluster", node="n1", lab="lab-a") == 1
    assert value("cosched_accepting") == 1
    labels = {name for _, pairs in found for name, _ in pairs}
    assert labels <= {"state", "node", "side", "availability", "kind", "reason", "le", "version", "cause", "lab"} | MORE


async def test_a_figure_that_cannot_be_had_is_left_out(service: Running) -> None:
    async with service.agent("n1") as agent:
        await agent.say(wire.Heartbeat(Usage(cpu_local=1.0), Presence.PRESENT))
        await service.beaten("n1", Presence.PRESENT)
        found = await samples(service)
    cpus = {labels: value for (name, labels), value in found.items() if name == "cosched_node_cpus_used"}
    assert cpus == {(("node", "n1"), ("side", "local")): 1.0}


async def test_sources_of_presence_that_fail_are_counted_and_named(service: Running) -> None:
    async with service.agent("n1") as agent:
        blind = ("sessions: /run/systemd/sessions: Permission denied", "input: /dev/input: Permission denied")
        await agent.say(wire.Heartbeat(Usage(), Presence.UNKNOWN, blind=blind))
        await service.beaten("n1", Presence.UNKNOWN)
        assert (await samples(service))["cosched_node_presence_blind", (("node", "n1"),)] == 2
        told = {node["name"]: node["blind"] for node in (await service.get("/v1/nodes"))["nodes"]}
    assert told["n1"] == list(blind)
