"""Which nodes are shown and counted, and in what order."""

from space_scheduler.service.launch.nodes import NodeBook


def test_nodes_are_in_natural_order_and_a_removed_one_is_counted_no_more() -> None:
    book = NodeBook(["n10", "n2", "n1"], lambda: 0.0)
    assert [entry.name for entry in book.members(())] == ["n1", "n2", "n10"]
    book.remove("n2")
    assert [entry.name for entry in book.members({"n2"})] == ["n1", "n2", "n10"], "a job still holds it"
    assert [entry.name for entry in book.members(())] == ["n1", "n10"]
