"""The short version of ``./run campaign dashboards``: three dashboards on a Prometheus that watches a small lab."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from campaigns import dashboards as campaign
from kit.needs import need_root
from kit.waiting import wait_for

from cosched.apps.lab.lab import Lab
from cosched.monitoring.dashboards.cluster import CLUSTER
from cosched.monitoring.dashboards.desk import DESK
from cosched.monitoring.dashboards.local import LOCAL

pytestmark = [pytest.mark.system("prometheus"), pytest.mark.xdist_group("labs of their own")]
#: Nothing is wrong there, and that none is said to be empty falsely is looked at, too.
NO_ALERT = {(CLUSTER.uid, "Alerts that fire")}


@pytest.mark.slow
def test_lab_without_a_fault_fills_cluster_desk_and_local_users() -> None:
    need_root()
    with (
        tempfile.TemporaryDirectory(prefix="watch-", dir="/var/tmp") as folder,
        Lab.up(2, name=f"shown-{os.getpid()}", users=1, keep=[folder]) as lab,
        campaign.watching(lab, Path(folder)) as found,
    ):
        campaign.load(lab, 6)

        wrong: list[str] = []

        def shown() -> bool:
            """Jobs go on until then: on a busy machine those of before may have ended before the first scrape."""
            wrong[:] = campaign.looked_at(found, (CLUSTER, DESK, LOCAL), campaign.EMPTY.keys() | NO_ALERT)
            if not wrong:
                return True
            campaign.load(lab, 2)
            return False

        with contextlib.suppress(AssertionError):
            wait_for(shown, "every panel to show something")
        assert wrong == []
