"""What a run has measured so far, and against which targets: for the exporter meanwhile, for the summary at the end.

A target counts as held within 10 %. Where it is not, ``why`` says what is known of the reason.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from local_load.histogram import Histogram
from local_load.probe import CALLS, OWN, SAMPLE
from local_load.profile import Profile

TOLERANCE: Final = 0.1
PROBE_BUDGET: Final = 0.01
_LONG_S: Final = 120.0
_SHORT: Final = "too short a time for what varies to average out"


@dataclass
class Room:
    """What memory the user may take: the profile's target, and what he is left with by contract or machine."""

    node_bytes: int
    target_bytes: int
    allowed_bytes: int
    reserve_bytes: int
    why: str = ""


def room(profile: Profile, node_bytes: int, contract_ratio: float | None, *, beyond: bool) -> Room:
    """Memory for a user of a node; ``contract_ratio`` is parallel work's share by contract (None: no contract).

    The contract's share of the node stays free for parallel work unless the user may go ``beyond``; a reserve, that the
    machine itself does not run out, always does.
    """
    target = round(profile.memory_share * node_bytes)
    reserve = max(32 << 20, node_bytes // 50)
    allowed, why = max(0, node_bytes - reserve), "the node has no more"
    if contract_ratio is not None and not beyond:
        left = max(0, round((1 - contract_ratio) * node_bytes))
        if left < allowed:
            allowed, why = left, f"the contract leaves {1 - contract_ratio:.0%} (--beyond-contract takes more)"
    return Room(node_bytes, target, min(target, allowed), reserve, why if allowed < target else "")


@dataclass
class Calls:
    """Latencies of one call: ``response`` from the moment it was due, ``own`` from its real start."""

    response: Histogram = field(default_factory=Histogram)
    own: Histogram = field(default_factory=Histogram)
    not_made: int = 0


@dataclass
class Measured:
    """Sums over the sessions so far. Use is the user's own; ``probe_cpu_s`` is the probe's."""

    profile: Profile
    room: Room
    present: bool = False
    sessions: int = 0
    present_s: float = 0.0
    late_s: float = 0.0
    cpu_s: float = 0.0
    wire_bytes: int = 0
    memory_bytes: int = 0
    memory_seconds: float = 0.0  # byte seconds
    lost_keys: int = 0
    refused_memory: bool = False
    line_problem: str = ""
    problems: list[str] = field(default_factory=list)
    logins: int = 0
    calls: dict[str, Calls] = field(default_factory=dict)
    probe_cpu_s: float = 0.0
    probe_s: float = 0.0
    unsent: int = 0
    _last: dict[str, float] = field(default_factory=dict)
    _own: tuple[int, int, int] | None = None

    def begin_session(self) -> None:
        """He sits down."""
        self.present = True
        self.sessions += 1
        self._last = {}
        self._own = None

    def end_session(self) -> None:
        """He has left."""
        self.present = False
        self.memory_bytes = 0

    def use(self, told: dict[str, Any]) -> None:
        """Take in what the user says of himself; his figures count from the beginning of his session."""
        passed_s = told["elapsed_s"] - self._last.get("elapsed_s", 0.0)
        self.present_s += passed_s
        self.memory_seconds += told["memory_bytes"] * passed_s
        self.late_s += told["late_s"] - self._last.get("late_s", 0.0)
        self.cpu_s += told["cpu_s"] - self._last.get("cpu_s", 0.0)
        self.wire_bytes += told["wire_bytes"] - round(self._last.get("wire_bytes", 0))
        self.lost_keys += told["lost_keys"] - round(self._last.get("lost_keys", 0))
        self.memory_bytes = told["memory_bytes"]
        self.refused_memory |= told["memory_refused"]
        self.line_problem = told["line_problem"] or self.line_problem
        self._last = {key: told[key] for key in ("elapsed_s", "late_s", "cpu_s", "wire_bytes", "lost_keys")}

    def samples(self, data: bytes) -> bytes:
        """Take in samples (whole ones); gives back those of calls, for the file."""
        kept = []
        for record in SAMPLE.iter_unpack(data):
            call, skipped, _, response_ns, own_ns = record
            if call == OWN:
                self._cost(record[2], response_ns, own_ns)
                continue
            kept.append(SAMPLE.pack(*record))
            self.add(CALLS[call], response_ns, own_ns, made=not skipped)
        return b"".join(kept)

    def add(self, call: str, response_ns: int, own_ns: int, *, made: bool = True) -> None:
        """Count a latency."""
        calls = self.calls.setdefault(call, Calls())
        calls.response.add(response_ns)
        if made:
            calls.own.add(own_ns)
        else:
            calls.not_made += 1

    def _cost(self, at_ns: int, cpu_ns: int, unsent: int) -> None:
        if self._own is not None:  # what it took to start is not what it costs to run
            self.probe_cpu_s += (cpu_ns - self._own[1]) / 1e9
            self.probe_s += (at_ns - self._own[0]) / 1e9
            self.unsent += unsent - self._own[2]
        self._own = at_ns, cpu_ns, unsent

    def targets(self) -> dict[str, dict[str, Any]]:
        """CPU, memory and network: target, achieved, whether it was held, and if not, why."""
        there_s = self.present_s or 1.0
        found = {
            "cpu": self._target("share", self.profile.cpu_share, self.cpu_s / there_s),
            "memory": self._target("bytes", self.room.target_bytes, round(self.memory_seconds / there_s)),
            "network": self._target("bytes_per_s", self.profile.network_bytes_per_s, self.wire_bytes / there_s),
        }
        found["memory"]["share"] = found["memory"]["achieved_bytes"] / self.room.node_bytes
        whys = {"cpu": self._why_cpu(found["cpu"]), "memory": self._why_memory(), "network": self._why_network()}
        for name, what in found.items():
            if not what["held"]:
                what["why"] = whys[name] if self.present_s else "nobody was there"
        return found

    @staticmethod
    def _target(unit: str, target: float, achieved: float) -> dict[str, Any]:
        held = abs(achieved - target) <= TOLERANCE * target
        return {f"target_{unit}": target, f"achieved_{unit}": achieved, "held": held, "why": ""}

    def _waited(self) -> str:
        return f"he waited {self.late_s:.1f} s for the CPU" if self.late_s > 0.02 * self.present_s else ""

    def _why_network(self) -> str:
        return self.line_problem or self._waited() or (_SHORT if self.present_s < _LONG_S else "unknown")

    def _why_cpu(self, cpu: dict[str, Any]) -> str:
        if waited := self._waited():
            return waited
        if cpu["achieved_share"] > cpu["target_share"]:
            return "interaction alone costs more than that here"
        return _SHORT if self.present_s < _LONG_S else "unknown"

    def _why_memory(self) -> str:
        if self.room.why:
            return self.room.why
        if self.refused_memory:
            return "so much was not free"
        return "his processes alone hold that much" if self.memory_seconds else "unknown"

    def summary(self) -> dict[str, Any]:
        """Everything, for JSON."""
        cost = self.probe_cpu_s / self.probe_s if self.probe_s else 0.0
        return {
            "profile": self.profile.name,
            "sessions": self.sessions,
            "present_s": round(self.present_s, 3),
            "late_s": round(self.late_s, 3),
            "node_memory_bytes": self.room.node_bytes,
            "targets": self.targets(),
            "calls": {
                name: calls.response.summary() | {"own_p50_s": calls.own.quantile_s(0.5), "not_made": calls.not_made}
                for name, calls in sorted(self.calls.items())
            },
            "lost_keys": self.lost_keys,
            "logins": self.logins,
            "probe": {"cpu_ratio": cost, "within_budget": cost <= PROBE_BUDGET, "lost_samples": self.unsent},
            "problems": self.problems,
        }
