"""A cluster's policy: which it is, whether it changes shapes, whether it looks at who shares a node, at what cost."""

from typing import Final

from cosched.config import coefficients
from cosched.config.cluster import ClusterConfig
from space_scheduler.eligibility.rule import Rule
from space_scheduler.machine.rules import MachineRules
from space_scheduler.plugins import resolve, rules
from space_scheduler.policy.interface import Policy, traits_of
from space_scheduler.policy.reshape.mold import FOLD
from space_scheduler.progress import Sharing

#: A folded job that takes this many times as long as the core predicts is ended by its nodes, whatever is measured.
_FOLD_MARGIN: Final = 2


def policy_of(config: ClusterConfig, where: str = "policy") -> Policy:
    """The policy that the settings name. Raises :class:`BadInput`.

    A module is looked for in ``policy_directory`` and where Python has its own, never where the service was started.
    """
    return resolve(config.policy, config.order, where=where, directory=config.policy_directory)


def eligibility_of(config: ClusterConfig, where: str = "eligibility") -> tuple[Rule, ...]:
    """The rules before the queue that the settings name, in order. Raises :class:`BadInput`."""
    return rules(config.eligibility, where=where, directory=config.policy_directory)


def resizes(policy: Policy) -> bool:
    """Whether a policy resizes jobs: then each has CPUs of its own, and its limit counts its work."""
    return traits_of(policy).reshapes


def shares_nodes(policy: Policy) -> bool:
    """Whether a policy chooses nodes by who is there: then the core keeps rates and owners."""
    traits = traits_of(policy)
    return bool(traits.place and traits.shares)


def rules_of(config: ClusterConfig, policy: Policy) -> MachineRules:
    """What holds on the cluster's machine under this policy, which shares nodes if the settings' own does."""
    return MachineRules(
        max_nodes_per_job=config.max_nodes_per_job,
        place=config.place,
        awaits_nodes=True,
        launch_retries=config.launch.retries,
        sharing=sharing_of(config),
        mpl=traits_of(policy).mpl,
        coscheduling=config.coscheduling.mode,
        between=config.components.between(config.name),
        resize_retry_us=config.time_us("launch_timeout") if resizes(policy) else 0,
    )


def sharing_of(config: ClusterConfig) -> Sharing | None:
    """How jobs advance that share nodes, by the cluster's coscheduling mode and the costs that come with cosched."""
    if not shares_nodes(policy_of(config)):
        return None
    mode = config.coscheduling.mode
    return Sharing(mode, coefficients.read().permille(mode))


def stretch(config: ClusterConfig) -> float:
    """How many times its time alone a job may take on nodes it shares, at the most: the last bound of its wall time.

    As many tasks on a CPU as may be there, an owner at every desk, and each neighbour as costly as any that was
    measured; or folded as far as jobs are. Its limit counts work (``work_done``); this one ends a job whose work nobody
    can measure.
    """
    sharing = sharing_of(config)
    if sharing is None:
        return float(FOLD * _FOLD_MARGIN) if resizes(policy_of(config)) else 1.0
    most = max((cost for costs in sharing.cost_permille.values() for cost in costs.values()), default=0) / 1000
    crowd = config.contract.mpl * (1 + (config.contract.mpl - 1) * most)
    return crowd / max(0.01, config.contract.cpu_ratio)
