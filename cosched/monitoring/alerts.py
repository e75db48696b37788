"""What is alerted on. Each alert has a section in the runbooks: what it means, what to look at, what to do."""

from typing import Final

from cosched.monitoring import series
from cosched.monitoring.recordings import COMMIT_P99, LATE, LATE_BUDGET, NOTICED, PASS_P99
from cosched.monitoring.rules import Alert, Pace

#: The scrape's name, which :mod:`~.scraping` gives.
SCRAPE: Final = "cosched"
_MINUTE_S: Final = 60
_DAY_S: Final = 86_400
_GIB: Final = 1 << 30
#: What a figure of a desk's use may be above its ceiling by: it is measured over a second.
_OVER: Final = "1.1 * {} + 0.1"
_STUCK_S: Final = 900
_SLOW_S: Final = 0.5
#: Above this share of slow calls the 99th percentile is beyond the paper's line.
_NOTICED: Final = 0.01
#: Burn rates: at 14.4 a month's budget is gone in two days, at 6 in less than a week; with the windows of each.
_BURN_FAST: Final = (14.4, "1h", "5m")
_BURN_SLOW: Final = (6.0, "6h", "30m")


def _over_contract(pace: Pace) -> str:
    ceiling = _OVER.format(series.NODE_LIMITED_CPUS.name)
    return f'{series.NODE_CPUS_USED.name}{{side="parallel"}} > ignoring (side) ({ceiling})'


def _queue_stuck(pace: Pace) -> str:
    jobs, decided, window = series.JOBS.name, series.INSTRUCTIONS.name, pace.time(_STUCK_S)
    waiting = f'sum without (state) ({jobs}{{state="queued"}}) > 0'
    holding = f'sum without (state) ({jobs}{{state=~"starting|running|ending"}}) == 0'
    started = f'sum without (kind, reason) (increase({decided}{{kind="Start"}}[{window}])) == 0'
    nodes = series.NODES.name
    closed = f'sum without (state) ({nodes}{{state="closed"}}) > 0'
    none_open = f'sum without (state) ({nodes}{{state=~"up|draining"}}) == 0'
    return f"{waiting} and {holding} and {started} unless ({closed} and {none_open})"


def _burnt(rate: float, long: str, short: str) -> str:
    late = f"> {rate * LATE_BUDGET:g}"
    return f"{LATE[long].name} {late} and {LATE[short].name} {late}"


def _calls_slow(pace: Pace) -> str:
    return f"{NOTICED.name} > {_NOTICED:g} and on (cluster, node) {series.NODE_TASKS.name} > 0"


def _expires_within(days: int) -> str:
    return f"{series.CERTIFICATE_EXPIRY.name} - time() < {days * _DAY_S}"


