"""When certificates expire: the authority's and the scheduler's, and those with which nodes came."""

from collections.abc import Iterator

from cosched.monitoring import series
from space_scheduler.service.access.certificates import Certificates
from space_scheduler.service.metrics.families import Family, Sample, family


def expiry(certificates: Certificates) -> Family:
    """Of what the service knows, without users'."""
    return family(series.CERTIFICATE_EXPIRY, _expiries(certificates))


def _expiries(certificates: Certificates) -> Iterator[Sample]:
    for name, until_s in certificates.expiries().items():
        kind, _, whose = name.partition(" ")
        if kind != "user":
            yield [f"{kind}/{whose}" if whose else kind], until_s
