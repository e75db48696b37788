"""When certificates expire: the authority's and the scheduler's, and those with which nodes came."""

from cosched.monitoring import series
from space_scheduler.service.access.certificates import Certificates
from space_scheduler.service.metrics.families import Values


def expiry(certificates: Certificates) -> Values:
    """Of what the service knows, without users'; a node's is labelled ``node/NAME``."""
    expiries = certificates.expiries().items()
    return {
        series.CERTIFICATE_EXPIRY: (
            ([name.replace(" ", "/", 1)], until_s) for name, until_s in expiries if not name.startswith("user ")
        )
    }
