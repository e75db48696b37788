"""What the demo saw: samples of nodes while it ran, and the jobs as the service's history has them."""

from dataclasses import dataclass, field

from cosched.wire.api import NodeDoc


@dataclass
class Desk:
    """One node over the demo. Times in seconds of the samples' clock, CPU in CPU seconds."""

    present_s: float = 0.0
    away_s: float = 0.0
    parallel_cpu_present_s: float = 0.0
    parallel_cpu_away_s: float = 0.0
    limited_s: float = 0.0
    lowest_ceiling_cpus: float | None = None
    arrivals: int = 0


@dataclass
class Account:
    """Adds up what successive views of the nodes say."""

    desks: dict[str, Desk] = field(default_factory=dict)
    _last_s: float | None = None
    _present: dict[str, bool] = field(default_factory=dict)

    def sample(self, nodes: list[NodeDoc], now_s: float) -> None:
        """Take in a view of the nodes at ``now_s``; it stands for the time since the view before."""
        past_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        for node in nodes:
            desk = self.desks.setdefault(node.name, Desk())
            present = node.occupied
            if present and not self._present.get(node.name, False):
                desk.arrivals += 1
            self._present[node.name] = present
            used = max(0.0, node.usage.cpu_parallel) * past_s if node.usage else 0.0
            if present:
                desk.present_s += past_s
                desk.parallel_cpu_present_s += used
            else:
                desk.away_s += past_s
                desk.parallel_cpu_away_s += used
            if node.limited_cpus is not None:
                desk.limited_s += past_s
                lowest = desk.lowest_ceiling_cpus
                desk.lowest_ceiling_cpus = min(node.limited_cpus, lowest if lowest is not None else node.limited_cpus)
