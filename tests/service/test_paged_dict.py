"""A dict in pages: it does what a dict does, and its copies stay as they were."""

import random

from space_scheduler.service.journal.records import PagedDict


def test_changes_equal_those_of_a_dict_and_leave_copies_unchanged() -> None:
    chance = random.Random(1)
    paged, plain = PagedDict({3: 0}), {3: 0}
    copies: list[tuple[PagedDict[int], dict[int, int]]] = []
    for step in range(3000):
        number = chance.choice((*plain, step)) if chance.random() < 0.6 else step
        if number in plain and chance.random() < 0.6:
            del plain[number], paged[number]
        else:
            plain[number] = paged[number] = step
        if chance.random() < 0.05:
            copies.append((paged.copy(), plain.copy()))
    for found, wanted in (*copies, (paged, plain)):
        assert found == wanted
        assert len(found) == len(wanted)
        assert sorted(found.values()) == sorted(wanted.values())
    assert 3000 not in paged
    assert paged.get(3000) is None
