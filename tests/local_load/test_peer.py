"""The peer of synthetic users' messages, with more connections than it has places for."""

import selectors
import socket
from collections.abc import Iterator

import pytest
from kit.waiting import BOUND_S

from local_load import peer
from local_load.peer import Peer

PLACES = 4


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Peer, selectors.BaseSelector]]:
    monkeypatch.setattr(peer, "_CONNECTIONS", PLACES)
    with selectors.DefaultSelector() as selector:
        made = Peer(selector)
        yield made, selector
        made.close()


def connected(serving: tuple[Peer, selectors.BaseSelector]) -> socket.socket:
    made, selector = serving
    connection = socket.create_connection(("127.0.0.1", made.port), BOUND_S)
    turn(selector)
    return connection


def turn(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(BOUND_S):
        key.data()


def ask(connection: socket.socket, selector: selectors.BaseSelector) -> bytes:
    """What is answered to a request for three bytes."""
    connection.sendall(peer._HEADER.pack(0, 3))
    turn(selector)
    return connection.recv(16)


def test_new_connection_evicts_the_oldest_silent_one(serving: tuple[Peer, selectors.BaseSelector]) -> None:
    _, selector = serving
    user = connected(serving)
    assert ask(user, selector) == bytes(3)
    silent = [connected(serving) for _ in range(PLACES - 1)]
    late = connected(serving)
    assert silent[0].recv(1) == b""
    assert ask(late, selector) == ask(user, selector) == bytes(3)
    for each in (user, late, *silent):
        each.close()


def test_connections_in_use_are_not_evicted(serving: tuple[Peer, selectors.BaseSelector]) -> None:
    _, selector = serving
    users = [connected(serving) for _ in range(PLACES)]
    assert {ask(each, selector) for each in users} == {bytes(3)}
    late = connected(serving)
    assert late.recv(1) == b""
    assert {ask(each, selector) for each in users} == {bytes(3)}
    for each in (late, *users):
        each.close()
