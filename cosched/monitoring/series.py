"""Every series that the scheduler exports at ``/metrics``, as a value: its name, kind, labels, unit and meaning.

The exporter, the reference in the guide, rules and dashboards take the names from here, so that none of them can ask
for what is not there; a test compares what a running scheduler exports. Names begin with ``cosched_`` and end with
their base unit. A label whose values are known beforehand has all of them from the start, at 0. None is called as one
that the scrape gives to all series (``cluster``): a cluster of several that one scheduler has is a ``lab``.
"""

from typing import Final, Literal

import msgspec

from cosched.linux.wakeups import BOUNDS_S
from cosched.model.desk import PUBLIC_REASONS, Availability
from cosched.model.job import TERMINAL, JobState

Kind = Literal["gauge", "counter", "histogram", "summary"]


class Label(msgspec.Struct, frozen=True):
    """A label; ``values`` are all that it may have, empty where they are not known beforehand (nodes, routes)."""

    name: str
    values: tuple[str, ...] = ()


class Series(msgspec.Struct, frozen=True):
    """One family of series. ``unit`` of a value is empty for a count and for yes (1) or no (0).

    ``buckets``: the upper bounds of a histogram, without the last, which is infinite.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> list[str]:
        """The labels' names, in their order."""
        return [each.name for each in self.labels]


NODE_STATES: Final = ("up", "draining", "drained", "closed", "lost", "asleep", "unknown")
AVAILABILITIES: Final = tuple(each.value for each in Availability)
#: What the kernel tells the pressure of.
RESOURCES: Final = ("cpu", "memory", "io")
SIDES: Final = ("parallel", "local", "system")
#: What these use tells of who is at a desk: it is for operators (docs/guide/privacy.md).
PRIVATE_SIDES: Final = ("local", "system")
#: Why a job may not be queued yet; a reason of a cluster's own rules that is none of these counts as the last.
WAITING_REASONS: Final = ("held", "set_aside", "after_job", "think_time", "rule_failed", "not_eligible")
SET_ASIDE_CAUSES: Final = ("launches", "losses")
#: What a node says otherwise: a job's map, its places or CPUs, that nothing of it is there, that it is there.
DIFFERENCE_KINDS: Final = ("map", "share", "missing", "stray")
#: Why what an agent sent was refused.
REFUSED_KINDS: Final = (
    *("undecodable", "foreign", "replayed", "out of order", "oversized", "fenced", "second hello"),
    *("hello", "version", "removed", "certificate"),
)
HTTP_METHODS: Final = ("GET", "POST", "other")
_MINUTE: Final = 60
_HOUR: Final = 3600
_WAIT_BUCKETS_S: Final = (1, 5, 15, 60, 300, 900, _HOUR, 4 * _HOUR, 12 * _HOUR, 24 * _HOUR, 72 * _HOUR)
_RUN_BUCKETS_S: Final = (1, 10, 60, 300, 900, _HOUR, 4 * _HOUR, 12 * _HOUR, 24 * _HOUR, 72 * _HOUR)
_SLOWDOWN_BUCKETS: Final = (1, 1.5, 2, 5, 10, 20, 50, 100, 500, 1000)
_ERROR_BUCKETS_S: Final = (
    *(-4 * _HOUR, -_HOUR, -15 * _MINUTE, -5 * _MINUTE, -_MINUTE, -5),
    *(5, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR),
)
_SHORT_BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5)
_HTTP_BUCKETS_S: Final = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)

_NODE: Final = Label("node")
_ALIVE: Final = Label("state", tuple(each.value for each in JobState if each not in TERMINAL))
_ENDED: Final = Label("state", tuple(each.value for each in JobState if each in TERMINAL))
_SIDE: Final = Label("side", SIDES)


def _gauge(name: str, words: str, *labels: Label, unit: str = "") -> Series:
    return Series(name, "gauge", words, labels, unit)


def _counter(name: str, words: str, *labels: Label, unit: str = "") -> Series:
    return Series(name, "counter", words, labels, unit)


def _histogram(name: str, words: str, buckets: tuple[float, ...], *labels: Label, unit: str = "seconds") -> Series:
    return Series(name, "histogram", words, labels, unit, buckets)


# jobs and the queue

