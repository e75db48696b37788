"""Which nodes are shown and counted, and in what order."""

from typing import Any

import pytest

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput
from cosched.model.desk import ContractReason
from cosched.model.node import Presence, Usage
from cosched.wire.messages import Heartbeat
from space_scheduler.service.core.worker import Post
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.owners import Suspects
from space_scheduler.service.launch.values import Outbox


def test_nodes_are_in_natural_order_and_a_removed_one_is_counted_no_more() -> None:
    book = NodeBook(["n10", "n2", "n1"], lambda: 0.0)
    assert [entry.name for entry in book.members(())] == ["n1", "n2", "n10"]
    book.remove("n2")
    assert [entry.name for entry in book.members({"n2"})] == ["n1", "n2", "n10"], "a job still holds it"
    assert [entry.name for entry in book.members(())] == ["n1", "n10"]


@pytest.mark.parametrize(
    ("beat", "reason"),
    [
        ({"paused": "ann has paused", "guard": "away"}, ContractReason.PAUSED),
        ({"guard": "away", "armed": True}, ContractReason.NO_GUARD),
        ({"armed": True}, ContractReason.UNKNOWN),
        ({"armed": False}, ContractReason.RELAXED),
    ],
)
def test_contract_of_an_agent_that_reports_none_follows_from_its_heartbeat(
    beat: dict[str, Any], reason: ContractReason
) -> None:
    entry = NodeEntry("n1")
    assert entry.contract_reason is ContractReason.AGENT_SILENT
    entry.beat = Heartbeat(Usage(), Presence.AWAY, **beat)
    assert entry.contract_reason is reason


def test_losses_count_within_their_time_alone() -> None:
    now_s, out = [0.0], Outbox()
    book = NodeBook(["n1", "n2"], lambda: now_s[0])
    suspects = Suspects(ClusterConfig(name="c", nodes=["n1", "n2"]), book, out)
    for entry in book:
        entry.known = True
    for hours in (0.0, 0.5, 1.1, 1.7):  # no three within one
        now_s[0] = 3600 * hours
        suspects.lost("n1")
    assert not out
    now_s[0] = 3600 * 2.0
    suspects.lost("n1")
    assert [each.note for each in out if isinstance(each, Post)] == ["by the scheduler"]


def test_two_spellings_of_one_host_are_refused() -> None:
    with pytest.raises(BadInput, match="'Desk1' beside 'desk1'; expected one spelling of a host's name"):
        NodeBook(["desk1", "desk2", "Desk1"], lambda: 0.0)
