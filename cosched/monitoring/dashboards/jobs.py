"""The dashboard *jobs and queue*: who waits how long, and what became of those that ran."""

from cosched.monitoring import series
from cosched.monitoring.dashboards.queries import SELDOM, increase, most, picked, quantile, total
from cosched.monitoring.dashboards.values import Dashboard, Panel, Query, Row, Variable

_SHARES = (50, 90, 99)

ALIVE = Panel(
    title="Jobs alive",
    description="By state.",
    unit="none",
    kind="stacked",
    queries=(Query(total(series.JOBS, "state"), "{{state}}"),),
    alerts=("CoschedQueueStuck",),
)


def _quantiles(histogram: series.Series, title: str, description: str, unit: str) -> Panel:
    """Quantiles of what happens seldom, over the hour before each point."""
    return Panel(
        title=title,
        description=description,
        unit=unit,
        queries=tuple(Query(quantile(share / 100, histogram, window=SELDOM), f"p{share}") for share in _SHARES),
    )


_QUEUE = (
    ALIVE,
    Panel(
        title="Jobs that may not be queued yet",
        description="By what they wait for: held by a user or operator, set aside since a pass fails with them, or a "
        "rule of the cluster's own.",
        unit="none",
        kind="stacked",
        queries=(Query(total(series.JOBS_WAITING, "reason"), "{{reason}}"),),
    ),
    Panel(
        title="The longest wait",
        description="For how long the job has waited that was submitted first of those that may start; 0 where none "
        "waits.",
        unit="s",
        queries=(Query(most(series.QUEUE_OLDEST_WAIT), "waits"),),
        alerts=("CoschedQueueStuck",),
    ),
    _quantiles(
        series.QUEUE_WAIT,
        "Waits",
        "From submission to the decision to start, of jobs that were started in the hour before.",
        "s",
    ),
    Panel(
        title="Waits, all of them",
        description="How many jobs were started in the hour before after a wait of so long.",
        unit="s",
        kind="heat map",
        queries=(Query(increase(series.QUEUE_WAIT, "le", part="_bucket"), "{{le}}"),),
    ),
)

_ENDED = (
    Panel(
        title="Jobs that ended",
        description="In the hour before, by what became of them.",
        unit="none",
        kind="stacked",
        queries=(Query(increase(series.JOBS_ENDED, "state"), "{{state}}"),),
    ),
    _quantiles(series.JOB_RUN, "Run times", "From start to end, of jobs that ended in the hour before.", "s"),
    _quantiles(
        series.JOB_SLOWDOWN,
        "Bounded slowdown",
        "Response by run time, short jobs counted as 10 s; of jobs that ended in the hour before. 1: it did not wait.",
        "none",
    ),
    _quantiles(
        series.JOB_PREDICTION_ERROR,
        "Starts against the first promise",
        "The start less the start that was promised first, of jobs that were promised one; below 0: earlier.",
        "s",
    ),
)

_USE = (
    Panel(
        title="CPU of users",
        description="CPU time that ended jobs have used in the chosen time. Beyond the first hundred users they are "
        "one.",
        unit="s",
        kind="table",
        queries=(Query(f"sort_desc({increase(series.USER_CPU, 'user', window='$__range', user='$user')})"),),
    ),
    Panel(
        title="CPUs that users had",
        description="CPU time of jobs that ended in the hour before, by user, as CPUs that were busy all that hour.",
        unit="none",
        kind="stacked",
        queries=(Query(f"sum by (user) (rate({picked(series.USER_CPU, user='$user')}[{SELDOM}]))", "{{user}}"),),
    ),
    Panel(
        title="Processes and processors",
        description="Processes of jobs that hold nodes, and processors that they have: where processes are more, jobs "
        "are folded or share processors.",
        unit="none",
        queries=(
            Query(total(series.JOB_PROCESSES), "processes"),
            Query(total(series.JOB_PROCS), "processors"),
        ),
    ),
    Panel(
        title="Tasks on nodes",
        description="Tasks of jobs that hold each node.",
        unit="none",
        kind="stacked",
        queries=(Query(total(series.NODE_TASKS, "node"), "{{node}}"),),
    ),
)

JOBS = Dashboard(
    uid="cosched-jobs",
    title="cosched: jobs and queue",
    description="Who waits and how long, what became of jobs that ran, and who used the CPUs.",
    rows=(Row("The queue", _QUEUE), Row("Jobs that ended", _ENDED), Row("Use", _USE)),
    variables=(Variable("user", "User", f'label_values({series.USER_CPU.name}{{cluster=~"$cluster"}}, user)'),),
)
