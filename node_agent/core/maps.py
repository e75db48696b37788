"""Maps of malleable jobs: which of their ranks are enabled. Passed on to the ranks here, whose word is passed back.

The newest map is kept, and told to the ranks again by an agent that is started anew. That all ranks have adopted a map
is told once, and again after each welcome: a word that was lost is no reason to wait. Ranks take the newest map at
their start, so a map that comes before them is kept. One that they have adopted before its order came here (another
node was told earlier, and the new leading rank is on this one) is told when the order comes.
"""

from cosched.wire.messages import Adapt, Adapted, Asked, JobMap, Offered
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.attempt import Attempt
from node_agent.core.memory import Memory
from node_agent.core.reshaping import opened
from node_agent.core.works import Refusal, Steps


def adapting(memory: Memory, message: Adapt, attempt: Attempt | None) -> Steps[Offered]:
    """Tell the ranks a map, unless they have a newer one."""
    attempt, _ = opened(attempt)
    if attempt.map is not None and message.map.number < attempt.map.number:
        raise Refusal("stale", f"a map with number {message.map.number}; here is {attempt.map.number}")
    changed = memory.change(attempt, map=message.map)
    joined = yield from shown(attempt, message.map)
    if changed.claimed == message.map.number:
        adapted(memory, happened.RanksAdapted(attempt.id, changed.claimed))
    words = ", ".join(f"{name} {count}" for name, count in message.map.enabled.items())
    told = "told to its ranks" if joined else "and no rank is here to be told"
    memory.effects.append(fx.Say("info", f"job {attempt.key}: map {message.map.number} ({words}), {told}"))
    return Offered(message.order, joined)


def shown(attempt: Attempt, newest: JobMap) -> Steps[bool]:
    """Have a job's ranks here told its map; whether there are any."""
    try:
        yield fx.OfferMap(attempt.id, newest)
    except Refusal:
        return False
    return True


def adapted(memory: Memory, said: happened.RanksAdapted) -> None:
    """All ranks of a job have adopted a map; one that no order gave them yet is not told."""
    attempt = memory.get(said.key)
    if attempt is None or not attempt.open or attempt.map is None or said.number > attempt.map.number:
        if attempt is not None:
            memory.change(attempt, claimed=said.number)
        memory.effects.append(fx.Complain("channel", f"job {said.key[0]}.{said.key[1]} has adopted map {said.number}"))
        return
    if said.number > attempt.adapted:
        memory.keep(attempt, adapted=said.number)
    memory.effects.append(fx.Tell(Adapted(*said.key, said.number)))


def ranks_asked(memory: Memory, said: happened.RanksAsked) -> None:
    """A job asks for more or fewer processes."""
    attempt = memory.get(said.key)
    if attempt is not None and attempt.open and said.more:
        memory.effects.append(fx.Tell(Asked(*said.key, said.more)))
