"""What a launcher knows of a job, what it sets and needs there, what it understands of failures."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cosched.wire.api import Failure
from cosched.wire.messages import JobFile, Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One attempt at a job, at the moment of its start.

    ``peers`` are in the allocation's order, the first runs the script; ``network`` is the network ranks talk over
    (CIDR), empty for any; ``directory`` where the job works; ``submitted`` the environment of the submission;
    ``coscheduling`` the job's mode; ``folds``: its processes may come to share CPUs.
    """

    job_id: int
    attempt: int
    name: str
    tasks: int
    user: str
    cluster: str
    peers: tuple[Peer, ...]
    network: str = ""
    directory: str = ""
    submitted: Mapping[str, str]
    coscheduling: str = "none"
    folds: bool = False


class Launcher:
    """One way of starting ranks on several nodes. What a launcher does not need, it leaves as it is here.

    ``name``: what users call it; ``watched``: processes of it, as the kernel has their names, of which nodes tell
    whether they have seen them; ``spin``: variables by which receivers spin for a while and then yield.
    """

    name: ClassVar[str]
    watched: ClassVar[tuple[str, ...]] = ()
    spin: ClassVar[Mapping[str, str]] = {}

    def required(self, context: Context) -> dict[str, str]:
        """Variables that the job has whatever was submitted.

        A value may be one of ``wire.messages.LOCAL_VALUES``, or what stands for one of :meth:`files`.
        """
        return {}

    def defaults(self, context: Context) -> dict[str, str]:
        """Variables that the job has unless the submission has others for them."""
        return {}

    def files(self, context: Context, node: str) -> tuple[JobFile, ...]:
        """Files that the job needs on ``node``, which is one of its peers."""
        return ()

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        """What this launcher's own messages in the job's error output say, or None where it has said nothing."""
        return None

    def hang(self, error: str, script: str, seen: Collection[str]) -> str:
        """Why a job may have waited until its limit, and the remedy; empty: nothing shows that.

        ``seen``: which processes of ``watched`` its nodes have seen.
        """
        return ""
