"""A cluster's policy: which it is, whether it looks at who shares a node, and at what cost jobs do."""

from typing import Final

from cosched.config import coefficients
from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput
from space_scheduler.machine.rules import MachineRules
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Policy, traits_of
from space_scheduler.progress import Sharing
from space_scheduler.service.core.sizing import NOT_RESHAPED

#: What a policy does that cannot be had live, for people.
RESHAPES: Final = "gives jobs other sizes or folds them, which 'cosched simulate' alone can do"


def policy_of(config: ClusterConfig, where: str = "policy") -> Policy:
    """The policy that the settings name. Raises :class:`BadInput`, also for one that gives jobs other shapes.

    A module is looked for in ``policy_directory`` and where Python has its own, never where the service was started.
    """
    policy = resolve(config.policy, config.order, where=where, directory=config.policy_directory)
    if reshapes(policy):
        raise BadInput(where, f"{config.policy} {RESHAPES}: {NOT_RESHAPED}", "one that starts jobs as they are")
    return policy


def reshapes(policy: Policy) -> bool:
    """Whether a policy gives jobs other widths, or folds and resizes them: that can be simulated alone."""
    return traits_of(policy).reshapes


def shared(config: ClusterConfig) -> bool:
    """Whether the policy chooses nodes by who is there: then the core keeps rates and owners."""
    return shares_nodes(policy_of(config))


def shares_nodes(policy: Policy) -> bool:
    """The same of a policy."""
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
    )


def sharing_of(config: ClusterConfig) -> Sharing | None:
    """How jobs advance that share nodes, by the cluster's coscheduling mode and the costs that come with cosched."""
    if not shared(config):
        return None
    mode = config.coscheduling.mode
    return Sharing(mode, coefficients.read().permille(mode))


def stretch(config: ClusterConfig) -> float:
    """How many times its time alone a job may take on nodes it shares, at the most: the last bound of its wall time.

    As many tasks on a CPU as may be there, an owner at every desk, and each neighbour as costly as any that was
    measured. Its limit counts work (``work_done``); this one ends a job whose work nobody can measure.
    """
    sharing = sharing_of(config)
    if sharing is None:
        return 1.0
    most = max((cost for costs in sharing.cost_permille.values() for cost in costs.values()), default=0) / 1000
    crowd = config.contract.mpl * (1 + (config.contract.mpl - 1) * most)
    return crowd / max(0.01, config.contract.cpu_ratio)
