"""The owner in pain: what the kernel says of waiting, and what follows from it."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.agents import Cluster, until

from cosched.linux.pressure import Pressure
from node_agent.policy.backoff import BEARABLE, CALM_US, LAST_STEP, STEP_US, Backoff, backed_off

S = 1_000_000
HURTS = {"memory": 0.5}


def test_each_two_seconds_of_pain_halve_the_contract_down_to_an_eighth_and_calm_gives_it_back() -> None:
    backoff, ratios = Backoff(), []
    for second in range(10):
        backoff = backed_off(backoff, True, HURTS, second * S)
        ratios.append(backoff.ratio)
    assert ratios == [0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125]
    assert backoff.why == "memory 50%"
    for second in range(10, 100):
        backoff = backed_off(backoff, True, {"memory": 0.01}, second * S)
        ratios.append(backoff.ratio)
    assert [ratios.index(ratio, 10) for ratio in (0.25, 0.5, 1.0)] == [29, 49, 69]


def test_nobody_is_hurt_at_an_empty_desk() -> None:
    hurt = backed_off(Backoff(), True, HURTS, 0)
    assert backed_off(hurt, False, HURTS, S).ratio == 1.0


@pytest.mark.parametrize("name", ["cpu of the desk", "memory of the desk", "memory"])
def test_what_is_bearable_is_borne(name: str) -> None:
    bearable = BEARABLE[name.partition(" ")[0]]
    assert backed_off(Backoff(), True, {name: bearable}, S).ratio == 1.0
    assert backed_off(Backoff(), True, {name: bearable + 0.01}, S).ratio == 0.5


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1), st.integers(0, 30 * S)), max_size=40))
def test_it_is_never_looser_than_the_contract_and_always_ends(looks: list[tuple[bool, float, int]]) -> None:
    backoff, now_us = Backoff(), 0
    for present, share, later_us in looks:
        now_us += later_us
        backoff = backed_off(backoff, present, {"memory": share}, now_us)
        assert 1 / (1 << LAST_STEP) <= backoff.ratio <= 1.0
    for _ in range(LAST_STEP):
        now_us += CALM_US
        backoff = backed_off(backoff, True, {}, now_us)
    assert backoff.ratio == 1.0
    assert STEP_US < CALM_US


def test_pressure_is_a_share_of_the_time_since_the_last_look(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    file = tmp_path / "pressure/memory"
    line = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    file.write_text(line.format(1_000_000))
    pressure = Pressure(str(tmp_path / "none"), "desk", str(tmp_path))
    assert pressure.look(10.0) == {}
    file.write_text(line.format(1_500_000))
    assert pressure.look(12.0) == {"memory": 0.25}
    assert pressure.look(12.1) == {"memory": 0.25}
    file.unlink()
    assert pressure.look(13.0) == {}
    assert pressure.problem == f"{file}: No such file or directory"


def test_a_desks_own_pressure_is_asked_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    for kind in ("cpu", "memory"):
        (tmp_path / "desk" / f"{kind}.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    pressure = Pressure(str(tmp_path), "/desk", str(tmp_path))
    pressure.look(0.0)
    (tmp_path / "desk/cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=900000\n")
    assert pressure.look(1.0) == {"cpu of the desk": 0.9, "memory of the desk": 0.0}


async def test_an_agent_tightens_the_contract_while_its_owner_waits_for_memory(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The kernel's file is one of the test's here: to bring a machine into pain would hurt whoever else uses it."""
    told = tmp_path / "memory"
    line = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    told.write_text(line.format(0))
    node = cluster.node("a", start=False, presence='preset = "desktop-hours"\nhours = "00:00-24:00"\npoll_s = 0.3\n'
                        'days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]')  # fmt: skip
    node.own_file(told, "/proc/pressure/memory")
    node.start_guard()
    node.start_agent()
    async with cluster.scheduler() as scheduler:
        await until(lambda: "a" in scheduler.beats and scheduler.beats["a"].limited_cpus == 1.0, "the contract")
        waited_us, looked_s, stood_s = 0, time.monotonic(), 0.0

        def hurt() -> bool:
            nonlocal waited_us, looked_s, stood_s
            stood_s, looked_s = max(stood_s, time.monotonic() - looked_s), time.monotonic()
            waited_us += 200_000
            told.write_text(line.format(waited_us))
            return (scheduler.beats["a"].limited_cpus or 1.0) < 1.0

        await until(hurt, "a tighter contract")
        # a step whose time is over when the guard hears of it is never seen: only where all stood still meanwhile
        steps = {0.5} if stood_s < 1 else {0.5, 0.25, 0.125}
        assert scheduler.beats["a"].limited_cpus in steps
    assert "waiting: memory" in node.log.read_text()
