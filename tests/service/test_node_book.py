"""Which nodes are shown and counted, and in what order."""

import pytest

from cosched.errors import BadInput
from space_scheduler.service.launch.nodes import NodeBook


def test_nodes_are_in_natural_order_and_a_removed_one_is_counted_no_more() -> None:
    book = NodeBook(["n10", "n2", "n1"], lambda: 0.0)
    assert [entry.name for entry in book.members(())] == ["n1", "n2", "n10"]
    book.remove("n2")
    assert [entry.name for entry in book.members({"n2"})] == ["n1", "n2", "n10"], "a job still holds it"
    assert [entry.name for entry in book.members(())] == ["n1", "n10"]


def test_two_spellings_of_one_host_are_refused() -> None:
    with pytest.raises(BadInput, match="'Desk1' beside 'desk1'; expected one spelling of a host's name"):
        NodeBook(["desk1", "desk2", "Desk1"], lambda: 0.0)
