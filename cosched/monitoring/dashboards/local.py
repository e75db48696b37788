"""The dashboard *local users*: what a synthetic user feels beside parallel work (Fig. 10 of the paper, live)."""

from cosched.monitoring import local, recordings, series
from cosched.monitoring.dashboards import node_states
from cosched.monitoring.dashboards.queries import OFTEN, beyond, most, quantile, rate, recorded, total
from cosched.monitoring.dashboards.values import Dashboard, Panel, Query, Row, Variable

_NODE = "$node"
_AT = {"node": _NODE, "profile": "$profile"}
_BY = ("profile", "call")
_CALLS = "|".join(local.SYSCALLS)
_DUE = "From the moment at which each was due to its end, by the user's profile and the call"


def _percentile(share: int, words: str) -> Panel:
    return Panel(
        title=f"Calls: p{share}",
        description=f"{_DUE}: {words} less. A person notices what is above 400 ms.",
        unit="s",
        queries=(Query(quantile(share / 100, local.RESPONSE, *_BY, **_AT), "{{profile}}: {{call}}"),),
    )


_FELT = (
    _percentile(50, "half of them take"),
    _percentile(99, "99 of 100 take"),
    Panel(
        title="Above 400 ms, by desk",
        description="The share of system calls in the 5 minutes before each point that took longer than the paper's "
        "line. The alert fires above 1 % while jobs hold the desk: then p99 is beyond the line.",
        unit="percentunit",
        queries=(Query(recorded(recordings.NOTICED, node=_NODE), "{{node}}"),),
        alerts=("CoschedDeskCallsSlow",),
    ),
    Panel(
        title="Above 400 ms, by profile and call",
        description="The share of calls that took longer than the paper's line.",
        unit="percentunit",
        queries=(Query(beyond(local.NOTICED_S, local.RESPONSE, *_BY, window=OFTEN, **_AT), "{{profile}}: {{call}}"),),
    ),
)

_BESIDE = (
    Panel(
        title="Parallel work and the contract",
        description="CPUs that jobs use at each desk, and what its contract leaves to them: the latency above belongs "
        "to these.",
        unit="none",
        queries=(
            Query(total(series.NODE_CPUS_USED, "node", node=_NODE, side="parallel"), "{{node}}: used by jobs"),
            Query(total(series.NODE_CONTRACT_CPUS, "node", node=_NODE), "{{node}}: left by the contract"),
        ),
        alerts=("CoschedDeskOverContract",),
    ),
    Panel(
        title="Tasks of jobs",
        description="At each desk; more than one on a CPU is the multiprogramming level of the paper.",
        unit="none",
        queries=(Query(total(series.NODE_TASKS, "node", node=_NODE), "{{node}}"),),
    ),
    node_states.contract_reason(_NODE),
    Panel(
        title="The user is there",
        description="1 while the synthetic user sits at the desk.",
        unit="none",
        height=6,
        queries=(Query(most(local.PRESENT, "node", "profile", **_AT), "{{node}}: {{profile}}"),),
    ),
)

_USE = (
    Panel(
        title="CPU of the user",
        description="What the synthetic user uses, and what the profile asks for, in CPUs; far below: it waits.",
        unit="none",
        queries=(
            Query(rate(local.CPU, "node", **_AT), "{{node}}: used"),
            Query(total(local.TARGET_CPU, "node", **_AT), "{{node}}: asked for"),
        ),
    ),
    Panel(
        title="Memory of the user",
        description="What it holds, and what the profile asks for.",
        unit="bytes",
        queries=(
            Query(total(local.MEMORY, "node", **_AT), "{{node}}: held"),
            Query(total(local.TARGET_MEMORY, "node", **_AT), "{{node}}: asked for"),
        ),
    ),
    Panel(
        title="Network of the user",
        description="Bytes on the wire both ways, and what the profile asks for.",
        unit="Bps",
        queries=(
            Query(rate(local.NETWORK, "node", **_AT), "{{node}}: used"),
            Query(total(local.TARGET_NETWORK, "node", **_AT), "{{node}}: asked for"),
        ),
    ),
    Panel(
        title="Calls that were measured",
        description="So many a second; none where the user is away. Keys and samples that were lost beside them.",
        unit="cps",
        queries=(
            Query(rate(local.RESPONSE, "node", part="_count", call=_CALLS, **_AT), "{{node}}: system calls"),
            Query(rate(local.LOST_KEYS, "node", **_AT), "{{node}}: lost keys"),
            Query(rate(local.PROBE_LOST, "node", **_AT), "{{node}}: lost samples"),
        ),
    ),
)

LOCAL = Dashboard(
    uid="cosched-local",
    title="cosched: local users",
    description="What synthetic users feel at desks that run cosched local-load, and what parallel work does beside.",
    rows=(Row("What is felt", _FELT), Row("Beside it", _BESIDE), Row("What the user takes", _USE)),
    variables=(
        Variable("node", "Node", f'label_values({local.PRESENT.name}{{cluster=~"$cluster"}}, node)'),
        Variable("profile", "Profile", f'label_values({local.PRESENT.name}{{cluster=~"$cluster"}}, profile)'),
    ),
)
