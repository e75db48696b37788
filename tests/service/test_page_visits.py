"""Links and visits of the page: once, soon, one user's; and nothing in memory that would let anybody in."""

import pytest

from space_scheduler.service.page.visits import LINK_S, MOST, VISIT_S, NoVisit, Visits


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def visits(clock: Clock) -> Visits:
    return Visits(clock)


def test_a_link_opens_once(visits: Visits) -> None:
    link = visits.link("ada")
    visit, cookie = visits.enter(link, "ada")
    assert visits.of(visit.id, cookie, "ada") == visit
    with pytest.raises(NoVisit, match="used already"):
        visits.enter(link, "ada")
    assert visits.of(visit.id, cookie, "ada") == visit, "who is in stays in"


def test_a_link_that_is_too_old_opens_nothing(visits: Visits, clock: Clock) -> None:
    link = visits.link("ada")
    clock.now_s += LINK_S
    with pytest.raises(NoVisit, match="too old"):
        visits.enter(link, "ada")


def test_another_users_link_opens_nothing_and_is_worth_nothing_after_that(visits: Visits) -> None:
    link = visits.link("ada")
    with pytest.raises(NoVisit, match="not yours"):
        visits.enter(link, "eve")
    with pytest.raises(NoVisit):
        visits.enter(link, "ada")


@pytest.mark.parametrize("forged", ["", "x", "é", "\udcff", "a" * 10_000])
def test_a_forged_cookie_is_refused(visits: Visits, forged: str) -> None:
    visit, _ = visits.enter(visits.link("ada"), "ada")
    with pytest.raises(NoVisit):
        visits.of(visit.id, forged, "ada")


def test_a_cookie_is_good_for_its_own_visit_and_user_alone(visits: Visits) -> None:
    mine, cookie = visits.enter(visits.link("ada"), "ada")
    other, others = visits.enter(visits.link("eve"), "eve")
    for number, secret, user in ((mine.id, others, "ada"), (other.id, cookie, "ada"), (mine.id, cookie, "eve")):
        with pytest.raises(NoVisit):
            visits.of(number, secret, user)
    with pytest.raises(NoVisit):
        visits.of("0" * 24, cookie, "ada")


def test_a_visit_ends(visits: Visits, clock: Clock) -> None:
    visit, cookie = visits.enter(visits.link("ada"), "ada")
    clock.now_s += VISIT_S - 1
    visits.of(visit.id, cookie, "ada")
    clock.now_s += 1
    with pytest.raises(NoVisit, match="ended"):
        visits.of(visit.id, cookie, "ada")


def test_a_user_has_so_many_and_nobody_elses_are_touched(visits: Visits) -> None:
    theirs = visits.link("eve")
    links = [visits.link("ada") for _ in range(3 * MOST)]
    with pytest.raises(NoVisit):
        visits.enter(links[0], "ada")
    opened = [visits.enter(link, "ada") for link in links[-MOST:]]
    visit, cookie = visits.enter(theirs, "eve")
    for _ in range(2 * MOST):
        visits.enter(visits.link("ada"), "ada")
    assert visits.of(visit.id, cookie, "eve")
    with pytest.raises(NoVisit):
        visits.of(opened[0][0].id, opened[0][1], "ada")


def test_no_secret_is_kept(visits: Visits) -> None:
    unused = visits.link("ada")
    _, cookie = visits.enter(visits.link("ada"), "ada")
    kept = repr([vars(each) for each in vars(visits).values() if hasattr(each, "__dict__")])
    assert "ada" in kept
    assert unused not in kept
    assert cookie not in kept
