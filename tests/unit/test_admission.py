"""The rule of every door: bounds, evictions and turns by example; then histories against the same rule, plainly."""

import random

import pytest

from cosched.admission import Bounds, NoPlace, Places


def filled(places: Places[str, str], *items: str) -> Places[str, str]:
    """With connections that have entered in this order; the first letter of each is its owner."""
    for each in items:
        assert places.enter(each, each[0]) is None
    return places


def test_door_that_refuses_keeps_one_owners_connections() -> None:
    places = filled(Places(Bounds(8, 2)), "a1", "a2")
    with pytest.raises(NoPlace, match=r"^more than 2 connections at a time$"):
        places.enter("a3", "a")
    assert list(places) == ["a1", "a2"]
    assert places.enter("b1", "b") is None


def test_door_that_replaces_evicts_the_owners_oldest_idle_connection() -> None:
    places = filled(Places(Bounds(8, 2), replaces=True), "b1", "a1", "a2")
    places.settle("a1")
    assert places.enter("a3", "a") == "a2"
    places.settle("a3")
    with pytest.raises(NoPlace):
        places.enter("a4", "a")
    assert list(places) == ["b1", "a1", "a3"]


@pytest.mark.parametrize("replaces", [False, True])
def test_owner_has_fewer_places_for_idle_connections(replaces: bool) -> None:
    places = filled(Places(Bounds(8, 4, idle_of_one=1), replaces=replaces), "a1")
    places.settle("a1")
    assert places.enter("a2", "a") is None
    if replaces:
        assert places.enter("a3", "a") == "a2"
    else:
        with pytest.raises(NoPlace, match="more than 2 connections at a time"):
            places.enter("a3", "a")


@pytest.mark.parametrize("bounds", [Bounds(5, 5), Bounds(9, 9, idle=5)], ids=["of all", "of idle ones"])
def test_full_door_evicts_oldest_idle_of_the_owner_with_most(bounds: Bounds) -> None:
    places = filled(Places(bounds), "b1", "a1", "c1", "a2", "b2")
    assert places.is_full
    assert places.enter("d1", "d") == "b1", "of two owners with as many, the oldest"
    assert places.enter("d2", "d") == "a1"
    assert places.enter("e1", "e") == "d1"


def test_settled_connections_do_not_count_in_the_choice_of_the_evicted() -> None:
    places = filled(Places(Bounds(5, 5)), "a1", "a2", "a3", "b1", "b2")
    places.settle("a1")
    places.settle("a2")
    assert places.enter("c1", "c") == "b1"


def test_full_door_of_settled_connections_refuses_all_but_preferred_owners() -> None:
    places = filled(Places(Bounds(2, 2), preferred={"root"}), "a1", "b1")
    for each in ("a1", "b1"):
        places.settle(each)
    with pytest.raises(NoPlace, match=r"^more than 2 connections of all at a time$"):
        places.enter("c1", "c")
    assert places.enter("r1", "root") is None
    assert len(places) == 3


def test_preferred_owner_has_no_more_places_than_another() -> None:
    places = filled(Places(Bounds(8, 2), preferred={"a"}), "a1", "a2")
    with pytest.raises(NoPlace):
        places.enter("a3", "a")


def test_connections_of_preferred_owners_are_evicted_last() -> None:
    places = filled(Places(Bounds(4, 4), preferred={"a"}), "a1", "a2", "a3", "b1")
    assert places.enter("c1", "c") == "b1"
    assert places.enter("a4", "a") == "c1"
    assert places.enter("d1", "d") == "a1"


def test_place_is_free_once_its_connection_has_left() -> None:
    places = filled(Places(Bounds(2, 1)), "a1", "b1")
    for each in ("a1", "a1", "unknown"):
        places.leave(each)
    assert ("a1" in places, len(places), places.is_full) == (False, 1, False)
    assert places.enter("a2", "a") is None
    assert "a2" in places


