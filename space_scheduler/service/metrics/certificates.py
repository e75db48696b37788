"""When certificates expire: the authority's and the scheduler's, and those with which nodes came."""

from collections.abc import Iterator

from cosched.monitoring import series
from space_scheduler.service.access.certificates import Certificates
from space_scheduler.service.metrics.families import Family, family


class CertificateSeries:
    """What the service knows of certificates, without users'."""

    def __init__(self, known: Certificates) -> None:
        self._known = known

    def collect(self) -> Iterator[Family]:
        """As it is now."""
        expires = family(series.CERTIFICATE_EXPIRY)
        for name, until_s in self._known.expiries().items():
            kind, _, whose = name.partition(" ")
            if kind != "user":
                expires.add_metric([f"{kind}/{whose}" if whose else kind], until_s)
        yield expires
