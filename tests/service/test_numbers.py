"""Numbers of orders: they rise for each attempt on each node, whatever is forgotten of what was ordered before."""

from hypothesis import given
from hypothesis import strategies as st

from cosched.wire.messages import OrderId
from space_scheduler.service.launch import orders
from space_scheduler.service.launch.orders import OrderKind, OrderNumbers

KEYS = [(job, 1) for job in range(1, 6)]


def test_the_same_order_has_the_same_number_and_an_answer_is_known_by_it() -> None:
    made = OrderNumbers(3)
    prepare = made.of("n1", (5, 1), OrderKind.PREPARE)
    assert prepare == OrderId(5, 1, (3 << 20) + 1)
    assert made.of("n1", (5, 1), OrderKind.RUN).n == prepare.n + 1
    assert made.of("n1", (5, 1), OrderKind.PREPARE) == prepare
    assert made.of("n2", (5, 1), OrderKind.RUN).n == prepare.n, "each node has its own"
    first, second = (made.new("n1", (5, 1), OrderKind.RESIZE) for _ in range(2))
    assert (made.kind("n1", first), made.kind("n1", second)) == (None, OrderKind.RESIZE), "another has replaced it"
    assert made.kind("n1", OrderId(6, 1, second.n)) is None
    made.anew("n1", (5, 1))
    assert made.of("n1", (5, 1), OrderKind.PREPARE).n > second.n
    assert OrderNumbers(4).of("n1", (5, 1), OrderKind.PREPARE).n > second.n


def test_an_order_without_an_answer_is_another_once_others_were_given_after_it() -> None:
    """A Forget that was refused, then a Kill: the Forget would be stale. (Found by simulated faults.)"""
    made = OrderNumbers(1)
    forget = made.of("n1", (5, 1), OrderKind.FORGET, answered=False)
    assert made.of("n1", (5, 1), OrderKind.FORGET, answered=False) == forget
    kill = made.of("n1", (5, 1), OrderKind.KILL, answered=False)
    again = made.of("n1", (5, 1), OrderKind.FORGET, answered=False)
    assert forget.n < kill.n < again.n
    assert made.kind("n1", forget) is None


@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(["new", "over"]), st.sampled_from(list(OrderKind)))),
)
def test_they_rise_also_where_little_is_remembered(history: list[tuple[tuple[int, int], str, OrderKind]]) -> None:
    most, orders._MOST_OVER = orders._MOST_OVER, 2  # type: ignore[misc]
    try:
        made = OrderNumbers(1)
        last = dict.fromkeys(KEYS, 0)
        for key, what, kind in history:
            if what == "new":
                number = made.new("n1", key, kind).n
                assert number > last[key]
                last[key] = number
            elif last[key]:
                made.over("n1", key)
        assert len(made._over) <= 2
    finally:
        orders._MOST_OVER = most  # type: ignore[misc]
