"""The paper's claims, as quantities and the regions in which they hold.

Written before the runs, but for one seed of first fit and equipartition at load factors 0.9 and 1.4, and of EASY at
0.9, that the simulator was tried with. After a first quick run the two claims on stalls were put to the jobs of the
sweeps, for the time it takes; no region was changed.
"""

from typing import Final

from cosched.apps.replicate.claims import ABOVE, BELOW, Predicate, Region

RESPONSE_SHORT: Final = Predicate(
    id="figure7.response",
    text="With 50 jobs adaptive jobs have a lower mean response time at every load factor (Fig. 7)",
    quantity="mean response time against traditional jobs', relative difference",
    region=BELOW,
)
UTILISATION_SHORT: Final = Predicate(
    id="figure8.utilisation",
    text="... and a higher utilisation (Fig. 8)",
    quantity="utilisation as allocated less traditional jobs'",
    region=ABOVE,
)
USEFUL_SHORT: Final = Predicate(
    id="figure8.useful",
    text="... also as work done (Fig. 8)",
    quantity="utilisation as work done less traditional jobs'",
    region=ABOVE,
)
RESPONSE_LONG: Final = Predicate(
    id="figure9.response",
    text="With 10 000 jobs adaptive jobs have a lower mean response time at every steady load factor (Fig. 9)",
    quantity="mean response time against traditional jobs', relative difference",
    region=BELOW,
)
UNSTABLE: Final = Predicate(
    id="figure9.response-unstable",
    text="Where the queue grows adaptive jobs respond faster too, with every number of jobs (Fig. 9)",
    quantity="mean response time against traditional jobs', relative difference",
    region=BELOW,
)
UTILISATION_LONG: Final = Predicate(
    id="figure10.utilisation",
    text="With 10 000 jobs adaptive jobs have a higher utilisation at every load factor (Fig. 10)",
    quantity="utilisation as allocated less traditional jobs'",
    region=ABOVE,
)
USEFUL_LONG: Final = Predicate(
    id="figure10.useful",
    text="... also as work done (Fig. 10)",
    quantity="utilisation as work done less traditional jobs'",
    region=ABOVE,
)
MORE_RESPONSE: Final = Predicate(
    id="more-jobs.response",
    text="Performance improves with the number of jobs (4.1.2): with 10 000 response time is cut by more than with 50",
    quantity="relative difference of mean response times, that of the long runs less that of the short ones",
    region=BELOW,
)
MORE_UTILISATION: Final = Predicate(
    id="more-jobs.utilisation",
    text="... and utilisation is raised by more",
    quantity="difference of utilisations as allocated, that of the long runs less that of the short ones",
    region=ABOVE,
)
COST: Final = Predicate(
    id="cost.5-s",
    text="A stall of 5 s for each reconfiguration would be borne (section 4): adaptive jobs still respond faster",
    quantity="mean response time with 5 s a resize against traditional jobs', relative difference, every steady load",
    region=BELOW,
)
COST_SMALL: Final = Predicate(
    id="cost.5-s-size",
    text="... and lose at most a tenth by it (our bound for 'comfortably')",
    quantity="mean response time with 5 s a resize against without, relative difference, every steady load",
    region=Region(high=0.1),
)
BACKFILLING: Final = Predicate(
    id="backfilling-less-relevant",
    text="Backfilling becomes less relevant for adaptive jobs (section 2): EASY gains less than among rigid ones",
    quantity="response time under EASY against in order, relative difference: malleable jobs' less rigid ones'",
    region=ABOVE,
)
BACKFILLING_KIND: Final = Predicate(
    id="backfilling-kind-less-relevant",
    text="... and it matters less which kind of it: EASY or first fit",
    quantity="how far response time under EASY is from first fit's, either way: malleable jobs' less rigid ones'",
    region=BELOW,
)
EXAMPLE: Final = {
    name: Predicate(
        id=f"example.{name}",
        text=f"The introduction's example: {text}",
        quantity="end, s",
        region=Region(value, value),
        paper=value,
    )
    for name, text, value in (
        ("a", "A (32 to 64 processors, work 6400) gives B four of its 64, and ends at 101.875 s", 101.875),
        ("b", "B (rigid 40, work 1200), which comes at 10 s, runs at once, until 40 s", 40.0),
        ("rigid-a", "rigid A runs for 100 s", 100.0),
        ("rigid-b", "rigid B waits for it, until 130 s", 130.0),
    )
}

#: Decided by real runs alone (``--real``): one high load, written before any of them.
REAL_RESPONSE: Final = Predicate(
    id="real.response",
    text="On real processes, too, adaptive jobs have a lower mean response time under a high load (Fig. 7)",
    quantity="mean response time against traditional jobs', relative difference",
    region=BELOW,
)
REAL_UTILISATION: Final = Predicate(
    id="real.utilisation",
    text="... and a higher utilisation (Fig. 8)",
    quantity="utilisation as allocated less traditional jobs'",
    region=ABOVE,
)
REAL_RUNS: Final = (REAL_RESPONSE, REAL_UTILISATION)

#: What needs real processes: the paper's measurements of its runtime system.
REAL: Final = tuple(
    Predicate(id=f"real.{name}", text=text, quantity=quantity, region=region)
    for name, text, quantity, region in (
        (
            "tables-1-3",
            "Shrinking and expanding takes 50 to 375 ms at 1 MB a processor (Tables 1, 3)",
            "time to shrink or expand, ms",
            Region(50, 375),
        ),
        (
            "tables-2-4",
            "... and 382 to 2116 ms at 10 MB a processor (Tables 2, 4)",
            "time to shrink or expand, ms",
            Region(382, 2116),
        ),
        (
            "figure-2",
            "That time grows with the data that migrate (Fig. 2)",
            "time at 10 MB over time at 1 MB a processor",
            Region(low=1, open=True),
        ),
        (
            "figure-3",
            "A vacated process leaves peaks of load of about 2 % (Fig. 3)",
            "peak load, ratio of a processor",
            Region(0, 0.02),
        ),
        (
            "figure-4",
            "Job 2 gets most of a processor that job 1 has left (Fig. 4)",
            "job 2's part of the processor",
            Region(low=0.5, open=True),
        ),
        (
            "figure-5",
            "Throughput returns when a job has expanded again (Fig. 5)",
            "throughput after against before, relative difference",
            Region(-0.05, 0.05),
        ),
        (
            "table-5",
            "2, 4, 8 adaptive jobs together cost 1.98, 1.43, 3.24 % (Table 5)",
            "execution time against rigid jobs', relative difference",
            Region(high=0.04),
        ),
    )
)
