"""The rules of an attempt's end: how it is killed and forgotten, and what is told of it meanwhile."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from cosched.wire.messages import Exit, GroupEnded, ProgramEnded
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.attempt import Attempt, Key
from node_agent.core.memory import Memory
from node_agent.core.replies import ErrorTail
from node_agent.core.works import Refusal, Steps

UNKNOWN: Final = Exit(cause="unknown")
SCRIPT: Final = 0


def done_if_known(request: fx.KillGroup | fx.ForgetGroup) -> Steps[bool]:
    """Have the guard do it; false where it knows no such attempt. Raises :class:`Refusal`."""
    try:
        yield request
    except Refusal as refusal:
        if refusal.code != "unknown":
            raise
        return False
    return True


class GroupRules:
    """What follows from the guard's words, and what the guard is asked for an attempt that is to end."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        #: Kills that the guard has not answered: what it says of emptiness before is of the time before the kill.
        self._kills_asked: Counter[Key] = Counter()

    def kill(self, attempt: Attempt, grace_us: int) -> Steps[None]:
        """Have everything of it killed, and no more begun.

        Raises :class:`Refusal`; where the guard is away, it is killed when it is back.
        """
        memory, key = self._memory, attempt.id
        memory.keep(attempt, asked_kill_us=grace_us)
        memory.change(memory.get(key) or attempt, empty=None)  # each kill is followed by the guard's word
        self._kills_asked[key] += 1
        try:
            known = yield from done_if_known(fx.KillGroup(key, grace_us))
        finally:
            self._kills_asked -= Counter((key,))  # drops a count of 0
        if not known and (now := memory.get(key)) is not None:
            memory.change(now, empty=GroupEnded(*key))
            yield from self.close(key)

    def forget(self, key: Key) -> Steps[None]:
        """Have its cgroup, directories and records removed. Raises as :meth:`kill`."""
        yield from done_if_known(fx.ForgetGroup(key))
        self._memory.effects.append(fx.RemoveFiles(key))
        if (attempt := self._memory.get(key)) is not None:
            self._memory.keep(attempt, forgotten=True, prepare=None)

    def command_ended(self, event: happened.CommandEnded) -> Steps[None]:
        """Of all commands, the script's end alone is the scheduler's business."""
        if event.n == SCRIPT:
            yield from self.program_ended(event.key, event.exit)

    def group_empty(self, event: happened.GroupEmpty) -> Steps[None]:
        """No process of it is left; between commands it may be empty and go on."""
        self._memory.stalls.pop(event.key, None)
        attempt = self._memory.get(event.key)
        if attempt is None or self._kills_asked[event.key]:
            return
        self._memory.change(attempt, empty=GroupEnded(*event.key, event.cpu_us, event.memory_peak_bytes))
        yield from self.close(event.key)

    def program_ended(self, key: Key, how: Exit) -> Steps[None]:
        """The script of an attempt has ended: told once, and again after each welcome until it is forgotten."""
        attempt = self._memory.get(key)
        if attempt is None or attempt.exit is not None or attempt.forgotten:
            return
        tail: ErrorTail = yield fx.ReadErrorTail(key)
        attempt = self._memory.get(key)
        if attempt is None or attempt.exit is not None or attempt.forgotten:
            return
        self._memory.keep(attempt, ran=True, exit=how, error_tail=tail.data)
        self._memory.effects.append(fx.Say("info", f"job {attempt.key}: its script has ended: {how}"))
        self._memory.effects.append(fx.Tell(ProgramEnded(*key, how, tail.data)))

    def close(self, key: Key) -> Steps[None]:
        """Report the end of an attempt that was killed and is empty."""
        attempt = self._memory.get(key)
        if attempt is None or attempt.asked_kill_us is None or attempt.empty is None or attempt.ended is not None:
            return
        if attempt.ran and attempt.exit is None:
            yield from self.program_ended(key, UNKNOWN)  # the guard tells an exit before it tells of emptiness
        attempt = self._memory.get(key)
        if attempt is None or (ended := attempt.empty) is None or attempt.ended is not None:
            return
        self._memory.keep(attempt, ended=ended)
        self._memory.effects.append(fx.Say("info", f"job {attempt.key}: nothing of it is left here"))
        self._memory.effects.append(fx.Tell(ended))

    # --- a guard that is there (again): what it has is what is true ---------------------------------------------------

    def agree(self, reports: tuple[happened.Group, ...]) -> Steps[None]:
        """Take over what the guard knows."""
        memory = self._memory
        groups = {each.key: each for each in reports}
        memory.stalls = {key: known for key, known in memory.stalls.items() if key in groups and groups[key].alive}
        for attempt in memory:
            if attempt.forgotten:
                continue
            if (group := groups.pop(attempt.id, None)) is None:
                if attempt.id not in memory.making_ready:  # else the guard was killed before it had made it
                    yield from self._gone(attempt)
            else:
                yield from self._compare(group)
        for key, group in groups.items():
            memory.effects.append(fx.Say("warn", f"job {key[0]}.{key[1]} is the guard's, and not known to this agent"))
            memory.new(key, "")
            yield from self._compare(group)
            if (stranger := memory.get(key)) is not None:
                memory.keep(stranger)

    def end_again(self, attempt: Attempt, alive: Collection[Key]) -> Steps[None]:
        """Have a guard that has reported end what is to end, or what it has ``alive`` though it was said not to be."""
        try:
            if attempt.asked_kill_us is not None and not attempt.ended:
                yield from self.kill(attempt, attempt.asked_kill_us)
            elif attempt.ended and attempt.id in alive:
                yield fx.KillGroup(attempt.id, 0)
        except Refusal as error:
            self._memory.effects.append(fx.Say("warn", f"the guard did not end what is to end: {error}"))

    def _gone(self, attempt: Attempt) -> Steps[None]:
        """The guard knows nothing of it: the machine was started anew, or its cgroup was removed by hand."""
        if attempt.ended is not None:
            return
        memory, key = self._memory, attempt.id
        memory.effects.append(fx.Say("warn", f"job {attempt.key} is not known to the guard any more"))
        if attempt.ran and attempt.exit is None:
            yield from self.program_ended(key, UNKNOWN)
        if (now := memory.get(key)) is not None:
            memory.change(now, empty=now.empty or GroupEnded(*key), asked_kill_us=now.asked_kill_us or 0)
            yield from self.close(key)

    def _compare(self, group: happened.Group) -> Steps[None]:
        """Take over what the guard knows of an attempt."""
        for command in group.commands:
            attempt = self._memory.get(group.key)
            if attempt is None:
                return
            ran = attempt.ran or (command.n == SCRIPT and command.begun)
            self._memory.change(attempt, commands=max(attempt.commands, command.n), ran=ran)
            if command.exit is not None:
                yield from self.command_ended(happened.CommandEnded(group.key, command.n, command.exit))
