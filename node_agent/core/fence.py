"""Who may give orders to a node: the scheduler with the highest epoch that was welcomed, and nobody else."""

from cosched.wire.messages import TAKE_OVER_EPOCH, Fence
from node_agent.policy.cases import first_true


def welcome_problem(known: Fence | None, fence: Fence) -> str:
    """Why the origin of a welcome may not take the place of the one that is ``known``; empty where it may.

    A cluster's epoch rises whenever its scheduler starts. Another cluster (a fresh journal) takes over only when it
    was told to, which its epoch says, and with a higher one.
    """
    if known is None or known == fence:
        return ""
    another = (
        f"it works with another journal (cluster {fence.cluster_id}) than the scheduler that is obeyed here "
        f"(cluster {known.cluster_id}, epoch {known.epoch}); 'cosched scheduler --take-over' makes it the one"
    )
    two = f"epoch {fence.epoch} has been obeyed here from another scheduler: are there two?"
    problems = [
        (another, fence.cluster_id != known.cluster_id and fence.epoch < TAKE_OVER_EPOCH),
        (f"epoch {fence.epoch} is over: epoch {known.epoch} has been obeyed here", fence.epoch < known.epoch),
        (two, fence.epoch == known.epoch),
    ]
    return first_true(problems, "")


def order_problem(known: Fence | None, fence: Fence) -> str:
    """Why an order is not obeyed: it is not of the origin that was welcomed last. Empty where it is."""
    if fence == known:
        return ""
    epoch = known.epoch if known else 0
    return f"an order of epoch {fence.epoch}; here the scheduler that said epoch {epoch} is obeyed"