ALL: Final = (
    Alert(
        "CoschedSchedulerDown",
        "critical",
        2 * _MINUTE_S,
        lambda pace: f'up{{job="{SCRAPE}"}} == 0 or absent(up{{job="{SCRAPE}"}})',
        "The scheduler does not answer",
        "No metrics could be read from {{ $labels.instance }}. Jobs that run go on; nothing new starts.",
    ),
    Alert(
        "CoschedJournalFull",
        "critical",
        _MINUTE_S,
        lambda pace: f"{series.ACCEPTING.name} == 0",
        "No jobs are accepted",
        "The scheduler {{ $labels.instance }} cannot write its journal: its disk is full, read-only or broken.",
    ),
    Alert(
        "CoschedJournalFilling",
        "warning",
        5 * _MINUTE_S,
        lambda pace: f"{series.JOURNAL_FREE_BYTES.name} < {_GIB} + {series.JOURNAL_BYTES.name}",
        "The journal's disk is nearly full",
        "{{ $value | humanize1024 }}B are free on the disk of the journal of {{ $labels.instance }}.",
    ),
    Alert(
        "CoschedPolicyFails",
        "critical",
        2 * _MINUTE_S,
        lambda pace: f"{series.POLICY_FAILING.name} == 1",
        "The policy fails, and no job starts",
        "Scheduling passes of {{ $labels.instance }} fail; they are tried again. Jobs that run go on.",
    ),
    Alert(
        "CoschedJobSetAside",
        "warning",
        _MINUTE_S,
        lambda pace: f"{series.JOBS_SET_ASIDE.name} > 0",
        "Jobs are set aside by the pass",
        "Planning of {{ $labels.instance }} fails with {{ $value }} jobs, which are left out. Others start.",
    ),
    Alert(
        "CoschedSchedulerLag",
        "warning",
        5 * _MINUTE_S,
        lambda pace: f"{COMMIT_P99.name} > {_SLOW_S:g} or {PASS_P99.name} > {_SLOW_S:g}",
        "The scheduler is slow",
        "One event in a hundred takes {{ $value | humanizeDuration }} until it is journalled or decided.",
    ),
    Alert(
        "CoschedQueueStuck",
        "warning",
        5 * _MINUTE_S,
        _queue_stuck,
        "Jobs wait, and none starts",
        "{{ $value }} jobs wait, none holds a node, and none was started in the last quarter of an hour.",
    ),
    Alert(
        "CoschedAgentLost",
        "warning",
        5 * _MINUTE_S,
        lambda pace: f'{series.NODE_STATE.name}{{state="lost"}} == 1',
        "A node is lost",
        "The agent of {{ $labels.node }} was not heard for its lease; its jobs have ended or wait again.",
    ),
    Alert(
        "CoschedGuardLost",
        "critical",
        _MINUTE_S,
        lambda pace: f"{series.NODE_GUARD_UP.name} == 0",
        "A desk has no guard",
        "The guard of {{ $labels.node }} does not answer its agent: nothing new starts there.",
    ),
    Alert(
        "CoschedJobsCannotEnd",
        "warning",
        _MINUTE_S,
        lambda pace: f"{series.NODE_STALLED_JOBS.name} > 0",
        "Jobs cannot be ended: a file system does not answer",
        "Processes of {{ $value }} jobs on {{ $labels.node }} hear no signal; their processors take nothing new.",
    ),
    Alert(
        "CoschedDeskOverContract",
        "critical",
        _MINUTE_S,
        _over_contract,
        "Parallel work uses more of a desk than its contract leaves it",
        "Jobs use {{ $value | humanize }} CPUs of {{ $labels.node }} while its ceiling is in force.",
    ),
    Alert(
        "CoschedOwnerLatencyFast",
        "critical",
        2 * _MINUTE_S,
        lambda pace: _burnt(*_BURN_FAST),
        "An owner waits for a slow desk",
        "{{ $value | humanizePercentage }} of wake-ups on {{ $labels.node }} are late: its budget is gone in two days.",
    ),
    Alert(
        "CoschedOwnerLatencySlow",
        "warning",
        15 * _MINUTE_S,
        lambda pace: _burnt(*_BURN_SLOW),
        "An owner's desk is slow again and again",
        "{{ $value | humanizePercentage }} of wake-ups on {{ $labels.node }} are late: its budget is gone in a week.",
    ),
    Alert(
        "CoschedDeskCallsSlow",
        "warning",
        2 * _MINUTE_S,
        _calls_slow,
        "System calls at a desk take longer than 400 ms while jobs run there",
        "{{ $value | humanizePercentage }} of the synthetic user's calls at {{ $labels.node }} took more than 400 ms.",
    ),
    Alert(
        "CoschedCertificateExpiring",
        "warning",
        60 * _MINUTE_S,
        lambda pace: _expires_within(21),
        "A certificate expires within three weeks",
        "That of {{ $labels.identity }} expires in {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "CoschedCertificateExpired",
        "critical",
        5 * _MINUTE_S,
        lambda pace: _expires_within(3),
        "A certificate expires within three days, or has expired",
        "That of {{ $labels.identity }} expires in {{ $value | humanizeDuration }}.",
    ),
)
