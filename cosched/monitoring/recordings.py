"""What Prometheus records: quantiles and ratios that alerts and dashboards ask for again and again."""

from typing import Final

from cosched.monitoring import local, series
from cosched.monitoring.rules import Expression, Pace, Recording
from cosched.monitoring.series import Series

#: An owner's wake-up is late above this, in seconds; :data:`LATE_BUDGET` of them may be.
LATE_S: Final = 0.01
LATE_BUDGET: Final = 0.01
#: Windows of the budget's burn rate, by their names; a short one says that it still goes on.
WINDOWS_S: Final = {"5m": 300, "30m": 1800, "1h": 3600, "6h": 21600}
_WINDOW_S: Final = 300


def _p99(histogram: Series) -> Expression:
    return lambda pace: f"histogram_quantile(0.99, rate({histogram.name}_bucket[{pace.time(_WINDOW_S)}]))"


def _late(window_s: float) -> Expression:
    name = series.NODE_OWNER_WAKEUP.name

    def expression(pace: Pace) -> str:
        window = pace.time(window_s)
        in_time = f'sum without (le) (rate({name}_bucket{{le="{LATE_S:g}"}}[{window}]))'
        return f"1 - {in_time} / rate({name}_count[{window}])"

    return expression


def _noticed(pace: Pace) -> str:
    name, window = local.RESPONSE.name, pace.time(_WINDOW_S)
    calls = f'call=~"{"|".join(local.SYSCALLS)}"'
    each = "sum by (cluster, node)"
    in_time = f'{each} (rate({name}_bucket{{{calls}, le="{local.NOTICED_S:g}"}}[{window}]))'
    return f"1 - {in_time} / {each} (rate({name}_count{{{calls}}}[{window}]))"


def _errors(pace: Pace) -> str:
    name, window = series.HTTP_REQUESTS.name, pace.time(_WINDOW_S)
    each = "sum without (route, method, code)"
    return f'{each} (rate({name}{{code=~"5.."}}[{window}])) / {each} (rate({name}[{window}]))'


def _mean_slowdown(pace: Pace) -> str:
    name, window = series.JOB_SLOWDOWN.name, pace.time(WINDOWS_S["1h"])
    return f"rate({name}_sum[{window}]) / rate({name}_count[{window}])"


COMMIT_P99: Final = Recording("cosched:journal_commit_seconds:p99", _p99(series.JOURNAL_COMMIT))
PASS_P99: Final = Recording("cosched:pass_duration_seconds:p99", _p99(series.PASS_DURATION))
HTTP_P99: Final = Recording("cosched:http_request_duration_seconds:p99", _p99(series.HTTP_DURATION))
HTTP_ERRORS: Final = Recording("cosched:http_errors:ratio", _errors)
PROCS_USED: Final = Recording(
    "cosched:procs_used:ratio", lambda pace: f"1 - {series.PROCS_FREE.name} / ({series.PROCS.name} > 0)"
)
MEAN_SLOWDOWN: Final = Recording("cosched:job_bounded_slowdown:mean", _mean_slowdown)
LATE: Final = {
    name: Recording(f"cosched:node_owner_late:ratio_{name}", _late(window_s)) for name, window_s in WINDOWS_S.items()
}
#: Of a synthetic user's system calls, at each desk: those beyond the paper's line.
NOTICED: Final = Recording("cosched:desk_noticed_calls:ratio", _noticed)

ALL: Final = (COMMIT_P99, PASS_P99, HTTP_P99, HTTP_ERRORS, PROCS_USED, MEAN_SLOWDOWN, *LATE.values(), NOTICED)
