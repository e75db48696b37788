"""The agent's rules, one by one, without processes: its core, a model of the guard, and a test between them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from kit.agent_world import END, FENCE, KEY, World, kill, order, prepare, prepared, run, started

from cosched.model.stall import Stall, StalledProcess
from cosched.wire import messages as wire
from cosched.wire.grant import Grant
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.guard_model import KILLED, GuardModel
from node_agent.core.memory import Memory
from node_agent.core.played import PlayedAgent, Player
from node_agent.core.replies import AWAY, Declined, Done, ErrorTail
from node_agent.core.works import Pause, Steps, Works


@pytest.fixture(name="world")
def _world() -> World:
    made = World()
    made.connect()
    assert made.welcome(FENCE)
    return made


def test_a_jobs_life(world: World) -> None:
    started(world)
    world.guard_ends(KEY, wire.Exit(3))
    world.settle()
    world.order(kill())
    world.settle()
    ended = wire.ProgramEnded(5, 1, wire.Exit(3), b"the last words")
    assert world.heard == [wire.Prepared(run(1).order), wire.Started(run().order, 4711), ended, END]
    world.order(order(wire.Forget, 4))
    world.settle()
    assert world.core is not None
    assert world.core.reports() == ()
    assert list(world.records) == [KEY]
    world.order(order(wire.Discard, 5))
    assert (world.records, world.guard.groups) == ({}, {})


def test_orders_of_one_attempt_are_obeyed_in_their_order_and_others_beside_them(world: World) -> None:
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    world.order(run())
    world.order(kill())
    other = wire.OrderId(6, 1, 1)
    world.order(prepare(FENCE, other))
    assert [type(request) for _, request in world.to_guard] == [fx.PrepareGroup, fx.PrepareGroup]
    world.settle()
    kinds = [type(each).__name__ for each in world.heard if each != wire.Prepared(other)]
    assert kinds == ["Prepared", "Started", "ProgramEnded", "GroupEnded"]


def test_an_order_waits_for_a_guard_that_is_being_started_anew(world: World) -> None:
    prepared(world)
    world.lose_guard()
    world.order(run())
    world.pass_time(4_900_000)
    world.connect()
    world.settle()
    assert world.heard[-1] == wire.Started(run().order, 4711)


def test_without_a_guard_for_five_seconds_an_order_is_refused_with_the_reason(world: World) -> None:
    world.lose_guard()
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    world.pass_time(4_900_000)
    assert world.heard == []
    world.pass_time(200_000)
    reason = "the node's guard is not there: the guard has gone"
    assert world.heard == [wire.Refused(run(1).order, "failed", reason)]
    world.connect()  # nothing was recorded: the same order may still be obeyed
    prepared(world)
    assert world.heard[-1] == wire.Prepared(run(1).order)


@pytest.mark.parametrize("obeyed", [0, 1])
def test_a_guard_that_dies_while_it_prepares_is_asked_once_more_when_it_is_back(world: World, obeyed: int) -> None:
    """On a machine of one node a job ended as "launch failed" for it. (Found live: ``./run campaign folds``.)"""
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    world.lose_guard(asked=obeyed)
    assert world.heard == []
    world.pass_time(4_900_000)
    world.settle()
    assert world.heard == [wire.Prepared(run(1).order)]
    world.order(run())
    world.settle()
    assert world.heard[1:] == [wire.Started(run().order, 4711)]
    assert world.files_removed == []


def test_a_guard_that_dies_twice_while_it_prepares_leaves_the_order_refused(world: World) -> None:
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    world.lose_guard()
    world.connect()
    world.guard_works()  # what was half made is taken away
    world.guard_is_heard()
    assert [type(request) for _, request in world.to_guard] == [fx.PrepareGroup]
    world.lose_guard()
    assert world.heard == [wire.Refused(run(1).order, "failed", "the guard has gone")]
    assert world.files_removed == [KEY]


def test_what_another_cluster_has_ended_is_not_prepared_by_a_guard_that_is_back(world: World) -> None:
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    world.lose_guard()
    assert world.welcome(wire.Fence("another", wire.TAKE_OVER_EPOCH, "its scheduler"))
    world.settle()
    refused = wire.Refused(run(1).order, "stale", "job 5.1 was ended while it was being prepared")
    assert (world.guard.groups, refused in world.heard) == ({}, True)
    assert world.core is not None
    assert world.core.reports() == ()


def test_a_guard_that_stays_away_after_it_died_while_it_prepared_leaves_the_order_refused(world: World) -> None:
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    world.lose_guard()
    world.pass_time(5_100_000)
    reason = "the node's guard is not there: the guard has gone"
    assert world.heard == [wire.Refused(run(1).order, "failed", reason)]


@pytest.mark.parametrize(("obeyed", "pid"), [(1, 0), (0, 4711)])
def test_a_guard_that_dies_before_it_says_that_a_script_runs_leaves_it_started_once(
    world: World, obeyed: int, pid: int
) -> None:
    """It says so when it is back; or it has not heard of it, and is asked once more."""
    prepared(world)
    world.order(run())
    world.lose_guard(asked=obeyed)
    assert world.heard[1:] == []
    world.settle()
    assert world.heard[1:] == [wire.Started(run().order, pid)]
    world.order(run())
    assert world.heard[-1] == wire.Started(run().order, pid)
    assert world.guard.started[KEY, 0] == 1


def test_script_on_its_way_to_its_start_is_not_reported_as_started(world: World) -> None:
    """A guard that had not answered within 20 s was taken for gone, and its list for the word that the script ran."""
    prepared(world)
    world.order(run())
    (number, spawn) = world.to_guard.popleft()
    world.connected = False
    world.hand_in(happened.GuardLost("it has not answered"))
    world.connected = True
    there = happened.Group(KEY, alive=True, commands=(happened.Command(0, begun=False),))
    world.hand_in(happened.GuardReports((there,)))
    assert world.heard[1:] == []
    (again, same) = world.to_guard.popleft()
    assert same == spawn, "asked again: the guard answers when it knows"
    world.hand_in(happened.Replied(number, Done(4711)))  # nobody waits for that any more
    world.hand_in(happened.Replied(again, Declined("unrun", "/data on /data does not answer")))
    assert world.heard[1:] == [wire.Refused(run().order, "unrun", "/data on /data does not answer")]
    assert world.core is not None
    assert world.core.reports()[0].state == "prepared"


def test_stall_is_in_each_heartbeat_until_the_group_is_empty(world: World) -> None:
    started(world)
    assert world.core is not None
    stall = Stall("ann", 2, processes=(StalledProcess(7, mount="/data"),))
    world.hand_in(happened.GroupStalled(KEY, 1_000_000, stall))
    signs = wire.JobSigns(*KEY, "blocks", 3)
    told = msgspec.structs.replace(stall, for_us=4_000_000)
    assert world.core.signed([signs], 5_000_000) == (msgspec.structs.replace(signs, stall=told),)
    (alone,) = world.core.signed([], 5_000_000)
    assert (alone.job_id, alone.attempt, alone.stall) == (*KEY, told), "also where nothing else is seen of it"
    world.lose_guard()
    assert world.core.signed([], 5_000_000) != (), "a guard that is away ends nothing"
    world.connect()
    assert world.core.signed([], 5_000_000) != ()
    world.order(kill())
    world.settle()
    assert world.core.signed([signs], 5_000_000) == (signs,)


def test_an_agent_killed_before_it_has_written_that_a_script_runs_does_not_start_it_again(world: World) -> None:
    prepared(world)
    world.order(run())
    world.guard_works()
    world.die()
    world.start()
    assert world.welcome(FENCE)
    world.order(run())
    world.settle()
    assert world.heard[-1] == wire.Started(run().order, 0)
    assert world.guard.started[KEY, 0] == 1


def test_emptiness_that_the_guard_told_before_a_kill_is_not_the_end(world: World) -> None:
    """The script has ended, and a command is being started, when the kill comes."""
    started(world)
    world.guard_ends(KEY, wire.Exit(0))
    world.hand_in(happened.CommandWanted(1, KEY, ("sh",), "x"))
    world.order(kill())
    world.guard_is_heard()
    world.guard_is_heard()
    assert world.heard[-1] == wire.ProgramEnded(5, 1, wire.Exit(0), b"the last words")
    world.guard_works()
    assert world.guard.running(KEY) == {1}
    world.settle()
    assert world.heard[-1:] == [END]
    assert world.guard.running(KEY) == set()


def test_a_kill_without_a_guard_is_carried_out_when_it_is_back_also_by_the_next_agent(world: World) -> None:
    started(world)
    world.lose_guard()
    world.order(kill())
    assert "job 5.1 will be killed when the guard is back: no guard" in world.said
    world.die()
    world.start()
    world.welcome(FENCE)
    assert world.guard.running(KEY) == {0}
    world.settle()
    assert world.heard == [wire.ProgramEnded(5, 1, KILLED, b"the last words"), END]


def test_an_agent_killed_before_the_guard_has_answered_a_kill_leaves_it_to_the_next(world: World) -> None:
    started(world)
    world.order(kill())
    world.to_guard.clear()  # what was sent did not arrive
    world.die()
    world.start()
    world.welcome(FENCE)
    world.settle()
    assert world.heard == [wire.ProgramEnded(5, 1, KILLED, b"the last words"), END]


def test_what_was_told_is_on_disk(world: World) -> None:
    """The next agent tells it again before it has reached a guard."""
    started(world)
    world.guard_ends(KEY, wire.Exit(3))
    ended: list[wire.FromAgent] = [wire.ProgramEnded(5, 1, wire.Exit(3), b"the last words")]
    for last, state in ((ended[0], "running"), (END, "ended")):
        while last not in world.heard:
            world.guard_works()
            world.guard_kills()
            world.guard_is_heard()
        world.die()
        world.start()
        assert world.core is not None
        assert [each.state for each in world.core.reports()] == [state]
        world.welcome(FENCE)
        assert world.heard == (ended if state == "running" else [*ended, END])
        world.connect()
        if state == "running":
            world.order(kill())


def test_a_forget_that_was_refused_may_be_asked_again_under_its_number(world: World) -> None:
    started(world)
    world.order(order(wire.Forget, 3))
    world.settle()
    assert [type(each) for each in world.heard[2:]] == [wire.Refused]
    world.guard_ends(KEY, wire.Exit(0))
    world.settle()
    world.order(order(wire.Forget, 3))
    world.settle()
    world.welcome(FENCE)
    assert world.heard == []


def test_what_was_never_prepared_is_empty_at_once_and_cannot_come_later(world: World) -> None:
    world.lose_guard()
    world.order(run())
    assert world.heard.pop() == wire.Refused(run().order, "unknown", "the job was not prepared here")
    world.order(kill())
    assert world.heard == [END]
    for n in (3, 9):
        world.order(kill(n))
    assert world.heard == [END, END, END]
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    assert world.heard[-1] == wire.Refused(run(1).order, "stale", "order 9 was obeyed already")
    assert world.complaints["stale"] == 1


def test_what_the_guard_has_although_it_was_said_to_have_ended_is_killed(world: World) -> None:
    world.order(kill())
    world.guard.ask(fx.PrepareGroup(KEY, prepare(FENCE, wire.OrderId(*KEY, 1))))
    world.guard.ask(fx.Spawn(KEY, 0, prepare(FENCE, wire.OrderId(*KEY, 1)), ("script",), b""))
    world.lose_guard()
    world.connect()
    world.settle()
    assert world.guard.running(KEY) == set()
    assert world.heard == [END, wire.ProgramEnded(5, 1, KILLED, b"the last words")]


def test_what_only_the_guard_knew_is_made_ready_by_the_same_order(world: World) -> None:
    """The agent was killed when the guard had made it ready. (Found live: it was "still here".)"""
    ready = prepare(FENCE, wire.OrderId(*KEY, 1))
    world.welcome(FENCE)
    world.guard.ask(fx.PrepareGroup(KEY, ready))
    world.die()
    world.start()
    world.connect()
    world.welcome(FENCE)
    world.order(ready)
    world.settle()
    assert world.heard[-1] == wire.Prepared(ready.order)
    other = msgspec.structs.replace(prepare(FENCE, wire.OrderId(*KEY, 2)), tasks=7)
    world.order(other)
    assert world.heard[-1:] == [wire.Refused(other.order, "busy", "job 5.1 is still here")]


def test_what_is_being_prepared_is_reported() -> None:
    """Else its answer, said before the scheduler listens, is lost, and who wants it no more. (Found by faults.)"""
    world = World()
    assert world.welcome(FENCE)
    assert world.core is not None
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    assert world.core.reports() == (wire.GroupReport(5, 1, "found", 0),)
    world.connect()
    world.settle()
    assert world.heard == [wire.Prepared(wire.OrderId(*KEY, 1))]
    assert world.core.reports() == (wire.GroupReport(5, 1, "prepared", 1),)


def test_what_could_not_be_prepared_is_not_reported() -> None:
    world = World()
    assert world.welcome(FENCE)
    assert world.core is not None
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    world.pass_time(60_000_000)
    assert [type(each) for each in world.heard] == [wire.Refused]
    assert world.core.reports() == ()


def test_what_only_the_guard_knew_is_reported_and_can_be_killed(world: World) -> None:
    prepared(world)
    world.records.clear()
    world.die()
    world.start()
    world.connect()
    assert world.core is not None
    assert world.core.reports() == (wire.GroupReport(5, 1, "found", 0),)
    world.die()
    world.start()
    assert world.core.reports() == (wire.GroupReport(5, 1, "found", 0),)
    world.welcome(FENCE)
    world.order(kill())
    world.settle()
    assert world.heard == [END]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"no_room": "the disk is full"}, "failed", "the disk is full"),
        ({"no_room": "the disk is full", "no_descriptors": True}, "busy", "the disk is full"),
    ],
)
def test_the_nodes_own_reasons_to_refuse(world: World, change: dict[str, Any], code: str, message: str) -> None:
    for name, value in change.items():
        setattr(world, name, value)
    prepared(world)
    assert world.heard == [wire.Refused(run(1).order, code, message)]
    assert world.records == {}, "the same order may come again"


def test_the_guards_reason_is_recorded_and_repeated(world: World) -> None:
    world.guard.ask(fx.PrepareGroup(KEY, prepare(FENCE, wire.OrderId(*KEY, 9))))
    prepared(world)
    refused = wire.Refused(run(1).order, "busy", "attempt 1 at job 5 is here already")
    assert world.files_removed == [KEY]
    prepared(world)
    assert world.heard == [refused, refused]
    assert list(world.records) == [KEY]


def test_what_the_guard_does_not_know_any_more_has_ended_when_it_is_killed(world: World) -> None:
    started(world)
    world.guard.groups.clear()
    world.order(kill())
    world.settle()
    assert world.heard[2:] == [wire.ProgramEnded(5, 1, wire.Exit(cause="unknown"), b"the last words"), END]


def test_the_end_of_another_command_is_not_the_end_of_the_script(world: World) -> None:
    started(world)
    world.hand_in(happened.CommandWanted(1, KEY, ("sh",), "x"))
    world.settle()
    world.guard_ends(KEY, wire.Exit(3), 1)
    world.settle()
    assert [type(each) for each in world.heard] == [wire.Prepared, wire.Started]


@pytest.mark.parametrize(
    "event",
    [
        happened.GroupEmpty(KEY, 0, 0),
        happened.GuardReports(
            (happened.Group(KEY, False, (happened.Command(0, KILLED), happened.Command(1, KILLED))),)
        ),
    ],
)
def test_end_of_an_attempt_that_is_discarded_meanwhile_is_not_told(world: World, event: happened.Input) -> None:
    started(world)
    world.order(kill())
    world.guard_works()
    world.guard_is_heard()
    assert world.core is not None
    (ask,) = world.core.handle(event, 0)
    assert isinstance(ask, fx.AskNode)
    world.guard.groups.clear()
    world.order(order(wire.Discard, 4))
    world.guard_works()
    world.guard_is_heard()
    assert world.core.get(*KEY) is None
    assert world.core.handle(happened.Replied(ask.number, ErrorTail(b"")), 0) == []
    assert world.core.get(*KEY) is None


def test_played_agent_ends_jobs_of_the_cluster_before_and_hangs_up_on_a_scheduler_before() -> None:
    later: list[tuple[int, Callable[[], None]]] = []
    hung_up: list[str] = []
    agent = PlayedAgent(
        AgentCore("a", "boot"),
        GuardModel(),
        Player(),
        lambda blob: msgspec.msgpack.decode(blob, type=Grant),
        lambda fence: None,
        lambda after_us, call: later.append((after_us, call)),
        lambda: 0,
    )
    agent.hang_up = hung_up.append
    agent.hand_in(happened.Welcomed(FENCE, 1))
    for each in (prepare(FENCE, wire.OrderId(*KEY, 1)), run()):
        agent.hand_in(happened.Ordered(each))
    agent.hand_in(happened.Welcomed(wire.Fence("another", wire.TAKE_OVER_EPOCH, "its scheduler"), 1))
    ((after_us, sweep),) = later
    assert (after_us, agent.guard.running(KEY), hung_up) == (500_000, set(), [])
    sweep()
    assert list(agent.core.attempts) == []
    agent.hand_in(happened.Welcomed(FENCE, 1))
    assert len(hung_up) == 1


def test_work_that_raises_leaves_its_lane_to_the_next() -> None:
    memory = Memory("a", "boot", None, ())
    works = Works(memory)

    def fails() -> Steps[None]:
        yield Pause(1)
        raise ZeroDivisionError

    def waits() -> Steps[None]:
        yield Pause(2)

    works.begin(fails(), "lane")
    works.begin(waits(), "lane")
    with pytest.raises(ZeroDivisionError):
        works.replied(1, Done())
    assert memory.effects == [fx.SetTimer(1, 1), fx.SetTimer(2, 2)]


def test_the_model_of_the_guard_moves_a_group_to_a_processor_that_comes_free() -> None:
    guard = GuardModel(procs=2)
    for job_id in (1, 2, 3):
        ready = msgspec.structs.replace(prepare(FENCE, wire.OrderId(job_id, 1, 1)), cpus=1)
        guard.ask(fx.PrepareGroup((job_id, 1), ready))
        guard.ask(fx.Spawn((job_id, 1), 0, ready, ("script",), b""))
    assert [guard.groups[each, 1].processors for each in (1, 2, 3)] == [(0,), (1,), (0,)]
    guard.ask(fx.KillGroup((2, 1), 0))
    guard.carry_out_kills()
    assert sorted(guard.groups[each, 1].processors for each in (1, 3)) == [(0,), (1,)]


def test_what_was_forgotten_without_a_kill_is_not_mentioned_again(world: World) -> None:
    started(world)
    world.guard_ends(KEY, wire.Exit(0))
    world.settle()
    world.order(order(wire.Forget, 3))
    world.settle()
    before = list(world.heard)
    world.lose_guard()
    world.connect()
    world.settle()
    assert world.heard == before


@pytest.mark.parametrize("by_kill", [True, False])
def test_what_is_forgotten_is_not_made_ready_again(world: World, by_kill: bool) -> None:
    """A scheduler that asks for it has lost its last moments: the script has run."""
    started(world)
    world.guard_ends(KEY, wire.Exit(0))
    if by_kill:
        world.order(kill())
    world.settle()
    world.order(order(wire.Forget, 4))
    world.settle()
    again = wire.OrderId(*KEY, 11)
    world.order(prepare(FENCE, again))
    assert world.heard[-1] == wire.Refused(again, "busy", "job 5.1 is still here")
    world.order(kill(12))
    world.settle()
    assert world.heard[-1:] == [END]
    assert world.guard.started[KEY, 0] == 1


def test_an_attempt_is_forgotten_only_when_nothing_runs(world: World) -> None:
    started(world)
    world.order(order(wire.Forget, 3))
    world.settle()
    assert world.heard[-1] == wire.Refused(run(3).order, "busy", "attempt 1 at job 5 is alive; kill it first")
    world.order(kill(4))
    world.settle()
    world.order(order(wire.Forget, 5))
    world.settle()
    world.welcome(FENCE)
    assert world.heard == []


@pytest.mark.parametrize(("asked", "reply"), [(0, Declined(AWAY, "the guard has gone")), (1, Done(4712))])
def test_commands_beside_the_script(world: World, asked: int, reply: Any) -> None:
    want = happened.CommandWanted(1, KEY, ("sh",), "x")
    world.hand_in(want)
    assert world.commands[1] == Declined("unknown", "job 5.1 was not prepared here")
    prepared(world)
    world.hand_in(want)
    if asked:
        world.settle()
    else:
        world.lose_guard()
    assert world.commands[1] == reply
    world.settle()
    world.order(kill())
    world.hand_in(want)
    assert world.commands[1] == Declined("stale", "job 5.1 is being killed")


def test_the_model_of_the_guard_starts_a_command_once_and_none_after_a_kill() -> None:
    guard = GuardModel()
    spawn = fx.Spawn(KEY, 0, prepare(FENCE, wire.OrderId(*KEY, 1)), ("script",), b"")
    assert guard.ask(spawn) == Declined("unknown", "attempt 1 at job 5 is not known here")
    assert guard.ask(fx.PrepareGroup(KEY, spawn.prepare)) == Done()
    assert guard.ask(spawn) == Done(4711)
    assert guard.ask(spawn) == Declined("busy", "command 0 has been started already")
    guard.ask(fx.KillGroup(KEY, 0))
    assert guard.ask(numbered(spawn, n=1)) == Declined("stale", "attempt 1 at job 5 is ending")
    assert guard.ask(fx.ForgetGroup(KEY)) == Declined("busy", "attempt 1 at job 5 is alive; kill it first")
    guard.carry_out_kills()
    assert guard.events() == [happened.CommandEnded(KEY, 0, KILLED), happened.GroupEmpty(KEY)]
    guard.ask(fx.KillGroup(KEY, 0))
    guard.carry_out_kills()
    assert guard.events() == [happened.GroupEmpty(KEY)], "each kill is followed by the word that nothing is left"
    assert guard.ask(fx.ForgetGroup(KEY)) == Done()


def numbered(spawn: fx.Spawn, n: int) -> fx.Spawn:
    return fx.Spawn(spawn.key, n, spawn.prepare, spawn.argv)
