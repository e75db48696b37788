"""What happens in the demo, and when: jobs of both orientations, and a user who comes to a desk and leaves it.

A story is data, the same each time. Sizes suit two cores: everything of the whole one is some seventy seconds of CPU.
"""

from dataclasses import dataclass, replace
from typing import Final

#: How the story's programs divide: those that compute and those that communicate (Hanzich et al. 2005, Workloads).
ORIENTATION: Final = {"bt": "cpu", "mg": "cpu", "cg": "comm", "is": "comm"}


@dataclass(frozen=True)
class Submitted:
    """A job of ``ranks`` ranks of a program, submitted ``at_s`` after the start, with what its user estimates."""

    at_s: float
    program: str
    ranks: int
    size: str
    estimate_s: int
    breaks: bool = False

    @property
    def name(self) -> str:
        """What the queue calls it."""
        return f"{self.program}-{self.size}" if not self.breaks else "broken"

    def script(self, python: str) -> str:
        """The job script: nothing in it knows of cosched but the comment lines."""
        command = f"mpirun '{python}' -m cosched.programs {self.program} --class {self.size} --json"
        if self.breaks:
            command = "mpirun sh -c 'echo a rank of mine is about to fail >&2; sleep 1; exit 3'"
        return "\n".join(
            [
                "#!/bin/sh",
                f"#COSCHED --name {self.name} --tasks {self.ranks}",
                f"#COSCHED --time {self.estimate_s}s --kind {ORIENTATION[self.program]}",
                f"exec {command}",
                "",
            ]
        )


#: No story takes longer; what has not ended then is cancelled, and the report says so.
DEADLINE_S: Final = 900.0


@dataclass(frozen=True)
class Story:
    """Jobs in the order of their submission, and when a user comes to the last node's desk and leaves it.

    Times in seconds after the start.
    """

    jobs: tuple[Submitted, ...]
    user_comes_s: float
    user_leaves_s: float

    def fitted(self, widest: int) -> tuple[Submitted, ...]:
        """The jobs for a lab in which none may have more than ``widest`` ranks (tier 3: what one node holds)."""
        return tuple(replace(job, ranks=min(job.ranks, widest)) for job in self.jobs)


WHOLE: Final = Story(
    jobs=(
        Submitted(0.0, "bt", 4, "S", 120),
        Submitted(1.0, "cg", 2, "S", 120),
        Submitted(2.0, "mg", 2, "S", 120),
        Submitted(6.0, "is", 4, "S", 120),
        Submitted(10.0, "cg", 4, "S", 120),
        Submitted(14.0, "bt", 2, "S", 120),
        Submitted(18.0, "mg", 1, "S", 120),
        Submitted(22.0, "is", 2, "S", 120),
        Submitted(27.0, "bt", 1, "S", 120),
        Submitted(33.0, "mg", 4, "S", 120),
        Submitted(40.0, "cg", 2, "S", 120),
        Submitted(46.0, "is", 1, "S", 120, breaks=True),
        Submitted(52.0, "bt", 4, "S", 120),
    ),
    user_comes_s=8.0,
    user_leaves_s=38.0,
)

#: Everything that the whole story shows, once: both orientations, wide and narrow, a queue, a failure, a user.
SHORT: Final = Story(
    jobs=(
        Submitted(0.0, "bt", 4, "S", 300),
        Submitted(1.0, "is", 2, "S", 300),
        Submitted(2.0, "bt", 1, "S", 300),
        Submitted(3.0, "is", 1, "S", 300, breaks=True),
    ),
    user_comes_s=1.0,
    user_leaves_s=9.0,
)
