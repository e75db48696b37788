"""The short version of ``./run campaign alerts``: one alert on a real lab that a real Prometheus watches."""

from pathlib import Path

import pytest
from campaigns import alerts as campaign
from kit.needs import need_root

from cosched.monitoring import alerts

pytestmark = [pytest.mark.system("prometheus"), pytest.mark.xdist_group("labs of their own")]


@pytest.mark.slow
def test_a_scheduler_that_stops_is_told_alone_and_then_no_more() -> None:
    need_root()
    told: list[str] = []
    campaign.campaign(["CoschedSchedulerDown"], say=told.append)
    assert "CoschedSchedulerDown" in told[-1]


def test_a_machine_that_is_slow_by_itself_excuses_an_owners_alert_and_no_other(tmp_path: Path) -> None:
    told = tmp_path / "witness"
    witness = campaign.Witness(told, faster=20.0)

    def slow(*lates: int) -> list[str]:
        """Which alerts are excused where of each ten wake-ups so many were late."""
        counts = [(10 * at, sum(lates[:at])) for at in range(1, len(lates) + 1)]
        told.write_text("".join(f"{count} {late}\n" for count, late in counts for _ in range(10)) + "torn")
        return [name for name in campaign.CASES if witness.slow(name)]

    assert slow() == []
    assert slow(*[0] * 200) == []
    assert slow(*[1] * 200) == ["CoschedOwnerLatencySlow"]
    assert set(slow(*[5] * 200)) == {"CoschedOwnerLatencyFast", "CoschedOwnerLatencySlow"}
    assert slow(*[5] * 200, *[0] * 400) == [], "long ago"


def test_every_alert_has_a_case() -> None:
    assert set(campaign.CASES) == {each.name for each in alerts.ALL}
