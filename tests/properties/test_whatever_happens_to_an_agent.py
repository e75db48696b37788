"""Whatever happens to an agent: late and doubled orders in any order, crashes between any two effects.

Orders come from schedulers of rising epochs, and from old ones; the agent is killed at random effects, and the next
one has what was written down. In the end everything arrives, and a scheduler that still wants something asks again.
"""

from collections import Counter

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.agent_world import CLUSTER, World, prepare

from cosched.wire import messages as wire
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.attempt import Key

KEYS: list[Key] = [(1, 1), (1, 2)]
KINDS: tuple[type[wire.Order], ...] = (wire.Prepare, wire.Run, wire.Run, wire.Kill, wire.Forget, wire.Discard)
#: The order in which a scheduler asks, before whatever else a test sends.
NUMBERS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8)
USUAL: dict[int, type[wire.Order]] = {1: wire.Prepare, 2: wire.Run, 3: wire.Kill, 4: wire.Forget, 5: wire.Discard}


def order_of(fence: wire.Fence, key: Key, n: int, kind: type[wire.Order]) -> wire.Order:
    order = wire.OrderId(*key, n)
    if kind is wire.Prepare:
        return prepare(fence, order)
    if kind is wire.Run:
        return wire.Run(fence, order, b"#!/bin/sh\n", ())
    if kind is wire.Resize:
        as_prepared = prepare(fence, order)
        return wire.Resize(fence, order, 1 + order.n, order.n % 3 or None, as_prepared.peers, as_prepared.grant)
    if kind is wire.Kill:
        return wire.Kill(fence, order, 0)
    return kind(fence, order)


