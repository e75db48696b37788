"""What a simulation is made of: the settings of ``simulate`` and ``compare``, from options, a file or a manifest."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from cosched.config.between import read_between
from cosched.config.site import SiteSettings
from cosched.config.units import duration_us
from cosched.errors import BadInput
from cosched.model.components import MOST_COMPONENTS, Between, Dividing, Partition
from cosched.model.time import US_PER_S
from cosched.workload import speedups
from cosched.workload.estimates import EstimateModel, parse
from cosched.workload.rules import MAX_PROCS, AtLimit, InputRules, NegativeTimes, NeverRan, ProcsFrom
from cosched.workload.shapes import Work
from cosched.workload.swf import ExtraColumns

#: No site has more; what says so is a mistake.
MOST_CLUSTERS: Final = 1000
MAX_DELAY_US: Final = 30 * 86_400 * US_PER_S


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One log under one or more policies. Every setting is also an option of the command line."""

    log: str = ""
    policies: list[str] = []
    order: str | None = None
    select: str | None = None
    procs: int | None = None
    ties: str = "batch"
    procs_from: ProcsFrom = ProcsFrom.ALLOCATED
    never_ran: NeverRan = NeverRan.DROP
    negative_times: NegativeTimes = NegativeTimes.SKIP
    at_limit: AtLimit = AtLimit.KILL
    preceding: bool = False
    estimates: str = "user"
    seed: int = 1
    load: float | None = None
    launch_delay: str = "0s"
    strict: bool = False
    extra_columns: ExtraColumns = ExtraColumns.SKIP
    site: SiteSettings | None = None
    shapes: str = ""
    work: Work = Work.LOGGED
    speed_up: str = "linear"
    fjt: str = "largest"
    fold_cost: float = 0.0
    resize_cost: str = "0s"
    clusters: list[int] = []
    threshold: int | None = None
    partition: Partition | None = None
    most_components: int = MOST_COMPONENTS
    cross_cluster_cost: float | str = 0.0  # or the name of a file

    def checked(self, where: str) -> "Experiment":
        """Itself, when the settings make sense together; else :class:`BadInput` with the key's path."""

        def bad(key: str, found: object, expected: str) -> BadInput:
            return BadInput(f"{where}: {key}" if where else f"--{key.replace('_', '-')}", f"found {found!r}", expected)

        if self.ties not in ("batch", "sequential"):
            raise bad("ties", self.ties, "batch or sequential")
        if self.procs is not None and not 1 <= self.procs <= MAX_PROCS:
            raise bad("procs", self.procs, f"a number of processors of at least 1, at most {MAX_PROCS}")
        if self.load is not None and not 0.001 <= self.load <= 100:
            raise bad("load", self.load, "an offered load above 0, such as 0.8 (0.001 to 100)")
        if self.seed < 0:
            raise bad("seed", self.seed, "a whole number of 0 or more")
        if self.site is not None:
            self.site.check(f"{where}: site." if where else "--site: ")
            if self.procs is not None and self.site.nodes is not None:
                raise bad("procs", self.procs, f"nothing beside the site's {self.site.nodes} nodes")
            if self.ties != "batch":
                raise bad("ties", self.ties, "batch: rules of other simulators know no shared nodes")
        speedups.parse(self.speed_up, f"{where}: speed_up" if where else "--speed-up")
        if not 0 <= self.fold_cost < 1:
            raise bad("fold_cost", self.fold_cost, "the part of its rate that a folded job loses: from 0 to below 1")
        if self.shapes and self.ties != "batch":
            raise bad("ties", self.ties, "batch: rules of other simulators know no jobs of several widths")
        if duration_us(self.resize_cost, f"{where}: resize_cost" if where else "--resize-cost") > MAX_DELAY_US:
            raise bad("resize_cost", self.resize_cost, "30 days at most")
        if duration_us(self.launch_delay, f"{where}: launch_delay" if where else "--launch-delay") > MAX_DELAY_US:
            raise bad("launch_delay", self.launch_delay, "30 days at most")
        for key, found, expected in (*self._problems_of_predictions(), *self._problems_of_clusters()):
            raise bad(key, found, expected)
        _ = self.between
        return self

    def _problems_of_predictions(self) -> Iterator[tuple[str, object, str]]:
        flexible = self.shapes or self.work is not Work.LOGGED or speedups.parse(self.speed_up) is not None
        if self.predicted and (self.site or self.clusters or flexible):
            yield "estimates", self.estimates, "rigid jobs on one machine of counted processors"

    def _problems_of_clusters(self) -> Iterator[tuple[str, object, str]]:
        """What the settings of several clusters have wrong: key, what was found, what is expected."""
        if not self.clusters:
            for key in ("threshold", "partition"):
                if getattr(self, key) is not None:
                    yield key, getattr(self, key), "nothing without clusters: --clusters 20,20,20"
            return
        largest = max(self.clusters)
        if min(self.clusters) < 1 or sum(self.clusters) > MAX_PROCS or len(self.clusters) > MOST_CLUSTERS:
            yield "clusters", self.clusters, f"processors of each of 1 to {MOST_CLUSTERS} clusters, at least 1"
        if self.procs is not None and self.procs != sum(self.clusters):
            yield "procs", self.procs, f"{sum(self.clusters)}, as the clusters have together"
        if self.ties != "batch":
            yield "ties", self.ties, "batch: rules of other simulators know no clusters"
        if self.threshold is not None and not 1 <= self.threshold <= (largest if self.site is None else MAX_PROCS):
            yield "threshold", self.threshold, f"1 to {largest}, the processors of the largest cluster"
        if self.partition not in (None, Partition.USER) and self.threshold is None:
            yield "threshold", f"none beside {self.partition}", "the size above which jobs are divided, such as 11"
        if not 1 <= self.most_components <= MOST_CLUSTERS:
            yield "most_components", self.most_components, f"1 to {MOST_CLUSTERS}"
        cost = self.cross_cluster_cost
        if isinstance(cost, float) and not 0 <= cost <= 1000:
            yield "cross_cluster_cost", cost, "the part of its time that it adds, such as 0.25"

    @property
    def dividing(self) -> Dividing | None:
        """How jobs are divided among the clusters; None where there are none."""
        if not self.clusters:
            return None
        partition = self.partition or (Partition.USER if self.threshold is None else Partition.RANDOM)
        return Dividing(threshold=self.threshold or max(self.clusters), partition=partition, most=self.most_components)

    @property
    def between(self) -> Between | None:
        """What communication between the clusters costs. Raises :class:`BadInput` for a file that does not say so."""
        cost = self.cross_cluster_cost
        if isinstance(cost, str):
            return read_between(Path(cost))
        return Between({"": round(cost * 1_000_000)}) if cost else None

    @property
    def input_rules(self) -> InputRules:
        """How the log's fields are read."""
        return InputRules(
            procs_from=self.procs_from,
            never_ran=self.never_ran,
            negative_times=self.negative_times,
            at_limit=self.at_limit,
            preceding=self.preceding,
        )

    @property
    def fold_cost_ppm(self) -> int:
        """By how many millionths a folded job is slower than its processors say."""
        return round(self.fold_cost * 1_000_000)

    @property
    def resize_cost_us(self) -> int:
        """How long a running job does nothing after a change of its processes, microseconds."""
        return duration_us(self.resize_cost, "resize_cost")

    @property
    def predicted(self) -> bool:
        """Whether the scheduler goes by its own predictions of run times."""
        return parse(self.estimates).model is EstimateModel.PREDICTED

    @property
    def launch_delay_us(self) -> int:
        """How long a launch takes, microseconds."""
        return duration_us(self.launch_delay, "launch_delay")


#: Named sets of rules. ``oracle``: those of the independent simulator whose schedules the tests compare with.
RULES: Final[dict[str, dict[str, str]]] = {
    "default": {
        "ties": "batch",
        "procs_from": "allocated",
        "never_ran": "drop",
        "negative_times": "skip",
        "at_limit": "kill",
        "launch_delay": "0s",
    },
    "oracle": {
        "ties": "sequential",
        "procs_from": "allocated-only",
        "never_ran": "wait",
        "negative_times": "unknown",
        "at_limit": "kill",
        "launch_delay": "0s",
    },
}
