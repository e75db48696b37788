"""Whether an agent that calls may join: what its hello has to say, and whose orders its node may obey. No socket."""

import msgspec

from cosched.config.hosts import MAX_CLUSTER_NAME, is_cluster
from cosched.errors import BadInput
from cosched.wire import messages as wire
from cosched.wire.sequence import checked_session
from space_scheduler.service.launch.orders import epoch_of


def checked_hello(
    first: wire.FromAgent, name: str, fence: wire.Fence, own: str = "", last_job_id: int | None = None
) -> wire.Hello:
    """The hello of the node of that name, for a scheduler with this fence. Raises :class:`BadInput` with its remedy.

    ``own`` is the name of the scheduler's own cluster; nodes of that one name none from here on. ``last_job_id`` is the
    last number that the journal had given to a job before this start (None: a take-over, to which that says nothing).
    """
    if not isinstance(first, wire.Hello):
        raise BadInput("hello", f"a {type(first).__name__}", "a Hello first")
    if not wire.RIGID_VERSION <= first.version <= wire.VERSION:
        spoken = f"one from {wire.RIGID_VERSION} to {wire.VERSION}, which this scheduler speaks"
        raise BadInput(wire.WRONG_VERSION, f"version {first.version} of the link's messages", spoken)
    if first.node != name:
        raise BadInput("hello: node", f"{first.node!r} with the certificate of node {name!r}", "one and the same")
    if first.procs < 1 or first.memory_bytes < 1 or not 0 < first.port < 1 << 16 or not first.address:
        raise BadInput("hello", "sizes or an address that cannot be", "procs, memory_bytes, address and port")
    if problem := first.owner.impossible():
        key, found, expected = problem
        raise BadInput(f"hello: owner: {key}", f"found {found}", expected)
    cluster = first.cluster
    if cluster == own:
        first = msgspec.structs.replace(first, cluster=msgspec.UNSET)
    elif cluster is not msgspec.UNSET and not is_cluster(cluster):
        expected = f"a cluster's name: printable, at most {MAX_CLUSTER_NAME} characters"
        raise BadInput("hello: cluster", f"{cluster[:MAX_CLUSTER_NAME]!r}", expected)
    checked_session(first.session, "hello")
    if first.obeyed is not None and first.obeyed != fence:
        _supersedes(fence, first.obeyed)
        if last_job_id is not None and first.obeyed.cluster_id == fence.cluster_id:
            _check_knows(fence, first.groups, last_job_id)
    return first


def _check_knows(ours: wire.Fence, reports: tuple[wire.GroupReport, ...], last_job_id: int) -> None:
    """Raise :class:`BadInput` where an earlier start sent the node a job that this scheduler's journal never had.

    One that has ended there says nothing: it may have been killed as unknown, by this scheduler or one that took over.
    """
    for report in reports:
        earlier = 0 < epoch_of(report.last_order) < ours.epoch
        if report.job_id > last_job_id and report.state != "ended" and earlier:
            found = f"job {report.job_id}, which this scheduler's journal has never had: it is an older copy"
            remedy = "the journal itself, or a copy by 'cosched scheduler --restore FILE' and a start with --take-over"
            raise BadInput("hello: groups", found, remedy)


def _supersedes(ours: wire.Fence, obeyed: wire.Fence) -> None:
    """Whether this scheduler may give orders where that one has. Raises :class:`BadInput` with the remedy."""
    if obeyed.cluster_id != ours.cluster_id and ours.epoch < wire.TAKE_OVER_EPOCH:
        found = f"the node obeys another journal's scheduler (cluster {obeyed.cluster_id}, epoch {obeyed.epoch})"
        remedy = "that scheduler, or 'cosched scheduler --take-over' if this journal is the one to obey from now on"
        raise BadInput("hello: obeyed", found, remedy)
    if obeyed.epoch > ours.epoch:
        remedy = f"at most {ours.epoch}, this scheduler's: a newer one drives this lab (is it gone? --take-over)"
        raise BadInput("hello: obeyed", f"epoch {obeyed.epoch}", remedy)
    if obeyed.epoch == ours.epoch:
        remedy = "one scheduler: stop one of the two, start the other anew (do they work with copies of a journal?)"
        raise BadInput("hello: obeyed", f"another scheduler with the same epoch, {ours.epoch}", remedy)
