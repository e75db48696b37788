"""How Prometheus reads a scheduler: over TLS, with a token that may read and nothing else."""

from typing import Any

from cosched.identity.names import CA_PEM, SCHEDULER, TOKEN
from cosched.monitoring.alerts import SCRAPE
from cosched.monitoring.rules import Pace


def document(pace: Pace, target: str, cluster: str, credentials: str, rules: str) -> dict[str, Any]:
    """The settings of a Prometheus of one's own, as plain values; another one's take the ``scrape_configs``.

    ``target`` is the scheduler's HOST:PORT, ``credentials`` the directory that ``token create --read-only --into``
    made, ``rules`` the rules' file. Series carry the cluster's name, so that several may be watched together.
    """
    return {
        "global": {"scrape_interval": pace.interval(), "evaluation_interval": pace.interval()},
        "rule_files": [rules],
        "scrape_configs": [
            {
                "job_name": SCRAPE,
                "scheme": "https",
                "authorization": {"credentials_file": f"{credentials}/{TOKEN}"},
                "tls_config": {"ca_file": f"{credentials}/{CA_PEM}", "server_name": SCHEDULER},
                "static_configs": [{"targets": [target], "labels": {"cluster": cluster}}],
            }
        ],
    }
