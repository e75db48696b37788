"""The paper's claims, as quantities and the regions in which they hold. Written before any run.

Its text has sentences and its figures are not at hand, so a region is what a sentence says: "from 20 to 30 %" is that
range; "about 25 %" and "little" are 5 points; "equal" is 1 %; "near zero" is a tenth of the class's mean response; "all
the time" is 95 % of it; "dramatically" is by half. What is said without a load is judged at every load, what is said of
high utilisation at the highest.
"""

from itertools import pairwise
from typing import Final, NamedTuple

from cosched.apps.replicate.bfm.setup import BFA, BFM, FIFO, FJT4, FJT4_BFA, POLICIES, Reading
from cosched.apps.replicate.claims import ABOVE, BELOW, Predicate, Region, pairs

LONG: Final = "long"
SHORT: Final = "short"
ALL: Final = "all"
CLASSES: Final = (LONG, SHORT)


class Compared(NamedTuple):
    """What a claim compares: a measure of one policy against another's, for these pairs and classes of jobs.

    ``high``: at the highest load alone, else at every one. ``relative``: as a ratio, else in the measure's unit.
    """

    claim: Predicate
    measure: str
    pairs: tuple[tuple[str, str], ...]
    classes: tuple[str, ...] = CLASSES
    high: bool = False
    low: bool = False
    relative: bool = True

    def loads(self, reading: Reading) -> tuple[float, ...]:
        """The loads at which it is judged."""
        return (reading.high,) if self.high else reading.loads[-1:] if self.low else reading.loads


# fmt: off
_BFM_BFA: Final = ((BFM, BFA),)
_RESPONSE: Final = "response under FJT1+BFM against FJT1+BFA's, relative difference"

_ENDED: Final = "jobs ended and queued again, in all runs together"
COMPARED: Final = (
    Compared(Predicate("bfm-response-long",
        "At high load FJT1+BFM has a shorter response than FJT1+BFA for Long jobs (6.4.1)", _RESPONSE, BELOW),
        "response_s", _BFM_BFA, (LONG,), high=True),
    Compared(Predicate("bfm-response-long-size", "... by 20 to 30 % (6.4.1)", _RESPONSE, Region(-0.30, -0.20), -0.25),
        "response_s", _BFM_BFA, (LONG,), high=True),
    Compared(Predicate("bfm-response-short", "... and for Short jobs (6.4.1)", _RESPONSE, BELOW),
        "response_s", _BFM_BFA, (SHORT,), high=True),
    Compared(Predicate("bfm-response-short-size", "... by 5 to 10 % (6.4.1)", _RESPONSE, Region(-0.10, -0.05), -0.075),
        "response_s", _BFM_BFA, (SHORT,), high=True),
    Compared(Predicate("bfm-about-25",
        "BFM performs better than traditional backfilling by about 25 % at high load (abstract)",
        "response of all jobs under FJT1+BFM against FJT1+BFA's, relative difference", Region(-0.30, -0.20), -0.25),
        "response_s", _BFM_BFA, (ALL,), high=True),
    Compared(Predicate("bfm-wait",
        "The gain comes from the queue: jobs wait less under FJT1+BFM than under FJT1+BFA (6.4.2, Fig. 5)",
        "queue wait under FJT1+BFM less FJT1+BFA's, s", BELOW),
        "wait_s", _BFM_BFA, high=True, relative=False),
    Compared(Predicate("bfm-wait-dramatically", "... and dramatically less than under the rest of the policies (6.4.2)",
        "queue wait under FJT1+BFM against each other policy's, relative difference", Region(high=-0.5)),
        "wait_s", pairs((BFM,), POLICIES), high=True),
    Compared(Predicate("bfm-execution", "Execution times are equal or worse under FJT1+BFM than under FJT1+BFA (6.4.2)",
        "execution time under FJT1+BFM against FJT1+BFA's, relative difference", Region(low=-0.01)),
        "execution_s", _BFM_BFA),
    Compared(Predicate("bfm-short-execution",
        "Short jobs execute longer under FJT1+BFM than under FJT1+BFA (6.4.2, Fig. 4b)",
        "execution time under FJT1+BFM against FJT1+BFA's, relative difference", ABOVE),
        "execution_s", _BFM_BFA, (SHORT,)),
    Compared(Predicate("fjt4-long-execution",
        "At high load Long jobs execute longer under FJT4, with and without BFA, than under FJT1+BFA (6.4.2)",
        "execution time against FJT1+BFA's, relative difference", ABOVE),
        "execution_s", pairs((FJT4, FJT4_BFA), (BFA,)), (LONG,), high=True),
    Compared(Predicate("fjt4-little-gain", "At high load virtual malleability gains little or nothing (section 4)",
        "response under FJT4+BFA against FJT1+BFA's, relative difference", Region(low=-0.05)),
        "response_s", ((FJT4_BFA, BFA),), high=True),
    Compared(Predicate("bfm-long-partition-smallest", "Long jobs have the smallest partitions under FJT1+BFM (6.4.4)",
        "processors under FJT1+BFM against each other policy's, relative difference", BELOW),
        "procs", pairs((BFM,), POLICIES), (LONG,)),
    Compared(Predicate("fjt4-partition-largest",
        "At low load partitions are largest under FJT4, with and without BFA (6.4.4; FIFO's, always the "
        "largest sizes, left out)",
        "processors of Long jobs against FJT1+BFA's and FJT1+BFM's, relative difference", ABOVE),
        "procs", pairs((FJT4, FJT4_BFA), (BFA, BFM)), (LONG,), low=True),
    Compared(Predicate("all-beat-fifo", "All policies have a shorter response than FIFO (Fig. 3)",
        "response against FIFO's, relative difference", BELOW),
        "response_s", pairs(POLICIES, (FIFO,))),
    Compared(Predicate("bfm-best", "FJT1+BFM has the best response of all five (6.4.1)",
        "response under FJT1+BFM against each other policy's, relative difference", BELOW),
        "response_s", pairs((BFM,), POLICIES)),
)

