"""How wide a job is: what it says of the number of its processes (design, section 3).

The names are those of Feitelson & Rudolph, "Toward convergence in job schedulers for parallel supercomputers", JSSPP
1996: a rigid job has one width; a moldable one is given a width when it starts, a malleable one other widths while it
runs. A range says which widths there are; whether a job is moulded or resized is the policy's choice.
"""

from bisect import bisect_right

import msgspec


class Rigid(msgspec.Struct, frozen=True, gc=False):
    """``procs`` processes, always."""

    procs: int

    @property
    def least(self) -> int:
        """Its only width."""
        return self.procs

    def allows(self, procs: int) -> bool:
        """Whether the job can have so many processes."""
        return procs == self.procs

    def largest(self, most: int) -> int | None:
        """The largest width of at most so many processes, or None."""
        return self.procs if self.procs <= most else None


class Range(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="range"):
    """From ``least`` to ``most`` processes, both at least 1; where ``sizes`` are given, one of them, rising.

    ``speeds`` says how fast the job is with each of the sizes, in any unit, as whole numbers above 0; without
    ``sizes``, with each number that it can have or ask for. Without it, twice as many processes do twice as much. A
    ``malleable`` job can be given another width while it runs, a moldable one only when it starts. An evolving job asks
    for others itself: for up to ``ask_more`` above ``most`` and up to ``ask_fewer`` below ``least``.

    A ``resident`` job is a malleable one that can add no process while it runs, as a program of MPI: it starts with as
    many as it can ever have (:meth:`present`) and keeps them, on their nodes, until it ends. Its width is how many of
    them are enabled, each on a processor; the others sleep. Memory counts all of them.

    A moldable job may lie on up to ``components`` clusters, divided when it starts as a flexible one is.
    """

    least: int
    most: int
    sizes: tuple[int, ...] = ()
    speeds: tuple[int, ...] = ()
    malleable: bool = False
    ask_more: int = 0
    ask_fewer: int = 0
    resident: bool = False
    components: int = 1

    def speed(self, procs: int) -> int:
        """How fast the job is with so many processes, in the same unit for all of its sizes."""
        if not self.speeds:
            return procs
        return self.speeds[self.sizes.index(procs) if self.sizes else procs - self.least + self.ask_fewer]

    def allows(self, procs: int) -> bool:
        """Whether the job can have so many processes."""
        if self.sizes:
            return procs in self.sizes
        return self.least - self.ask_fewer <= procs <= self.most + self.ask_more

    def largest(self, most: int) -> int | None:
        """The largest width of at most so many processes that it can be started with, or None."""
        if self.sizes:
            at = bisect_right(self.sizes, most)
            return self.sizes[at - 1] if at else None
        return min(self.most, most) if most >= self.least else None

    def present(self, fitting: int | None = None) -> int | None:
        """How many processes a resident job starts with where so many fit (None: any number); None: where too few do.

        They are as many as it can ever have, with those that it may ask for.
        """
        most = self.most + self.ask_more
        if fitting is None or fitting >= most:
            return self.largest(most) if self.sizes else most
        return self.largest(fitting) if self.sizes or fitting < self.least else fitting

    def trouble(self) -> str | None:
        """What is wrong with it, in words, or None."""
        if not 1 <= self.least <= self.most:
            return f"from {self.least} to {self.most} processes"
        if self.ask_more < 0 or not 0 <= self.ask_fewer < self.least or (self.sizes and self.ask_more + self.ask_fewer):
            return f"asks for up to {self.ask_more} more or {self.ask_fewer} fewer than {self.sizes or self.least}"
        if self.resident and not self.malleable:
            return "its processes are to stay, and it is not malleable"
        if self.components < 1 or (self.components > 1 and self.malleable):
            return f"{self.components} components: a moldable job may have several"
        return self._trouble_of_sizes()

    def _trouble_of_sizes(self) -> str | None:
        if list(self.sizes) != sorted({*self.sizes}):
            return f"sizes {self.sizes} do not rise"
        if self.sizes and not (self.least <= self.sizes[0] and self.sizes[-1] <= self.most):
            return f"sizes {self.sizes} are not all from {self.least} to {self.most}"
        count = len(self.sizes) or self.most + self.ask_more - self.least + self.ask_fewer + 1
        if self.speeds and (len(self.speeds) != count or min(self.speeds) < 1):
            return f"speeds {self.speeds} for {self.sizes or f'{count} numbers of processes'}"
        return None


class Components(msgspec.Struct, frozen=True, gc=False, tag="components"):
    """Parts of so many processes each, at least 1; each part lies on one cluster."""

    procs: tuple[int, ...]

    @property
    def least(self) -> int:
        """All of its parts together."""
        return sum(self.procs)

    def allows(self, procs: int) -> bool:
        """Whether the job can have so many processes: all of its parts together."""
        return procs == sum(self.procs)

    def largest(self, most: int) -> int | None:
        """All of its parts together, if they are at most so many, or None."""
        return self.least if self.least <= most else None

    def trouble(self) -> str | None:
        """What is wrong with it, in words, or None."""
        return None if self.procs and min(self.procs) >= 1 else f"components {self.procs}"


class Flexible(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="flexible"):
    """``procs`` processes in at most ``most`` components, which the scheduler chooses when the job starts.

    A flexible request (Bucur & Epema, "The influence of the structure and sizes of jobs on the performance of
    co-allocation", JSSPP 2000). Of the ways that have a place then it takes the one whose widest component is the
    narrowest; ``near``: among those for which the job has the lowest cost of communication between clusters.
    """

    procs: int
    most: int
    near: bool = False

    @property
    def least(self) -> int:
        """Its only width."""
        return self.procs

    def allows(self, procs: int) -> bool:
        """Whether the job can have so many processes."""
        return procs == self.procs

    def largest(self, most: int) -> int | None:
        """Its only width, if it is at most so many, or None."""
        return self.procs if self.procs <= most else None

    def trouble(self) -> str | None:
        """What is wrong with it, in words, or None."""
        return None if self.procs >= 1 and self.most >= 1 else f"{self.procs} processes in {self.most} components"


#: What a job may say besides a number.
Shape = Range | Components | Flexible
Width = Rigid | Shape