def test_evicted_connection_may_leave_again_and_frees_no_second_place() -> None:
    places = filled(Places(Bounds(1, 1)), "a1")
    assert places.enter("b1", "b") == "a1"
    places.leave("a1")
    assert list(places) == ["b1"]


def test_turns_go_to_preferred_owners_then_to_those_with_fewest_places() -> None:
    places: Places[str, str] = Places(Bounds(4, 3), preferred={"a"})
    waiting = {each: each[0] for each in ("x1", "x2", "y1", "a1", "x3")}
    served = []
    while (found := places.next_of(waiting)) is not None:
        del waiting[found]
        places.enter(found, found[0])
        served.append(found)
    assert served == ["a1", "x1", "y1", "x2"]
    assert list(waiting) == ["x3"], "no turn costs another one its place"


def test_turns_pass_over_an_owner_that_has_all_its_places() -> None:
    places = filled(Places(Bounds(4, 1)), "x1")
    assert places.next_of({"x2": "x"}) is None
    assert places.next_of({"x2": "x", "y1": "y"}) == "y1"


def test_bounds_take_no_more_than_half_of_the_descriptors() -> None:
    bounds = Bounds(1024, 512, 64, 32)
    assert bounds.within(16_384) == bounds
    assert bounds.within(1024) == Bounds(128, 64, 64, 32)
    assert bounds.within(256) == Bounds(32, 16, 16, 8)
    assert bounds.within(0) == Bounds(8, 4, 4, 2)


class Plain:
    """The rule once more, in its plainest form: one list, oldest first, of connection, owner and whether it is idle."""

    def __init__(self, bounds: Bounds, replaces: bool, preferred: set[str]) -> None:
        self.bounds, self.replaces, self.preferred = bounds, replaces, preferred
        self.inside: list[tuple[int, str, bool]] = []

    def enter(self, item: int, owner: str) -> int | None:
        """The evicted one. Raises NoPlace."""
        theirs = [each for each in self.inside if each[1] == owner]
        idle = [each for each in self.inside if each[2]]
        bounds, out = self.bounds, []
        if len(theirs) >= bounds.of_one or sum(each[2] for each in theirs) >= bounds.idle_of_one:
            out = [each for each in theirs if each[2]] if self.replaces else []
            if not out:
                raise NoPlace
        elif len(self.inside) >= bounds.most or len(idle) >= bounds.idle:
            names = [each[1] for each in idle]
            out = sorted(idle, key=lambda each: (each[1] in self.preferred, -names.count(each[1])))
            if not out and owner not in self.preferred:
                raise NoPlace
        self.inside = [each for each in self.inside if each not in out[:1]] + [(item, owner, True)]
        return out[0][0] if out else None


@pytest.mark.parametrize("seed", range(20))
def test_histories_agree_with_the_rule_in_its_plainest_form(seed: int) -> None:
    rng = random.Random(seed)
    bounds = Bounds(*(rng.randint(1, 9) for _ in range(4)))
    preferred = set(rng.sample("abcd", rng.randint(0, 2)))
    places: Places[str, int] = Places(bounds, replaces=seed % 2 == 0, preferred=preferred)
    plain = Plain(bounds, seed % 2 == 0, preferred)
    for item in range(300):
        inside = [each[0] for each in plain.inside]
        found = rng.choice([*inside, -1])
        if (act := rng.randint(0, 5)) == 0:
            places.leave(found)
            plain.inside = [each for each in plain.inside if each[0] != found]
        elif act == 1:
            places.settle(found)
            plain.inside = [(each, owner, idle and each != found) for each, owner, idle in plain.inside]
        else:
            owner = rng.choice("aabcd")
            results = []
            for rule in (places, plain):
                try:
                    results.append(rule.enter(item, owner))
                except NoPlace:
                    results.append(-1)
            assert results[0] == results[1]
        assert list(places) == [each[0] for each in plain.inside]
