"""What happens in the demo, and when: jobs of both orientations, and a user who comes to a desk and leaves it.

The story is data, the same each time. Sizes suit two cores: everything together is some seventy seconds of CPU.
"""

from dataclasses import dataclass
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


#: The user is at the desk of the last node between these times, in seconds after the start.
USER_COMES_S: Final = 8.0
USER_LEAVES_S: Final = 38.0
#: No story takes longer; what has not ended then is cancelled, and the report says so.
DEADLINE_S: Final = 300.0

JOBS: Final = (
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
)


def fitted(widest: int) -> tuple[Submitted, ...]:
    """The story for a lab in which no job may have more than ``widest`` ranks (tier 3: what one node holds)."""
    return tuple(
        job if job.ranks <= widest else Submitted(job.at_s, job.program, widest, job.size, job.estimate_s, job.breaks)
        for job in JOBS
    )
