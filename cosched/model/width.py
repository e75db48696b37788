"""How wide a job is: what it says of the number of its processes (design, section 3).

The names are those of Feitelson & Rudolph, "Toward convergence in job schedulers for parallel supercomputers", JSSPP
1996: a rigid job has one width; a moldable one is given a width when it starts, a malleable one other widths while it
runs. A range says which widths there are; whether a job is moulded or resized is the policy's choice.
"""

import msgspec


class Rigid(msgspec.Struct, frozen=True, gc=False):
    """``procs`` processes, always."""

    procs: int

    def allows(self, procs: int) -> bool:
        """Whether the job can have so many processes."""
        return procs == self.procs


class Range(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="range"):
    """From ``least`` to ``most`` processes, both at least 1; where ``sizes`` are given, one of them, rising.

    ``speeds`` says how fast the job is with each of the sizes, in any unit, as whole numbers above 0; without it, twice
    as many processes do twice as much.
    """

    least: int
    most: int
    sizes: tuple[int, ...] = ()
    speeds: tuple[int, ...] = ()

    def speed(self, procs: int) -> int:
        """How fast the job is with so many processes, in the same unit for all of its sizes."""
        return self.speeds[self.sizes.index(procs)] if self.speeds else procs

    def allows(self, procs: int) -> bool:
        """Whether the job can have so many processes."""
        return self.least <= procs <= self.most and (not self.sizes or procs in self.sizes)

    def trouble(self) -> str | None:
        """What is wrong with it, in words, or None."""
        if not 1 <= self.least <= self.most:
            return f"from {self.least} to {self.most} processes"
        if list(self.sizes) != sorted({*self.sizes}):
            return f"sizes {self.sizes} do not rise"
        if self.sizes and not (self.least <= self.sizes[0] and self.sizes[-1] <= self.most):
            return f"sizes {self.sizes} are not all from {self.least} to {self.most}"
        if self.speeds and (len(self.speeds) != len(self.sizes) or min(self.speeds) < 1):
            return f"speeds {self.speeds} for sizes {self.sizes}"
        return None


class Components(msgspec.Struct, frozen=True, gc=False, tag="components"):
    """Parts of so many processes each, at least 1; each part lies on one cluster."""

    procs: tuple[int, ...]

    def allows(self, procs: int) -> bool:
        """Whether the job can have so many processes: all of its parts together."""
        return procs == sum(self.procs)

    def trouble(self) -> str | None:
        """What is wrong with it, in words, or None."""
        return None if self.procs and min(self.procs) >= 1 else f"components {self.procs}"


#: What a job may say besides a number.
Shape = Range | Components
Width = Rigid | Shape
