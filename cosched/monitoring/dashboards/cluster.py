"""The dashboard *cluster*: whether all is well, and where it is not."""

from cosched.monitoring import series
from cosched.monitoring.dashboards import node_states
from cosched.monitoring.dashboards.jobs import ALIVE
from cosched.monitoring.dashboards.policies import PASS_LENGTH
from cosched.monitoring.dashboards.queries import least, most, picked, quantile, rate, total
from cosched.monitoring.dashboards.values import Dashboard, Panel, Query, Row, number

_ANY = ".*"
_PROCESS = {each.name: each for each in series.PROCESS}

_NOW = (
    number(
        title="Scheduler",
        description="Whether Prometheus reaches the scheduler. Jobs go on while it is down; none starts.",
        width=3,
        queries=(Query('min(up{job="cosched", cluster=~"$cluster"})', "reached"),),
        names=node_states.YES_IS_GOOD,
        alerts=("CoschedSchedulerDown",),
    ),
    number(
        title="Accepts jobs",
        description="It refuses them while its journal cannot be written.",
        width=3,
        queries=(Query(least(series.ACCEPTING), "accepts"),),
        names=node_states.YES_IS_GOOD,
        alerts=("CoschedJournalFull",),
    ),
    number(
        title="Policy fails",
        description="Whether passes of the scheduling policy fail, so that no job starts. They are tried again.",
        width=3,
        queries=(Query(most(series.POLICY_FAILING), "fails"),),
        names=node_states.YES_IS_BAD,
        alerts=("CoschedPolicyFails",),
    ),
    number(
        title="Jobs set aside",
        description="Jobs that passes leave out, since planning fails with them. Others start.",
        width=3,
        queries=(Query(most(series.JOBS_SET_ASIDE), "set aside"),),
        alerts=("CoschedJobSetAside",),
    ),
    number(
        title="Nodes",
        description="Nodes of the allow-list, by state.",
        width=6,
        queries=(Query(total(series.NODES, "state"), "{{state}}"),),
    ),
    number(
        title="Jobs",
        description="Jobs that wait, run, or are on their way from the one to the other.",
        width=6,
        queries=(Query(total(series.JOBS, "state"), "{{state}}"),),
    ),
    Panel(
        title="Alerts that fire",
        description="What the alert rules have found. Each has a section in the guide's page of runbooks.",
        unit="none",
        kind="table",
        width=24,
        height=5,
        queries=(Query('ALERTS{alertname=~"Cosched.*", alertstate="firing", cluster=~"$cluster"}'),),
    ),
)

_USE = (
    Panel(
        title="Processors",
        description="Processors in service, and those that jobs hold.",
        unit="none",
        queries=(
            Query(total(series.PROCS), "in service"),
            Query(f"{total(series.PROCS)} - {total(series.PROCS_FREE)}", "held by jobs"),
        ),
    ),
    ALIVE,
    node_states.cpus_by_side(_ANY),
    node_states.memory_by_side(_ANY),
)

_NODES = (
    node_states.states(_ANY, 10, opens_desk=True),
    node_states.availability(_ANY, 10, opens_desk=True),
    node_states.last_heard(_ANY),
    Panel(
        title="Guards that do not answer, and desks paused",
        description="A node whose guard does not answer takes no new jobs. A desk is paused by its owner's word.",
        unit="none",
        queries=(
            Query(
                f"count({picked(series.NODE_GUARD_UP)}) - {total(series.NODE_GUARD_UP)}", "guards that do not answer"
            ),
            Query(total(series.NODE_PAUSED), "desks paused"),
        ),
        alerts=("CoschedGuardLost",),
    ),
    Panel(
        title="Jobs that cannot be ended",
        description="Their processes hear no signal: a file system does not answer. What they hold takes nothing new.",
        unit="none",
        queries=(
            Query(total(series.NODE_STALLED_JOBS), "jobs"),
            Query(total(series.NODE_HELD_PROCS), "processors held by ended jobs"),
        ),
        alerts=("CoschedJobsCannotEnd",),
    ),
    Panel(
        title="Desks by availability",
        description="How many are free for parallel work, limited by their contracts, or not available. Where a site "
        "has no series of single desks, this is what is told of them.",
        unit="none",
        kind="stacked",
        queries=(Query(total(series.CLUSTER_AVAILABLE, "availability"), "{{availability}}"),),
    ),
    Panel(
        title="Nodes that the scheduler drained",
        description="Since its start, by cause: launches that failed there one after another, or losses.",
        unit="none",
        queries=(Query(total(series.NODES_SET_ASIDE, "cause"), "{{cause}}"),),
    ),
    Panel(
        title="Nodes called from their sleep",
        description="Since the scheduler's start, for jobs that wait, where their owners agree.",
        unit="none",
        queries=(Query(total(series.NODE_WAKE_CALLS), "calls"),),
    ),
    Panel(
        title="Agents",
        description="Agents that are connected, and nodes of the allow-list.",
        unit="none",
        queries=(
            Query(total(series.AGENTS_CONNECTED), "agents connected"),
            Query(total(series.NODES), "nodes"),
        ),
        alerts=("CoschedAgentLost",),
    ),
)

