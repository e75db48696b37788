"""The rules of orders: the fence first, then the number, then the deed, then the answer (``wire.messages``)."""

from collections.abc import Callable

from cosched.wire.messages import (
    Adapt,
    Discard,
    Forget,
    FromAgent,
    Kill,
    Order,
    Prepare,
    Prepared,
    Refused,
    Resize,
    Run,
    Started,
)
from node_agent.core import effects as fx
from node_agent.core.attempt import STREAMS, Answer, Attempt, Key, key_name
from node_agent.core.fence import Fenced, check_order
from node_agent.core.groups import SCRIPT, GroupRules
from node_agent.core.maps import adapting, shown
from node_agent.core.memory import Memory
from node_agent.core.reshaping import fitting_grant, opened, renewed, reshaped
from node_agent.core.works import GUARD_WAIT_US, GuardAway, GuardWait, Refusal, Steps, Unable, asked


def order_key(order: Order) -> Key:
    """The attempt that an order is about."""
    return order.order.job_id, order.order.attempt


class OrderRules:
    """Obeys orders, each once. Those of one attempt have to be begun one after another."""

    def __init__(self, memory: Memory, groups: GroupRules, complain: Callable[[str, str], None]) -> None:
        self._memory = memory
        self._groups = groups
        self._complain = complain

    def obey(self, message: Order) -> Steps[None]:
        """Obey one order and tell the scheduler what came of it."""
        answer = yield from self._answered(message)
        if answer is not None:
            self._memory.tell(answer)

    def _answered(self, message: Order) -> Steps[FromAgent | None]:
        order = message.order
        try:
            check_order(self._memory.fence, message.fence)
        except Fenced as error:
            self._complain("fenced", str(error))
            return Refused(order, "fenced", str(error))
        attempt = self._memory.get(order_key(message))
        if attempt is not None and attempt.cluster_id not in ("", message.fence.cluster_id):
            return Refused(order, "busy", f"job {attempt.key} of the cluster before is still here")
        if attempt is not None and order.n <= attempt.last_order:
            return self._again(attempt, message)
        answer = yield from self._done(message)
        self._record(message, answer)
        return answer

    def _done(self, message: Order) -> Steps[Answer | None]:
        """The answer to an order that is new, also where it could not be obeyed."""
        try:
            return (yield from self._do(message, self._memory.get(order_key(message))))
        except Refusal as error:
            code, words = error.code, str(error)
        except (GuardAway, Unable) as error:
            code, words = "failed", str(error)
        if code == "failed":
            try:
                yield from asked(fx.LookForDescriptors())
            except Unable:
                code = "busy"  # it passes: nobody's node is at fault
        name = f"job {key_name(*order_key(message))}"
        self._memory.say("warn", f"{name}: {type(message).__name__} refused: {words}")
        return Refused(message.order, code, words)

    def _again(self, attempt: Attempt, message: Order) -> FromAgent | None:
        """What was answered to an order that was obeyed before."""
        if isinstance(message, Kill):
            return attempt.ended  # None: it will be told when it happens
        if (answer := attempt.answers.get(message.order.n)) is not None:
            return answer
        if isinstance(message, Forget | Discard):
            return None
        self._complain("stale", f"order {message.order}, after {attempt.last_order}")
        return Refused(message.order, "stale", f"order {attempt.last_order} was obeyed already")

    def _record(self, message: Order, answer: Answer | None) -> None:
        attempt = self._memory.get(order_key(message))
        if attempt is None:
            return
        if isinstance(message, Forget) and isinstance(answer, Refused):
            return  # it may be asked again
        n, answers = message.order.n, dict(attempt.answers)
        if answer is not None:
            answers[n] = answer
        resize_order = attempt.resize_order
        if isinstance(message, Resize):  # what was answered to the one before holds no more
            answers.pop(resize_order, None)
            resize_order = n
        self._memory.keep(attempt, last_order=n, answers=answers, resize_order=resize_order)

    def _do(self, message: Order, attempt: Attempt | None) -> Steps[Answer | None]:
        if isinstance(message, Prepare):
            return (yield from self._prepare(message, attempt))
        if isinstance(message, Run):
            return (yield from self._run(message, attempt))
        if isinstance(message, Resize):
            return (yield from reshaped(self._memory, message, attempt))
        if isinstance(message, Adapt):
            return (yield from adapting(self._memory, message, attempt))
        if isinstance(message, Kill):
            yield from self._kill(message, attempt)
        elif isinstance(message, Forget):
            if attempt is not None and not attempt.forgotten:
                yield from self._groups.forget(attempt.id)
        elif isinstance(message, Discard):
            yield from self._discard(message, attempt)
        else:
            raise Refusal("unknown", f"no such order: {type(message).__name__}")
        return None

    def _prepare(self, message: Prepare, attempt: Attempt | None) -> Steps[Answer]:
        key, memory = order_key(message), self._memory
        if attempt is not None and not attempt.found:
            return (yield from renewed(memory, message, attempt))
        yield from fitting_grant(memory.node, message, message.user)
        memory.making_ready.add(key)
        try:
            yield from asked(GuardWait(GUARD_WAIT_US))
            yield from asked(fx.MakeReady(key, message.peers))
            made = memory.get(key) or memory.new(key, message.fence.cluster_id)
            made = memory.change(made, cluster_id=message.fence.cluster_id)
            try:
                asleep = message.map is not None and not message.map.enabled.get(memory.node)
                yield from self._group_prepared(fx.PrepareGroup(key, message, asleep))
            except (GuardAway, Refusal, Unable):
                memory.effects.append(fx.RemoveFiles(key))
                raise
        finally:
            memory.making_ready.discard(key)
        made = memory.change(memory.get(key) or made, prepare=message, map=message.map, asleep=asleep)
        if message.map is not None:
            yield from shown(made, message.map)
        on = "" if message.cpus is None else f" on {message.cpus} CPUs"
        memory.say("info", f"job {made.key}: prepared for {message.user}, {message.tasks} tasks{on} here")
        return Prepared(message.order)

    def _group_prepared(self, request: fx.PrepareGroup) -> Steps[None]:
        """Have the guard prepare a group; once more, when it is back, where it has gone before it answered."""
        try:
            yield from asked(request)
        except GuardAway as error:
            yield from self._guard_back(request.key, error)
            try:
                yield from asked(fx.ForgetGroup(request.key))  # what there is of it may be half made
            except Refusal as refusal:
                if refusal.code != "unknown":
                    raise
            attempt = self._memory.get(request.key)
            if attempt is None or attempt.asked_kill_us is not None:
                raise Refusal("stale", f"job {key_name(*request.key)} was ended while it was being prepared") from None
            yield from asked(request)

    def _guard_back(self, key: Key, error: GuardAway) -> Steps[None]:
        """Wait for a guard that has gone before it answered."""
        self._memory.say("warn", f"job {key_name(*key)}: its launch goes on when the guard is back: {error}")
        yield from asked(GuardWait(GUARD_WAIT_US))

    def _script_started(self, request: fx.Spawn) -> Steps[int]:
        """Have the guard start the script; its process.

        Where the guard has gone before it answered, what it says when it is back counts: the script runs (0: its
        process is not known), or it is asked once more.
        """
        try:
            done = yield from asked(request)
        except GuardAway as error:
            yield from self._guard_back(request.key, error)
            attempt, _ = opened(self._memory.get(request.key))
            if attempt.ran:
                return 0
            done = yield from asked(request)
        return done.pid

    def _run(self, message: Run, attempt: Attempt | None) -> Steps[Answer]:
        memory, attempt, prepare = self._memory, *opened(attempt)
        yield from asked(GuardWait(GUARD_WAIT_US))
        attempt, prepare = opened(memory.get(attempt.id) or attempt)
        if attempt.ran:  # obeyed just before this agent was killed: never twice
            return Started(message.order, 0)
        named = zip(STREAMS, (message.output, message.error), strict=True)
        elsewhere = {stream: path for stream, path in named if path is not None}
        memory.change(attempt, elsewhere=elsewhere, empty=None)
        spawn = fx.Spawn(
            attempt.id,
            SCRIPT,
            prepare,
            ("script", *message.arguments),
            message.script,
            message.output,
            message.error,
        )
        pid = yield from self._script_started(spawn)
        memory.change(memory.get(attempt.id) or attempt, ran=True)
        memory.say("info", f"job {attempt.key}: its script runs" + (f" as process {pid}" if pid else ""))
        return Started(message.order, pid)

    def _kill(self, message: Kill, attempt: Attempt | None) -> Steps[None]:
        if attempt is None:  # never prepared here: nothing of it may come later either
            made = self._memory.new(order_key(message), message.fence.cluster_id)
            yield from self._groups.never_here(made)
        elif attempt.ended:
            self._memory.tell(attempt.ended)
        else:
            try:
                yield from self._groups.kill(attempt, message.grace_us)
            except GuardAway as error:
                self._memory.say("warn", f"job {attempt.key} will be killed when the guard is back: {error}")

    def _discard(self, message: Discard, attempt: Attempt | None) -> Steps[None]:
        if attempt is None:
            self._memory.effects.append(fx.RemoveOutput(order_key(message)))
            return
        if not attempt.forgotten:
            yield from self._groups.forget(attempt.id)
        self._groups.discard(attempt.id)
