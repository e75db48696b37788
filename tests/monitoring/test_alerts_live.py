"""The short version of ``./run campaign alerts``: one alert on a real lab that a real Prometheus watches."""

import pytest
from campaigns import alerts as campaign
from kit.needs import need_root

from cosched.monitoring import alerts

pytestmark = [pytest.mark.system("prometheus"), pytest.mark.xdist_group("live")]


@pytest.mark.slow
def test_a_scheduler_that_stops_is_told_alone_and_then_no_more() -> None:
    need_root()
    told: list[str] = []
    campaign.campaign(["CoschedSchedulerDown"], say=told.append)
    assert "CoschedSchedulerDown" in told[-1]


def test_every_alert_has_a_case() -> None:
    assert set(campaign.CASES) == {each.name for each in alerts.ALL}
