"""The dashboard *policies*: what the scheduling policy decides, for which reasons, and how good its promises are."""

from cosched.monitoring import recordings, series
from cosched.monitoring.dashboards.queries import SELDOM, beyond, increase, quantile, rate, recorded
from cosched.monitoring.dashboards.values import Dashboard, Panel, Query, Row

_PAST_THE_HEAD = "backfilled.*|jumped|first_fit|best_fit"
_STARTS = increase(series.INSTRUCTIONS, kind="Start")

PASS_LENGTH = Panel(
    title="Length of passes",
    description="Half of them take less than p50, 99 of 100 less than p99.",
    unit="s",
    queries=tuple(Query(quantile(share / 100, series.PASS_DURATION), f"p{share}") for share in (50, 99)),
    alerts=("CoschedSchedulerLag",),
)

_DECISIONS = (
    Panel(
        title="Starts, by reason",
        description="Why jobs were started in the hour before, in the words of cosched explain.",
        unit="none",
        kind="stacked",
        queries=(Query(increase(series.INSTRUCTIONS, "reason", kind="Start"), "{{reason}}"),),
    ),
    Panel(
        title="Starts past the head of the queue",
        description="The share of starts in the hour before that were not in the queue's order: backfilled, or first "
        "of those that fit.",
        unit="percentunit",
        queries=(
            Query(f"{increase(series.INSTRUCTIONS, kind='Start', reason=_PAST_THE_HEAD)} / {_STARTS}", "past the head"),
        ),
    ),
    Panel(
        title="All else that was decided",
        description="Changes of running jobs, ends by the scheduler, promises made and moved, turns of jobs that share "
        "processors, in the hour before.",
        unit="none",
        kind="stacked",
        queries=(
            Query(
                increase(series.INSTRUCTIONS, "kind", "reason", kind="Resize|Kill|Tell|SharePlan"),
                "{{kind}}: {{reason}}",
            ),
        ),
    ),
    Panel(
        title="Events",
        description="What the scheduler was told, by kind: jobs submitted, launched and ended, nodes that come and go, "
        "owners, progress.",
        unit="cps",
        kind="stacked",
        queries=(Query(rate(series.EVENTS, "kind"), "{{kind}}"),),
    ),
)

_PASSES = (
    Panel(
        title="Passes",
        description="How often the policy was asked what to start.",
        unit="cps",
        queries=(Query(rate(series.PASSES), "passes"),),
    ),
    PASS_LENGTH,
)

_QUALITY = (
    Panel(
        title="Processors in use",
        description="The share of the processors in service that jobs hold.",
        unit="percentunit",
        queries=(Query(recorded(recordings.PROCS_USED), "{{cluster}}: held by jobs"),),
    ),
    Panel(
        title="Mean bounded slowdown",
        description="Of jobs that ended in the hour before; 1: none of them waited.",
        unit="none",
        queries=(Query(recorded(recordings.MEAN_SLOWDOWN), "{{cluster}}"),),
    ),
    Panel(
        title="Starts later than promised",
        description="The share of the starts in the hour before, of jobs that were promised a start, that came more "
        "than 5 s, or more than 5 min, after the first promise.",
        unit="percentunit",
        queries=(
            Query(beyond(5, series.JOB_PREDICTION_ERROR), "by more than 5 s"),
            Query(beyond(300, series.JOB_PREDICTION_ERROR), "by more than 5 min"),
        ),
    ),
    Panel(
        title="Mean wait",
        description="From submission to the decision to start, of jobs that were started in the hour before.",
        unit="s",
        queries=(
            Query(
                f"{increase(series.QUEUE_WAIT, window=SELDOM, part='_sum')}"
                f" / {increase(series.QUEUE_WAIT, window=SELDOM, part='_count')}",
                "wait",
            ),
        ),
    ),
)

POLICIES = Dashboard(
    uid="cosched-policies",
    title="cosched: policies",
    description="What the scheduling policy decides and why, how long it takes, and how good its promises are.",
    rows=(Row("Decisions", _DECISIONS), Row("Passes", _PASSES), Row("How good they are", _QUALITY)),
)
