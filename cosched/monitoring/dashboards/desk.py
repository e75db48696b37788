"""The dashboard *desk*: what parallel work takes at one workstation, and whether its owner's contract is kept."""

from cosched.monitoring import recordings, series
from cosched.monitoring.dashboards import node_states
from cosched.monitoring.dashboards.queries import increase, least, most, quantile, recorded, total
from cosched.monitoring.dashboards.values import Dashboard, Panel, Query, Row, Variable, number

_NODE = "$node"

_NOW = (
    number(
        title="Tasks",
        description="Tasks of jobs that hold the node, and how many it takes at once (0 while it is out of service).",
        width=6,
        queries=(
            Query(total(series.NODE_TASKS, node=_NODE), "tasks"),
            Query(total(series.NODE_TASKS_LIMIT, node=_NODE), "at most"),
        ),
    ),
    number(
        title="Guard answers",
        description="The guard carries out limits and pauses; where it does not answer no job is started.",
        width=6,
        queries=(Query(least(series.NODE_GUARD_UP, node=_NODE), "answers"),),
        names=node_states.YES_IS_GOOD,
        alerts=("CoschedGuardLost",),
    ),
    number(
        title="Paused",
        description="Whether the desk's owner has paused parallel work.",
        width=6,
        queries=(Query(most(series.NODE_PAUSED, node=_NODE), "paused"),),
        names=node_states.YES_IS_BAD,
    ),
    number(
        title="Sources of presence that fail",
        description="Ways to see whether somebody is at the desk that do not work there. With none left it counts as "
        "used.",
        width=6,
        queries=(Query(total(series.NODE_PRESENCE_BLIND, node=_NODE), "fail"),),
        warn=1,
        fail=2,
    ),
)

_CONTRACT = (
    node_states.states(_NODE, 6),
    node_states.availability(_NODE, 6),
    node_states.cpus_by_side(_NODE),
    node_states.memory_by_side(_NODE),
    node_states.contract_reason(_NODE),
    Panel(
        title="Pauses",
        description="How often in the hour before each point parallel work was paused by the owner's word.",
        unit="none",
        height=6,
        queries=(Query(increase(series.NODE_PAUSES, "cluster", "node", node=_NODE), "{{node}}"),),
    ),
)

_FELT = (
    Panel(
        title="What the owner feels",
        description="How late a process of ordinary priority wakes up at the desk: half of the times less than p50, 99 "
        "of 100 times less than p99. A person notices what is above some tens of milliseconds.",
        unit="s",
        queries=tuple(
            Query(
                quantile(share / 100, series.NODE_OWNER_WAKEUP, "cluster", "node", node=_NODE),
                f"{{{{node}}}}: p{share}",
            )
            for share in (50, 99)
        ),
    ),
    Panel(
        title="Wake-ups that are late",
        description="The share of wake-ups at the desk that took more than 10 ms, in the 5 minutes and in the hour "
        "before each point. The budget is one in a hundred; alerts fire when a month's budget would be "
        "gone in days.",
        unit="percentunit",
        queries=tuple(
            Query(recorded(recordings.LATE[window], node=_NODE), f"{{{{node}}}}: {window}") for window in ("5m", "1h")
        ),
        alerts=("CoschedOwnerLatencyFast", "CoschedOwnerLatencySlow"),
    ),
    Panel(
        title="Pressure",
        description="The share of the time in which some process at the desk waited for CPU, memory or disk, by the "
        "kernel's own account, where that is on.",
        unit="percentunit",
        queries=(
            Query(most(series.NODE_PRESSURE, "cluster", "node", "resource", node=_NODE), "{{node}}: {{resource}}"),
        ),
    ),
)

_MORE = (
    node_states.last_heard(_NODE),
    Panel(
        title="Tasks of jobs",
        description="Over time, and how many the node takes at once.",
        unit="none",
        queries=(
            Query(total(series.NODE_TASKS, "node", node=_NODE), "{{node}}: tasks"),
            Query(total(series.NODE_TASKS_LIMIT, "node", node=_NODE), "{{node}}: at most"),
        ),
    ),
    Panel(
        title="Jobs that went first",
        description="How often in an hour jobs went before local users, for whom messages waited (coscheduling).",
        unit="none",
        queries=(Query(increase(series.NODE_RAISES, "node", node=_NODE), "{{node}}"),),
    ),
    Panel(
        title="Version of the link",
        description="Of the messages that are spoken with the agent; an older agent speaks an older one.",
        unit="none",
        queries=(Query(total(series.NODE_LINK_VERSION, "node", node=_NODE), "{{node}}"),),
    ),
)

DESK = Dashboard(
    uid="cosched-desk",
    title="cosched: desk",
    description="What parallel work takes at a workstation, what its contract leaves to it, and what its owner feels.",
    rows=(Row("Now", _NOW), Row("The contract", _CONTRACT), Row("What is felt", _FELT), Row("The node", _MORE)),
    variables=(Variable("node", "Node", f'label_values({series.NODE_STATE.name}{{cluster=~"$cluster"}}, node)'),),
)
