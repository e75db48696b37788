"""Normal and Uniform by hand (Hanzich et al. 2005, section 3), and what holds in any state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.errors import BadInput
from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job
from cosched.model.node import Owner
from space_scheduler.feasibility import Room
from space_scheduler.on_nodes import Limit, Resident
from space_scheduler.plugins import resolve
from space_scheduler.policy.place import PLACES, place_of
from space_scheduler.policy.presets import PRESETS
from space_scheduler.policy.uniform import allows
from space_scheduler.reasons import Why

MPL = 4
MEMORY = 100


def job(number: int, tasks: int, kind: str, memory: int = 10, cpu: int = 700) -> Job:
    return Job(number, tasks, 10, 0, memory_bytes=memory, kind=kind, cpu_permille=cpu)


def cluster(place: str, *there: tuple[Job, str], nodes: str = "abcd", mpl: int = MPL) -> Room:
    """Nodes of one CPU; ``there``: jobs, and on which nodes they have a task each."""
    names = list(nodes)
    room = Room(names, [mpl] * len(names), [MEMORY] * len(names), None, place_of(place), cpus=[1] * len(names))
    for resident, on in there:
        room.take(resident, Allocation(len(on), tuple(Share(name, 1) for name in on)))
    return room


def placed(room: Room, newcomer: Job) -> str | None:
    """The nodes that it gets, each named as often as it gets tasks; None: it waits."""
    allocation = room.placed(newcomer)
    return None if allocation is None else "".join(share.node * share.tasks for share in allocation.nodes)


def test_figure_4_uniform_puts_a_job_on_the_nodes_of_one_of_the_other_kind() -> None:
    """J1 computes on a and b, J2 communicates on c and d; J3 computes."""
    there = (job(1, 2, "cpu", memory=5), "ab"), (job(2, 2, "comm", memory=20), "cd")
    newcomer = job(3, 2, "cpu")
    assert placed(cluster("uniform-hard", *there), newcomer) == "cd"
    assert placed(cluster("uniform-light", *there), newcomer) == "cd"
    assert placed(cluster("normal", *there), newcomer) == "ab"  # whoever is there, by the memory in use


def test_normal_ranks_by_memory_then_tasks_then_cpu() -> None:
    there = [
        (job(1, 1, "cpu", memory=30, cpu=100), "a"),
        (job(2, 1, "cpu", memory=20, cpu=900), "b"),
        (job(3, 1, "cpu", memory=20, cpu=500), "c"),
        (job(4, 1, "cpu", memory=10), "d"),
        (job(5, 1, "cpu", memory=10), "d"),
    ]
    room = cluster("normal", *there)
    # as much memory as on b and d is in use, by fewer tasks than on d, with less CPU than on b
    assert placed(room, job(9, 1, "cpu", memory=0)) == "c"
    assert placed(room, job(9, 3, "cpu", memory=15)) == "bcd"
    assert placed(room, job(9, 5, "cpu", memory=15)) == "abccd"  # the fourth on a, now the least used; then c again


def test_two_tasks_of_69_percent_share_an_idle_node() -> None:
    """CPU can be squeezed: it is in the ranking, not in the admission."""
    assert placed(cluster("normal", nodes="a"), job(1, 2, "comm", cpu=690)) == "aa"


@pytest.mark.parametrize(
    ("kind", "tasks", "expected"),
    [
        ("comm", 2, "ab"),
        ("cpu", 2, None),  # its company would be of its own kind
        ("", 2, None),  # counts as computing
        ("comm", 3, "aab"),  # both nodes, as evenly as it goes
        ("comm", 4, "aabb"),  # half of the level of four
        ("comm", 5, None),  # three of a kind on a node
        ("comm", 1, None),  # nothing on b, where the other job is
    ],
)
def test_hard_wants_the_other_kind_and_all_of_its_nodes(kind: str, tasks: int, expected: str | None) -> None:
    room = cluster("uniform-hard", (job(1, 2, "cpu"), "ab"), nodes="ab")
    assert placed(room, job(2, tasks, kind)) == expected
    found = room.obstacle(job(2, tasks, kind))
    assert (found and found.why) == (None if expected else Why.NO_UNIFORM_SET)


def test_surplus_tasks_of_a_uniform_set_go_to_its_least_used_nodes() -> None:
    room = cluster("uniform-hard", nodes="abc", mpl=6)
    room.take(job(1, 4, "cpu"), Allocation(4, (Share("a", 2), Share("b", 1), Share("c", 1))))
    assert placed(room, job(2, 4, "comm")) == "abbc"  # b and c are used alike: by the nodes' order
    assert placed(room, job(2, 5, "comm")) == "abbcc"
    room.memory_bytes[1] = 15  # b has memory for one task alone
    assert placed(room, job(2, 5, "comm")) == "aabcc"


def test_uniform_sets_are_ranked_by_their_fullest_nodes() -> None:
    """Each node of the smaller set is fuller, though the larger set has more on it altogether."""
    there = (job(1, 2, "cpu", memory=30), "ab"), (job(2, 3, "cpu", memory=25), "cde")
    room = cluster("uniform-hard", *there, nodes="abcde")
    assert placed(room, job(3, 4, "comm")) == "ccde"


def test_jobs_that_lie_across_each_other_share_with_nobody() -> None:
    across = (job(1, 2, "cpu"), "ab"), (job(2, 2, "comm"), "bc")
    assert placed(cluster("uniform-hard", *across, nodes="abc"), job(3, 2, "comm")) is None
    assert placed(cluster("uniform-light", *across, nodes="abc"), job(3, 2, "comm")) == "ac"
    assert placed(cluster("uniform-hard", *across), job(3, 1, "comm")) == "d"  # idle


def test_places_of_a_uniform_set_are_all_nodes_of_its_company() -> None:
    room, newcomer = cluster("uniform-hard", (job(1, 2, "cpu"), "ab")), job(2, 2, "comm")
    assert [allows(room, newcomer, pairs) for pairs in ([(0, 1), (1, 1)], [(0, 2)])] == [True, False]


def test_idle_nodes_come_before_company_and_take_half_their_level() -> None:
    room = cluster("uniform-hard", (job(1, 2, "cpu"), "ab"))
    assert placed(room, job(2, 2, "comm")) == "cd"
    assert placed(room, job(2, 4, "comm")) == "ccdd"
    assert placed(room, job(2, 5, "cpu")) is None
    dedicated = Room(["a"], [4], [MEMORY], None, PLACES["uniform-hard"], cpus=[4])
    assert placed(dedicated, job(1, 4, "cpu")) == "aaaa"  # a CPU for each


def test_a_third_job_joins_two_of_different_kinds() -> None:
    pair = (job(1, 2, "cpu"), "ab"), (job(2, 2, "comm"), "ab")
    assert placed(cluster("uniform-hard", *pair, nodes="ab"), job(3, 2, "comm")) == "ab"
    full = *pair, (job(3, 2, "comm"), "ab")
    assert placed(cluster("uniform-hard", *full, nodes="ab"), job(4, 2, "comm")) is None
    assert placed(cluster("uniform-hard", *full, nodes="ab"), job(4, 2, "cpu")) == "ab"


def test_memory_keeps_a_job_out_of_a_uniform_set() -> None:
    there = (job(1, 2, "comm", memory=95), "ab")
    assert placed(cluster("uniform-hard", there, nodes="ab"), job(2, 2, "cpu")) is None
    assert cluster("uniform-hard", there, nodes="ab").obstacle(job(2, 2, "cpu")).why is Why.NOT_ENOUGH_MEMORY  # type: ignore[union-attr]


def test_a_part_of_a_residents_nodes_will_do_where_the_policy_says_so() -> None:
    there = (job(1, 3, "cpu"), "abc")
    assert placed(cluster("uniform-hard", there, nodes="abc"), job(2, 2, "comm")) is None
    part = cluster("uniform-hard(subset)", there, nodes="abc")
    assert placed(part, job(2, 2, "comm")) == "ab"
    assert placed(part, job(2, 2, "cpu")) is None  # of its own kind, all the same
    assert part.misfit(job(2, 2, "comm"), Allocation(2, (Share("b", 1), Share("c", 1)))) is None
    across = (job(1, 2, "cpu"), "ab"), (job(2, 2, "cpu"), "bc")
    assert (
        placed(cluster("uniform-hard(subset)", *across, nodes="abc"), job(3, 2, "comm")) == "aa"
    )  # b has other company


def test_owners_at_some_of_the_desks_will_do_where_the_policy_says_so() -> None:
    for place, expected in (("uniform-hard", None), ("uniform-hard(any-owners)", "ab")):
        room = cluster(place, nodes="ab", mpl=1)
        room.owners = [Owner(150, 10), None]
        assert placed(room, job(1, 2, "cpu")) == expected
        assert (room.misfit(job(1, 2, "cpu"), Allocation(2, (Share("a", 1), Share("b", 1)))) is None) is bool(expected)


def test_cpu_is_a_limit_where_the_policy_says_so() -> None:
    """``max_cpu_overcommit``: tasks and owner together use at most so many times a node's CPUs."""
    room = cluster("normal(overcommit=1.5)", (job(1, 1, "cpu", cpu=700), "a"), nodes="ab")
    room.owners = [None, Owner(150, 10)]
    assert room.tasks(job(2, 4, "comm", cpu=400)) == [2, 3]
    assert placed(room, job(2, 2, "comm", cpu=800)) == "ab"
    assert placed(room, job(2, 3, "comm", cpu=800)) is None
    assert room.obstacle(job(2, 3, "comm", cpu=800)).why is Why.NOT_ENOUGH_CPU  # type: ignore[union-attr]
    assert room.limit(0, job(2, 1, "comm", cpu=801)) is Limit.CPU
    assert placed(cluster("normal", nodes="a"), job(2, 4, "comm", cpu=1000)) == "aaaa"  # not by itself
    hard = cluster("uniform-hard(overcommit=1)", (job(1, 2, "cpu", cpu=700), "ab"), nodes="ab")
    assert placed(hard, job(2, 2, "comm", cpu=400)) is None
    assert placed(hard, job(2, 2, "comm", cpu=300)) == "ab"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("uniform-hrd", "did you mean 'uniform-hard'"),
        ("normal(subset)", "'subset' in 'normal(subset)'"),
        ("normal(overcommit=0)", "above 0"),
        ("normal(overcommit=nan)", "above 0"),
        ("uniform-light(overcommit)", "above 0"),
        ("uniform-hard(subsets)", "did you mean 'subset'"),
        ("uniform-hard(", "'uniform-hard('"),
    ],
)
def test_a_variant_that_is_none_is_refused(spec: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        place_of(spec, "--policy")
    assert told in str(caught.value)
    assert str(caught.value).startswith("--policy")


def test_a_presets_name_takes_variants() -> None:
    policy = resolve("3dbf-hard(subset, any-owners)")
    assert policy.place == "uniform-hard(subset, any-owners)"  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="leaves the nodes to the machine"):
        resolve("easy(subset)")


