"""PromQL out of the series of ``cosched.monitoring.series``: no dashboard writes a series' name by hand.

Whatever is asked is of the chosen cluster, whose name the scrape configuration gives to each target (label
``cluster``). Values of labels are regular expressions, as Grafana's variables are.
"""

from cosched.monitoring.dashboards.values import Named
from cosched.monitoring.rules import Recording
from cosched.monitoring.series import Series

#: Over which rates of what happens often are taken: by Grafana, from the scrape interval and the zoom.
OFTEN = "$__rate_interval"
#: The same for what happens a few times an hour, as jobs' ends do.
SELDOM = "1h"


def picked(series: Series, part: str = "", **labels: str) -> str:
    """A selector; ``part`` is that of a histogram: ``_bucket``, ``_sum``, ``_count``."""
    return _selected(f"{series.name}{part}", labels)


def total(series: Series, *by: str, **labels: str) -> str:
    """The sum now, one for each value of the labels ``by``."""
    return _by("sum", by, picked(series, **labels))


def least(series: Series, *by: str, **labels: str) -> str:
    """The smallest now, one for each value of the labels ``by``."""
    return _by("min", by, picked(series, **labels))


def most(series: Series, *by: str, **labels: str) -> str:
    """The largest now, one for each value of the labels ``by``."""
    return _by("max", by, picked(series, **labels))


def rate(series: Series, *by: str, window: str = OFTEN, part: str = "", **labels: str) -> str:
    """How much a counter grows, a second."""
    return _by("sum", by, f"rate({picked(series, part, **labels)}[{window}])")


def increase(series: Series, *by: str, window: str = SELDOM, part: str = "", **labels: str) -> str:
    """How much a counter has grown."""
    return _by("sum", by, f"increase({picked(series, part, **labels)}[{window}])")


def quantile(share: float, series: Series, *by: str, window: str = OFTEN, **labels: str) -> str:
    """The value that this share of a histogram's observations stays below."""
    return f"histogram_quantile({share:g}, {rate(series, 'le', *by, window=window, part='_bucket', **labels)})"


def beyond(bound: float, series: Series, *by: str, window: str = SELDOM, **labels: str) -> str:
    """The share of a histogram's observations above one of its bounds, which must be among its buckets."""
    if bound not in series.buckets:
        raise ValueError(f"{series.name} has no bucket that ends at {bound:g}")
    within = increase(series, *by, window=window, part="_bucket", le=_bound(bound), **labels)
    return f"1 - {within} / {increase(series, *by, window=window, part='_count', **labels)}"


def recorded(recording: Recording, **labels: str) -> str:
    """A selector of what the rules record."""
    return _selected(recording.name, labels)


def coded(series: Series, label: str, names: tuple[Named, ...], *by: str, **labels: str) -> str:
    """The number of the one value of ``label`` whose series is 1, as ``names`` counts its values."""
    parts = (f"{name.value} * {_by('sum', by, picked(series, **labels, **{label: name.text}))}" for name in names)
    return " + ".join(parts)


def _selected(name: str, labels: dict[str, str]) -> str:
    inside = ", ".join(f'{label}=~"{value}"' for label, value in ({"cluster": "$cluster"} | labels).items())
    return f"{name}{{{inside}}}"


def _by(how: str, by: tuple[str, ...], inside: str) -> str:
    return f"{how} by ({', '.join(by)}) ({inside})" if by else f"{how}({inside})"


def _bound(bound: float) -> str:
    """As the exposition writes a bucket's bound (5.0, 0.4), in a regular expression."""
    return str(float(bound)).replace(".", "[.]")
