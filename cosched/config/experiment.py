"""What a simulation is made of: the settings of ``simulate`` and ``compare``, from options, a file or a manifest."""

from typing import Final

import msgspec

from cosched.config.load import duration_us
from cosched.errors import BadInput
from cosched.model.contract import SocialContract
from cosched.workload.rules import AtLimit, InputRules, NegativeTimes, ProcsFrom, Unusable


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One log under one or more policies. Every setting is also an option of the command line."""

    log: str = ""
    policies: list[str] = []
    order: str | None = None
    select: str | None = None
    procs: int | None = None
    ties: str = "batch"
    procs_from: ProcsFrom = ProcsFrom.ALLOCATED
    unusable: Unusable = Unusable.ONE_SECOND
    negative_times: NegativeTimes = NegativeTimes.SKIP
    at_limit: AtLimit = AtLimit.KILL
    estimates: str = "user"
    seed: int = 1
    load: float | None = None
    launch_delay: str = "0s"
    strict: bool = False
    contract: SocialContract = SocialContract()

    def checked(self, where: str) -> "Experiment":
        """Itself, when the settings make sense together; else :class:`BadInput` with the key's path."""

        def bad(key: str, found: object, expected: str) -> BadInput:
            return BadInput(f"{where}: {key}" if where else f"--{key.replace('_', '-')}", f"found {found!r}", expected)

        if self.ties not in ("batch", "sequential"):
            raise bad("ties", self.ties, "batch or sequential")
        if self.procs is not None and self.procs < 1:
            raise bad("procs", self.procs, "a number of processors of at least 1")
        if self.load is not None and not 0 < self.load < 100:
            raise bad("load", self.load, "an offered load above 0, such as 0.8")
        if self.seed < 0:
            raise bad("seed", self.seed, "a whole number of 0 or more")
        if problem := self.contract.impossible():
            key, found, expected = problem
            raise bad(f"contract.{key}", found, expected)
        if not self.contract.dedicated:
            raise bad(
                "contract",
                msgspec.to_builtins(self.contract),
                "the dedicated machine's: the policies here plan for one",
            )
        duration_us(self.launch_delay, f"{where}: launch_delay" if where else "--launch-delay")
        return self

    @property
    def input_rules(self) -> InputRules:
        """How the log's fields are read."""
        return InputRules(
            procs_from=self.procs_from,
            unusable=self.unusable,
            negative_times=self.negative_times,
            at_limit=self.at_limit,
        )

    @property
    def launch_delay_us(self) -> int:
        """How long a launch takes, microseconds."""
        return duration_us(self.launch_delay, "launch_delay")


#: Named sets of rules. ``oracle``: those of the independent simulator whose schedules the tests compare with.
RULES: Final[dict[str, dict[str, str]]] = {
    "default": {},
    "oracle": {
        "ties": "sequential",
        "procs_from": "allocated-only",
        "unusable": "one-second",
        "negative_times": "unknown",
        "at_limit": "kill",
        "launch_delay": "0s",
    },
}
