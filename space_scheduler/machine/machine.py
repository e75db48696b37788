"""A machine: its jobs, what it has and what they hold of it, and what has happened since the last pass.

What events change (``lifecycle``, ``node_events``) and a pass decides on (``state``). No policy is known here.
"""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from cosched.model.job import Job, JobState
from space_scheduler.eligibility.rule import Rule
from space_scheduler.feasibility import Place
from space_scheduler.machine.capacity import CountedCapacity
from space_scheduler.machine.events import AnyEvent, Event
from space_scheduler.machine.instructions import Kill
from space_scheduler.machine.jobs import JobBook
from space_scheduler.machine.named_capacity import Capacity, NamedCapacity
from space_scheduler.machine.programs import Programs
from space_scheduler.machine.rates import Rates
from space_scheduler.machine.record import Record
from space_scheduler.machine.rules import EDITION, MachineRules
from space_scheduler.machine.turns import Turns
from space_scheduler.on_nodes import FIELDS
from space_scheduler.policy.interface import Changes
from space_scheduler.policy.order import Order
from space_scheduler.progress import Rate, end_us
from space_scheduler.reasons import Reason, Why


class Machine:
    """One machine at ``now_us``. Processors are counted until the first node with a name joins.

    ``capacity`` is what there is and what is held of it, ``nodes`` the same where nodes have names (else None).
    ``rates`` are kept where nodes have names and the rules say how jobs share them (None: jobs go as if alone),
    ``turns`` where they have a mode of coscheduling. ``programs`` is what is known of users' programs.
    ``trigger`` is the last event before the coming pass, ``timer_us`` what the one timer is set to.
    """

    __slots__ = (
        "capacity",
        "changes",
        "jobs",
        "nodes",
        "now_us",
        "place",
        "programs",
        "rates",
        "rules",
        "timer_us",
        "trigger",
        "turns",
    )

    def __init__(
        self, order: Order, rules: MachineRules, place: Place, eligibility: Sequence[Rule] | None = None
    ) -> None:
        self.rules = rules
        self.place = place
        self.now_us = 0
        self.jobs = JobBook(order, place.alike_in if rules.sharing is None else FIELDS, eligibility)
        self.capacity: Capacity = CountedCapacity()
        self.nodes: NamedCapacity | None = None
        self.rates: Rates | None = None
        self.turns: Turns | None = None
        self.programs = Programs()
        self.changes = Changes()
        self.trigger: Event | None = None
        self.timer_us: int | None = None

    # what there is

    def counted(self, event: Event) -> CountedCapacity:
        """Its counted processors, for an event that is about them."""
        return self.capacity if isinstance(self.capacity, CountedCapacity) else self._mixed(event)

    def named(self, event: Event) -> NamedCapacity:
        """Its nodes, for an event that names one."""
        if self.nodes is not None:
            return self.nodes
        if self.capacity.procs_installed:
            self._mixed(event)
        return NamedCapacity(self.rules, self.place)  # nobody has joined: it will not know the name

    def name_nodes(self) -> NamedCapacity:
        """From now on nodes have names."""
        self.capacity = self.nodes = nodes = NamedCapacity(self.rules, self.place)
        rules = self.rules
        if rules.sharing is not None:
            self.rates = Rates(rules.sharing, rules.fold_cost_ppm, rules.between, exact=rules.edition >= EDITION)
        self.turns = None if rules.coscheduling is None else Turns(rules.coscheduling)
        return nodes

    def joinable(self, event: Event) -> NamedCapacity:
        """Its nodes, for the event that one joins: nodes may have names if nothing has been counted so far."""
        if self.nodes is not None:
            return self.nodes
        if self.capacity.procs_installed or self.rules.release_at_limit:
            self._mixed(event)
        return self.name_nodes()

    def _mixed(self, event: Event) -> NoReturn:
        kind = "counted processors" if self.nodes is None else "named nodes"
        raise ValueError(f"this machine has {kind}: it cannot take {event}")

    def see(self, names: Iterable[str]) -> None:
        """What these nodes are, or who is there, has changed: rates may."""
        if self.rates is not None and self.nodes is not None:
            for name in names:
                self.rates.see(self.nodes[name])

    # what jobs hold

    def hold_again(self, record: Record) -> None:
        """A job of a machine that is being restored takes what it held."""
        self.capacity.take(record.job, record.allocation)
        if self.rates is not None:
            self.rates.again(record, self.now_us)

    def vacate(self, record: Record) -> None:
        """Plans may use what a job was to hold from now on, if they counted it; its end is still the predicted one."""
        holding = record.holding
        allocation = holding.allocation
        self.changes.vacated.append((record.end_us, allocation.procs))
        if holding.counted:
            self.capacity.give(record.job, allocation)
            if self.rates is not None:
                self.rates.end(record)
                self.see(share.node for share in allocation.nodes)

    def wait_again(self, record: Record, job: Job, reason: Reason, event: AnyEvent | Event) -> None:
        """A job is queued again, as ``job`` from now on, and holds nothing."""
        self.jobs.become(record, JobState.QUEUED, self.now_us, reason, event)
        self.vacate(record)
        self.jobs.wait_again(record, job, self.now_us)
        self.trigger = event
        self.changes.submitted.append(job)

    def work_anew(self, record: Record, estimate_us: Rate) -> None:
        """From now on a job has so much to do, and ends accordingly; it is not overdue."""
        record.overdue_us = None
        record.begin_work(estimate_us, self.now_us)
        self.jobs.predict(record, end_us(self.now_us, record.left, record.rate_ppm))

    def kill(self, record: Record, reason: Reason, event: AnyEvent) -> Kill:
        """A job is to be ended; it holds what it holds until it is."""
        self.jobs.become(record, JobState.ENDING, self.now_us, reason, event)
        self.jobs.aside.drop(record.job.id)
        return Kill(record.job.id, event, reason)

    # what the coming pass is told of

    def disturbed(self, why: Why, event: Event | None = None) -> None:
        """Earlier promises hold no more as such; the first cause since the last pass is the one that is told."""
        if event is not None:
            self.trigger = event
        self.changes.disturbed = self.changes.disturbed or why
