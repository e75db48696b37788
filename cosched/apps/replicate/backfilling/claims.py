"""The paper's claims, as quantities and the regions in which they hold."""

from typing import Final

from cosched.apps.replicate.backfilling import paper
from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY
from cosched.apps.replicate.backfilling.sweep import MODELS
from cosched.apps.replicate.claims import ABOVE, BELOW, Predicate, Region

# fmt: off
#: The short run of Fig. 8 ends when the head has run.
FIG_8_SHORT_S: Final = 15
#: From this load on jobs wait often enough for "a bit more" of Fig. 10 to mean something.
FROM_LOAD: Final = 0.7
_LATE: Final = "jobs of the whole log that start after their first promise"
NEVER: Final = Region(0, 0)

PREDICATES: Final[dict[str, Predicate]] = {
    EASY: Predicate("guarantees.easy-head", "EASY never delays the reservation of the head",
        f"{_LATE}, which EASY makes to the head alone", NEVER),
    CONSERVATIVE: Predicate("guarantees.conservative-arrival",
        "conservative with compression in order of arrival starts no job after its guarantee", _LATE, NEVER),
    "schedule": Predicate("guarantees.conservative-schedule",
        "conservative with compression in order of the schedule starts no job after its guarantee", _LATE, NEVER),
    "none": Predicate("guarantees.conservative-none",
        "conservative that does nothing at an early termination starts no job after its guarantee", _LATE, NEVER),
    "anew": Predicate("guarantees.anew-breaks", "a new round of backfilling at an early termination breaks guarantees",
        _LATE, Region(low=1)),
}

EASY_WINS: Final = Predicate("table2.easy-months", "EASY is better in 7 of the 12 months",
    "months in which EASY's slowdown, rounded to an integer, is the lower one", Region(5, 9), 7)
CONSERVATIVE_WINS: Final = Predicate("table2.conservative-months", "conservative is better in 4 of the 12 months",
    "months in which conservative's slowdown, rounded to an integer, is the lower one", Region(2, 6), 4)
SMALL: Final = Predicate("table2.difference-small", "the two policies perform similarly",
    "conservative / EASY - 1, mean bounded slowdown of the whole log", Region(-0.15, 0.15), 84 / 81 - 1)
RANKS: Final = {
    policy: Predicate(f"table2.months-rank-{policy}", f"the months rank as in the paper under {policy}",
        f"Spearman's rank correlation of {policy}'s 12 monthly slowdowns with the paper's", Region(low=0.9))
    for policy in (EASY, CONSERVATIVE)
}

CONSERVATIVE_BETTER: Final = Predicate("table3.conservative-better",
    "conservative does better than EASY with uniformly inaccurate estimates, at every f above 1",
    "conservative - EASY, mean bounded slowdown, paired by draw of the estimates", BELOW, -4)
INACCURACY_HELPS: Final = {
    policy: Predicate(f"table3.inaccuracy-helps-{policy}", f"some inaccuracy beats perfect estimates under {policy}",
        f"{policy}'s slowdown at the best f above 1 - at f = 1 (intervals of level 1 - 0.05 / number of f)",
        BELOW, gain)
    for policy, gain in ((EASY, 51 - 62), (CONSERVATIVE, 44 - 61))
}
USERS_WORST: Final = {
    policy: Predicate(f"table3.users-worst-{policy}",
        f"the users' own estimates are worse than those of every f under {policy}",
        f"{policy}'s slowdown with the users' estimates - at the f where it is largest", ABOVE, loss)
    for policy, loss in ((EASY, 81 - 62), (CONSERVATIVE, 84 - 61))
}

FIG_4_ANEW: Final = Predicate("figure4.anew-breaks",
    "backfilling anew after an early termination starts the second job after its guarantee",
    "start - promise of the second job, s", ABOVE)
FIG_4_COMPRESS: Final = Predicate("figure4.compression-keeps",
    "compression, in either order, starts every job by its guarantee", "largest start - promise of any job, s",
    Region(high=0))
FIG_7_EASY: Final = Predicate("figure7.second-unbounded",
    "EASY delays the second job without bound: by a second for every second that the backfilled job is longer",
    "growth of the second job's start over growth of the backfilled job's length", Region(1, 1))
FIG_7_HEAD: Final = Predicate("figure7.head-kept", "the same backfilled job does not delay the head",
    "delay of the head, s", Region(0, 0))
FIG_7_CONSERVATIVE: Final = Predicate("figure7.conservative-bounded",
    "conservative starts the second job at its promise, however long the backfilled job", "delay of the second job, s",
    Region(0, 0))
FIG_8_SHORT: Final = Predicate("figure8.short-run", "EASY's utilisation is higher in the short run",
    f"EASY's utilisation - conservative's, first {FIG_8_SHORT_S} s", ABOVE)
FIG_8_LONG: Final = Predicate("figure8.long-run", "EASY's utilisation is lower in the long run",
    "EASY's utilisation - conservative's, until the last job has ended", BELOW)

IDENTICAL: Final = {
    model: Predicate(f"figure9.identical-{model}",
        f"EASY and conservative are practically identical at every stable load ({about})",
        "conservative / EASY - 1, mean bounded slowdown, paired by workload", Region(-0.1, 0.1))
    for model, about in MODELS.items()
}
ADVANTAGE: Final = {
    model: Predicate(f"figure9.conservative-high-load-{model}",
        f"conservative has a slight advantage at very high load ({about})",
        "conservative / EASY - 1 at the highest load at which both are stable", Region(-0.25, 0, open=True))
    for model, about in MODELS.items()
}
BEATS_FCFS: Final = {
    model: Predicate(f"figure9.better-than-fcfs-{model}",
        f"backfilling is a big improvement over FCFS wherever FCFS is stable ({about})",
        "EASY - FCFS, mean bounded slowdown, paired by workload", BELOW)
    for model, about in MODELS.items()
}

NEARLY_ALL: Final = {
    model: Predicate(f"figure10.nearly-all-{model}",
        f"at high load nearly all jobs are backfilled, under both policies ({about})",
        "share of backfilled jobs at the highest load at which both are stable", Region(low=0.9))
    for model, about in MODELS.items()
}
BIT_MORE: Final = {
    model: Predicate(f"figure10.conservative-bit-more-{model}",
        f"conservative does a bit more backfilling than EASY ({about})",
        f"share under conservative - share under EASY, at every stable load of at least {FROM_LOAD:g}",
        Region(0, 0.1, open=True))
    for model, about in MODELS.items()
}

AT_100: Final = Predicate("figure11.at-100", "about 16 % of the jobs used exactly their request",
    "share of jobs whose run time / request rounds to 100 %", Region(0.13, 0.19),
    paper.FIG_11_AT_100 / paper.FIG_11_JOBS)
KILLED: Final = Predicate("figure11.killed", "nearly all of those were killed by the system",
    "share of them whose status is failed or cancelled", Region(0.95, 1), paper.FIG_11_KILLED / paper.FIG_11_AT_100)
