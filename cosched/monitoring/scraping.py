"""How Prometheus reads a scheduler: over TLS, with a token that may read and nothing else; and synthetic users."""

from collections.abc import Mapping
from typing import Any, Final

from cosched.identity.names import CA_PEM, SCHEDULER, TOKEN
from cosched.monitoring.alerts import SCRAPE
from cosched.monitoring.rules import Pace

#: The scrape of desks at which a synthetic user sits; it is there where there are such desks.
DESKS: Final = "cosched-desks"


def document(
    pace: Pace, target: str, cluster: str, credentials: str, rules: str, desks: Mapping[str, str]
) -> dict[str, Any]:
    """The settings of a Prometheus of one's own, as plain values; another one's take the ``scrape_configs``.

    ``target`` is the scheduler's HOST:PORT, ``credentials`` the directory that ``token create --read-only --into``
    made, ``rules`` the rules' file, ``desks`` the HOST:PORT at which ``local-load`` listens, by the node's name. Series
    carry the cluster's name, so that several may be watched together; those of desks the node's too.
    """
    users = [
        {"targets": [address], "labels": {"cluster": cluster, "node": node}} for node, address in sorted(desks.items())
    ]
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
            },
            *([{"job_name": DESKS, "static_configs": users}] if users else []),
        ],
    }
