"""States of nodes as graphs show them: names and colours, and the panels that more than one dashboard has."""

from cosched.model.desk import PUBLIC_REASONS
from cosched.monitoring import series
from cosched.monitoring.dashboards.queries import coded, picked, total
from cosched.monitoring.dashboards.values import Named, Panel, Query

_COLOURS = {
    "up": "green",
    "draining": "yellow",
    "drained": "blue",
    "closed": "light-blue",
    "lost": "red",
    "asleep": "purple",
    "unknown": "dark-red",
    "free": "green",
    "limited": "yellow",
    "not_available": "red",
    "armed": "yellow",
    "scheduler_silent": "orange",
    "not_relaxed": "dark-yellow",
    "relaxed": "green",
    "paused": "blue",
    "no_guard": "red",
    "agent_silent": "dark-red",
}


def _named(values: tuple[str, ...]) -> tuple[Named, ...]:
    """The values of a label, numbered from 1."""
    return tuple(Named(at, value, _COLOURS.get(value, "text")) for at, value in enumerate(values, 1))


STATES = _named(series.NODE_STATES)
AVAILABILITY = _named(series.AVAILABILITIES)
REASONS = _named(PUBLIC_REASONS)
#: Of series that are 1 or 0.
YES_IS_BAD = (Named(0, "no", "green"), Named(1, "yes", "red"))
YES_IS_GOOD = (Named(0, "no", "red"), Named(1, "yes", "green"))
_PRIVATE = "By local users and by the system too where Prometheus asks with an operator's certificate."


def states(node: str, height: int, *, opens_desk: bool = False) -> Panel:
    """Each node's state over time; ``node`` is a regular expression of their names."""
    return Panel(
        title="States of nodes",
        description="What each node is to the scheduler: up; draining and drained, by a person's or the scheduler's "
        "own word; closed, outside of its owner's hours; lost, when it was not heard for a lease; asleep, when "
        "it said that it was to be suspended; unknown, when it has not joined since the scheduler's start.",
        unit="none",
        kind="states",
        queries=(Query(coded(series.NODE_STATE, "state", STATES, "cluster", "node", node=node), "{{node}}"),),
        names=STATES,
        height=height,
        alerts=("CoschedAgentLost",),
        opens_desk=opens_desk,
    )


def availability(node: str, height: int, *, opens_desk: bool = False) -> Panel:
    """What parallel work may do at each desk over time."""
    return Panel(
        title="Availability of desks",
        description="Whether parallel work may use the whole desk (free), a part of it (limited), or nothing "
        "(not_available). Who is at a desk is not told here.",
        unit="none",
        kind="states",
        queries=(
            Query(coded(series.NODE_AVAILABLE, "availability", AVAILABILITY, "cluster", "node", node=node), "{{node}}"),
        ),
        names=AVAILABILITY,
        height=height,
        opens_desk=opens_desk,
    )


def cpus_by_side(node: str) -> Panel:
    """CPUs in use, by who uses them, below the ceiling of parallel work."""
    return Panel(
        title="CPUs in use",
        description=f"By parallel jobs, and what contracts leave to them, which their line must stay below. {_PRIVATE}",
        unit="none",
        queries=(
            Query(total(series.NODE_CPUS_USED, "side", node=node), "{{side}}"),
            Query(total(series.NODE_CONTRACT_CPUS, node=node), "left to parallel work by contracts"),
        ),
        alerts=("CoschedDeskOverContract",),
    )


def memory_by_side(node: str) -> Panel:
    """Memory in use, by who uses it, and what there is."""
    return Panel(
        title="Memory in use",
        description=f"By parallel jobs, and all that the nodes have. {_PRIVATE}",
        unit="bytes",
        queries=(
            Query(total(series.NODE_MEMORY_USED, "side", node=node), "{{side}}"),
            Query(total(series.NODE_MEMORY, node=node), "all there is"),
        ),
    )


def contract_reason(node: str) -> Panel:
    """Why each desk's contract leaves so much to parallel work, over time."""
    return Panel(
        title="Why the contract leaves so much",
        description="armed: the ceiling holds, as for a desk that is used; relaxed: no user is present, and there is "
        "none; not_relaxed: it is about to be lifted; paused: by the owner's word; scheduler_silent, "
        "agent_silent, no_guard: one of them was not heard, and the ceiling holds if a guard is there; "
        "asleep: the machine is suspended; closed: outside of the owner's hours.",
        unit="none",
        kind="states",
        height=6,
        queries=(
            Query(
                coded(series.NODE_CONTRACT_REASON, "reason", REASONS, "cluster", "node", node=node),
                "{{node}}",
            ),
        ),
        names=REASONS,
    )


def last_heard(node: str) -> Panel:
    """For how long each node has been silent."""
    heard = picked(series.NODE_LAST_HEARD, node=node)
    return Panel(
        title="Silence of agents",
        description="For how long nothing was heard of each node's agent. An agent is heard once a second; after a "
        "lease of silence its node is lost. A node that was not heard since the scheduler's start is not "
        "drawn.",
        unit="s",
        queries=(Query(f"time() - ({heard} > 0)", "{{node}}"),),
        alerts=("CoschedAgentLost",),
    )