kinds = st.sampled_from(["cpu", "comm", ""])
jobs = st.builds(job, st.integers(1, 10**6), st.integers(1, 6), kinds, st.integers(0, 40), st.integers(100, 1000))


@given(newcomers=st.lists(jobs, min_size=1, max_size=12, unique_by=lambda each: each.id), mpl=st.integers(1, 4))
def test_what_holds_in_any_state(newcomers: list[Job], mpl: int) -> None:
    """Light admits what Hard admits, and there it does the same; Hard keeps both rules for all; no limit is passed."""
    room = cluster("uniform-hard", mpl=mpl)
    for newcomer in newcomers:
        light = cluster("uniform-light", mpl=mpl)
        light.procs, light.memory_bytes, light.residents = room.procs, room.memory_bytes, room.residents
        allocation = room.placed(newcomer)
        if allocation is None:
            continue
        assert light.placed(newcomer) == allocation
        assert room.misfit(newcomer, allocation) is None
        room.take(newcomer, allocation)
        for index, residents in enumerate(room.residents):
            assert room.procs[index] >= 0
            assert room.memory_bytes[index] >= 0
            for kind in ("cpu", "comm"):
                same = [each.tasks for each in residents if (each.kind or "cpu") == kind]
                assert sum(same) <= (mpl + 1) // 2
                assert len(residents) < 2 or len(same) < len(residents)
    company = [frozenset(each.job_id for each in residents) for residents in room.residents]
    for jobs_here in company:
        nodes = [other for other in company if other & jobs_here]
        assert all(other == jobs_here for other in nodes), "the same jobs on all nodes of each"


