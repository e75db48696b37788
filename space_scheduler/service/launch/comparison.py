"""What a scheduler that was started anew knew of the running jobs, and what the nodes said: where the two differed.

Told once all nodes that held a job, or were in service, have been heard or are lost: in the log, in ``GET /v1/cluster``
and by ``cosched doctor``. What is done about a difference, the gangs say; here it is only told.
"""

from collections.abc import Iterable

from cosched.wire.api import RestartDoc
from cosched.wire.messages import GroupReport
from space_scheduler.service.launch.effects import Level, Speaks
from space_scheduler.service.launch.gang import Gang, Phase


class Comparison:
    """One start of the service."""

    def __init__(self, say: Speaks) -> None:
        self._say = say
        self._jobs = 0
        self._awaited: set[str] = set()
        self._differed: list[str] = []

    def begin(self, jobs: int, nodes: Iterable[str]) -> None:
        """So many jobs were taken over from the journal, and these nodes are to be heard."""
        self._jobs, self._awaited = jobs, set(nodes)

    def found(self, node: str, job_id: int, gang: Gang, report: GroupReport | None) -> None:
        """A node has said what it has of a job."""
        if node in self._awaited and (words := difference(gang, node, report)):
            self._differed.append(f"job {job_id} on {node}: {words}")

    def stray(self, node: str, key: tuple[int, int]) -> None:
        """A node has what should not be there."""
        if node in self._awaited:
            self._differed.append(
                f"job {key[0]} (attempt {key[1]}) on {node}: is not to be there any more: ended there"
            )

    def heard(self, node: str) -> None:
        """That was all that this node has."""
        self._done(node)

    def lost(self, node: str) -> None:
        """A node was not heard."""
        if node in self._awaited:
            self._differed.append(f"{node}: did not come back within its lease: lost, with its jobs")
            self._done(node)

    def document(self) -> RestartDoc:
        """For operators."""
        return RestartDoc(jobs=self._jobs, awaited=sorted(self._awaited), differed=list(self._differed))

    def _done(self, node: str) -> None:
        if node in self._awaited:
            self._awaited.discard(node)
            if not self._awaited:
                level: Level = "warn" if self._differed else "info"
                self._say(level, "restart compared", jobs=self._jobs, differed=list(self._differed))


def difference(gang: Gang, node: str, report: GroupReport | None) -> str:
    """What a node says of a job beside what was known of it, in words; empty where it is as it should be."""
    if gang.phase is Phase.OVER or gang.gone(node):
        return ""
    if report is None:
        missing = {Phase.PREPARING: "not made ready yet: asked again", Phase.ENDING: "nothing of it is left there"}
        return missing.get(gang.phase, "the node knows nothing of it")
    if report.rebooted:
        return "the machine was started anew"
    if gang.phase is Phase.ENDING:
        return "" if report.state == "ended" else "still there: killed again"
    return _of_script(gang, report) if node == gang.first else ""


def _of_script(gang: Gang, report: GroupReport) -> str:
    runs = report.state == "running"
    if report.exit is not None or report.state == "ended":
        return "its script has ended meanwhile"
    if gang.phase is Phase.RUNNING:
        return "" if runs else "its script does not run"
    return "its script runs already" if runs else ""
