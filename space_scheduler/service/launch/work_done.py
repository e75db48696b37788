"""How much of its work each running job has done, by what its nodes measure: for its limit, and for its predicted end.

Where jobs share nodes a time limit counts work, not time. A thread that runs does what it would do alone; one that
waits for a CPU does nothing. So a node's rate is ran / (ran + queued) of the job's threads there (Linux's schedstat)
since its last report, and the job's rate is that of its slowest node: its tasks wait for each other. A thread that
polls for messages runs while it waits, so of such a job this is an estimate, never less than what was done. What a node
does not tell goes as the core predicts.

A folded job's threads wait for a CPU while others of its run, so it is counted in the same way. What a job of another
width than its limit was given for does in the same time is not measured: its speeds say that.
"""

from typing import Final

from cosched.model.time import US_PER_S

#: The core is told where the work done differs by more than this part of the limit, and by more than so much of it as
#: a job does in this time.
TOLD_SHARE: Final = 0.01
TOLD_S: Final = 10.0


class WorkDone:
    """The work of one attempt, in microseconds alone on idle nodes; times in seconds of one clock that never jumps.

    It is counted up to the last moment at which each of the nodes had told something new: ``done_us``.
    """

    def __init__(
        self,
        limit_us: int,
        nodes: tuple[str, ...],
        now_s: float,
        left_us: float | None,
        rate: float,
        width_speed: float = 1.0,
    ) -> None:
        """``left_us`` is what the core predicts with (None: everything), ``rate`` how fast by the core's model.

        ``width_speed``: how much it does in its width when nothing holds it back.
        """
        self.limit_us = limit_us
        self._width_speed = width_speed
        self._left_us = limit_us if left_us is None else left_us
        self._rate = rate
        self._predicted_s = now_s
        self.done_us: float = max(0.0, limit_us - self._left_us)
        self._counted_s = now_s
        self._totals: dict[str, tuple[int, int]] = {}
        self._known: dict[str, float | None] = dict.fromkeys(nodes)  # rates that were measured; None: not known
        self._told: dict[str, tuple[int, int, bool]] = {}  # ran, queued and paused since what was counted last

    def on_nodes(self, nodes: tuple[str, ...], width_speed: float) -> None:
        """From now on these are the job's nodes, and its width."""
        self._width_speed = width_speed
        self._known = {name: self._known.get(name) for name in nodes}
        self._told = {name: told for name, told in self._told.items() if name in self._known}
        self._totals = {name: totals for name, totals in self._totals.items() if name in self._known}

    # what nodes say

    def heard(self, node: str, ran_us: int, queued_us: int, now_s: float, *, paused: bool) -> bool:
        """A node's totals since it watches the job (negative: not known); ``paused``: nothing may run there now.

        Whether work was counted: now that each node has told something.
        """
        before = self._totals.pop(node, None)
        ran, queued, was_paused = self._told.get(node, (0, 0, False))
        if ran_us < 0 or queued_us < 0:
            self._known[node] = None
        else:
            self._totals[node] = ran_us, queued_us
            if before is not None and ran_us >= before[0] and queued_us >= before[1]:  # else it counts anew
                ran, queued = ran + ran_us - before[0], queued + queued_us - before[1]
                self._known[node] = ran / (ran + queued) if ran + queued else 1.0  # nobody holds it back
        self._told[node] = ran, queued, paused or was_paused
        if len(self._told) < len(self._known):
            return False
        rates = [0.0 if self._told[name][2] else known for name, known in self._known.items()]
        rate = min(self._rate if known is None else known * self._width_speed for known in rates)
        self.done_us += max(0.0, now_s - self._counted_s) * US_PER_S * rate
        self._counted_s = max(self._counted_s, now_s)
        self._told.clear()
        return True

    @property
    def over(self) -> bool:
        """Whether the job has done as much as its limit allows."""
        return self.done_us >= self.limit_us

    # what the core predicts

    def rate_changed(self, rate: float, now_s: float) -> None:
        """By the core's model the job goes so fast from now on."""
        self._left_us = self._left_at(now_s)
        self._rate, self._predicted_s = rate, now_s

    def told(self, done_us: int, now_s: float) -> None:
        """The core predicts from now on with so much done."""
        self._left_us, self._predicted_s = max(0.0, float(self.limit_us - done_us)), now_s

    def news(self) -> int | None:
        """The work done when it was counted last, where the core's prediction is far off; else None."""
        off_us = abs(self._left_at(self._counted_s) - max(0.0, self.limit_us - self.done_us))
        worth_us = max(TOLD_SHARE * self.limit_us, TOLD_S * US_PER_S * self._rate)
        return round(self.done_us) if off_us > worth_us and not self.over else None

    def _left_at(self, now_s: float) -> float:
        return max(0.0, self._left_us - (now_s - self._predicted_s) * US_PER_S * self._rate)
