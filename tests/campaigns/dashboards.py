"""Every panel of every dashboard on a real Prometheus that watches a lab: it shows something, or stands in a list.

    ./run campaign dashboards [--seconds S]

A lab of two clusters with four desks: a user sits at the first, the second is paused by its owner, and in the end the
link between the clusters is cut, so that an alert fires. Jobs of one and two tasks queue up behind each other; some
fail, one is cancelled. A Prometheus (Debian's) scrapes it as a site's does, and a second time as if it were another
cluster. Then each query of each panel is asked, for all that there is and for the second cluster: it must give a
number. ``EMPTY`` has the panels that cannot here, each with the reason; one of them that shows something after all is
an error, too. Needs root, for a lab of tier 1; takes about three minutes.
"""

import argparse
import contextlib
import math
import re
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from kit.prometheus import LabPrometheus

from cosched.apps.lab.lab import Lab
from cosched.errors import Failed
from cosched.monitoring.dashboards.render import ALL
from cosched.monitoring.dashboards.values import Dashboard, Panel
from cosched.monitoring.rendering import SETTINGS
from cosched.wire.api import Submission

PAUSED, CUT = "node2", ("c1", "c2")
#: What the scheduler is scraped as a second time.
SECOND = "second"
FASTER = 30.0
#: What Grafana would put there: an interval of some scrapes, all of what there is.
STANDS_FOR = {"$__rate_interval": "30s", "$__range": "10m"}
#: Panels that show nothing in this lab, and why.
EMPTY: dict[tuple[str, str], str] = {}
_BURN = "#!/bin/sh\nend=$(($(date +%s) + {seconds}))\nwhile [ $(date +%s) -lt $end ]; do :; done\nexit {status}\n"
_ALERT_S = 120.0


def plain(expr: str, cluster: str) -> str:
    """A query as Prometheus takes it, of the clusters whose names are like that."""
    expr = expr.replace("$cluster", cluster)
    for name, value in STANDS_FOR.items():
        expr = expr.replace(name, value)
    return re.sub(r"\$\w+", ".*", expr)


def submit(lab: Lab, seconds: int, tasks: int = 1, status: int = 0) -> int:
    """Submit a job that computes for so long; its number."""
    with lab.client() as client:
        return client.submit(
            Submission(
                script=_BURN.format(seconds=seconds, status=status),
                tasks=tasks,
                time_limit_s=seconds + 20,
                directory="/",
                output="/dev/null",
            )
        ).job_id


def load(lab: Lab, seconds: float) -> None:
    """Jobs one after another for so long, more than there is room for; each fourth fails, the last is cancelled."""
    end_s = time.monotonic() + seconds
    number, last = 0, 0
    while time.monotonic() < end_s:
        with lab.client() as client:
            queued = sum(job.state == "queued" for job in client.jobs())
        if queued < 3:
            number += 1
            last = submit(lab, 4 + number % 3, tasks=1 + number % 2, status=int(number % 4 == 0))
        time.sleep(1)
    if last:
        with lab.client() as client, contextlib.suppress(Failed):  # it may have ended meanwhile
            client.cancel(last)


def shows(found: LabPrometheus, panel: Panel, query: str) -> bool:
    """Whether a query of the panel gives a number, of all clusters and of the second alone: now, or in its graph."""
    drawn = "{}" if panel.kind in ("number", "table") else "max_over_time(({})[10m:2s])"
    asked = [drawn.format(plain(query, cluster)) for cluster in (".*", SECOND)]
    return all(any(not math.isnan(value) for _, value in found.ask(each)) for each in asked)


def second_cluster(folder: Path) -> None:
    """Have the same targets scraped as another cluster, too: all names of nodes are then there twice."""
    settings = yaml.safe_load((folder / SETTINGS).read_text())
    for scrape in settings["scrape_configs"]:
        scrape["static_configs"] += [
            {"targets": list(one["targets"]), "labels": one["labels"] | {"cluster": SECOND}}
            for one in scrape["static_configs"]
        ]
    (folder / SETTINGS).write_text(yaml.safe_dump(settings))


@contextmanager
def watching(lab: Lab, folder: Path) -> Iterator[LabPrometheus]:
    """A Prometheus that watches the lab as two clusters while the block lasts."""
    made = LabPrometheus(lab, folder, FASTER)
    second_cluster(folder)
    with made as found:
        yield found


def looked_at(found: LabPrometheus, dashboards: Sequence[Dashboard], empty: Collection[tuple[str, str]]) -> list[str]:
    """Ask all of these dashboards; what is wrong: panels that are empty, or not and are said to be (``empty``)."""
    wrong, excused = [], set(empty)
    for made in dashboards:
        for panel in made.panels:
            silent = [query.expr for query in panel.queries if not shows(found, panel, query.expr)]
            if (made.uid, panel.title) not in empty:
                wrong += [f"{made.uid}: {panel.title}: nothing: {query}" for query in silent]
            elif silent:
                excused.discard((made.uid, panel.title))
    return wrong + [
        f"{uid}: {title}: shows something, or is no panel, and is said to be empty" for uid, title in excused
    ]


def main() -> int:
    """Make the lab, let it work, and look; the exit status is 1 where a panel is empty without a reason."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=75.0, help="for how long jobs are submitted")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="watch-", dir="/var/tmp") as folder,
        Lab.up(4, name="dashboards", clusters="2,2", users=1, keep=[folder], say=print) as lab,
        watching(lab, Path(folder)) as found,
    ):
        if lab.tier != 1:
            raise Failed(f"this lab is of tier {lab.tier}: {lab.why}")
        paused = lab.run(PAUSED, [sys.executable, "-m", "cosched.apps.cli.main", "desk", "pause"])
        if paused.returncode:
            raise Failed(f"{PAUSED} is not paused: {paused.stderr.decode()}")
        load(lab, given.seconds)
        lab.link("cut", CUT)
        end_s = time.monotonic() + _ALERT_S
        while not found.firing():
            if time.monotonic() > end_s:
                raise Failed(f"no alert within {_ALERT_S:g} s of the cut")
            time.sleep(1)
        wrong = looked_at(found, ALL, EMPTY)
    panels = [panel for made in ALL for panel in made.panels]
    print(f"{sum(len(panel.queries) for panel in panels)} queries of {len(panels)} panels asked, {len(EMPTY)} excused")
    print("\n".join(wrong) or "all of them show something")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
