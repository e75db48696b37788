"""Rules for Prometheus as values, and as the file that it reads: what is recorded, and what is alerted on.

All times over which something is looked at (``for``, windows) can be shortened by one factor, so that a test sees in
seconds what a site sees in an hour; limits in time (a certificate's last days) are what they are.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
import yaml

#: Where the sections of the alerts are; a site names the address at which it serves the page.
RUNBOOKS: Final = "docs/guide/runbooks.md"
#: How often Prometheus scrapes and evaluates, in seconds.
INTERVAL_S: Final = 15.0
_LEAST_INTERVAL_S: Final = 0.25
_UNITS: Final = ((3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms"))


class Pace(msgspec.Struct, frozen=True):
    """By how much all times are shorter than at a site."""

    faster: float = 1.0

    def time(self, seconds: float) -> str:
        """A time in Prometheus's words, a millisecond at least: ``5m``, ``250ms``."""
        ms = max(1, round(1000 * seconds / self.faster))
        each, unit = next(found for found in _UNITS if ms % found[0] == 0)
        return f"{ms // each}{unit}"

    def interval(self) -> str:
        """How often to scrape and to evaluate."""
        return self.time(max(INTERVAL_S, _LEAST_INTERVAL_S * self.faster))


Expression = Callable[[Pace], str]


class Recording(msgspec.Struct, frozen=True):
    """A series that Prometheus makes of others. ``expression`` is given the pace for its windows."""

    name: str
    expression: Expression


class Alert(msgspec.Struct, frozen=True):
    """What somebody is told. It has a section of its name in the runbooks.

    ``for_s``: for how long the expression has to hold. ``critical``: look now, also at night; ``warning``: by day.
    """

    name: str
    severity: Literal["critical", "warning"]
    for_s: float
    expression: Expression
    summary: str
    description: str

    @property
    def anchor(self) -> str:
        """Of its section in the runbooks."""
        return self.name.lower()


def document(
    recordings: tuple[Recording, ...], alerts: tuple[Alert, ...], pace: Pace, runbooks: str = RUNBOOKS
) -> dict[str, Any]:
    """The rules' file as plain values."""
    recorded = [{"record": each.name, "expr": each.expression(pace)} for each in recordings]
    return {
        "groups": [
            {"name": "cosched-recordings", "interval": pace.interval(), "rules": recorded},
            {
                "name": "cosched-alerts",
                "interval": pace.interval(),
                "rules": [_alert(each, pace, runbooks) for each in alerts],
            },
        ]
    }


def _alert(alert: Alert, pace: Pace, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression(pace),
        **({"for": pace.time(alert.for_s)} if alert.for_s else {}),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbooks}#{alert.anchor}",
        },
    }


def as_yaml(values: dict[str, Any], what: str) -> str:
    """A file of plain values, with a line that says where it is from; the same bytes for the same values."""
    head = f"---\n# {what}: made by 'cosched monitoring render'; changes here are lost.\n"
    return head + yaml.safe_dump(values, sort_keys=False, width=2000, allow_unicode=True)
