"""Random traces of looks at a desk, through the pure core: whatever comes, the contract is kept."""

import random
from collections import Counter

import pytest

from cosched.linux.presence_reading import Reading
from cosched.model.contract import SocialContract, limits
from cosched.model.node import Presence
from cosched.model.presets import PRESETS, habit, hours_of
from node_agent.policy.backoff import Backoff, backed_off
from node_agent.policy.contract import Relax, decided, judged, unwatched

S = 1_000_000
LOOKS = 50
KEEP_US, LEASE_US = 3 * S, 10 * S
SOURCES = ("terminals", "sessions", "input", "processes")
OFFICE = hours_of("08:00-20:00", ["mon", "tue", "wed", "thu", "fri"])
CONTRACT = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=2)


def readings(chance: random.Random) -> list[Reading]:
    """What some of the sources say: mostly that nobody was there for long, now and then a key, a failure, nothing."""
    found = []
    for name in SOURCES:
        kind = chance.random()
        if kind < 0.02:
            found.append(Reading(name, chance.uniform(0, 400)))
        elif kind < 0.03:
            found.append(Reading(name, None, "broken"))
        elif kind < 0.2:
            found.append(Reading(name, None))
        else:
            found.append(Reading(name, float("inf")))
    return found


def trace(chance: random.Random, seen: Counter[str]) -> None:
    """One desk for a while, from the agent's first look on, under some preset and on some day; counts what came."""
    preset, weekday = chance.choice(PRESETS), chance.randrange(7)
    now_us = chance.randrange(S, 24 * 3600 * S)
    watched, backoff, heard_us, relaxed_until_us = unwatched(now_us), Backoff(), None, 0
    last_sign_us = now_us
    for _ in range(LOOKS):
        now_us += chance.choice([S // 10, S, S, S, 5 * S, 60 * S])
        if chance.random() < 0.9:
            heard_us = now_us
        elif chance.random() < 0.1:
            heard_us = None  # a scheduler that was never heard, after a restart of the agent
        moment = habit(preset, OFFICE, weekday, now_us // (60 * S) % (24 * 60))
        said = readings(chance) if moment.watched else []
        signs = [now_us - round(s.idle_s * S) for s in said if s.idle_s is not None and s.idle_s < 1e9 and not s.error]
        last_sign_us = max([last_sign_us, *signs])
        watched = judged(watched, said, now_us, moment)
        answer = decided(watched.presence, heard_us, LEASE_US, now_us, KEEP_US)
        backoff = backed_off(backoff, watched.presence is Presence.PRESENT, {"memory": chance.random() ** 4}, now_us)
        if isinstance(answer, Relax):
            seen["relaxed"] += 1
            assert watched.presence is Presence.AWAY
            assert heard_us is not None
            assert now_us < answer.until_us <= min(now_us + KEEP_US, heard_us + LEASE_US)
            assert backoff.ratio == 1.0
            if moment.watched:
                assert not moment.expected
                assert not any(reading.error for reading in said)
                assert now_us - last_sign_us >= moment.away_after_s * S
            relaxed_until_us = answer.until_us
        else:
            seen[answer.why] += 1
            relaxed_until_us = 0
        armed = now_us >= relaxed_until_us
        held = limits(CONTRACT, Presence.PRESENT if armed else Presence.AWAY, 4, 8 << 30)
        assert held.memory_bytes == 4 << 30
        assert held.idle
        if armed:
            assert held.cpus is not None
            assert 0 < held.cpus * backoff.ratio <= 2.0
        seen["tightened"] += backoff.step > 0


@pytest.mark.parametrize("traces", [500, pytest.param(100_000, marks=pytest.mark.long)])
def test_every_limit_is_kept_on_all_traces(traces: int) -> None:
    chance = random.Random(2026)
    seen: Counter[str] = Counter()
    for _ in range(traces):
        trace(chance, seen)
    often = ("relaxed", "somebody is there", "who is there is unknown", "tightened")
    assert min(seen[each] for each in often) > traces / 2, seen
    assert seen["no scheduler has been heard yet"] > traces / 100, seen