HOW = ("light", "hard")


def test_presets_place_as_they_are_named() -> None:
    named = {name: preset.place for name, preset in PRESETS.items() if preset.place}
    alone = {name: name for name in ("normal", "uniform-light", "uniform-hard")}
    apart = {"coalloc-fcfs": "worst-fit", "coalloc-fpfs": "worst-fit"}
    both = {"basic": "normal", "2dbf": "normal"} | {f"3dbf-{how}": f"uniform-{how}" for how in HOW}
    assert named == alone | apart | both
    assert {name for name, preset in PRESETS.items() if preset.mpl} == {"basic", "2dbf"}


def test_a_jobs_own_tasks_share_a_cpu_only_where_there_is_nothing_else() -> None:
    room = Room(["a", "b", "c"], [4, 3, 3], [100, 100, 100], None, PLACES["uniform-hard"], cpus=[1, 1, 1])
    other = Resident(1, 1, 10, "comm", 1000)
    room.residents[1:] = [(other,), (other,)]
    placed = room.placed(Job(2, 2, 60, 0, kind="cpu"))
    assert placed is not None
    assert [share.node for share in placed.nodes] == ["b", "c"]  # not both on a, which is idle
    alone = room.placed(Job(3, 2, 60, 0, kind="comm"))  # beside its own kind it may not be
    assert alone is not None
    assert alone.nodes == (Share("a", 2),)
