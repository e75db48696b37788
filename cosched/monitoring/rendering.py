"""All files that a site's monitoring takes from here, by their names."""

from typing import Final

import msgspec

from cosched.monitoring import alerts, recordings, rules, scraping

RULES: Final = "cosched.rules.yml"
SETTINGS: Final = "prometheus.yml"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from site to site. ``scheduler`` is HOST:PORT, ``credentials`` on Prometheus's host.

    ``desks`` has the HOST:PORT of each desk's synthetic user, by the node's name.
    """

    scheduler: str = "localhost:7420"
    cluster: str = "cosched"
    credentials: str = "/etc/prometheus/cosched"
    runbooks: str = rules.RUNBOOKS
    faster: float = 1.0
    desks: dict[str, str] = {}


def rendered(site: Site) -> dict[str, str]:
    """The files; the same bytes for the same site."""
    pace = rules.Pace(site.faster)
    watched = rules.document(recordings.ALL, alerts.ALL, pace, site.runbooks)
    read = scraping.document(pace, site.scheduler, site.cluster, site.credentials, RULES, site.desks)
    return {
        RULES: rules.as_yaml(watched, "Rules for Prometheus"),
        SETTINGS: rules.as_yaml(read, "Settings of Prometheus"),
    }
