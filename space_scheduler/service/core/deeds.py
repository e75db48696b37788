"""Carries out what the worker's rules want done with the core and its journal, and says what came of it."""

from collections.abc import Callable

import msgspec

from cosched.errors import Failed
from space_scheduler.service.core import worker_effects as fx
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.core.work import MISFITS
from space_scheduler.service.journal.records import View
from space_scheduler.service.journal.schema import JournalUnwritable


def carried_out(effect: fx.Deed, core: JournalledCore, look: Callable[[], fx.Moment]) -> fx.Outcome:
    """Do it. Writing a snapshot that was packed beside is whoever's who packs it. Raises what nobody has foreseen."""
    outcome: fx.Outcome
    match effect:
        case fx.Look():
            outcome = look()
        case fx.Apply():
            outcome = _applied(effect, core)
        case fx.Commit():
            outcome = _committed(core)
        case fx.Decide():
            outcome = _decided(effect, core)
        case fx.Recover():
            outcome = _tried(core.recover)
        case fx.Probe():
            outcome = _tried(core.journal.probe)
        case fx.SaveLast():
            outcome = _tried(lambda: core.save_if_due(look().core_us, now=True))
        case _:
            raise TypeError(f"not done with the core alone: {effect}")
    return outcome


def _applied(effect: fx.Apply, core: JournalledCore) -> fx.Outcome:
    try:
        return fx.Applied(effect.work.apply(core, effect.now_us))
    except MISFITS as error:
        return fx.Misfit(error)
    except Exception as error:
        core.half_done = not effect.work.reads
        return fx.Broke(error)


def _committed(core: JournalledCore) -> fx.Outcome:
    staged = core.staged
    try:
        return fx.Written(core.commit(), staged)
    except JournalUnwritable as error:
        return fx.Failure(str(error))


def _decided(effect: fx.Decide, core: JournalledCore) -> fx.Outcome:
    passes = core.state.passes
    try:
        core.decide(effect.now_us)
    except Exception as error:
        return fx.Broke(error)
    return fx.Passed(core.state.passes != passes)


def published(seen: View, core: JournalledCore, effect: fx.Publish) -> View:
    """What is to be seen from now on; ``seen`` is what was seen last."""
    if not effect.known:
        return msgspec.structs.replace(seen, accepting=False, problem=effect.problem)
    return core.view(decided_us=effect.decided_us, accepting=effect.accepting, problem=effect.problem)


def _tried(do: Callable[[], None]) -> fx.Failure | None:
    try:
        do()
    except Failed as error:
        return fx.Failure(str(error))
    return None