class AgentMachine(RuleBasedStateMachine):
    """One node, and whoever gives it orders; a job's share is what the newest order says that was obeyed, not back."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.fence = wire.Fence(CLUSTER, 1, "scheduler 1")
        self.kinds: dict[tuple[Key, int], type[wire.Order]] = {}
        self.seen = 0
        self.killed: set[Key] = set()  # said to have ended
        self.answers: dict[tuple[Key, int], wire.FromAgent] = {}
        self.commands = 0
        self.newest: dict[Key, int] = {}  # of the shares that were said to hold
        self.looked = 0

    # --- what happens -------------------------------------------------------------------------------------------------

    @initialize(connected=st.booleans(), linked=st.integers(0, 3))
    def it_begins(self, connected: bool, linked: int) -> None:
        if connected:
            self.world.connect()
        if linked:
            self.world.welcome(self.fence)

    @rule(key=st.sampled_from(KEYS), n=st.sampled_from(NUMBERS), kind=st.sampled_from(KINDS))
    def an_order_arrives(self, key: Key, n: int, kind: type[wire.Order]) -> None:
        """A number means one order only, whenever it comes."""
        self._asks(key, n, USUAL.get(n, kind))

    def _asks(self, key: Key, n: int, kind: type[wire.Order]) -> None:
        self.world.order(order_of(self.fence, key, n, self.kinds.setdefault((key, n), kind)))

    @rule(key=st.sampled_from(KEYS), words=st.integers(0, 3))
    def a_job_is_launched(self, key: Key, words: int) -> None:
        """As far as it gets while the guard says so many words."""
        for n in (1, 2):
            self._asks(key, n, USUAL[n])
            for _ in range(words):
                self.world.guard_works()
                self.world.guard_is_heard()

    @rule(key=st.sampled_from(KEYS), n=st.integers(1, 8), back=st.integers(1, 3), kind=st.sampled_from(KINDS))
    def an_order_of_an_old_scheduler_arrives(self, key: Key, n: int, back: int, kind: type[wire.Order]) -> None:
        core = self.world.core
        assume(core is not None)
        assert core is not None
        before = [*core.attempts], dict(self.world.records), len(self.world.to_guard)
        epoch = core.fence.epoch if core.fence else 1
        same_epoch = wire.Fence(CLUSTER, epoch, "its double")
        fence = wire.Fence(CLUSTER, epoch - back, f"scheduler {epoch - back}")
        for stranger in (fence, same_epoch):
            said = self.world.order(order_of(stranger, key, n, kind))
            if self.world.core is core:
                refused = [each for each in said if isinstance(each, wire.Refused)]
                busy = ("orders", key) in core._works._lanes
                assert busy or [each.code for each in refused] == ["fenced"], said
        if self.world.core is core:
            assert ([*core.attempts], self.world.records, len(self.world.to_guard)) == before

    @rule(key=st.sampled_from(KEYS), n=st.sampled_from((3, 4, 6, 7, 8)), double=st.booleans())
    def a_share_is_to_change(self, key: Key, n: int, double: bool) -> None:
        if self.kinds.setdefault((key, n), wire.Resize) is wire.Resize:
            for _ in range(1 + double):
                self.world.order(order_of(self.fence, key, n, wire.Resize))

    @rule(key=st.sampled_from(KEYS), numbers=st.lists(st.sampled_from((3, 4, 6)), min_size=2, max_size=4))
    def shares_follow_each_other(self, key: Key, numbers: list[int]) -> None:
        """As far as the job is there, and with orders among them that come again, and late."""
        for n in (1, *numbers):
            kind = self.kinds.setdefault((key, n), wire.Prepare if n == 1 else wire.Resize)
            self.world.order(order_of(self.fence, key, n, kind))
            self.world.settle()

    @rule()
    def a_scheduler_welcomes(self) -> None:
        self.world.welcome(self.fence)

    @rule(double=st.booleans())
    def a_scheduler_starts_anew(self, double: bool) -> None:
        old, epoch = self.fence, self.fence.epoch + 1
        self.fence = wire.Fence(CLUSTER, epoch, f"scheduler {epoch}")
        if self.world.welcome(self.fence):
            for stale in (old, wire.Fence(CLUSTER, epoch, "its double")) if double else (old,):
                assert not self.world.welcome(stale)
            assert self.world.core is None or self.world.core.fence == self.fence

    @rule(key=st.sampled_from(KEYS))
    def a_command_is_wanted(self, key: Key) -> None:
        self.commands += 1
        self.world.hand_in(happened.CommandWanted(self.commands, key, ("sh",), "x"))

    @rule(key=st.sampled_from(KEYS), status=st.integers(0, 3), n=st.integers(0, 2))
    def a_command_ends(self, key: Key, status: int, n: int) -> None:
        self.world.guard_ends(key, wire.Exit(status), n)

    @rule()
    def the_guard_takes_a_request(self) -> None:
        self.world.guard_works()

    @rule()
    def the_guard_is_heard(self) -> None:
        self.world.guard_is_heard()

    @rule()
    def the_guard_kills(self) -> None:
        self.world.guard_kills()

    @rule()
    def the_guard_is_reached(self) -> None:
        self.world.connect()

    @rule(asked=st.integers(0, 2))
    def the_guard_goes(self, asked: int) -> None:
        self.world.lose_guard(asked=asked)

    @rule(effects=st.integers(0, 6))
    def the_agent_dies_soon(self, effects: int) -> None:
        self.world.dies_in = effects

    @precondition(lambda self: self.world.core is None)
    @rule()
    def an_agent_starts(self) -> None:
        self.world.start()

    @rule(us=st.sampled_from([100_000, 600_000, 6_000_000]))
    def time_passes(self, us: int) -> None:
        self.world.pass_time(us)

    @rule()
    def everything_arrives(self) -> None:
        self.world.settle()

    @precondition(lambda self: self.world.core is not None)
    @rule()
    def the_machine_starts_anew(self) -> None:
        self.world.reboot()

    # --- what holds at every moment -----------------------------------------------------------------------------------

    @invariant()
    def what_is_said_is_consistent(self) -> None:
        world = self.world
        for message in world.history[self.seen :]:
            if isinstance(message, fx.Drop):
                self._dropped(message.key)
            elif isinstance(message, wire.GroupEnded):
                self.killed.add((message.job_id, message.attempt))
            elif isinstance(message, wire.Prepared | wire.Started):
                which = (message.order.job_id, message.order.attempt), message.order.n
                assert self.answers.setdefault(which, message) == message
            elif isinstance(message, wire.Refused) and message.code != "fenced":
                which = (message.order.job_id, message.order.attempt), message.order.n
                assert which not in self.answers, f"{self.answers[which]}, then {message}"
        self.seen = len(world.history)

    def _dropped(self, key: Key) -> None:
        """The scheduler wanted nothing of it any more: as far as the node knows, its numbers may begin anew."""
        self.killed.discard(key)
        self.answers = {which: answer for which, answer in self.answers.items() if which[0] != key}
        for which in [which for which in self.world.guard.started if which[0] == key]:
            del self.world.guard.started[which]

    @invariant()
    def no_script_has_run_twice(self) -> None:
        for (key, n), count in self.world.guard.started.items():
            assert count == 1, f"command {n} of {key} was started {count} times"

    @invariant()
    def after_the_word_that_all_has_ended_nothing_runs(self) -> None:
        for key in self.killed:
            assert not self.world.guard.running(key), f"{key} runs, and was said to have ended"

    @invariant()
    def no_older_share_is_said_to_hold(self) -> None:
        world = self.world
        for message in world.history[self.looked :]:
            if isinstance(message, fx.Drop):
                self.newest.pop(message.key, None)
            elif isinstance(message, wire.Resized):
                key = message.order.job_id, message.order.attempt
                assert message.order.n >= self.newest.get(key, 0), f"{message}, after {self.newest[key]}"
                assert len(message.cpus) == message.order.n % 3
                self.newest[key] = message.order.n
        self.looked = len(world.history)

    @invariant()
    def what_was_said_to_hold_is_at_the_guard(self) -> None:
        for key, n in self.newest.items():
            group = self.world.guard.groups.get(key)
            if group is not None and group.resize_order == n:
                assert (group.tasks, group.cpus) == (1 + n, n % 3 or None)
            elif group is not None and group.resize_order:
                assert group.resize_order > n, "an older one was obeyed later"

    # --- in the end ---------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        world = self.world
        world.dies_in = None
        world.settle()
        self.fence = wire.Fence(CLUSTER, self.fence.epoch + 1, "the last")
        assert world.welcome(self.fence)
        for which, kind in sorted(self.kinds.items(), key=lambda item: item[0]):
            self._is_answered(order_of(self.fence, *which, kind))
        for key in KEYS:
            self._ends(key)
        assert not world.records
        assert not [key for key in KEYS if world.guard.running(key)]
        self.what_is_said_is_consistent()

    def _is_answered(self, order: wire.Order) -> None:
        """Asked (again), an order that has an answer gets it, and always the same."""
        said = []
        for _ in range(2):
            before = len(self.world.heard)
            self.world.order(order)
            self.world.settle()
            said.append([each for each in self.world.heard[before:] if getattr(each, "order", None) == order.order])
        if isinstance(order, wire.Prepare | wire.Run):
            assert len(said[0]) == 1, said
            assert said[0] == said[1]

    def _ends(self, key: Key) -> None:
        """Killed, it reports its end, once on each link until it is forgotten; then it is not mentioned."""
        world = self.world
        self.world.order(wire.Kill(self.fence, wire.OrderId(*key, 100), 0))
        world.settle()
        ended = wire.GroupEnded(*key)
        core = world.core
        assert core is not None
        attempt = core.get(*key)
        assert attempt is not None
        forgotten = attempt.forgotten
        assert (ended in world.heard) or forgotten, world.said
        for _ in range(2):
            assert world.welcome(self.fence)
            counted = Counter(each for each in world.heard if isinstance(each, wire.GroupEnded | wire.ProgramEnded))
            assert counted[ended] == (0 if forgotten else 1)
            assert max(counted.values(), default=1) == 1
        for n, kind in ((101, wire.Forget), (102, wire.Discard)):
            assert not forgotten or key not in {(each.job_id, each.attempt) for each in core.reports()}
            self.world.order(kind(self.fence, wire.OrderId(*key, n)))
            world.settle()
            assert world.welcome(self.fence)
            assert ended not in world.heard
            forgotten = True


AgentMachine.TestCase.settings = settings(
    max_examples=settings().max_examples * 3 // 2, stateful_step_count=50, deadline=None
)
TestAgent = AgentMachine.TestCase
