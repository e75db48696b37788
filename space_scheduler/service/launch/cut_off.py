"""Jobs on a cluster (a lab) that is cut off: no node of it is heard any more, so the link to it may be down.

Whether a whole lab has lost its power or its link nobody can tell from here. A job that runs wholly on its nodes goes
on there for all that is known (agents without a scheduler end nothing), so it is waited for: it holds what it has, and
is adopted when its nodes are heard again, or has ended meanwhile by their word. It is not waited for longer than it may
run. A job with a component there and one elsewhere has lost a node like any other. Nothing is started there meanwhile.
"""

from collections.abc import Callable, Mapping

from cosched.config.cluster import ClusterConfig
from cosched.model.time import US_PER_S
from space_scheduler.service.launch.effects import Speaks
from space_scheduler.service.launch.gang import Action, Phase
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.orders import LaunchAttempt


class CutOff:
    """Which attempts are cut off, and since when (``LaunchAttempt.cut_off_s``).

    ``do`` carries a gang's actions out, ``limit_us`` is the run time at which a job's nodes end it.
    """

    def __init__(
        self,
        config: ClusterConfig,
        book: NodeBook,
        attempts: Mapping[int, LaunchAttempt],
        say: Speaks,
        do: Callable[[LaunchAttempt, list[Action]], None],
        limit_us: Callable[[LaunchAttempt], int | None],
    ) -> None:
        self._book = book
        self._attempts = attempts
        self._say = say
        self._do = do
        self._limit_us = limit_us
        self._lease_s = config.time_us("lease") / US_PER_S
        self._more_s = (config.time_us("grace") + config.time_us("lease")) / US_PER_S

    def holds(self, entry: NodeEntry) -> bool:
        """Whether a node that was silent for a lease is on a cluster of which no node is heard, of several clusters.

        The others have been silent for half a lease at least, for they do not all fall silent at one instant. A node
        that was removed is lost for good.
        """
        if entry.name not in self._book.allowed:
            return False
        if len({each.cluster for each in self._book if each.known or each.hello is not None}) < 2:
            return False
        since_s = self._book.now_s() - self._lease_s / 2
        others = (each for each in self._book if each is not entry and each.cluster == entry.cluster)
        return not any(each.heard_s is not None and each.heard_s > since_s for each in others)

    def waited_for(self, launch: LaunchAttempt, entry: NodeEntry) -> bool:
        """Whether a job goes on although that node of it is cut off; it is waited for from now on."""
        if launch.gang.phase is not Phase.RUNNING or not self._inside(launch, entry.cluster):
            return False
        if launch.cut_off_s is None:
            launch.cut_off_s = self._book.now_s()
            self._say("warn", "job cut off", job=launch.job_id, cluster=entry.cluster, todo="it goes on there")
        return True

    def heard(self, entry: NodeEntry) -> None:
        """The link to a node's cluster is up again: its other nodes that hold jobs have a lease to be heard."""
        for launch in self._attempts.values():
            if launch.cut_off_s is None or not self._inside(launch, entry.cluster):
                continue
            launch.cut_off_s = None
            for other in map(self._book.entry, launch.gang.nodes):
                if other.heard_s is None:
                    other.heard_s = self._book.now_s()

    def give_up_overdue(self) -> None:
        """Whoever has been cut off for longer than it may run is not heard of any more."""
        for launch in list(self._attempts.values()):
            if launch.cut_off_s is None or (limit_us := self._limit_us(launch)) is None:
                continue
            most_s = limit_us / US_PER_S + self._more_s
            if self._book.now_s() - launch.cut_off_s > most_s:
                self.give_up(launch, "it was cut off for longer than its time limit")

    def give_up(self, launch: LaunchAttempt, message: str) -> None:
        """A job is not waited for any more, if it was: what is left of it ends when its nodes are back."""
        if launch.cut_off_s is None:
            return
        launch.cut_off_s = None
        for node in launch.gang.nodes:
            self._do(launch, launch.gang.lost(node, message))

    def _inside(self, launch: LaunchAttempt, cluster: str) -> bool:
        """Whether all nodes of a job are of that cluster, and what it holds is not being changed."""
        return launch.reshaping is None and {self._book.entry(node).cluster for node in launch.gang.nodes} == {cluster}
