"""The start of a host: the journal opened, the clock set, this start written down, the state recovered."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cosched
from cosched.model.components import Dividing
from space_scheduler.eligibility.rule import Rule
from space_scheduler.machine.state import MachineRules
from space_scheduler.policy.interface import Policy
from space_scheduler.service.core.journalled import OVERDUE_AFTER_US, JournalledCore
from space_scheduler.service.journal.clock import Clock, Sources
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.reading import Run
from space_scheduler.service.journal.recovery import Recovered


@dataclass(frozen=True)
class Settings:
    """What a core with its journal is made of; ``CoreHost`` says what each means."""

    path: Path
    policy: Policy
    policy_name: str
    order_name: str | None
    rules: MachineRules
    snapshot_every: int
    keep_events: int | None
    keep_us: int | None
    least_epoch: int
    sources: Sources | None
    dividing: Dividing | None = None
    overdue_after_us: int = OVERDUE_AFTER_US
    keep_jobs_us: int | None = None
    eligibility: Sequence[Rule] = ()


@dataclass(frozen=True)
class Opened:
    """What a start found. ``journal`` and ``core`` belong to the thread that opened them."""

    journal: Journal
    core: JournalledCore
    clock: Clock
    run: Run
    recovered: Recovered


def opened(settings: Settings) -> Opened:
    """Open, recover. Raises ``JournalRefused``, ``JournalUnwritable`` or another ``Failed``; nothing is then open."""
    journal = Journal(settings.path, settings.keep_jobs_us)
    try:
        clock = Clock(tuple(run.anchor for run in journal.runs), journal.last_us, settings.sources)
        run = journal.begin_run(
            clock.anchor,
            cosched.__version__,
            settings.policy_name,
            settings.order_name,
            settings.rules,
            least_epoch=settings.least_epoch,
            eligibility=[rule.name for rule in settings.eligibility],
        )
        core = JournalledCore(
            journal,
            settings.policy,
            settings.rules,
            snapshot_every=settings.snapshot_every,
            keep_events=settings.keep_events,
            keep_us=settings.keep_us,
            dividing=settings.dividing,
            overdue_after_us=settings.overdue_after_us,
            eligibility=settings.eligibility,
        )
        core.save_if_rules_changed()
        core.commit()
    except BaseException:
        journal.close()
        raise
    return Opened(journal, core, clock, run, core.recovered(run.epoch))
