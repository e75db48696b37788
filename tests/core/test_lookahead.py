"""A future of shared nodes, walked from end to end, worked by hand."""

from cosched.model.allocation import Allocation, Share
from cosched.model.coscheduling import Mode
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.feasibility import Room
from space_scheduler.lookahead import LookAhead, Progress
from space_scheduler.policy.place import PLACES
from space_scheduler.progress import ALONE_PPM, NodeCpu, Occupancy, Sharing

SECOND = 1_000_000


def job(job_id: int, seconds: int, memory: int = 0) -> Job:
    return Job(job_id, 1, seconds * SECOND, 0, memory_bytes=memory)


def on(*names: str) -> Allocation:
    return Allocation(len(names), tuple(Share(name, 1) for name in names))


def future(*nodes: tuple[str, float]) -> LookAhead:
    occupancy = Occupancy(Sharing(Mode.NONE))
    occupancy.nodes = {name: NodeCpu(usable, 1) for name, usable in nodes}
    room = Room([name for name, _ in nodes], [4] * len(nodes), [100] * len(nodes), None, PLACES["normal"])
    return LookAhead.of(0, room, occupancy, [])


def test_who_stays_goes_faster_when_somebody_ends() -> None:
    found = future(("a", 1.0))
    found.start(job(1, 10), on("a"))
    found.start(job(2, 30, memory=40), on("a"))
    assert found.room.procs == [2]
    assert found.next_us() == 20 * SECOND  # both at half: ten seconds of work take twenty
    assert found.advance() == on("a")
    assert (found.now_us, found.room.procs, found.room.memory_bytes) == (20 * SECOND, [3], [60])
    assert found.next_us() == 40 * SECOND  # twenty of thirty are left, alone now
    found.advance()
    assert (found.room.procs, found.room.memory_bytes) == ([4], [100])
    assert found.next_us() == FOREVER_US


def test_a_start_in_one_future_is_none_in_another() -> None:
    found = future(("a", 1.0), ("b", 1.0))
    found.start(job(1, 10).at(2), on("a", "b"))
    other = found.copy()
    other.start(job(2, 10), on("b"))
    assert (other.next_us(), found.next_us()) == (20 * SECOND, 10 * SECOND)
    assert (other.room.procs, found.room.procs) == ([3, 2], [3, 3])
    other.advance()
    assert found.next_us() == 10 * SECOND


def test_what_can_hardly_go_on_ends_late_and_at_a_moment() -> None:
    found = future(("a", 0.0))
    found.start(job(1, 10), on("a"))
    assert found.next_us() == 10 * SECOND * ALONE_PPM  # a millionth of its rate
    found = future(("a", 0.0))
    found.start(job(1, 1 << 40), on("a"))
    assert found.next_us() == FOREVER_US - 1


def test_it_goes_on_from_where_jobs_are() -> None:
    occupancy = Occupancy(Sharing(Mode.NONE))
    occupancy.nodes["a"] = NodeCpu(1.0, 1)
    occupancy.enter(job(1, 10), on("a"))
    room = Room(["a"], [3], [100], None, PLACES["normal"])
    progress = Progress(job(1, 10), on("a"), 8 * SECOND * ALONE_PPM, 2 * SECOND, ALONE_PPM)  # runs for 2 s
    found = LookAhead.of(5 * SECOND, room, occupancy, [progress])
    assert found.next_us() == 10 * SECOND
    found.start(job(2, 10), on("a"))  # five seconds of work are left, at half the rate
    assert found.next_us() == 15 * SECOND
