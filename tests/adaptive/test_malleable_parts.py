"""The parts of cosched.adaptive that need no MPI: maps, layouts, the balancer, arrays of one rank, the channel."""

import contextlib
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.waiting import BOUND_S

from cosched.adaptive.arrays import Array
from cosched.adaptive.balance import BOUND, Balancer, Meter
from cosched.adaptive.channel import Channel
from cosched.adaptive.job import Job
from cosched.adaptive.layout import Layout, block_bounds, common, place
from cosched.adaptive.maps import Map, enabled_ranks, parse_map

PROGRESSIONS = st.builds(range, st.integers(0, 30), st.integers(0, 60), st.integers(1, 7))
WEIGHTS = st.lists(st.floats(1 / BOUND, BOUND), min_size=1, max_size=9)


def test_a_map_is_read_and_enables_the_first_ranks_of_each_node() -> None:
    found = parse_map(["12", "a=1", "b-2.site=3", "c=0"])
    assert found == Map(12, {"a": 1, "b-2.site": 3, "c": 0})
    assert enabled_ranks(found.shares, ["a", "b-2.site", "a", "b-2.site", "c", "d"]) == (0, 1, 3)


@pytest.mark.parametrize("words", ["", "1", "x a=1", "1 a", "1 =1", "1 a=-1", "1 a=1 a=2", "1 a=1.5", "1 a=²", "1 a="])
def test_what_is_no_map_is_refused(words: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse_map(words.split())


@given(PROGRESSIONS, PROGRESSIONS)
def test_rows_in_common_are_those_in_both_and_are_found_in_their_places(a: range, b: range) -> None:
    found = common(a, b)
    assert list(found) == sorted(set(a) & set(b))
    for whole in (a, b):
        assert np.array_equal(np.array(whole)[place(found, whole)], found)


@given(st.integers(0, 40), WEIGHTS)
def test_blocks_follow_each_other_in_proportion_and_each_has_a_row_if_there_are_enough(
    rows: int, weights: list[float]
) -> None:
    bounds = block_bounds(rows, weights)
    sizes = np.diff(bounds)
    assert (bounds[0], bounds[-1]) == (0, rows)
    assert sizes.min() >= (1 if rows >= len(weights) else 0)
    if len(set(weights)) == 1:
        assert sizes.max() - sizes.min() <= 1
    least = 1 if rows >= len(weights) else 0
    exact = least + (rows - least * len(weights)) * np.array(weights) / sum(weights)
    assert np.abs(sizes - exact).max() <= 1 + 1e-9


@given(st.integers(0, 40), WEIGHTS, st.sampled_from(["block", "cyclic"]))
def test_each_row_is_one_ranks(rows: int, weights: list[float], distribution: str) -> None:
    ranks = tuple(range(3, 3 + len(weights)))
    layout = Layout(rows, distribution, ranks, tuple(weights))  # type: ignore[arg-type]
    assert sorted(row for rank in ranks for row in layout.part(rank)) == list(range(rows))
    assert layout.part(0) == range(0)


def test_rows_go_by_measured_speed_within_bounds_and_only_if_it_is_worth_it() -> None:
    balancer = Balancer(["a", "a", "b", "b"])
    assert balancer.weights([0, 1, 2]) == (1, 1, 1)
    balancer.learn({0: (1, 1), 2: (1, 2), 1: (0, 0)})
    assert balancer.weights([0, 1, 2, 3]) == pytest.approx((4 / 3, 4 / 3, 2 / 3, 2 / 3))  # each as its node
    assert balancer.weights([0, 1], (1.0, 1.0)) == (1.0, 1.0)
    balancer.learn({1: (1, 1.05)})
    assert balancer.weights([0, 1], (1.0, 1.0)) == (1.0, 1.0)  # 5 % are not worth a move
    balancer = Balancer(["a", "a"])
    balancer.learn({0: (1, 1), 1: (1, 1000)})
    assert min(balancer.weights([0, 1])) == 1 / BOUND


def test_a_balancer_learns_slowly_and_follows() -> None:
    balancer = Balancer(["a", "a"])
    balancer.learn({0: (1, 1), 1: (1, 1)})
    balancer.learn({1: (1, 4)})
    assert balancer.speeds[1] == pytest.approx((1 + 1 / 4) / 2)
    for _ in range(20):
        balancer.learn({1: (1, 4)})
    assert balancer.speeds[1] == pytest.approx(1 / 4, rel=1e-3)


def test_a_meter_counts_steps_in_which_something_was_marked() -> None:
    meter = Meter()
    meter.step(0.5)
    with meter.work():
        pass
    meter.step(0.25)
    parts, seconds = meter.taken()
    assert parts == 0.25
    assert seconds > 0
    assert meter.taken() == (0, 0)


class Alone:
    """A job of one rank."""

    rank = 0
    comm: object = None

    def __init__(self) -> None:
        self.ranks: tuple[int, ...] = (0, 1)
        self.weights: tuple[float, ...] = (1.0, 1.0)


def test_an_array_has_its_rows_until_a_point_leaves_it_behind() -> None:
    job = Alone()
    u, v = (Array(job, (7, 2), np.float32, "block", scratch=False) for _ in range(2))  # type: ignore[arg-type]
    scratch = Array(job, (7,), np.int8, "cyclic", scratch=True)  # type: ignore[arg-type]
    assert (u.rows, u.first, u.local.shape, u.local.dtype, u.part) == (range(3), 0, (3, 2), np.dtype("f4"), 3 / 7)
    assert scratch.rows == range(0, 7, 2)
    u.local[:] = 3
    u.swap(v)
    assert (u.local.max(), v.local.min()) == (0, 3)
    scratch.local[:] = 1
    job.ranks = (0,)
    job.weights = (1.0,)
    assert (scratch.rows, scratch.local.sum()) == (range(7), 0)
    with pytest.raises(RuntimeError, match="not named at the point"):
        _ = u.local
    with pytest.raises(RuntimeError, match="not named at the point"):
        u.swap(v)


@pytest.mark.parametrize(
    ("shape", "dtype", "distribution", "error"),
    [
        ((3,), object, "block", TypeError),
        ((3,), float, "diagonal", ValueError),
        ((-1,), float, "block", ValueError),
        ((), float, "block", ValueError),
    ],
)
def test_arrays_that_cannot_be_spread_are_refused(
    shape: tuple[int], dtype: type, distribution: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Array(Alone(), shape, dtype, distribution, scratch=False)  # type: ignore[arg-type]


def test_arrays_of_different_forms_are_not_swapped() -> None:
    job = Alone()
    u = Array(job, (7,), np.float32, "block", scratch=False)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="different forms"):
        u.swap(Array(job, (8,), np.float32, "block", scratch=False))  # type: ignore[arg-type]


class TwoRanks:
    """What rank 0 has of a communicator; at points, rank 1 has what ``theirs`` makes of rank 0's step and arrays."""

    def __init__(self, theirs: Callable[[tuple[object, ...]], tuple[object, ...]]) -> None:
        self._theirs, self.aborted = theirs, list[int]()

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 2

    def Dup(self) -> "TwoRanks":
        return self

    def Abort(self, status: int) -> None:
        self.aborted.append(status)

    def gather(self, mine: tuple[object, tuple[object, ...]], **_: int) -> list[object]:
        return [mine, (mine[0], self._theirs(mine[1]))]

    def bcast(self, change: object, **_: int) -> object:
        return change


@pytest.mark.parametrize(
    ("misuse", "theirs", "words"),
    [
        (lambda job, u, v: job.point(u, v), lambda mine: mine[:-1], "rank 1 has step and arrays (0, ((8,)"),
        (lambda job, u, v: job.point(u), lambda mine: (1, *mine[1:]), "rank 1 has step and arrays (1, ((8,)"),
        (lambda job, u, v: (job.point(u), job.array(8)), lambda mine: mine, "an array made after the first point"),
        (lambda job, u, v: (job.point(u), job.pieces(8, None, None)), lambda mine: mine, "pieces made after the first"),
        (lambda job, u, v: [*job.range(3, u), *job.range(3, u)], lambda mine: mine, "a second loop in one block"),
        (lambda job, u, v: job.ask(0), lambda mine: mine, "asking for 0 more"),
    ],
)
def test_misuse_of_an_adaptive_job_aborts_mpi_and_is_reported(
    capsys: pytest.CaptureFixture[str], misuse: Callable[..., object], theirs: Any, words: str
) -> None:
    world = TwoRanks(theirs)
    job = Job(world, None, ["a", "b"], balance=True, every=1)  # type: ignore[arg-type]
    with pytest.raises((RuntimeError, ValueError), match=re.escape(words)), job:
        misuse(job, job.array(8), job.array(8))
    assert world.aborted == [1]
    assert words in capsys.readouterr().err


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "agent"))
        made.listen()
        made.settimeout(20)
        yield made


