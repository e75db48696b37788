"""The monitoring roles against a real host: from nothing to alerts that arrive, and back to nothing.

    ./run campaign monitoring_hosts [--work DIR] [--image DIR] [--ansible DIR] [--only STEP ...]

Two hosts with systemd as process 1 (``_systemd_hosts``): the scheduler's, which is the monitoring's too, and a desk
with a synthetic user, which Prometheus reads. Debian's packages of Prometheus and Alertmanager lie in a repository
within the image: the hosts have no network but the controller's. There is no package of Grafana to be had, so that role
lays down its files alone. Each step is a playbook and what must be true after it. Needs what ``./run campaign ansible``
needs, and dpkg-scanpackages.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaigns._ansible_lab import (
    HEAD,
    ROOT,
    SEATED,
    Lab,
    arguments,
    as_before,
    changed,
    gone_through,
    need,
    went_through,
)
from campaigns._ansible_versions import wheelhouse
from campaigns._systemd_hosts import COMMANDS, image, require, run
from campaigns.ansible import controller_environment

PACKAGES = ("prometheus", "prometheus-alertmanager")
FILES = "/etc/prometheus/cosched"
PROVISIONED = "/etc/grafana/provisioning"
GRAFANA_IS_FILES = {"grafana_files_only": True}
#: The scrapes whose targets must be up: the scheduler's, and that of desks with a synthetic user.
SCRAPED = {"cosched": "up", "cosched-desks": "up"}
#: The rule waits for two minutes, and Prometheus judges every 15 s.
ALERT_S = 240.0
#: What Debian's packages leave by its policy (the account, what came along with them), and the scheduler's state.
LEFT = (
    *("accounts", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"),
    *(
        "usr/",
        "etc/fonts",
        "etc/javascript-common",
        "etc/apache2",
        "etc/lighttpd",
        "var/lib/dpkg",
        "var/lib/apt",
        "var/lib/cosched",
    ),
)
#: What the scheduler writes while it runs.
JOURNAL = ("var/lib/cosched",)
_FETCH_S = 900.0


class Watched(Lab):
    """The hosts, and what is asked of Prometheus and Alertmanager there."""

    def __init__(self, work: Path, base: Path, ansible: Path) -> None:
        super().__init__(work, base, ansible, (HEAD, SEATED))

    def settings(self, wheels: Path) -> None:
        """Write the inventory, as an administrator would."""
        here = {"hosts": {HEAD: {"ansible_host": self.hosts.addresses[HEAD]}}}
        desk = {"hosts": {SEATED: {"ansible_host": self.hosts.addresses[SEATED]}}}
        groups = {
            "cosched_scheduler": here,
            "cosched_monitoring": here,
            "cosched_nodes": desk,
            "cosched_local_load": desk,
        }
        self.written(groups, wheels, cosched_users=[], cosched_runbooks="https://docs.example.org/runbooks.html")

    def monitoring(self, *arguments: str, fails: bool = False, **values: Any) -> dict[str, dict[str, int]]:
        """Run ``monitoring.yml`` with these values; what became of the host."""
        return self.play("monitoring", *arguments, "-e", json.dumps(GRAFANA_IS_FILES | values), fails=fails)

    def asked(self, port: int, path: str) -> Any:
        """The JSON that a program of the host answers at a port."""
        program = (
            f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}{path}', timeout=10).read().decode())"
        )
        return json.loads(self.hosts.at(HEAD, f'python3 -c "{program}"'))

    def tokens(self) -> list[str]:
        """The labels of the scheduler's tokens."""
        found = json.loads(self.hosts.at(HEAD, "cosched token list --json"))
        return [each["label"] for each in found["tokens"]]

    def targets(self) -> dict[str, str]:
        """Whether each scrape's target is up, by the scrape's name."""
        active = self.asked(9090, "/api/v1/targets")["data"]["activeTargets"]
        return {each["labels"]["job"]: each["health"] for each in active}


def checked_first(lab: Watched) -> None:
    """On a fresh host check mode says what would be done, and does nothing."""
    before = lab.state(HEAD)
    need(changed(lab.monitoring("--check")), "it says that nothing would be done")
    as_before(HEAD, before, lab.state(HEAD), JOURNAL)


