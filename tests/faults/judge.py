"""What is looked at while a history is lived, and at its end: by the promises of docs/design/faults.md."""

from collections import Counter
from collections.abc import Mapping

from cosched.model.job import TERMINAL, Job, JobState
from cosched.wire.messages import Adapted, Asked, Exit, FromAgent, Offered, Prepared, ProgramEnded, Resized, Started
from faults import ailing, labs, shapes
from faults.node import CPUS, Node
from faults.scheduler import Scheduler
from faults.schedulers import Schedulers
from faults.stalling import held
from faults.violation import Violation
from faults.world import MS, S, World
from node_agent.core.attempt import Key
from node_agent.core.guard_model import ModelGroup
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill, Resize, SetAside, Start
from space_scheduler.reasons import Why
from space_scheduler.replay import replay
from space_scheduler.service.core.journalled import OVERDUE_AFTER_US
from space_scheduler.service.journal.records import Committed
from space_scheduler.service.launch.owners import STALLED

_LEASE_US = 5 * S
_LAUNCH_US = 8 * S
#: How much later than promised something may be seen: messages, looks, a disk that is slow.
_SLACK_US = 9 * S
#: A scheduler that stood still for less than two heartbeats does not notice, and its clock of looks is a heartbeat.
_UNTOLD_US = 2600 * MS
#: A machine that was called in vain is left alone for so long at least.
_CALLED_AGAIN_US = 299 * S
_MOST_PLACES = 2 * CPUS
#: Within so long a node is told what the core holds: a heartbeat, and an order that may be lost once.
_REPAIRED_US = 5 * S
_TOLD_US = 60 * S
#: How many times its time alone a job may take by its nodes: folded, with a margin, in a quarter of its width.
_MOST_STRETCHED = 8 * 4


