"""The interface of a launcher: what it needs to know of a job, what it sets, what it understands of failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cosched.wire.api import Failure
from cosched.wire.messages import Peer


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


class Launcher(Protocol):
    """One way of starting ranks on several nodes."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    def required(self, context: Context) -> dict[str, str]:
        """Variables that the job has whatever was submitted; values may be one of ``wire.messages.LOCAL_VALUES``."""

    def defaults(self, context: Context) -> dict[str, str]:
        """Variables that the job has unless the submission has others for them."""

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        """What this launcher's own messages in the job's error output say, or None where it has said nothing."""
