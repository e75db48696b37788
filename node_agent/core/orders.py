"""The rules of orders: the fence first, then the number, then the deed, then the answer (``wire.messages``)."""

from cosched.wire.messages import (
    Adapt,
    Discard,
    Forget,
    FromAgent,
    GroupEnded,
    Kill,
    Order,
    Prepare,
    Prepared,
    Refused,
    Resize,
    Run,
    Started,
)
from cosched.wire.version_4 import files_of
from node_agent.core import effects as fx
from node_agent.core.attempt import STREAMS, Answer, Attempt, Key, key_name
from node_agent.core.fence import order_problem
from node_agent.core.groups import SCRIPT, GroupRules, done_if_known
from node_agent.core.maps import adapting, shown
from node_agent.core.memory import Memory
from node_agent.core.replies import Done
from node_agent.core.reshaping import fitting_grant, opened, renewed, reshaped
from node_agent.core.works import GuardAway, GuardWait, Refusal, Steps


def order_key(order: Order) -> Key:
    """The attempt that an order is about."""
    return order.order.job_id, order.order.attempt


def obey(memory: Memory, groups: GroupRules, message: Order) -> Steps[None]:
    """Obey one order, unless it was obeyed before, and tell the scheduler what came of it.

    Those of one attempt have to be begun one after another.
    """
    order = message.order
    attempt = memory.get(order_key(message))
    if problem := order_problem(memory.fence, message.fence):
        memory.effects.append(fx.Complain("fenced", problem))
        answer: FromAgent | None = Refused(order, "fenced", problem)
    elif attempt is not None and attempt.cluster_id not in ("", message.fence.cluster_id):
        answer = Refused(order, "busy", f"job {attempt.key} of the cluster before is still here")
    elif attempt is not None and order.n <= attempt.last_order:
        answer = _again(memory, attempt, message)
    else:
        answer = yield from _do(memory, groups, message, attempt)
        _record(memory, message, answer)
    if answer is not None:
        memory.effects.append(fx.Tell(answer))


def _do(memory: Memory, groups: GroupRules, message: Order, attempt: Attempt | None) -> Steps[Answer | None]:
    """The answer to an order that is new, also where it could not be obeyed."""
    try:
        match message:
            case Prepare():
                return (yield from _prepare(memory, message, attempt))
            case Run():
                return (yield from _run(memory, message, attempt))
            case Resize():
                return (yield from reshaped(memory, message, attempt))
            case Adapt():
                return (yield from adapting(memory, message, attempt))
            case Kill():
                yield from _kill(memory, groups, message, attempt)
            case Forget() | Discard():
                if attempt is not None and not attempt.forgotten:
                    yield from groups.forget(attempt.id)
                if isinstance(message, Discard):
                    memory.drop(order_key(message))
    except Refusal as error:
        return (yield from _refused(memory, message, error))
    return None


def _refused(memory: Memory, message: Order, error: Refusal) -> Steps[Refused]:
    code = "failed" if isinstance(error, GuardAway) else error.code
    if code == "failed":
        try:
            yield fx.LookForDescriptors()
        except Refusal:
            code = "busy"  # temporary: no node is at fault
    name = f"job {key_name(*order_key(message))}"
    memory.effects.append(fx.Say("warn", f"{name}: {type(message).__name__} refused: {error}"))
    return Refused(message.order, code, str(error))


def _again(memory: Memory, attempt: Attempt, message: Order) -> FromAgent | None:
    """What was answered to an order that was obeyed before."""
    if isinstance(message, Kill):
        return attempt.ended  # None: it will be told when it happens
    if (answer := attempt.answers.get(message.order.n)) is not None:
        return answer
    if isinstance(message, Forget | Discard):
        return None
    memory.effects.append(fx.Complain("stale", f"order {message.order}, after {attempt.last_order}"))
    return Refused(message.order, "stale", f"order {attempt.last_order} was obeyed already")


