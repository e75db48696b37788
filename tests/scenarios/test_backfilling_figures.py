"""The situations that Feitelson & Weil 1998 draw, section 2, with numbers: each test names the figure and tells it.

The figures have no scale, so the sizes and lengths are ours, chosen to have the paper's shape. All times in seconds.
"""

import numpy as np
import pytest
from kit.checks import run
from kit.drive import Drive
from kit.loads import SECOND, J, workload

from cosched.metrics.summary import summarise


def starts_s(policy: str, procs: int, jobs: list[J]) -> list[float]:
    starts: list[float] = (run(workload(procs, jobs), policy).outcome.start_us / SECOND).tolist()
    return starts


def test_fig_3_the_profile_protects_who_came_earlier() -> None:
    """Six processors; jobs of 2, 2 and 1 run until 10, 20 and 30.

    The first queued job (4 processors) fits when the first two have ended, at 20. The second (3 for 20 s) would fit at
    10, when one has ended, but would delay the first: it gets the next anchor point, 30. The third (1) starts at once.
    """
    drive = Drive("conservative", procs=6).with_jobs((2, 10), (2, 20), (1, 30)).planned()
    drive.submit(4, procs=4, estimate_s=10)
    drive.submit(5, procs=3, estimate_s=20)
    drive.submit(6, procs=1, estimate_s=10)
    assert drive.decide() == [
        "start 6 on 1 (limit 10 s): RESERVATION_DUE, promised 0 s",
        "tell 4 20 s: RESERVED",
        "tell 5 30 s: RESERVED",
        "timer 20 s: WAKE",
    ]


def test_fig_3_without_the_first_the_second_gets_its_first_anchor_point() -> None:
    """The same machine without the first queued job: now 10 is free of harm."""
    running = [J(0, 2, 10), J(0, 2, 20), J(0, 1, 30)]
    assert starts_s("conservative", 6, [*running, J(0, 3, 20)]) == [0, 0, 0, 10]
    assert starts_s("conservative", 6, [*running, J(0, 4, 10), J(0, 3, 20)]) == [0, 0, 0, 20, 30]


FIG_4 = {
    # what is decided when the bottom job ends at 4 instead of 20, and when the first and the second job start then
    "none": ([], 20, 10),
    "anew": (["tell 3 10 s: MOVED_EARLIER, before 20 s", "tell 4 30 s: RESCHEDULED, before 10 s"], 10, 30),
    "schedule": (
        [
            "start 4 on 2 (limit 10 s): RESERVATION_DUE, promised 10 s",
            "tell 3 14 s: MOVED_EARLIER, before 20 s",
            "timer 14 s: WAKE",
        ],
        14,
        4,
    ),
    "arrival": (["start 4 on 2 (limit 10 s): RESERVATION_DUE, promised 10 s", "timer 20 s: WAKE"], 14, 4),
}


@pytest.mark.parametrize("choice", FIG_4)
def test_fig_4_backfilling_anew_breaks_a_guarantee_and_compression_does_not(choice: str) -> None:
    """Four processors; a job of 2 runs until 10, and below it one of 2 that is expected to run until 20.

    The first queued job (all 4, for 20 s) is promised T2 = 20, the second (2 for 10 s) backfills at T1 = 10. Then the
    bottom job ends at 4. Backfilled anew, the first can start at 10, which leaves no hole for the second: it starts at
    T3 = 30, long after its guarantee. Compressed, the second moves up from 10 to 4; in the order of the schedule the
    first moves up behind it, to 14; one by one in order of arrival it is asked first, finds nothing, and keeps 20 until
    the sweep at the next end, at 10, finds it 14 as well. Where nothing is done, nothing moves.
    """
    jobs = [J(0, 2, 10), J(0, 2, 20, run=4), J(0, 4, 20), J(0, 2, 10)]
    told, first_starts, second_starts = FIG_4[choice]
    drive = Drive(f"conservative({choice})", procs=4)
    for number, job in enumerate(jobs, start=1):
        drive.submit(number, job.procs, job.estimate)
    assert drive.decide_and_launch()[2:] == ["tell 3 20 s: RESERVED", "tell 4 10 s: RESERVED", "timer 10 s: WAKE"]
    drive.at(4).ended(2)
    assert drive.decide() == told

    outcome = run(workload(4, jobs), f"conservative({choice})").outcome
    assert (outcome.start_us[2:] / SECOND).tolist() == [first_starts, second_starts]
    late = (outcome.promised_us >= 0) & (outcome.start_us > outcome.promised_us)
    assert late.tolist() == [False, False, False, choice == "anew"]