class Judge:
    """Knows what was promised to whom."""

    schedulers: Schedulers
    nodes: Mapping[str, Node]

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: dict[int, tuple[int, Exit]] = {}
        self.limits_us: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        self.follows: dict[int, int] = {}  # which job each follows
        self.ran: Counter[int] = Counter()
        self.aborted: set[int] = set()
        self.attempts: dict[int, int] = {}  # the last that ran, of each job
        self._scripts: dict[Key, str] = {}  # on which node each has run
        self._over: set[Key] = set()  # scripts that have come to their end, or to their limit
        self._launching_us: dict[Key, int] = {}
        self._flaps_us: dict[str, int] = {}
        self._past_us: dict[int, int] = {}  # by waiting job: since when its promised start lies in the past
        self._untold_us: dict[
            tuple[str, Key], int
        ] = {}  # since when what cannot be ended is not told, while all are well
        self._waits_us: dict[tuple[str, Key], int] = {}  # since when a job waits that may leave a node
        self._looks = 0
        self._differs_us: dict[tuple[str, int], int] = {}  # by node and job: since when it was told something else
        self._waited_us = 0  # when a job waited last
        self._calls_us: dict[str, int] = {}  # by node that was called since the scheduler's start: when last

    # while it is lived

    def acknowledge(self, scheduler: Scheduler, job_id: int, job: Job) -> None:
        """A job was accepted under this number; not by one that was taken over from, whom nobody asks any more."""
        if scheduler is self.schedulers.now:
            self.world.say(f"job {job_id} is accepted")
            self.acknowledged[job_id] = self.world.now_us
            self.limits_us[job_id] = job.estimate_us
            if job.after is not None:
                self.follows[job_id] = job.after.job_id

    def posted(self, scheduler: Scheduler, event: ev.Event) -> None:
        """The rules of a scheduler have found that something has happened."""
        if isinstance(event, ev.NodeLost) and scheduler is self.schedulers.now:
            self._lost(scheduler, event.name)

    def event(self, scheduler: Scheduler, committed: Committed) -> None:
        """Something is in a scheduler's journal, and is about to be carried out."""
        if scheduler is not self.schedulers.now:
            return
        self.look_who_waits(scheduler)
        if isinstance(committed.event, ev.JobEnded) and committed.event.outcome is JobState.COMPLETED:
            self._completed(committed.event.job_id)
        if isinstance(committed.event, ev.NodeDrained):
            self._flaps_us.pop(committed.event.name, None)
        if isinstance(committed.event, ev.JobResized | ev.ResizeFailed):
            self.world.fired["changed" if isinstance(committed.event, ev.JobResized) else "not changed"] += 1
        for instruction in committed.instructions:
            if isinstance(instruction, Start):
                self._starts(scheduler, instruction)
            elif isinstance(instruction, SetAside):
                self.world.fired["set aside"] += 1
                ailing.judge(self.world.seed, instruction)
            elif isinstance(instruction, Resize | Kill):
                self.world.fired[instruction.reason.why.name.lower()] += 1
                if instruction.reason.why is Why.ABORTED:
                    self.aborted.add(instruction.job_id)

    def _completed(self, job_id: int) -> None:
        """P2: a job is completed when its script has ended."""
        if (key := (job_id, self.attempts.get(job_id, 0))) not in self._over:
            raise Violation(f"P2: job {job_id} is completed, and the script of {key} has not ended")

    def _lost(self, scheduler: Scheduler, name: str) -> None:
        """O3, O5: a node is lost when it was silent for a lease, whoever sets a clock; and set aside after some."""
        silent_us = self.world.now_us - scheduler.heard_us[name]
        if silent_us < _LEASE_US - _UNTOLD_US:
            raise Violation(f"O3, O5: {name} is lost, and was heard {silent_us / S:.1f} s ago")
        if scheduler.rules.book.entry(name).asleep:
            return  # it said so before: that counts for nothing
        scheduler.losses[name] += 1
        known = scheduler.core.state.nodes()
        out = sum(each.drained for each in known)
        flaps = scheduler.losses[name] >= scheduler.config.set_aside.losses
        if flaps and 2 * (out + 1) <= len(known) and not scheduler.drained(name):
            self._flaps_us.setdefault(name, self.world.now_us)

    def _starts(self, scheduler: Scheduler, start: Start) -> None:
        """P6: nothing is started where it would be more than contract and owner allow; C1: components are whole."""
        members = {each.node.name: each.node.cluster for each in scheduler.core.state.nodes()}
        labs.judge(start, members.__getitem__)
        held: Counter[str] = Counter()
        for record in scheduler.worker.view.jobs.values():
            for share in record.allocation.nodes if record.allocation else ():
                held[share.node] += share.procs
        for share in start.allocation.nodes:
            self._calls_us.pop(share.node, None)  # it was of use
            hello = scheduler.rules.book.entry(share.node).hello
            if hello is None:
                continue
            places = CPUS * scheduler.config.contract.stricter(hello.owner).mpl - self._left_on(scheduler, share.node)
            if held[share.node] > places and not scheduler.joins_anew(share.node):
                raise Violation(f"P6: job {start.job.id} is started with {held[share.node]} CPUs on {share.node}")

    def _left_on(self, scheduler: Scheduler, name: str) -> int:
        """What the core knows to be held there by what never began and cannot be ended (O14)."""
        known = next((each.node.held_procs for each in scheduler.core.state.nodes() if each.node.name == name), 0)
        groups = self.nodes[name].model.groups.items()
        left = sum(held(group)[0] for key, group in groups if group.held_up and self._is_left(scheduler, name, key))
        return max(known, left)

    def _is_left(self, scheduler: Scheduler, name: str, key: Key) -> bool:
        """Whether an attempt is told to be stalled there and no job holds it."""
        launch = scheduler.rules.launches.attempts.get(key[0])
        ours = launch is not None and launch.key == key
        return not ours and key in scheduler.rules.book.entry(name).stalls

    def called(self, scheduler: Scheduler, name: str) -> None:
        """D7: a machine is called from its sleep by its owner's word alone, for a job that waits, and not for ever."""
        now_us = self.world.now_us
        if scheduler is not self.schedulers.now:
            self.nodes[name].sleep.called()
            return
        if not self.nodes[name].sleep.may_be_called(_SLACK_US):
            raise Violation(f"D7: {name} is called from its sleep, and its owner has not agreed")
        if now_us - self._waited_us > _SLACK_US:
            raise Violation(f"D7: {name} is called from its sleep, and no job waits")
        before_us = self._calls_us.get(name)
        if before_us is not None and before_us > scheduler.started_us and now_us - before_us < _CALLED_AGAIN_US:
            raise Violation(f"D7: {name} was called {(now_us - before_us) / S:.0f} s ago, in vain, and is again")
        self._calls_us[name] = now_us
        self.nodes[name].sleep.called()

    def told(self, node: Node, message: FromAgent) -> None:
        """An agent says something: O8: of a script its own node alone, of an attempt one that was ready for it."""
        if isinstance(message, Started | Prepared | Resized | Offered):
            key = message.order.job_id, message.order.attempt
        elif isinstance(message, ProgramEnded | Adapted | Asked):
            key = message.job_id, message.attempt
        else:
            return
        if key not in node.guard.ever_prepared:
            raise Violation(f"O8: {node.name} says {type(message).__name__} of {key}, and has no part in it")
        runs_on = self._scripts.get(key, node.name)
        if isinstance(message, Started | ProgramEnded) and runs_on != node.name:
            raise Violation(f"O8: {node.name} says {type(message).__name__} of {key}, whose script is {runs_on}'s")

    def started(self, node: Node, key: Key) -> None:
        """A script has just been started: E1, P1, P2, P6, D4, O12."""
        job_id, _ = key
        preceding = self.follows.get(job_id)
        if preceding is not None and preceding in self.schedulers.now.core.records:
            raise Violation(f"E1: the script of job {job_id} is started, and job {preceding} has not ended")
        self.world.fired["followed"] += preceding is not None
        self._scripts[key] = node.name
        self.ran[job_id] += 1
        if self.ran[job_id] > 1 and not self._begins_anew(key):
            raise Violation(f"P2: the script of job {job_id} runs a second time, on {node.name}")
        self.attempts[job_id] = key[1]
        if self.world.now_us < node.desk.paused_until_us and node.desk.holds:
            raise Violation(f"D4: the script of job {job_id} is started on {node.name}, whose owner has paused")
        group = node.model.groups[key]
        limit_us = group.prepare.limit_us
        if limit_us is None or limit_us < self.limits_us.get(job_id, 0) or limit_us > 30 * S * _MOST_STRETCHED:
            raise Violation(f"P1: the script of job {job_id} runs with the limit {limit_us}")
        for peer in group.prepare.peers:
            if key not in self.nodes[peer.name].guard.ever_prepared:
                raise Violation(f"P1: the script of job {job_id} runs, and {peer.name} was never ready for it")
        for name, each in self.nodes.items():
            alive = [own for own in each.model.groups.values() if own.running or not own.told_empty]
            used = sum(own.tasks if own.cpus is None else own.cpus for own in alive)
            if used > _MOST_PLACES:
                raise Violation(f"P6: {used} tasks on {name}, which has {_MOST_PLACES} places at most")
        self._look_at_processors()

    def _begins_anew(self, key: Key) -> bool:
        """Whether a job runs that was ended to make room and queued again: in a later attempt, and nowhere else."""
        job_id, attempt = key
        record = self.schedulers.now.core.records.get(job_id)
        steps = record.history if record is not None else ()
        # a scheduler that was killed after the commit had told nobody
        aborted = job_id in self.aborted or any(each.reason and each.reason.why is Why.ABORTED for each in steps)
        again = aborted and attempt > self.attempts.get(job_id, 0)
        models = [each.model for each in self.nodes.values()]
        return again and not any(
            model.running(other) for model in models for other in model.groups if other[0] == job_id and other != key
        )

    def ended(self, node: Node, key: Key) -> None:
        """A script has come to its own end, or to its limit: D4."""
        self._over.add(key)
        if self.world.now_us < node.desk.paused_until_us and node.desk.holds:
            raise Violation(f"D4: the script of job {key[0]} went on, on {node.name}, whose owner has paused")

    def look(self) -> None:
        """Once a second."""
        self.world.after(S, self.look)
        scheduler = self.schedulers.now
        if scheduler.alive:
            self.look_who_waits(scheduler)
        if not scheduler.alive or scheduler.process.stands_still:
            self._launching_us.clear()
            self._flaps_us.clear()
            self._past_us.clear()
            self._differs_us.clear()
            self._untold_us.clear()
            self._waits_us.clear()
            return
        self._look_at_nodes(scheduler)
        self._look_at_stalls(scheduler)
        self._look_at_shapes(scheduler)
        self._look_at_processors()
        self._look_at_what_nodes_were_told(scheduler)
        self._look_at_launches(scheduler)
        self._look_at_promises(scheduler)
        if (problem := scheduler.worker.view.problem).startswith("the policy fails"):
            raise Violation(f"O13: {problem}")
        self._looks += 1
        if self._looks % 8 == 0 and not scheduler.core.staged:
            self._validate(scheduler)

    def look_who_waits(self, scheduler: Scheduler) -> None:
        """Keep when a job waited last."""
        if scheduler.core.state.queue.line():
            self._waited_us = self.world.now_us

    def _validate(self, scheduler: Scheduler) -> None:
        try:
            scheduler.core.state.validate()
        except Exception as error:
            raise Violation(f"O11: the core contradicts itself: {error}") from error

    def _look_at_nodes(self, scheduler: Scheduler) -> None:
        """O10: a node that was silent for a lease is not in service. O5: one that comes and goes is set aside."""
        now_us = self.world.now_us
        for name, heard_us in scheduler.heard_us.items():
            silent_us = now_us - heard_us
            if silent_us > _LEASE_US + _SLACK_US and scheduler.rules.book.entry(name).size is not None:
                raise Violation(f"O10: {name} was silent for {silent_us / S:.1f} s, and is in service")
        for name, since_us in self._flaps_us.items():
            if now_us - since_us > _SLACK_US + scheduler.disk.failed_us:
                raise Violation(f"O5: {name} was lost {scheduler.losses[name]} times, and is not set aside")

    def _look_at_stalls(self, scheduler: Scheduler) -> None:
        """O14: what cannot be ended is told within a minute, while nothing else goes wrong; a user's own sets no node
        aside, and what a script that never began holds is no job's any more.
        """
        untold = {}
        for name, node in self.nodes.items():
            entry = scheduler.rules.book.entry(name)
            if entry.reason.startswith(STALLED):
                raise Violation(f"O14: {name} is set aside for a user's file system")
            if not (entry.agreed and entry.connected and node.guard.there and not node.guard.does_nothing):
                continue
            for key, group in node.model.groups.items():
                if node.guard.stalls.to_end(key, group) and key not in entry.stalls:
                    untold[name, key] = self._untold_us.get((name, key), self.world.now_us)
        self._untold_us = untold
        for (name, key), since_us in untold.items():
            if self.world.now_us - since_us > _TOLD_US:
                raise Violation(f"O14: what cannot be ended of {key} on {name} is not told")
        for name, node in self.nodes.items():
            for key, group in node.model.groups.items():
                self._look_at_held_up(scheduler, name, key, group)

    def _look_at_held_up(self, scheduler: Scheduler, name: str, key: Key, group: ModelGroup) -> None:
        """O14: a job whose start was withdrawn and told does not wait for that node."""
        launch = scheduler.rules.launches.attempts.get(key[0])
        entry = scheduler.rules.book.entry(name)
        told = bool(group.held_up) and key in entry.stalls and launch is not None and launch.key == key
        since_us = self._waits_us.pop((name, key), self.world.now_us)
        if told and launch is not None and launch.gang.may_leave(name):
            self._waits_us[name, key] = since_us
            if self.world.now_us - since_us > 2 * _SLACK_US + scheduler.disk.failed_us:
                raise Violation(f"O14: job {key[0]} waits for {name}, which cannot end what never began")

    def _look_at_shapes(self, scheduler: Scheduler) -> None:
        """S1: what a job holds that is not being changed is what the core counts, on every node."""
        for what in shapes.wrong(scheduler, self.nodes):
            raise Violation(f"S1: {what}")

    def _look_at_processors(self) -> None:
        """O12: no two jobs use one processor while another one of the same node is idle."""
        for node in self.nodes.values():
            for what in shapes.shared_in_vain(node, CPUS):
                raise Violation(f"O12: {what}")

    def _look_at_what_nodes_were_told(self, scheduler: Scheduler) -> None:
        """O15: what a node was told last of a job is what the core holds, or is so again soon."""
        now_us = self.world.now_us
        found = {(name, job_id): words for name, job_id, words in shapes.told_otherwise(scheduler, self.nodes)}
        self._differs_us = {each: self._differs_us.get(each, now_us) for each in found}
        for (name, job_id), since_us in self._differs_us.items():
            node = self.nodes[name]
            troubled_us = node.resizes.troubled_us.get(scheduler.rules.launches.attempts[job_id].key, 0)
            if now_us - max(since_us, troubled_us, node.guard.well_since_us) > _REPAIRED_US:
                words = f"{name} was told of job {job_id}: {found[name, job_id]}"
                raise Violation(f"O15: {words}; and it is not told otherwise")

    def _look_at_launches(self, scheduler: Scheduler) -> None:
        """P1: no job is being launched for longer than the time-out, while somebody counts it."""
        now_us = self.world.now_us
        launching = {each.key for each in scheduler.rules.launches.attempts.values() if each.gang.launching}
        self._launching_us = {key: self._launching_us.get(key, now_us) for key in launching}
        for (job_id, _), since_us in self._launching_us.items():
            if now_us - max(since_us, scheduler.started_us) > _LAUNCH_US + _SLACK_US:
                raise Violation(f"P1: job {job_id} is being launched for {(now_us - since_us) / S:.0f} s")

    def _look_at_promises(self, scheduler: Scheduler) -> None:
        """P7, O14: a promise whose time has passed moves: a job on whose end it counted is overdue."""
        now_us, core_us = self.world.now_us, scheduler.clock.now_us()
        waiting = (each for each in scheduler.core.state.records.values() if each.state is JobState.QUEUED)
        past = {each.job.id for each in waiting if each.promise_us is not None and each.promise_us <= core_us}
        self._past_us = {job_id: self._past_us.get(job_id, now_us) for job_id in past}
        for job_id, since_us in self._past_us.items():
            if now_us - since_us > OVERDUE_AFTER_US + _SLACK_US + scheduler.disk.failed_us:
                raise Violation(
                    f"P7: job {job_id} is promised a start that has passed {(now_us - since_us) / S:.0f} s ago"
                )

    # at the end

    def unsettled(self) -> str:
        """What is not at rest yet; empty where all is."""
        scheduler = self.schedulers.now
        if not scheduler.alive:
            return "the scheduler is away"
        if open_jobs := sorted(scheduler.core.records):
            states = ", ".join(scheduler.core.records[job_id].state.value for job_id in open_jobs)
            return f"P4: jobs {open_jobs} are {states}"
        for node in self.nodes.values():
            if node.model.groups:
                return f"D6: {node.name} still has groups {sorted(node.model.groups)}"
            if not node.alive or scheduler.rules.book.entry(node.name).size is None:
                return f"O10: {node.name} is not in service"
            if why := scheduler.drained(node.name):
                return f"O10: {node.name} is drained: {why}"
        return ""

    def settled(self) -> bool:
        """Whether all is at rest."""
        return not self.unsettled()

    def verdict(self) -> Counter[str]:
        """How many jobs came to which end, when all that was promised of the whole was kept."""
        states = self._states()
        terminal = {state.value for state in TERMINAL}
        for job_id, state in states.items():
            if state not in terminal:
                raise Violation(f"P2: job {job_id} was accepted and is {state}")
            if state == JobState.COMPLETED.value and not self.ran[job_id]:
                raise Violation(f"P2: job {job_id} is completed and has never run")
            if state == JobState.COMPLETED.value and self.asked[job_id][1].status != 0:
                raise Violation(f"P2: job {job_id} is completed, and its script has failed")
        self._validate(self.schedulers.now)
        self.schedulers.stop()
        found = replay(self.schedulers.now.path)
        if found.difference:
            raise Violation(f"R1: the journal replays otherwise: {found.difference}")
        return Counter(states.values())

    def _states(self) -> dict[int, str]:
        core = self.schedulers.now.core
        found = {}
        for job_id in self.acknowledged:
            record = core.records.get(job_id) or core.journal.job(job_id)
            found[job_id] = record.state.value if record is not None else "forgotten"
        return found