PENALTY_GROWS: Final = Predicate("bfm-short-penalty-grows", "... and that penalty grows with the load (6.4.2)",
    "Short jobs' execution time under FJT1+BFM less FJT1+BFA's, s: at the highest load less at the lowest", ABOVE)
DEVIATION: Final = Predicate("bfm-deviation-near-zero",
    "Under FJT1+BFM the standard deviation of queue waits is near zero (6.4.3)",
    "standard deviation of the queue wait over the mean response of the class", Region(high=0.1), 0.0)
DEVIATION_GROWS: Final = Predicate("others-deviation-grows", "Under the others it grows with the load (6.4.3)",
    "standard deviation of the queue wait less that at the next lower load, s", ABOVE)
SHRUNK: Final = Predicate("fjt4-shrunk",
    "At high load Long jobs under FJT4, with and without BFA, execute shrunk all the time (6.4.4)",
    "part of their execution time with fewer processors than processes", Region(low=0.95), 1.0)
NO_JOB_ABORTED: Final = Predicate("bfm-nobody-aborted", "Under FJT1+BFM no job is aborted (section 3, 6.4.2)",
    _ENDED, Region(0, 0), 0.0)
NO_WORK_LOST: Final = Predicate("bfm-no-work-lost", "... and no work is wasted (6.4.2)",
    "processor-seconds held by attempts that were ended, in all runs together", Region(0, 0), 0.0)
#: Decided by real runs alone (``--real``), written before any of them.
REAL_BFM: Final = Predicate("real-bfm",
    "On real processes, too, BFM has a shorter response than BFA at high load (6.4.1)", _RESPONSE, BELOW)
REAL_BFM_LONG: Final = Predicate("real-bfm-long-size", "... by 20 to 30 % for Long jobs (6.4.1)", _RESPONSE,
    Region(-0.30, -0.20), -0.25)
REAL_BFM_SHORT: Final = Predicate("real-bfm-short-size", "... by 5 to 10 % for Short jobs (6.4.1)", _RESPONSE,
    Region(-0.10, -0.05), -0.075)
REAL_FIFO: Final = Predicate("real-beat-fifo", "... and both beat FIFO (6.4.1)",
    "response of all jobs against FIFO's, relative difference", BELOW)
REAL_NO_JOB_ABORTED: Final = Predicate("real-bfm-nobody-aborted", "... and under BFM no real job is aborted (6.4.2)",
    _ENDED, Region(0, 0), 0.0)
REAL_RUNS: Final = (REAL_BFM, REAL_BFM_LONG, REAL_BFM_SHORT, REAL_FIFO, REAL_NO_JOB_ABORTED)
#: Decided by what ``./run bench folding`` measured of real processes.
REAL_FOLD: Final = Predicate("real-fold",
    "A running MPI job that is folded goes on at about the ideal rate (sections 3 and 4)",
    "rate of n processes on c processors over the ideal one, n / ⌈n/c⌉", Region(0.9, 1.05), 1.0)
#: What other measurements of real processes would decide, and what each needs.
REAL: Final = {
    Predicate("real-mapping",
        "Folded jobs are faster where neighbours share processors than in blocks (section 7, future work)",
        "execution time of folded jobs, neighbours against block, relative difference",
        BELOW):
    "it is a question of what messages cost, of which the simulator has no model",
}
# fmt: on


def steps(reading: Reading) -> list[tuple[float, float]]:
    """Each load of a reading and the next lower one."""
    return list(pairwise(reading.loads))
