"""The paper's claims, as quantities and the regions in which they hold. Written before the runs, but for one seed of
each policy that the simulator was tried with.
"""

from typing import Final, NamedTuple

from cosched.apps.replicate.cisne.setup import POLICIES
from cosched.apps.replicate.claims import ABOVE, BELOW, Predicate, Region, pairs

#: "Almost the same", "the same".
ABOUT: Final = Region(-0.05, 0.05)

#: The policies with a multiprogramming level above one, and those with one.
MANY: Final = ("normal", "uniform-light", "uniform-hard", "3dbf-light", "3dbf-hard")
ONE: Final = ("basic", "2dbf")

# fmt: off
_CCS: Final = "execution time under CCS against plain Linux's, relative difference"
MPL_TURNAROUND: Final = Predicate("mpl-turnaround",
    "A multiprogramming level above one gives a shorter turnaround than one (Fig. 8)",
    "turnaround against Basic's and 2DBF's, relative difference", BELOW)
MPL_EXECUTION: Final = Predicate("mpl-execution", "... though jobs execute longer (Fig. 8)",
    "execution time against Basic's and 2DBF's, relative difference", ABOVE)
HARD_SIT: Final = Predicate("uniform-hard-executes-faster-sit",
    "On SIT jobs execute faster under Uniform-Hard than under Normal (Fig. 7)",
    "execution time against Normal's, relative difference", BELOW)
HARD_DIT: Final = Predicate("uniform-hard-executes-alike-dit",
    "On DIT the node selection policies execute almost alike (Fig. 7)",
    "execution time of Uniform-Light and -Hard against Normal's, relative difference", ABOUT)
HARD_BACKFILLING: Final = Predicate("3dbf-hard-executes-faster",
    "3DBF-Hard executes faster than 3DBF-Light on both workloads (Fig. 7)",
    "execution time against 3DBF-Light's, relative difference", BELOW)
BEST_SIT: Final = Predicate("3dbf-light-best-sit", "On SIT 3DBF-Light has the best turnaround (Fig. 8)",
    "each other policy's turnaround against 3DBF-Light's, relative difference", ABOVE)
BEST_DIT: Final = Predicate("3dbf-hard-best-dit", "On DIT 3DBF-Hard has the best turnaround (Fig. 8)",
    "each other policy's turnaround against 3DBF-Hard's, relative difference", ABOVE)
MAKESPAN_BEST: Final = Predicate("3dbf-light-makespan-best-sit", "On SIT 3DBF-Light has the shortest makespan (Fig. 9)",
    "each other policy's makespan against 3DBF-Light's, relative difference", ABOVE)
MAKESPAN: Final = Predicate("3dbf-light-makespan-sit", "... 35 % under Basic's (Fig. 9)",
    "makespan against Basic's, relative difference", Region(-0.45, -0.25), -0.35)
MAKESPAN_HARD: Final = Predicate("uniform-hard-makespan-same",
    "Uniform-Hard's makespan is the same on both workloads (Fig. 9)",
    "makespan on DIT against that on SIT, relative difference", ABOUT)
HARMLESS: Final = Predicate("backfilling-harmless", "Backfilling never harms (section 5)",
    "turnaround with backfilling against the same policy without, relative difference", Region(high=0.0))
#: Decided by real runs alone: what the simulator has of time sharing was put into it.
CCS_SIT: Final = Predicate("ccs-execution-sit",
    "CCS cuts execution time against plain Linux for 3DBF-Light on SIT (Fig. 7)", _CCS, BELOW)
# The regions of the sizes (the paper's number, 5 points either way) were written when results of real runs were known.
CCS_SIT_SIZE: Final = Predicate("ccs-execution-sit-size", "... by 15 % (Fig. 7)", _CCS, Region(-0.20, -0.10), -0.15)
CCS_DIT: Final = Predicate("ccs-execution-dit", "... and for Normal on DIT (Fig. 7)", _CCS, BELOW)
CCS_DIT_SIZE: Final = Predicate("ccs-execution-dit-size", "... by 24 % (Fig. 7)", _CCS, Region(-0.29, -0.19), -0.24)
CCS_ONE: Final = Predicate("ccs-execution-mpl1", "... and also at a multiprogramming level of one (Fig. 7)",
    "execution time of Basic and 2DBF under CCS against plain Linux's, relative difference", BELOW)
LATENCY: Final = Predicate("ccs-latency",
    "Under CCS the local user's system calls stay under 400 ms at every level (Fig. 10)", "latency of system calls, ms",
    Region(high=400.0), 400.0)
# fmt: on


class Compared(NamedTuple):
    """What a claim on policies compares: a measure of one policy against another's, for these pairs, on these loads."""

    claim: Predicate
    measure: str
    pairs: tuple[tuple[str, str], ...]
    workloads: tuple[str, ...] = ("SIT", "DIT")


_BACKFILLED: Final = (("2dbf", "basic"), ("3dbf-light", "uniform-light"), ("3dbf-hard", "uniform-hard"))
#: In a simulation and in real runs alike.
COMPARED: Final = (
    Compared(MPL_TURNAROUND, "turnaround_s", pairs(MANY, ONE)),
    Compared(MPL_EXECUTION, "execution_s", pairs(MANY, ONE)),
    Compared(HARD_SIT, "execution_s", (("uniform-hard", "normal"),), ("SIT",)),
    Compared(HARD_DIT, "execution_s", pairs(("uniform-light", "uniform-hard"), ("normal",)), ("DIT",)),
    Compared(HARD_BACKFILLING, "execution_s", (("3dbf-hard", "3dbf-light"),)),
    Compared(BEST_SIT, "turnaround_s", pairs(POLICIES, ("3dbf-light",)), ("SIT",)),
    Compared(BEST_DIT, "turnaround_s", pairs(POLICIES, ("3dbf-hard",)), ("DIT",)),
    Compared(MAKESPAN_BEST, "makespan_s", pairs(POLICIES, ("3dbf-light",)), ("SIT",)),
    Compared(MAKESPAN, "makespan_s", (("3dbf-light", "basic"),), ("SIT",)),
    Compared(HARMLESS, "turnaround_s", _BACKFILLED),
)
REAL_ALONE: Final = (CCS_SIT, CCS_SIT_SIZE, CCS_DIT, CCS_DIT_SIZE, CCS_ONE, LATENCY)