def test_a_rank_hears_the_newest_map_in_whatever_pieces_it_comes(listening: socket.socket) -> None:
    channel = Channel(listening.getsockname(), 2, 4)
    channel.poll()
    agent, _ = listening.accept()
    assert agent.recv(100) == b"adaptive 1 2 4\n"
    for piece in (b"no", b"de a\nmap 3 a=1\nmap 2 a=", b"4\nfuture 1 2 3\nansw", b"er 2 1\nmap 4 b"):
        agent.send(piece)
        channel.poll()
    assert (channel.node, channel.newest, channel.answer) == ("a", Map(3, {"a": 1}), (2, True))
    channel.say("ask +1")
    channel.adapt(3)
    assert agent.recv(100) == b"ask +1\nadapted 3\n"
    agent.close()
    channel.poll()
    channel.adapt(5)
    channel._again_s = 0  # it would knock again only in a second
    channel.poll()
    agent, _ = listening.accept()
    assert agent.recv(100) == b"adaptive 1 2 4\nadapted 5\n"
    channel.close()
    agent.close()


@pytest.mark.parametrize("words", [b"map x a=1\n", b"map 1 a=b\n", b"\xff\n", b"answer a b\n", b"x" * 9000])
def test_an_agent_that_says_what_it_must_not_is_hung_up_on(listening: socket.socket, words: bytes) -> None:
    channel = Channel(listening.getsockname(), 0, 1)
    channel.poll()
    agent, _ = listening.accept()
    agent.settimeout(20)
    agent.recv(100)
    agent.send(words)
    channel.poll()
    with contextlib.suppress(ConnectionResetError):
        assert agent.recv(100) == b""
    assert channel.newest is None
    agent.close()


def test_without_an_agent_nothing_is_heard_and_nothing_fails(tmp_path: Path) -> None:
    channel = Channel(str(tmp_path / "nobody"), 0, 1)
    channel.poll()
    channel.say("ask +1")
    channel.adapt(1)
    channel.wait(0.001)
    assert (channel.node, channel.newest) == (None, None)


def test_the_library_needs_nothing_else_of_cosched_and_starts_no_mpi_when_imported() -> None:
    script = "import sys, cosched.adaptive; print(*(n for n in sys.modules if n.startswith(('cosched', 'mpi4py'))))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=BOUND_S)
    names = loaded.stdout.split()
    assert all(name == "cosched" or name.startswith("cosched.adaptive") for name in names), names