_SERVICE = (
    PASS_LENGTH,
    Panel(
        title="Commits to the journal",
        description="From an event's arrival to its being in the journal on disk.",
        unit="s",
        queries=tuple(Query(quantile(share / 100, series.JOURNAL_COMMIT), f"p{share}") for share in (50, 99)),
        alerts=("CoschedSchedulerLag",),
    ),
    Panel(
        title="Requests",
        description="What the API has answered, by status.",
        unit="reqps",
        kind="stacked",
        queries=(Query(rate(series.HTTP_REQUESTS, "code"), "{{code}}"),),
    ),
    Panel(
        title="Answers",
        description="How long the API takes to answer, 95 times of 100, by route. Requests that wait for a job's end "
        "are among them.",
        unit="s",
        queries=(Query(quantile(0.95, series.HTTP_DURATION, "route"), "{{route}}"),),
    ),
    Panel(
        title="CPU of the scheduler's process",
        description="In CPUs.",
        unit="none",
        queries=(Query(rate(_PROCESS["process_cpu_seconds_total"], job="cosched"), "CPUs"),),
    ),
    Panel(
        title="Memory of the scheduler's process",
        description="What is resident.",
        unit="bytes",
        queries=(Query(total(_PROCESS["process_resident_memory_bytes"], job="cosched"), "resident"),),
    ),
    Panel(
        title="Journal",
        description="What the journal takes on disk, and what is free there for the service.",
        unit="bytes",
        queries=(
            Query(total(series.JOURNAL_BYTES), "journal"),
            Query(least(series.JOURNAL_FREE_BYTES), "free"),
        ),
        alerts=("CoschedJournalFull", "CoschedJournalFilling"),
    ),
    Panel(
        title="Certificates",
        description="So long until each expires: the authority's, the scheduler's, and those that nodes came with.",
        unit="s",
        queries=(Query(f"{most(series.CERTIFICATE_EXPIRY, 'identity')} - time()", "{{identity}}"),),
        alerts=("CoschedCertificateExpiring", "CoschedCertificateExpired"),
    ),
    Panel(
        title="Refused",
        description="What agents sent in vain, by kind, and connections for which there was no place or that were cut "
        "off since nobody read them.",
        unit="cps",
        queries=(
            Query(rate(series.MESSAGES_REFUSED, "kind"), "message: {{kind}}"),
            Query(rate(series.CONNECTIONS_REFUSED), "connection: no place"),
            Query(rate(series.SLOW_READERS), "connection: not read"),
        ),
    ),
    Panel(
        title="Versions",
        description="Of the scheduler's software.",
        unit="none",
        kind="table",
        queries=(Query(f"count by (cluster, version) ({picked(series.BUILD_INFO)})"),),
    ),
)

CLUSTER = Dashboard(
    uid="cosched-cluster",
    title="cosched: cluster",
    description="Whether all is well, and where it is not: nodes, processors, and the scheduler itself.",
    rows=(Row("Now", _NOW), Row("Use", _USE), Row("Nodes", _NODES), Row("The scheduler", _SERVICE)),
)
