"""A Prometheus on a lab's head: it reads the lab's scheduler as a site's does, and evaluates our rules, only faster."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from cosched.apps.lab.lab import Lab
from cosched.apps.lab.plan import HEAD
from cosched.identity.names import CA_PEM, TOKEN
from cosched.monitoring.rendering import SETTINGS, rendered
from cosched.wire.api import TokenRequest
from kit.waiting import BOUND_S

#: Asks each line of its input as an instant query; an empty line of output where it is not answered.
_ASK = """
import json, sys, urllib.parse, urllib.request
for line in sys.stdin:
    query = urllib.parse.urlencode({"query": line.strip()})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/api/v1/query?{query}", timeout=10) as answer:
            print(json.dumps(json.load(answer)["data"]["result"]), flush=True)
    except OSError:
        print(flush=True)
"""
Row = tuple[dict[str, str], float]


class LabPrometheus:
    """Debian's, in the head's network. ``folder`` has to be visible there (``keep`` of ``Lab.up``)."""

    def __init__(self, lab: Lab, folder: Path, faster: float, desks: Mapping[str, str] | None = None) -> None:
        """``desks`` are scraped beside those that the lab has seated a user at: HOST:PORT by the node's name."""
        self.lab, self.folder = lab, folder
        self.port = 20_000 + os.getpid() % 10_000  # in a lab of tier 3 the head's network is this machine's
        self._credentials(folder / "credentials")
        site = lab.site()
        site = msgspec.structs.replace(
            site, credentials=str(folder / "credentials"), faster=faster, desks=site.desks | dict(desks or {})
        )
        for name, text in rendered(site).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def _credentials(self, directory: Path) -> None:
        """As ``cosched token create --read-only --into`` writes them."""
        with self.lab.client() as client:
            made = client.create_token(TokenRequest(3600.0, label="prometheus", read_only=True))
        directory.mkdir(mode=0o700)
        (directory / CA_PEM).write_text(made.authority)
        (directory / TOKEN).write_text(made.words + "\n")
        (directory / TOKEN).chmod(0o600)

    def __enter__(self) -> Self:
        self._log = (self.folder / "prometheus.log").open("w")
        command = [
            "prometheus", f"--config.file={self.folder / SETTINGS}", f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]  # fmt: skip
        self.process = self.lab.popen(HEAD, command, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL)
        asks = [sys.executable, "-c", _ASK, str(self.port)]
        self._asked = self.lab.popen(
            HEAD, asks, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.communicate(timeout=BOUND_S)  # it ends with its input
        self.process.terminate()
        self.process.wait(BOUND_S)
        self._log.close()

    def ask(self, query: str) -> list[Row]:
        """The answer to an instant query: labels and value of each row; none while it does not answer."""
        assert self._asked.stdin is not None
        assert self._asked.stdout is not None
        print(query.replace("\n", " "), file=self._asked.stdin, flush=True)
        answer = self._asked.stdout.readline()
        found: list[dict[str, Any]] = json.loads(answer) if answer.strip() else []
        return [(row["metric"], float(row["value"][1])) for row in found]

    def firing(self) -> dict[str, set[str]]:
        """The alerts that fire, by name, each with the nodes (or identities) that it is about."""
        found: dict[str, set[str]] = {}
        for labels, _ in self.ask('ALERTS{alertstate="firing"}'):
            found.setdefault(labels["alertname"], set()).add(labels.get("node") or labels.get("identity", ""))
        return found
