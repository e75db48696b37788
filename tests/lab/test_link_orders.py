"""Orders for the link between a lab's clusters, over its real socket."""

import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

from cosched.apps.lab import control, link
from cosched.apps.lab.link_orders import LinkOrders
from cosched.apps.lab.plan import LINK_SOCKET
from cosched.errors import BadInput, Failed


@contextmanager
def carrier(directory: Path, hung_up_on: int) -> Iterator[LinkOrders]:
    """Who carries packets, and hangs up on so many callers before it serves one."""
    with control.listen(directory / LINK_SOCKET) as listener:
        orders = LinkOrders("relay", ["c1", "c2"], listener)

        def serve() -> None:
            for turn in range(hung_up_on + 1):
                assert select.select([listener], [], [], BOUND_S)[0]
                if turn < hung_up_on:
                    listener.accept()[0].close()
                else:
                    orders.serve()

        serving = threading.Thread(target=serve)
        serving.start()
        yield orders
        serving.join(BOUND_S)


def test_a_caller_that_is_hung_up_on_asks_again(tmp_path: Path) -> None:
    """A carrier does not wait for a caller that a busy machine keeps from asking."""
    with carrier(tmp_path, 3) as orders:
        assert link.asked(tmp_path, "cut", ("c1", "c2"))["cut"] == [["c1", "c2"]]
        assert orders.cut == {frozenset(("c1", "c2"))}


def test_an_order_that_is_wrong_is_answered_at_once(tmp_path: Path) -> None:
    with carrier(tmp_path, 0), pytest.raises(BadInput, match="two clusters of the lab"):
        link.asked(tmp_path, "cut", ("c1", "c9"))


def test_a_carrier_that_always_hangs_up_or_is_not_there_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_TRIES", 2)
    with carrier(tmp_path, 2):
        with pytest.raises(Failed, match="does not answer"):
            link.asked(tmp_path, "status")
        monkeypatch.undo()
        assert link.asked(tmp_path, "status")["cut"] == []  # the last one is served
    with pytest.raises(Failed, match="refused"):
        link.asked(tmp_path, "status")
    (tmp_path / LINK_SOCKET).unlink()
    with pytest.raises(BadInput, match="one cluster"):
        link.asked(tmp_path, "status")