JOBS: Final = _gauge("cosched_jobs", "Jobs alive.", _ALIVE)
JOBS_WAITING: Final = _gauge(
    "cosched_jobs_waiting", "Jobs that may not be queued yet.", Label("reason", WAITING_REASONS)
)
JOBS_SET_ASIDE: Final = _gauge(
    "cosched_jobs_set_aside", "Jobs that passes leave out, since planning fails with them; they are tried again."
)
JOBS_ENDED: Final = _counter("cosched_jobs_ended_total", "Jobs that have ended, in all starts of the service.", _ENDED)
JOB_PROCESSES: Final = _gauge("cosched_job_processes", "Processes of jobs that hold nodes.")
JOB_PROCS: Final = _gauge("cosched_job_procs", "Processors that they have.")
QUEUE_WAIT: Final = _histogram(
    "cosched_queue_wait_seconds", "From a job's submission to the decision to start it.", _WAIT_BUCKETS_S
)
QUEUE_OLDEST_WAIT: Final = _gauge(
    "cosched_queue_oldest_wait_seconds",
    "For how long the job has waited that was submitted first of those that may start; 0 where none waits.",
    unit="seconds",
)
JOB_RUN: Final = _histogram(
    "cosched_job_run_seconds", "From a job's start to its end, of those that ran.", _RUN_BUCKETS_S
)
JOB_SLOWDOWN: Final = _histogram(
    "cosched_job_bounded_slowdown",
    "Response by run time, short jobs counted as 10 s, 1 at least; of jobs that ran to an end.",
    _SLOWDOWN_BUCKETS,
    unit="ratio",
)
JOB_PREDICTION_ERROR: Final = _histogram(
    "cosched_job_prediction_error_seconds",
    "A job's start less the start that it was promised first; below 0: it started earlier.",
    _ERROR_BUCKETS_S,
)
USER_CPU: Final = _counter(
    "cosched_user_cpu_seconds_total",
    "CPU that ended jobs have used, by user: of the first hundred since the service's start, and of all others.",
    Label("user"),
    unit="seconds",
)

# nodes

NODES: Final = _gauge("cosched_nodes", "Nodes of the allow-list.", Label("state", NODE_STATES))
AGENTS_CONNECTED: Final = _gauge("cosched_agents_connected", "Agents that are connected.")
NODE_STATE: Final = _gauge(
    "cosched_node_state", "1 for the state that the node is in.", _NODE, Label("state", NODE_STATES)
)
NODE_CPUS: Final = _gauge("cosched_node_cpus", "CPUs that the machine has.", _NODE, unit="CPUs")
NODE_MEMORY: Final = _gauge("cosched_node_memory_bytes", "Memory that the machine has.", _NODE, unit="bytes")
NODE_TASKS: Final = _gauge("cosched_node_tasks", "Tasks of jobs that hold the node.", _NODE)
NODE_TASKS_LIMIT: Final = _gauge(
    "cosched_node_tasks_limit", "Tasks that it takes at once; 0 while out of service.", _NODE
)
NODE_LAST_HEARD: Final = _gauge(
    "cosched_node_last_heard_timestamp_seconds",
    "When its agent was last heard, in seconds since 1970; 0: not since the service's start.",
    _NODE,
    unit="seconds",
)
NODE_AVAILABLE: Final = _gauge(
    "cosched_node_available",
    "1 for what holds: free for parallel work; limited by the contract; not available.",
    _NODE,
    Label("availability", AVAILABILITIES),
)
CLUSTER_AVAILABLE: Final = _gauge(
    "cosched_cluster_available",
    "Nodes of a cluster by what holds: free for parallel work, limited by the contract, not available.",
    Label("lab"),
    Label("availability", AVAILABILITIES),
)
NODE_GUARD_UP: Final = _gauge("cosched_node_guard_up", "1 where the guard answers its agent.", _NODE)
NODE_WITHOUT_GUARD: Final = _gauge("cosched_node_without_guard", "1 where the guard does not answer.", _NODE)
NODE_PAUSED: Final = _gauge(
    "cosched_node_paused",
    "1 where parallel work is paused by the owner's word; not where it is closed by hours.",
    _NODE,
)
NODE_STALLED_JOBS: Final = _gauge(
    "cosched_node_stalled_jobs", "Jobs whose processes cannot be ended there: a file system does not answer.", _NODE
)
NODE_HELD_PROCS: Final = _gauge(
    "cosched_node_held_procs", "Processors that are held there by what is left of ended jobs.", _NODE
)
NODE_CPUS_USED: Final = _gauge(
    "cosched_node_cpus_used", "CPUs in use, by side; but for parallel, told to operators.", _NODE, _SIDE, unit="CPUs"
)
NODE_MEMORY_USED: Final = _gauge(
    "cosched_node_memory_used_bytes",
    "Memory in use, by side; but for parallel, told to operators.",
    _NODE,
    _SIDE,
    unit="bytes",
)
NODE_LIMITED_CPUS: Final = _gauge(
    "cosched_node_limited_cpus", "The ceiling for parallel work, while there is one.", _NODE, unit="CPUs"
)
NODE_PRESENCE_BLIND: Final = _gauge("cosched_node_presence_blind", "Sources of presence that fail.", _NODE)
NODE_RAISES: Final = _counter(
    "cosched_node_raises_total", "How often jobs went first there, since its agent started.", _NODE
)
NODE_LINK_VERSION: Final = _gauge("cosched_node_link_version", "Of the link's messages that are spoken with it.", _NODE)
NODE_CLUSTER: Final = _gauge(
    "cosched_node_cluster", "1 for its cluster, where it is another than the scheduler's own.", _NODE, Label("lab")
)
NODE_WAKE_CALLS: Final = _counter(
    "cosched_node_wake_calls_total", "How often it was called from its sleep, since the scheduler started.", _NODE
)
NODES_SET_ASIDE: Final = _counter(
    "cosched_nodes_set_aside_total", "Nodes that the scheduler drained.", Label("cause", SET_ASIDE_CAUSES)
)
NODE_DIFFERENCES: Final = _counter(
    "cosched_node_differences_total",
    "Jobs of which a node's heartbeat says something else than the scheduler's book; each is repaired.",
    Label("kind", DIFFERENCE_KINDS),
)

