"""The paper's claims, as quantities and the regions in which they hold.

Written before the runs, but for one seed of first fit and equipartition at load factors 0.9 and 1.4, and of EASY at
0.9, that the simulator was tried with. After a first quick run the two claims on stalls were put to the jobs of the
sweeps, for the time it takes; no region was changed.
"""

from typing import Final

from cosched.apps.replicate.claims import ABOVE, BELOW, Predicate, Region

# fmt: off
_RESPONSE: Final = "mean response time against traditional jobs', relative difference"
_ALLOCATED: Final = "utilisation as allocated less traditional jobs'"
_USEFUL: Final = "utilisation as work done less traditional jobs'"
RESPONSE_SHORT: Final = Predicate("figure7.response",
    "With 50 jobs adaptive jobs have a lower mean response time at every load factor (Fig. 7)", _RESPONSE, BELOW)
UTILISATION_SHORT: Final = Predicate("figure8.utilisation", "... and a higher utilisation (Fig. 8)", _ALLOCATED, ABOVE)
USEFUL_SHORT: Final = Predicate("figure8.useful", "... also as work done (Fig. 8)", _USEFUL, ABOVE)
RESPONSE_LONG: Final = Predicate("figure9.response",
    "With 10 000 jobs adaptive jobs have a lower mean response time at every steady load factor (Fig. 9)",
    _RESPONSE, BELOW)
UNSTABLE: Final = Predicate("figure9.response-unstable",
    "Where the queue grows adaptive jobs respond faster too, with every number of jobs (Fig. 9)", _RESPONSE, BELOW)
UTILISATION_LONG: Final = Predicate("figure10.utilisation",
    "With 10 000 jobs adaptive jobs have a higher utilisation at every load factor (Fig. 10)", _ALLOCATED, ABOVE)
USEFUL_LONG: Final = Predicate("figure10.useful", "... also as work done (Fig. 10)", _USEFUL, ABOVE)
MORE_RESPONSE: Final = Predicate("more-jobs.response",
    "Performance improves with the number of jobs (4.1.2): with 10 000 response time is cut by more than with 50",
    "relative difference of mean response times, that of the long runs less that of the short ones", BELOW)
MORE_UTILISATION: Final = Predicate("more-jobs.utilisation", "... and utilisation is raised by more",
    "difference of utilisations as allocated, that of the long runs less that of the short ones", ABOVE)
COST: Final = Predicate("cost.5-s",
    "A stall of 5 s for each reconfiguration would be borne (section 4): adaptive jobs still respond faster",
    "mean response time with 5 s a resize against traditional jobs', relative difference, every steady load", BELOW)
COST_SMALL: Final = Predicate("cost.5-s-size", "... and lose at most a tenth by it (our bound for 'comfortably')",
    "mean response time with 5 s a resize against without, relative difference, every steady load", Region(high=0.1))
BACKFILLING: Final = Predicate("backfilling-less-relevant",
    "Backfilling becomes less relevant for adaptive jobs (section 2): EASY gains less than among rigid ones",
    "response time under EASY against in order, relative difference: malleable jobs' less rigid ones'", ABOVE)
BACKFILLING_KIND: Final = Predicate("backfilling-kind-less-relevant",
    "... and it matters less which kind of it: EASY or first fit",
    "how far response time under EASY is from first fit's, either way: malleable jobs' less rigid ones'", BELOW)
EXAMPLE: Final = {
    name: Predicate(f"example.{name}", f"The introduction's example: {text}", "end, s", Region(value, value), value)
    for name, text, value in (
        ("a", "A (32 to 64 processors, work 6400) gives B four of its 64, and ends at 101.875 s", 101.875),
        ("b", "B (rigid 40, work 1200), which comes at 10 s, runs at once, until 40 s", 40.0),
        ("rigid-a", "rigid A runs for 100 s", 100.0),
        ("rigid-b", "rigid B waits for it, until 130 s", 130.0),
    )
}

#: Decided by real runs alone (``--real``): one high load, written before any of them.
REAL_RESPONSE: Final = Predicate("real.response",
    "On real processes, too, adaptive jobs have a lower mean response time under a high load (Fig. 7)",
    _RESPONSE, BELOW)
REAL_UTILISATION: Final = Predicate("real.utilisation", "... and a higher utilisation (Fig. 8)", _ALLOCATED, ABOVE)
REAL_RUNS: Final = (REAL_RESPONSE, REAL_UTILISATION)

#: What needs real processes: the paper's measurements of its runtime system.
REAL: Final = tuple(
    Predicate(f"real.{name}", text, quantity, region)
    for name, text, quantity, region in (
        ("tables-1-3", "Shrinking and expanding takes 50 to 375 ms at 1 MB a processor (Tables 1, 3)",
         "time to shrink or expand, ms", Region(50, 375)),
        ("tables-2-4", "... and 382 to 2116 ms at 10 MB a processor (Tables 2, 4)",
         "time to shrink or expand, ms", Region(382, 2116)),
        ("figure-2", "That time grows with the data that migrate (Fig. 2)",
         "time at 10 MB over time at 1 MB a processor", Region(low=1, open=True)),
        ("figure-3", "A vacated process leaves peaks of load of about 2 % (Fig. 3)",
         "peak load, ratio of a processor", Region(0, 0.02)),
        ("figure-4", "Job 2 gets most of a processor that job 1 has left (Fig. 4)",
         "job 2's part of the processor", Region(low=0.5, open=True)),
        ("figure-5", "Throughput returns when a job has expanded again (Fig. 5)",
         "throughput after against before, relative difference", Region(-0.05, 0.05)),
        ("table-5", "2, 4, 8 adaptive jobs together cost 1.98, 1.43, 3.24 % (Table 5)",
         "execution time against rigid jobs', relative difference", Region(high=0.04)),
    )
)
