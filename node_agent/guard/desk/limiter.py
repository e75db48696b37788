"""The contract on the whole parallel side: armed from the start, relaxed on request for a while, armed by itself.

While it is armed it can be tightened for a while too, when the owner is in pain though it is kept.

Memory is limited always, and parallel work stays in the idle class: only the ceiling on CPU is ever lifted.
"""

import contextlib
import math
from typing import Any, Final, NamedTuple

from cosched.linux.cgroups import Cgroups
from cosched.linux.process import US_PER_S
from node_agent.guard.base.requests import Refusal, lease
from node_agent.guard.base.settings import Contract

#: Nobody is trusted for longer: a request beyond that is cut.
MAX_RELAX_US: Final = 120 * US_PER_S
#: systemd may write its own values over ours (daemon-reload), and a refused memory limit may fit later.
_AGAIN_US: Final = 10 * US_PER_S


class Limits(NamedTuple):
    """What parallel work may use, all jobs together (``cosched.model.contract.Limits``, without the count of tasks)."""

    cpus: float | None
    idle: bool
    memory_bytes: int


def limits(contract: Contract, counts_as_present: bool, cpus: int, memory_bytes: int) -> Limits:
    """What ``cosched.model.contract.limits`` says (a test compares them)."""
    ceiling = contract.cpu_ratio * cpus if counts_as_present and contract.cpu_ratio < 1 else None
    return Limits(ceiling, contract != Contract(1.0, 1.0, 1), int(contract.memory_ratio * memory_bytes))


class Limiter:
    """Who alone writes the contract's limits. ``owner`` is the maximum that ``node.toml`` allows."""

    def __init__(self, cgroups: Cgroups, owner: Contract, cpus: int, memory_bytes: int, epoch: int) -> None:
        self._cgroups = cgroups
        self._agreed = {"owner": owner, "cluster": owner, "desk": owner}
        self._machine = cpus, memory_bytes
        self._part = 1.0
        self.contract = owner
        self.armed = True
        self.until_us = 0
        self._tight, self._tight_until_us = 1.0, 0
        self.epoch = epoch
        self.problems: list[str] = []
        self._again_us = 0

    @property
    def limits(self) -> Limits:
        """What is in force, of a machine that may use all of its CPUs."""
        held = limits(self.contract, self.armed, *self._machine)
        if self._tight == 1.0 or not self.armed:
            return held
        return held._replace(cpus=(held.cpus or self._machine[0]) * self._tight)

    @property
    def ceiling_cpus(self) -> float | None:
        """The limit on CPU as the kernel has it: of what the groups around the parallel side leave."""
        cpus = self.limits.cpus
        return None if cpus is None else cpus * self._part

    def set_contract(self, cpu_ratio: float, memory_ratio: float, mpl: int, now_us: int) -> None:
        """The cluster's contract, cut by the owner's."""
        self._agreed["cluster"] = Contract(cpu_ratio, memory_ratio, mpl)
        self._agree(now_us)

    def set_share(self, cpu_ratio: float | None, now_us: int) -> None:
        """The share of the CPU that the desk's owner leaves; None: what the contract says. Never more than that."""
        owner = self._agreed["owner"]
        self._agreed["desk"] = owner if cpu_ratio is None else owner._replace(cpu_ratio=cpu_ratio)
        self._agree(now_us)

    def _agree(self, now_us: int) -> None:
        self.contract = Contract(*map(min, zip(*self._agreed.values(), strict=True)))
        self._apply(now_us)

    def relax(self, until_us: int, epoch: int, now_us: int) -> int:
        """No ceiling until then, at most for :data:`MAX_RELAX_US`. Returns until when. Raises :class:`Refusal`."""
        if epoch < self.epoch:
            raise Refusal("stale", f"relax of epoch {epoch}; epoch {self.epoch} has been seen")
        self.epoch = epoch
        self.until_us = lease(until_us, now_us, MAX_RELAX_US, "relax ")
        if self.armed:
            self.armed = False
            self._apply(now_us)
            if self.problems and self._ceiling_failed():
                self.arm(now_us)
                raise Refusal("failed", "; ".join(self.problems))
        return self.until_us

    def tighten(self, ratio: float, until_us: int, now_us: int) -> None:
        """While armed, only this share of the ceiling until then. Raises :class:`Refusal` for a moment that is over."""
        until_us, before = lease(until_us, now_us, MAX_RELAX_US, "tighten "), self._tight
        self._tight, self._tight_until_us = ratio, until_us
        if ratio != before:
            self._apply(now_us)

    def arm(self, now_us: int) -> None:
        """The ceiling holds from now on, whatever is believed to be in the kernel."""
        self.armed, self.until_us = True, 0
        self._apply(now_us)

    def tick(self, now_us: int) -> str | None:
        """Do what is due. Returns why the guard has armed by itself, if it has."""
        if not self.armed and now_us >= self.until_us:
            self.arm(now_us)
            return "expired"
        if self._tight < 1.0 and now_us >= self._tight_until_us:
            self._tight = 1.0
            self._apply(now_us)
        if now_us >= self._again_us:
            self._apply(now_us)
        return None

    def due_us(self) -> int:
        """When :meth:`tick` is wanted next."""
        moments = (
            (self._again_us, True),
            (self.until_us, not self.armed),
            (self._tight_until_us, self._tight < 1.0),
        )
        return min(moment for moment, counts in moments if counts)

    def status_fields(self) -> dict[str, Any]:
        """For ``status``."""
        return {
            "armed": self.armed,
            "until_us": self.until_us,
            "epoch": self.epoch,
            "contract": self.contract._asdict(),
            "contract_cpus": limits(self.contract, True, *self._machine).cpus,
            "tight": self._tight,
            "limits": {**self.limits._asdict(), "problems": self.problems},
        }

    def _apply(self, now_us: int) -> None:
        above = math.inf
        with contextlib.suppress(OSError):
            above = self._cgroups.cpus_above()
        self._part = min(1.0, above / self._machine[0])
        self.problems = self._cgroups.set_limits(*self.limits._replace(cpus=self.ceiling_cpus))
        self._again_us = now_us + (US_PER_S if self._ceiling_failed() else _AGAIN_US)

    def _ceiling_failed(self) -> bool:
        return self._cgroups.kernel_groups and any(problem.startswith("CPU") for problem in self.problems)