# what agents say of the contract with their heartbeats, where they know it

NODE_CONTRACT_CPUS: Final = _gauge(
    "cosched_node_contract_cpus", "CPUs that the contract leaves to parallel work now.", _NODE, unit="CPUs"
)
NODE_CONTRACT_REASON: Final = _gauge(
    "cosched_node_contract_reason", "1 for why it leaves so many.", _NODE, Label("reason", PUBLIC_REASONS)
)
NODE_PAUSES: Final = _counter(
    "cosched_node_pauses_total", "How often parallel work was paused there, since its guard started.", _NODE
)
NODE_PRESSURE: Final = _gauge(
    "cosched_node_pressure_ratio",
    "Share of the last seconds in which some process of the owner's, or of the machine's, waited for a resource.",
    _NODE,
    Label("resource", RESOURCES),
    unit="ratio",
)
NODE_OWNER_WAKEUP: Final = _histogram(
    "cosched_node_owner_wakeup_seconds",
    "How late a process of ordinary priority wakes up beside the owner's.",
    BOUNDS_S,
    _NODE,
)

# the service

ACCEPTING: Final = _gauge("cosched_accepting", "Whether jobs are accepted.")
POLICY_FAILING: Final = _gauge("cosched_policy_failing", "1 while passes fail: nothing new starts.")
PROCS: Final = _gauge("cosched_procs", "Processors in service.")
PROCS_FREE: Final = _gauge("cosched_procs_free", "Processors that no job holds.")
PASSES: Final = _counter("cosched_passes_total", "Scheduling passes.")
PASS_DURATION: Final = _histogram(
    "cosched_pass_duration_seconds",
    "How long a scheduling pass took, without its commit; not the first of a start.",
    _SHORT_BUCKETS_S,
)
RECORD_DIFFERENCES: Final = _counter(
    "cosched_record_differences_total",
    "Snapshots at which the core's jobs and the service's records of them differed: a start may refuse the journal.",
)
EVENTS: Final = _counter("cosched_events_total", "Events in the journal since the start.", Label("kind"))
INSTRUCTIONS: Final = _counter(
    "cosched_instructions_total", "Decisions by their reason.", Label("kind"), Label("reason")
)
JOURNAL_COMMIT: Final = _histogram(
    "cosched_journal_commit_seconds", "From an event's arrival to its being in the journal.", _SHORT_BUCKETS_S
)
JOURNAL_BYTES: Final = _gauge("cosched_journal_bytes", "What the journal takes on disk.", unit="bytes")
JOURNAL_FREE_BYTES: Final = _gauge(
    "cosched_journal_free_bytes", "What is free on the journal's disk for the service's user.", unit="bytes"
)
CERTIFICATE_EXPIRY: Final = _gauge(
    "cosched_certificate_expiry_timestamp_seconds",
    "When a certificate expires, in seconds since 1970: the authority's, the scheduler's, that with which a node came.",
    Label("identity"),
    unit="seconds",
)
MESSAGES_REFUSED: Final = _counter(
    "cosched_messages_refused_total", "What agents sent in vain.", Label("kind", REFUSED_KINDS)
)
CONNECTIONS_REFUSED: Final = _counter("cosched_connections_refused_total", "Connections for which there was no place.")
SLOW_READERS: Final = _counter("cosched_slow_readers_total", "Connections cut off unread.")
HTTP_REQUESTS: Final = _counter(
    "cosched_http_requests_total",
    "Requests answered, by route and status; the agents' connections are not among them.",
    Label("route"),
    Label("method", HTTP_METHODS),
    Label("code"),
)
HTTP_DURATION: Final = _histogram(
    "cosched_http_request_duration_seconds",
    "From a request's head to the end of its answer; requests that wait for a job are among them.",
    _HTTP_BUCKETS_S,
    Label("route"),
)
BUILD_INFO: Final = _gauge("cosched_build_info", "1, with the service's version.", Label("version"))

# the service's process, by prometheus_client

PROCESS: Final = (
    _gauge("process_virtual_memory_bytes", "Virtual memory of the service's process.", unit="bytes"),
    _gauge("process_resident_memory_bytes", "Resident memory of the service's process.", unit="bytes"),
    _gauge("process_start_time_seconds", "When the service's process started, since 1970.", unit="seconds"),
    _counter("process_cpu_seconds_total", "CPU that the service's process has used.", unit="seconds"),
    _gauge("process_open_fds", "Descriptors that the service's process has open."),
    _gauge("process_max_fds", "Descriptors that it may have open."),
)

#: All of them, in the order of this page.
ALL: Final[tuple[Series, ...]] = (
    *(each for each in list(globals().values()) if isinstance(each, Series)),
    *PROCESS,
)