@pytest.mark.parametrize(
    ("procs", "estimate_s", "decision"),
    [
        (2, 100, ["start 3 on 2 (limit 100 s): BACKFILLED_BEFORE_SHADOW, shadow 100 s"]),  # ends at the shadow time
        (1, 999, ["start 3 on 1 (limit 999 s): BACKFILLED_ON_EXTRA, extra_procs 1"]),
        (2, 101, []),  # neither: one second too long, and one processor too wide
        (3, 1, []),  # wider than what is free
    ],
)
def test_fig_6_a_job_backfills_in_time_or_on_the_extra_nodes(procs: int, estimate_s: int, decision: list[str]) -> None:
    """Six processors, four of them busy until 100; the head needs five: shadow time 100, one extra node."""
    drive = Drive("easy", procs=6).with_jobs((4, 100), (5, 50))
    assert drive.decide_and_launch() == ["start 1 on 4 (limit 100 s): FITS, free_procs 6", "tell 2 100 s: RESERVED"]
    drive.submit(3, procs, estimate_s)
    assert drive.decide() == decision


def test_fig_6_extra_nodes_are_given_away_once() -> None:
    """One extra node, two long jobs of one processor, and two free: only the first of them starts."""
    drive = Drive("easy", procs=6).with_jobs((4, 100), (5, 50), (1, 999), (1, 999), (1, 100))
    assert drive.decide() == [
        "start 1 on 4 (limit 100 s): FITS, free_procs 6",
        "start 3 on 1 (limit 999 s): BACKFILLED_ON_EXTRA, extra_procs 1",
        "start 5 on 1 (limit 100 s): BACKFILLED_BEFORE_SHADOW, shadow 100 s",
        "tell 2 100 s: RESERVED",
    ]


@pytest.mark.parametrize("length_s", [20, 100, 1_000, 1_000_000])
def test_fig_7_easy_delays_the_second_job_as_long_as_the_backfilled_one_is(length_s: int) -> None:
    """Property 1. Four processors, two busy until 10; the head needs three, the second job all four.

    A long job of one processor comes last. It harms the head in nothing, since one node is extra, and EASY starts it at
    once: the second job, which could have started at 20, has to wait for its end, however far that is. Under
    conservative backfilling the second job has a reservation, which nobody delays.
    """
    jobs = [J(0, 2, 10), J(0, 3, 10), J(0, 4, 10), J(1, 1, length_s)]
    assert starts_s("easy", 4, jobs[:3]) == [0, 10, 20]
    delay_s = length_s + 1 - 20
    assert starts_s("easy", 4, jobs) == [0, 10, 20 + delay_s, 1]
    backfilled_s = 1 if length_s + 1 <= 20 else 30
    assert starts_s("conservative", 4, jobs) == [0, 10, 20, backfilled_s]


def test_fig_8_easy_gains_in_the_short_run_and_loses_in_the_long_run() -> None:
    """Four processors. Three are busy until 10, the head needs three for 10 s, then one job all four for 40 s, one a
    single processor for 80 s, and one two processors for 80 s.

    EASY puts the long narrow job on the idle processor at once: in the first 20 s it uses all four, conservative three.
    But then the job of four has to wait for it, on a machine three quarters idle, until 80, and the last job runs alone
    from 120 to 200. Conservative lets the narrow job wait until 60, when it runs side by side with the last one, and
    all is done at 140.
    """
    jobs = [J(0, 3, 10), J(0, 3, 10), J(0, 4, 40), J(0, 1, 80), J(0, 2, 80)]
    easy = run(workload(4, jobs), "easy").outcome
    conservative = run(workload(4, jobs), "conservative").outcome
    assert (easy.start_us / SECOND).tolist() == [0, 10, 80, 0, 120]
    assert (conservative.start_us / SECOND).tolist() == [0, 10, 20, 60, 60]

    def used_until(until_s: int, start_us: np.ndarray, end_us: np.ndarray) -> float:
        ran_us = np.clip(end_us, 0, until_s * SECOND) - np.clip(start_us, 0, until_s * SECOND)
        return float((ran_us * easy.workload.procs).sum() / (4 * until_s * SECOND))

    assert used_until(20, easy.start_us, easy.end_us) == 1.0
    assert used_until(20, conservative.start_us, conservative.end_us) == 0.75
    assert summarise(easy).utilization == pytest.approx(460 / 800)
    assert summarise(conservative).utilization == pytest.approx(460 / 560)
    assert (summarise(easy).makespan_s, summarise(conservative).makespan_s) == (200, 140)
