"""The settings of a simulated cluster: a contract and a policy, drawn."""

from pathlib import Path

from cosched.config.cluster import ClusterConfig
from cosched.model.contract import SocialContract
from faults import ailing, labs, shapes
from faults.world import World

#: Policies of clusters where jobs share nodes, and where they do not.
SHARING = ("normal", "3dbf-light", "uniform-light")
APART = ("easy", "fcfs", "conservative", "firstfit")


def policy(world: World, mpl: int) -> str:
    """The name of one that may be drawn under this multiprogramming level, and by the seed."""
    if ailing.has_ailing(world.seed):
        return world.random.choice(ailing.SHARING if mpl > 1 else ailing.APART)
    if mpl == 1 and world.seed % 4 == 2:
        return world.random.choice(shapes.POLICIES)
    if mpl == 1 and world.seed % 8 == 3:
        return world.random.choice(shapes.DIVIDING)
    if labs.has_labs(world.seed):
        return world.random.choice(labs.SHARING if mpl > 1 else labs.APART)
    return world.random.choice(SHARING if mpl > 1 else APART)


def drawn(world: World, directory: Path, names: list[str]) -> ClusterConfig:
    """A cluster of these nodes, under a contract and a policy that are drawn.

    Of every fourth seed, where nodes are not shared, the policy moves running jobs about as it likes; of every other
    fourth it is one that folds, suspends, ends or resizes them, and of an eighth one that resizes malleable ones. Of
    another fourth, and of some of those that change shapes, nodes belong to two labs. Of another eighth the policy
    fails for some jobs.
    """
    mpl = 2 if world.random.random() < 0.4 else 1
    name = policy(world, mpl)
    return ClusterConfig(
        name="faults",
        nodes=names,
        policy=shapes.POLICY if mpl == 1 and world.seed % 4 == 0 else name,
        contract=SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=mpl),
        heartbeat="1s",
        lease="5s",
        launch_timeout="8s",
        state=str(directory),
        identity=str(directory),
    )
