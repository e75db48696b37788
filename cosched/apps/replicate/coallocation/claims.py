"""The paper's claims, as quantities and the regions in which they hold. Written before any run.

After first runs their lengths, the control variates, and which maxJumps, costs and q are run were chosen, for the time
that it takes; no claim and no region was changed.

Its text has sentences and its figures are not at hand. Where a sentence has no number the region is ours, and follows
from the paper's own precision, a relative error of 5 %: two means that are the same can then lie 10 % apart
(*negligible*), one mean 5 % from what it is (*minimal*, *tends to*). A difference that it calls big is one of at least
50 %. Groups are S1 to S4 by size, C1 to C4 by components, W1 to W4 by widest component.
"""

from typing import Final

from cosched.apps.replicate.claims import ABOVE, BELOW, Predicate, Region

_RELATIVE: Final = "mean response, relative difference"

# fmt: off
_SHARE: Final = "exact share less the paper's, percentage points"
# section 4.1 and Table 1, which are exact: no run has a part in them
MEAN_SIZE: Final = Predicate("workload.mean", "D(0.85) on [1, 38] generates jobs with an average size of 5.03 (4.1)",
    "mean size", Region(5.025, 5.035), 5.03)
LOAD: Final = Predicate("workload.load", "... which leads to a load of 0.786 (4.1)",
    "mean size × mean run time over mean inter-arrival time and processors", Region(0.785, 0.787), 0.786)
SINGLE: Final = Predicate("workload.single", "At thres = 11, C1 is 89.6 % of the jobs (4.2)",
    "share of the jobs of at most 11 processors", Region(0.8955, 0.8965), 0.896)
TABLE1_SIZE: Final = Predicate("table1.size", "Table 1 is the workload's: numbers and loads of S1 to S4",
    _SHARE, Region(-1.0, 1.0))
TABLE1_WIDEST: Final = Predicate("table1.widest",
    "... and of W1 to W4, as quartiles of the widest component ({1}, {2, 3}, {4, 5}, the rest)",
    _SHARE, Region(-1.0, 1.0))
TEXT_WIDEST: Final = Predicate("text.widest",
    "W1 to W4 are widths 1, 2, 3 to 4 and 5 to 19, and 24, 26, 38 and 12 % of the jobs (4.2)",
    "exact share of these widths less the text's, percentage points", Region(-1.0, 1.0))
HALF_THE_LOAD: Final = Predicate("table1.half", "S4 and W4 are more than half of the load (5.3)",
    "exact share of the load", Region(low=0.5, open=True))

# Figure 1: FCFS and FPFS(10), random partitioning, thres = 11
SAME: Final = Predicate("figure1.fpfs-0", "FPFS(0) is the same as FCFS (5)", "starts that differ", Region(0.0, 0.0))
BETTER: Final = Predicate("figure1.better", "FPFS(10) performs better than FCFS for all job groups (5.1)",
    f"{_RELATIVE} of FPFS(10) to FCFS", BELOW)
FCFS_ALIKE: Final = Predicate("figure1.fcfs-alike", "The groups hardly differ under FCFS (5.1)",
    f"{_RELATIVE} of each criterion's worst group to its best", Region(high=0.1))
FCFS_SMALL: Final = Predicate("figure1.fcfs-small", "... small jobs being slightly better (5.1)",
    f"{_RELATIVE} of S4 to S1 under FCFS", ABOVE)
APART: Final = Predicate("figure1.apart", "There are big differences among the groups under FPFS(10) (5.1)",
    f"{_RELATIVE} of each criterion's worst group to its best", Region(low=0.5))
BY_SIZE: Final = Predicate("figure1.by-size", "Under FPFS(10), the larger jobs are, the worse they perform (5.1)",
    f"{_RELATIVE} of each group to the next smaller one's", ABOVE)
BY_WIDEST: Final = Predicate("figure1.by-widest", "... and the wider their widest component (5.1)",
    f"{_RELATIVE} of each group to the next narrower one's", ABOVE)
TWO_COMPONENTS: Final = Predicate("figure1.two-components",
    "Among the groups by components, jobs of two perform worst (5.1)",
    f"{_RELATIVE} of C2 to each other group under FPFS(10)", ABOVE)
EQUAL_SIZE: Final = Predicate("widest.equal-size",
    "Of jobs of equal size those with narrow components perform better (5.1)",
    f"{_RELATIVE} of C4 to C2, whose sizes are drawn alike, under FPFS(10)", BELOW)
EXPLAINS: Final = Predicate("widest.explains", "The widest component decides more than the size (abstract, 5.1)",
    "share of the variance of response times explained by the widest component, less that by the size", ABOVE)
WORSE_THAN_MEAN: Final = Predicate("table1.worse-than-mean",
    "A big portion of the workload performs worse than the average: S4 and W4 (5.3)",
    f"{_RELATIVE} to that of all jobs under FPFS(10)", ABOVE)

# Figure 2: by maxJumps
IMPROVES: Final = Predicate("figure2.improves",
    "Increasing maxJumps improves the performance of every group, up to 10 (5.2)",
    f"{_RELATIVE} to the next lower maxJumps", BELOW)
FLAT: Final = Predicate("figure2.flat", "... beyond 10 there is a minimal improvement (5.2)",
    f"{_RELATIVE} to FPFS(10)", Region(-0.05, 0.05))
RATE: Final = Predicate("figure2.rate",
    "The rate of improvement is high at low maxJumps (5.2): most of what 10 gain, 2 do",
    "what FPFS(2) gains over FCFS, as a part of what FPFS(10) gains", Region(low=0.5, open=True))
LARGE_POORER: Final = Predicate("figure2.large", "Large jobs perform poorer than small ones at every maxJumps (5.2)",
    f"{_RELATIVE} of S4 to S1", ABOVE)
AT_ONCE: Final = Predicate("figure2.at-once",
    "At very high maxJumps small jobs start at once: their mean response tends to 10 (5.2)",
    "mean response of S1 under FPFS(1000)", Region(9.5, 10.5), 10.0)
UNFAIR: Final = Predicate("figure2.unfair", "Unfairness grows with maxJumps, up to 10 (9)",
    "mean response of S4 over that of S1, less that at the next lower maxJumps", ABOVE)

# Figure 3: phased against random partitioning
PHASED: Final = Predicate("figure3.better", "Phased partitioning is better than random for S1 and S4 (6)",
    f"{_RELATIVE} of phased to random", BELOW)
PHASED_FCFS: Final = Predicate("figure3.fcfs", "... also under FCFS (6)", f"{_RELATIVE} of phased to random", BELOW)
PHASED_GAP: Final = Predicate("figure3.gap", "... and S4 and S1 are less apart (6)",
    "mean response of S4 less that of S1, under phased less under random, s", BELOW)

# Figure 4: by thres, under FPFS(10), random partitioning
THRESHOLD: Final = Predicate("figure4.grows", "Increasing thres leads to poor performance (7)",
    f"{_RELATIVE} to the next lower thres", ABOVE)
THRESHOLD_MOST: Final = Predicate("figure4.large",
    "... the deterioration is higher for large jobs than for small ones (7)",
    "relative difference of S4's mean response to that at the lowest thres, less that of S1's", ABOVE)
