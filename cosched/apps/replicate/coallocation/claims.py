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

# section 4.1 and Table 1, which are exact: no run has a part in them
MEAN_SIZE: Final = Predicate(
    id="workload.mean",
    text="D(0.85) on [1, 38] generates jobs with an average size of 5.03 (4.1)",
    quantity="mean size",
    region=Region(5.025, 5.035),
    paper=5.03,
)
LOAD: Final = Predicate(
    id="workload.load",
    text="... which leads to a load of 0.786 (4.1)",
    quantity="mean size × mean run time over mean inter-arrival time and processors",
    region=Region(0.785, 0.787),
    paper=0.786,
)
SINGLE: Final = Predicate(
    id="workload.single",
    text="At thres = 11, C1 is 89.6 % of the jobs (4.2)",
    quantity="share of the jobs of at most 11 processors",
    region=Region(0.8955, 0.8965),
    paper=0.896,
)
TABLE1_SIZE: Final = Predicate(
    id="table1.size",
    text="Table 1 is the workload's: numbers and loads of S1 to S4",
    quantity="exact share less the paper's, percentage points",
    region=Region(-1.0, 1.0),
)
TABLE1_WIDEST: Final = Predicate(
    id="table1.widest",
    text="... and of W1 to W4, as quartiles of the widest component ({1}, {2, 3}, {4, 5}, the rest)",
    quantity="exact share less the paper's, percentage points",
    region=Region(-1.0, 1.0),
)
TEXT_WIDEST: Final = Predicate(
    id="text.widest",
    text="W1 to W4 are widths 1, 2, 3 to 4 and 5 to 19, and 24, 26, 38 and 12 % of the jobs (4.2)",
    quantity="exact share of these widths less the text's, percentage points",
    region=Region(-1.0, 1.0),
)
HALF_THE_LOAD: Final = Predicate(
    id="table1.half",
    text="S4 and W4 are more than half of the load (5.3)",
    quantity="exact share of the load",
    region=Region(low=0.5, open=True),
)

# Figure 1: FCFS and FPFS(10), random partitioning, thres = 11
SAME: Final = Predicate(
    id="figure1.fpfs-0",
    text="FPFS(0) is the same as FCFS (5)",
    quantity="starts that differ",
    region=Region(0.0, 0.0),
)
BETTER: Final = Predicate(
    id="figure1.better",
    text="FPFS(10) performs better than FCFS for all job groups (5.1)",
    quantity=f"{_RELATIVE} of FPFS(10) to FCFS",
    region=BELOW,
)
FCFS_ALIKE: Final = Predicate(
    id="figure1.fcfs-alike",
    text="The groups hardly differ under FCFS (5.1)",
    quantity=f"{_RELATIVE} of each criterion's worst group to its best",
    region=Region(high=0.1),
)
FCFS_SMALL: Final = Predicate(
    id="figure1.fcfs-small",
    text="... small jobs being slightly better (5.1)",
    quantity=f"{_RELATIVE} of S4 to S1 under FCFS",
    region=ABOVE,
)
APART: Final = Predicate(
    id="figure1.apart",
    text="There are big differences among the groups under FPFS(10) (5.1)",
    quantity=f"{_RELATIVE} of each criterion's worst group to its best",
    region=Region(low=0.5),
)
BY_SIZE: Final = Predicate(
    id="figure1.by-size",
    text="Under FPFS(10), the larger jobs are, the worse they perform (5.1)",
    quantity=f"{_RELATIVE} of each group to the next smaller one's",
    region=ABOVE,
)
BY_WIDEST: Final = Predicate(
    id="figure1.by-widest",
    text="... and the wider their widest component (5.1)",
    quantity=f"{_RELATIVE} of each group to the next narrower one's",
    region=ABOVE,
)
TWO_COMPONENTS: Final = Predicate(
    id="figure1.two-components",
    text="Among the groups by components, jobs of two perform worst (5.1)",
    quantity=f"{_RELATIVE} of C2 to each other group under FPFS(10)",
    region=ABOVE,
)
EQUAL_SIZE: Final = Predicate(
    id="widest.equal-size",
    text="Of jobs of equal size those with narrow components perform better (5.1)",
    quantity=f"{_RELATIVE} of C4 to C2, whose sizes are drawn alike, under FPFS(10)",
    region=BELOW,
)
EXPLAINS: Final = Predicate(
    id="widest.explains",
    text="The widest component decides more than the size (abstract, 5.1)",
    quantity="share of the variance of response times explained by the widest component, less that by the size",
    region=ABOVE,
)
WORSE_THAN_MEAN: Final = Predicate(
    id="table1.worse-than-mean",
    text="A big portion of the workload performs worse than the average: S4 and W4 (5.3)",
    quantity=f"{_RELATIVE} to that of all jobs under FPFS(10)",
    region=ABOVE,
)

# Figure 2: by maxJumps
IMPROVES: Final = Predicate(
    id="figure2.improves",
    text="Increasing maxJumps improves the performance of every group, up to 10 (5.2)",
    quantity=f"{_RELATIVE} to the next lower maxJumps",
    region=BELOW,
)
FLAT: Final = Predicate(
    id="figure2.flat",
    text="... beyond 10 there is a minimal improvement (5.2)",
    quantity=f"{_RELATIVE} to FPFS(10)",
    region=Region(-0.05, 0.05),
)
RATE: Final = Predicate(
    id="figure2.rate",
    text="The rate of improvement is high at low maxJumps (5.2): most of what 10 gain, 2 do",
    quantity="what FPFS(2) gains over FCFS, as a part of what FPFS(10) gains",
    region=Region(low=0.5, open=True),
)
LARGE_POORER: Final = Predicate(
    id="figure2.large",
    text="Large jobs perform poorer than small ones at every maxJumps (5.2)",
    quantity=f"{_RELATIVE} of S4 to S1",
    region=ABOVE,
)
AT_ONCE: Final = Predicate(
    id="figure2.at-once",
    text="At very high maxJumps small jobs start at once: their mean response tends to 10 (5.2)",
    quantity="mean response of S1 under FPFS(1000)",
    region=Region(9.5, 10.5),
    paper=10.0,
)
UNFAIR: Final = Predicate(
    id="figure2.unfair",
    text="Unfairness grows with maxJumps, up to 10 (9)",
    quantity="mean response of S4 over that of S1, less that at the next lower maxJumps",
    region=ABOVE,
)

# Figure 3: phased against random partitioning
PHASED: Final = Predicate(
    id="figure3.better",
    text="Phased partitioning is better than random for S1 and S4 (6)",
    quantity=f"{_RELATIVE} of phased to random",
    region=BELOW,
)
PHASED_FCFS: Final = Predicate(
    id="figure3.fcfs",
    text="... also under FCFS (6)",
    quantity=f"{_RELATIVE} of phased to random",
    region=BELOW,
)
PHASED_GAP: Final = Predicate(
    id="figure3.gap",
    text="... and S4 and S1 are less apart (6)",
    quantity="mean response of S4 less that of S1, under phased less under random, s",
    region=BELOW,
)

# Figure 4: by thres, under FPFS(10), random partitioning
THRESHOLD: Final = Predicate(
    id="figure4.grows",
    text="Increasing thres leads to poor performance (7)",
    quantity=f"{_RELATIVE} to the next lower thres",
    region=ABOVE,
)
THRESHOLD_MOST: Final = Predicate(
    id="figure4.large",
    text="... the deterioration is higher for large jobs than for small ones (7)",
    quantity="relative difference of S4's mean response to that at the lowest thres, less that of S1's",
    region=ABOVE,
)