def _record(memory: Memory, message: Order, answer: Answer | None) -> None:
    attempt = memory.get(order_key(message))
    if attempt is None or (isinstance(message, Forget) and isinstance(answer, Refused)):
        return  # a Forget that was refused may be asked again
    n, answers = message.order.n, dict(attempt.answers)
    if is_resize := isinstance(message, Resize):  # what was answered to the one before holds no more
        answers.pop(attempt.resize_order, None)
    if answer is not None:
        answers[n] = answer
    resize_order = n if is_resize else attempt.resize_order
    memory.keep(attempt, last_order=n, answers=answers, resize_order=resize_order)


def _prepare(memory: Memory, message: Prepare, attempt: Attempt | None) -> Steps[Answer]:
    key = order_key(message)
    if attempt is not None and not attempt.found:
        return (yield from renewed(memory, message, attempt))
    yield from fitting_grant(memory.node, message, message.user)
    memory.making_ready.add(key)
    try:
        yield GuardWait()
        yield fx.MakeReady(key, files_of(message, memory.node), message.peers)
        made = memory.get(key) or memory.new(key, message.fence.cluster_id)
        made = memory.change(made, cluster_id=message.fence.cluster_id)
        try:
            asleep = message.map is not None and not message.map.enabled.get(memory.node)
            yield from _group_prepared(memory, fx.PrepareGroup(key, message, asleep))
        except Refusal:
            memory.effects.append(fx.RemoveFiles(key))
            raise
    finally:
        memory.making_ready.discard(key)
    made = memory.change(memory.get(key) or made, prepare=message, map=message.map, asleep=asleep)
    if message.map is not None:
        yield from shown(made, message.map)
    on = "" if message.cpus is None else f" on {message.cpus} CPUs"
    memory.effects.append(
        fx.Say("info", f"job {made.key}: prepared for {message.user}, {message.tasks} tasks{on} here")
    )
    return Prepared(message.order)


def _group_prepared(memory: Memory, request: fx.PrepareGroup) -> Steps[None]:
    """Have the guard prepare a group; once more, when it is back, where it has gone before it answered."""
    try:
        yield request
    except GuardAway as error:
        yield from _guard_back(memory, request.key, error)
        yield from done_if_known(fx.ForgetGroup(request.key))  # what there is of it may be half made
        attempt = memory.get(request.key)
        if attempt is None or attempt.asked_kill_us is not None:
            raise Refusal("stale", f"job {key_name(*request.key)} was ended while it was being prepared") from None
        yield request


def _guard_back(memory: Memory, key: Key, error: GuardAway) -> Steps[None]:
    """Wait for a guard that has gone before it answered."""
    memory.effects.append(fx.Say("warn", f"job {key_name(*key)}: its launch goes on when the guard is back: {error}"))
    yield GuardWait()


def _script_started(memory: Memory, request: fx.Spawn) -> Steps[int]:
    """Have the guard start the script; its process.

    Where the guard has gone before it answered, what it says when it is back counts: the script runs (0: its
    process is not known), or it is asked once more.
    """
    try:
        done: Done = yield request
    except GuardAway as error:
        yield from _guard_back(memory, request.key, error)
        attempt, _ = opened(memory.get(request.key))
        if attempt.ran:
            return 0
        done = yield request
    return done.pid


def _run(memory: Memory, message: Run, attempt: Attempt | None) -> Steps[Answer]:
    attempt, prepare = opened(attempt)
    yield GuardWait()
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
    pid = yield from _script_started(memory, spawn)
    memory.change(memory.get(attempt.id) or attempt, ran=True)
    memory.effects.append(fx.Say("info", f"job {attempt.key}: its script runs" + (f" as process {pid}" if pid else "")))
    return Started(message.order, pid)


def _kill(memory: Memory, groups: GroupRules, message: Kill, attempt: Attempt | None) -> Steps[None]:
    if attempt is None:  # never prepared here: nothing of it may come later either
        key = order_key(message)
        memory.new(key, message.fence.cluster_id, asked_kill_us=0, empty=GroupEnded(*key))
        yield from groups.close(key)  # at once, guard or none
    elif attempt.ended:
        memory.effects.append(fx.Tell(attempt.ended))
    else:
        try:
            yield from groups.kill(attempt, message.grace_us)
        except GuardAway as error:
            memory.effects.append(fx.Say("warn", f"job {attempt.key} will be killed when the guard is back: {error}"))