def refused(lab: Watched) -> None:
    """What would be open to everybody is refused before anything changes."""
    for values in (
        {"prometheus_listen": "0.0.0.0:9090"},
        {
            "prometheus_listen": "0.0.0.0:9090",
            "prometheus_web": {"tls_server_config": {"cert_file": "a", "key_file": "b"}},
        },
        {"alertmanager_listen": ":9093"},
        {"grafana_files_only": False, "grafana_address": "0.0.0.0"},
        {"grafana_files_only": False},  # apt knows no such package
    ):
        recap = lab.monitoring(fails=True, **values)
        need(not changed(recap), f"{values}: changed {changed(recap)}")


def from_nothing(lab: Watched) -> None:
    """monitoring.yml from nothing: scheduler and desk are scraped, rules are judged, all listen for this host alone."""
    lab.monitoring()
    lab.until(lambda: lab.targets() == SCRAPED, "Prometheus scrapes the scheduler and the desk", 90)
    found = lab.asked(9090, "/api/v1/query?query=cosched_accepting")["data"]["result"]
    need([(each["metric"]["cluster"], each["value"][1]) for each in found] == [("office", "1")], f"accepting: {found}")
    found = lab.asked(9090, "/api/v1/query?query=cosched_local_present")["data"]["result"]
    need([each["metric"]["node"] for each in found] == [SEATED], f"present: {found}")
    rules = [rule for group in lab.asked(9090, "/api/v1/rules")["data"]["groups"] for rule in group["rules"]]
    bad = [rule["name"] for rule in rules if rule["health"] == "err"]
    need(rules and not bad, f"rules that cannot be judged: {bad} of {len(rules)}")
    books = {rule["annotations"]["runbook_url"].partition("#")[0] for rule in rules if rule["type"] == "alerting"}
    need(books == {"https://docs.example.org/runbooks.html"}, f"runbooks: {books}")
    managers = lab.asked(9090, "/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
    need(len(managers) == 1, f"alertmanagers: {managers}")
    listening = lab.hosts.at(
        HEAD, "ss -Hltn 'sport = :9090 or sport = :9093 or sport = :9094' | awk '{print $4}'"
    ).split()
    need(sorted(listening) == ["127.0.0.1:9090", "127.0.0.1:9093"], f"listening: {listening}")
    laid(lab)


def laid(lab: Watched) -> None:
    """Dashboards, data source and token are there, and the token is nobody else's."""
    shown = lab.hosts.at(HEAD, "cat /var/lib/grafana/dashboards/cosched/cosched-cluster.json")
    need("https://docs.example.org/runbooks.html#" in shown, "the dashboards' links lead elsewhere")
    need(lab.hosts.at(HEAD, f"ls {PROVISIONED}/*/cosched.yml").split(), "nothing is provisioned")
    mode, owner = lab.hosts.at(HEAD, f"stat -c '%a %U' {FILES}/token").split()
    need((mode, owner) == ("640", "root"), f"the token is {owner}'s, mode {mode}")


def again(lab: Watched) -> None:
    """Once more changes nothing, nor would it by its check mode."""
    for how in ((), ("--check",)):
        recap = lab.monitoring(*how)
        need(not changed(recap), f"{how}: changed {changed(recap)}")


def alerted(lab: Watched) -> None:
    """A scheduler that is stopped is told of by Alertmanager; started again, it is scraped as before."""
    lab.hosts.at(HEAD, "systemctl stop cosched-scheduler.service")

    def told() -> bool:
        return any(
            alert["labels"]["alertname"] == "CoschedSchedulerDown" for alert in lab.asked(9093, "/api/v2/alerts")
        )

    lab.until(told, "Alertmanager knows of it", ALERT_S)
    lab.hosts.at(HEAD, "systemctl start cosched-scheduler.service")
    lab.until(lambda: lab.targets() == SCRAPED, "it is scraped again", 90)


def reconfigured(lab: Watched) -> None:
    """Another setting: taken into use, and taken back."""
    receivers = [{"name": "staff", "webhook_configs": [{"url": "http://127.0.0.1:9/"}]}]
    values: dict[str, Any] = {"alertmanager_receivers": receivers, "alertmanager_receiver": "staff"}
    need(changed(lab.monitoring(**values, prometheus_interval="5s")), "nothing changed")
    lab.until(lambda: "staff" in lab.asked(9093, "/api/v2/status")["config"]["original"], "Alertmanager has it", 60)
    lab.until(
        lambda: "scrape_interval: 5s" in lab.asked(9090, "/api/v1/status/config")["data"]["yaml"],
        "Prometheus has it",
        60,
    )
    need(changed(lab.monitoring()), "it is not taken back")


def removed(lab: Watched, before: dict[str, str]) -> None:
    """The monitoring alone is taken away: files are as before, and the token is worth nothing."""
    need(len(lab.tokens()) == 1, f"tokens: {lab.tokens()}")
    lab.play("monitoring_remove", "-e", "cosched_remove=true")
    need(
        not lab.hosts.at(HEAD, f"ls -d {FILES} /var/lib/prometheus/metrics2 2>/dev/null || true").strip(), "files stay"
    )
    need(not lab.tokens(), f"tokens: {lab.tokens()}")
    as_before(HEAD, before, lab.state(HEAD), LEFT)


def files_only(lab: Watched) -> None:
    """A site that has all three gets the files alone: no package, and nothing is started."""
    recap = lab.monitoring(cosched_monitoring_files_only=True)
    need(changed(recap), "nothing changed")
    need(
        lab.hosts.at(HEAD, f"ls {FILES}").split() == ["ca.pem", "cosched.rules.yml", "cosched.scrape.yml", "token"],
        "files",
    )
    need(not lab.hosts.at(HEAD, "dpkg-query -W prometheus 2>/dev/null || true").strip(), "a package was installed")
    recap = lab.monitoring(cosched_monitoring_files_only=True)
    need(not changed(recap), f"twice: {changed(recap)}")
    laid(lab)


def foreign(lab: Watched) -> None:
    """A Prometheus that somebody else has set up is not written over."""
    lab.hosts.at(HEAD, "apt-get -qq update && apt-get -qq install -y --no-install-recommends prometheus")
    recap = lab.monitoring(fails=True)
    need(not changed(recap), f"changed {changed(recap)}")
    lab.hosts.at(HEAD, "grep -q ARGS= /etc/default/prometheus && systemctl is-active prometheus.service")
    lab.hosts.at(HEAD, "apt-get -qq purge -y --autoremove prometheus")


def with_packages(base: Path, directory: Path) -> Path:
    """A copy of the image with Debian's packages in a repository of its own, made if it is missing; wants a network."""
    root, partial = directory / base.name, directory / f"{base.name}.partial"
    if root.is_dir():
        return root
    directory.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    run("cp", "-a", base, partial, timeout_s=_FETCH_S)
    shutil.copy("/etc/resolv.conf", partial / "etc/resolv.conf")
    for line in (
        "apt-get -qq update",
        "DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends python3-apt",
        "apt-get clean",
        f"apt-get -qq install -y --download-only --no-install-recommends {' '.join(PACKAGES)}",
    ):
        run("chroot", partial, "sh", "-c", line, timeout_s=_FETCH_S)
    (partial / "srv/debs").mkdir()
    for package in (partial / "var/cache/apt/archives").glob("*.deb"):
        package.rename(partial / "srv/debs" / package.name)
    listed = subprocess.run(["dpkg-scanpackages", "-m", "."], cwd=partial / "srv/debs", capture_output=True, check=True)
    (partial / "srv/debs/Packages").write_bytes(listed.stdout)
    (partial / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/srv/debs ./\n", encoding="ascii")
    shutil.rmtree(partial / "var/lib/apt/lists")
    (partial / "etc/resolv.conf").unlink()
    partial.rename(root)
    return root


def steps(lab: Watched, wheels: Path) -> dict[str, Callable[[], None]]:
    """The campaign, in its order."""
    before: dict[str, str] = {}

    def scheduler() -> None:
        lab.settings(wheels)
        lab.play("site")
        before.update(lab.state(HEAD))

    return {
        "the scheduler": scheduler,
        "check mode on a fresh host": lambda: checked_first(lab),
        "refused": lambda: refused(lab),
        "files only": lambda: files_only(lab),
        "files only, removed": lambda: removed(lab, before),
        "somebody else's": lambda: foreign(lab),
        "from nothing": lambda: from_nothing(lab),
        "again": lambda: again(lab),
        "another setting": lambda: reconfigured(lab),
        "an alert": lambda: alerted(lab),
        "remove": lambda: removed(lab, before),
    }


def main() -> int:
    """Go through the steps; the exit status is 1 where one of them fails."""
    parser = arguments(__doc__)
    given = parser.parse_args()
    require(parser, COMMANDS)

    def taken(work: Path) -> dict[str, float]:
        base = with_packages(image(given.image), given.image / "with-monitoring")
        lab = Watched(work, base, controller_environment(given.ansible, given.image))
        try:
            return gone_through(steps(lab, wheelhouse(work / "wheels", ROOT)), given.only)
        finally:
            lab.hosts.close()

    return went_through(given, taken)


if __name__ == "__main__":
    raise SystemExit(main())
