"""The HTTP API: what users and operators ask for, checked, handed to the core, and told as documents.

Each handler's contract is its route's in :mod:`~.openapi`. Who asks is who the connection says (:mod:`~.callers`).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
from aiohttp import web

import cosched
from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput, Failed, nearest
from cosched.model.job import TERMINAL, JobState
from cosched.wire import api as docs
from space_scheduler.launch import script_notes
from space_scheduler.machine import events as ev
from space_scheduler.machine.nodes import UnknownNode
from space_scheduler.machine.record import IllegalTransition, Infeasible, UnknownJob
from space_scheduler.reasons import Why
from space_scheduler.service.access.callers import Caller, Callers
from space_scheduler.service.access.problems import Refusal, answer
from space_scheduler.service.api import documents, openapi, queries, submissions
from space_scheduler.service.api.bodies import Bodies
from space_scheduler.service.api.desks import held_procs, limited_on, paused_on
from space_scheduler.service.api.output import STREAMS, Spool
from space_scheduler.service.api.privacy import cause_for, nodes_for, paused_for, story_for
from space_scheduler.service.api.rates import Rates
from space_scheduler.service.api.set_aside import Known, for_caller, set_aside
from space_scheduler.service.api.stalled import stalled_on
from space_scheduler.service.api.submissions import program
from space_scheduler.service.api.waiting import Jobs
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.sizing import SizesUnknown
from space_scheduler.service.core.worker import Most, QueueFull
from space_scheduler.service.journal.records import EXPLAINED, JobRecord, View
from space_scheduler.service.launch.audit import Comparison
from space_scheduler.service.launch.coscheduling import Coscheduling
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.launch.sharing import policy_of, resizes
from space_scheduler.service.link.link import Link
from space_scheduler.service.metrics.exposition import CONTENT_TYPE, Metrics

_ALIVE: Final = [state.value for state in JobState if state not in TERMINAL]
#: Jobs alive in the order of a list: what holds nodes, then the queue, then what may not be queued yet.
_ORDER: Final = {JobState.ENDING: 0, JobState.RUNNING: 0, JobState.STARTING: 1, JobState.QUEUED: 2, JobState.WAITING: 3}
_IN_ONE_GO: Final = 50
_FULL_AGAIN_S: Final = 60.0


class Api:
    """The handlers."""

    def __init__(
        self,
        config: ClusterConfig,
        host: CoreHost,
        book: NodeBook,
        link: Link,
        jobs: Jobs,
        metrics: Metrics,
        coscheduling: Coscheduling,
        callers: Callers,
        comparison: Comparison,
        bodies: Bodies,
    ) -> None:
        self._coscheduling = coscheduling
        self.config = config
        self.host = host
        self.book = book
        self.link = link
        self.waiting = jobs
        self._metrics = metrics
        self.started = datetime.now().astimezone()
        self._callers = callers
        self.comparison = comparison
        self._bodies = bodies
        self._resizes = resizes(policy_of(config))
        self._counted: tuple[View, dict[str, int]] = View(), {}
        self._most = Most(config.max_queued, config.max_queued_per_user)
        self._rates = Rates(config.max_submissions_per_minute)

    # jobs

    async def submit(self, request: web.Request, caller: Caller) -> web.Response:
        """Accept a job."""
        wished = submissions.decoded(await self._bodies.read(request, caller.user))
        given = submissions.checked(wished, self.config)
        submissions.outliving(given, private_tmp=self.book.private_tmp())
        self._may_submit(caller)
        number = await self._callers.uid_of(caller.user) if caller.uid is None else caller.uid
        job = submissions.job_of(given, self.config, number, program(caller.user, given))
        try:
            job_id = await self.host.submit(job, given, caller.user, hold=given.hold, most=self._most)
        except Infeasible as error:
            raise self._infeasible(error) from None
        except SizesUnknown as error:
            raise Refusal(503, str(error), where="submission: sizes", retry_after_s=_FULL_AGAIN_S) from None
        except QueueFull as error:
            self._rates.give_back(caller.user)
            raise Refusal(429, f"{error}; submit again when some have run", retry_after_s=_FULL_AGAIN_S) from None
        record = await self.waiting.find(job_id)  # as accepted: what is decided about it later is asked for later
        return answer(await self._document(record, caller, explained=False, noted=True), 201)

    def _may_submit(self, caller: Caller) -> None:
        if not caller.named:
            raise Refusal(403, f"{caller.user} has no user name on the scheduler's host: a job runs under a name")
        if caller.user == "root" and not self.config.allow_root:
            raise Refusal(
                403, "jobs of root are not accepted here (allow_root in the cluster's settings)", found="root"
            )
        if wait_s := self._rates.wait_s(caller.user):
            raise Refusal(
                429,
                f"{caller.user} submits faster than {self.config.max_submissions_per_minute} jobs a minute "
                f"(max_submissions_per_minute); again in {wait_s:.3g} s",
                retry_after_s=wait_s,
            )

    def _infeasible(self, error: Infeasible) -> Refusal:
        """Why it could never start; where one node is the limit and the cluster knows a remedy, that too."""
        why, words = error.reason.why, documents.worded(error.reason, self.host.clock.when)
        remedy = f"; {self.config.note}" if self.config.note and why is Why.SPANS_NODES else ""
        return Refusal(422, f"it could never start here: {words}{remedy}", found=why.name.lower())

    async def jobs(self, request: web.Request, caller: Caller) -> web.Response:
        """Those alive."""
        user, state = request.query.get("user"), request.query.get("state")
        if state == "held":  # of clients of version 0.1
            state = JobState.WAITING.value
        if state is not None and state not in _ALIVE:
            expected = "one of " + ", ".join(_ALIVE)
            raise BadInput("state", f"found {state!r}", expected, nearest=nearest(state, _ALIVE))
        view = self.host.view()
        places = {job_id: place for place, job_id in enumerate(view.queue)}
        chosen = sorted(
            (
                each
                for each in view.jobs.values()
                if user in (None, each.user) and (state is None or each.state.value == state)
            ),
            key=lambda each: (_ORDER.get(each.state, 9), places.get(each.id, 0), each.start_us or 0, each.id),
        )
        return await self._list(chosen, caller)

    async def history(self, request: web.Request, caller: Caller) -> web.Response:
        """Those that have ended."""
        limit = queries.whole(request, "limit", 1, openapi.MAX_HISTORY, 100)
        before = queries.whole(request, "before", 1, None, None)
        ended = await self.host.history(limit=limit or 100, user=request.query.get("user"), before=before)
        return await self._list(ended, caller)

    async def job(self, request: web.Request, caller: Caller) -> web.Response:
        """One job."""
        return await self._told(await self.waiting.find(queries.job_id(request)), caller)

    async def explain(self, request: web.Request, caller: Caller) -> web.Response:
        """Why it is in its state."""
        record = await self.waiting.find(queries.job_id(request))
        explained = await self.host.explain(record.id, owners=caller.operator)
        own = caller.may_change(record.user)
        found = documents.explanation(record, explained, self.host.clock.when, own=own, reshaping=self._resizes)
        return answer(
            msgspec.structs.replace(
                found,
                cause=cause_for(caller, found.cause),
                coscheduling=self._coscheduling.document(record.id),
                paused=paused_for(caller, paused_on(record, self.book, self.config)),
                stalled=stalled_on(self.book, job_id=record.id, own=caller.may_change),
                limited=limited_on(record, self._held, self.book) if own else [],
            )
        )

    async def wait(self, request: web.Request, caller: Caller) -> web.Response:
        """A job when it has ended."""
        given = request.query.get("timeout_s", "30")
        try:
            timeout_s = float(given)
        except ValueError:
            timeout_s = -1.0
        if not 0 <= timeout_s <= openapi.MAX_WAIT_S:
            raise BadInput("timeout_s", f"found {given!r}", f"seconds, 0 to {openapi.MAX_WAIT_S}")
        return await self._told(await self.waiting.ended(queries.job_id(request), timeout_s), caller)

    async def output(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """What it wrote."""
        stream = queries.choice(request, "stream", STREAMS)
        follow = queries.choice(request, "follow", ("0", "1")) == "1"
        offset = queries.whole(request, "offset", 0, None, 0) or 0
        most = queries.whole(request, "max_bytes", 1, None, None)
        record = await self.waiting.find(queries.job_id(request))
        self._may_change(caller, record, "read the output of")
        spool = Spool(self.link, self.waiting, record, stream)
        if most is not None and not follow:
            return await spool.one(offset, most)
        return await spool.all(request, offset, follow=follow)

    async def change(self, route: openapi.Route, request: web.Request, caller: Caller) -> web.Response:
        """What a user or operator wishes for a job: post the route's event."""
        assert route.posts is not None
        record = await self.waiting.find(queries.job_id(request))
        self._may_change(caller, record, route.name)
        if record.alive:
            try:
                await self.host.post(route.posts(record.id), note=f"by {caller.user}")
                return await self._told(await self.waiting.find(record.id), caller)
            except (UnknownJob, IllegalTransition):
                record = await self.waiting.find(record.id)
        story = ", ".join(f"{step.state} {documents.iso(self.host.clock.when, step.now_us)}" for step in record.history)
        state, any_more = record.state.value, "now" if record.alive else "any more"
        if record.alive and (why := record.kept_back) is not None:
            state = f"{state} ({why})"
        raise Refusal(
            409,
            f"job {record.id} is {state}: it cannot be {route.past} {any_more}; its story: {story}",
            where=f"job {record.id}",
            found=record.state.value,
        )

    def _may_change(self, caller: Caller, record: JobRecord, verb: str) -> None:
        if not caller.may_change(record.user):
            raise Refusal(
                403,
                f"job {record.id} is {record.user}'s; {caller.user} may not {verb} it",
                where=f"job {record.id}",
                found=caller.user,
                expected=record.user,
            )

    # nodes and cluster

    async def nodes(self, request: web.Request, caller: Caller) -> web.Response:
        """All nodes."""
        found = [
            msgspec.structs.replace(each, stalled=stalled_on([self.book.entry(each.name)], own=caller.may_change))
            for each in self.book.documents(self.host.view(), self.config.contract, self.config.name)
        ]
        return answer(docs.NodeList(nodes_for(caller, found, self.book)))

    async def drain(self, request: web.Request, caller: Caller) -> web.Response:
        """Take a node out of service, its jobs go on."""
        asked = await self._bodies.document(request, caller.user, docs.DrainRequest, "drain", "a reason, or nothing")
        if len(asked.reason) > 500 or not asked.reason.isprintable():
            raise BadInput("drain: reason", "too long, or not printable", "at most 500 printable characters")
        return await self._change_node(request, caller, lambda name: ev.NodeDrained(name, asked.reason))

    async def resume(self, request: web.Request, caller: Caller) -> web.Response:
        """Take a node back into service."""
        return await self._change_node(request, caller, ev.NodeResumed)

    async def _change_node(
        self, request: web.Request, caller: Caller, event: Callable[[str], ev.Event]
    ) -> web.Response:
        entry = queries.node(request, self.book)
        name = entry.name
        if entry.expired and event is ev.NodeResumed:
            raise Refusal(
                409,
                f"node {name}: its certificate expired on {entry.expired}: 'cosched node renew' makes another",
                where="node",
                found=name,
            )
        try:
            await self.host.post(event(name), note=f"by {caller.user}")
        except UnknownNode:
            raise Refusal(
                409, f"node {name} has not joined yet: its agent was never here", where="node", found=name
            ) from None
        except ValueError as error:
            raise Refusal(409, f"node {name}: {error}", where="node", found=name) from None
        shown = self.book.documents(self.host.view(), self.config.contract, self.config.name)
        return answer(next(each for each in shown if each.name == name))

    async def cluster(self, request: web.Request, caller: Caller) -> web.Response:
        """The service and its cluster."""
        view = self.host.view()
        return answer(
            docs.ClusterDoc(
                name=self.config.name,
                cluster_id=self.host.fence.cluster_id,
                epoch=self.host.fence.epoch,
                version=cosched.__version__,
                policy=self.host.policy_name,
                started=self.started.isoformat(timespec="milliseconds"),
                time=datetime.now().astimezone().isoformat(timespec="milliseconds"),
                accepting=view.accepting,
                note=view.problem or self.config.note,
                nodes=sum(entry.size is not None for entry in self.book),
                procs=view.procs_total,
                free_procs=max(0, view.free_procs),
                queued=sum(view.waiting.values()),
                set_aside=len(view.aside),
                running=sum(view.alive.get(each, 0) for each in (JobState.STARTING, JobState.RUNNING, JobState.ENDING)),
                restart=self.comparison.document(),
            )
        )

    async def set_aside(self, request: web.Request, caller: Caller) -> web.Response:
        """Nodes, jobs, launches and policies that are set aside."""
        known = Known(self.host.view(), self.book, self.config, self.host.policy_name, self.host.clock.when)
        return answer(docs.SetAsideList(for_caller(caller, set_aside(known))))

    async def openapi(self, request: web.Request, caller: Caller) -> web.Response:
        """The document of all this."""
        return answer(openapi.document())

    async def metrics(self, request: web.Request, caller: Caller) -> web.Response:
        """For Prometheus; with what owners use of nodes for operators alone."""
        return web.Response(
            body=self._metrics.exposition(owners=caller.operator), headers={"Content-Type": CONTENT_TYPE}
        )

    async def healthz(self, request: web.Request, caller: Caller) -> web.Response:
        """Whether jobs are accepted."""
        view = self.host.view()
        if not view.accepting:
            raise Refusal(503, f"no jobs are accepted: {view.problem}")
        return answer({"accepting": True})

    # what they share

    async def _told(self, record: JobRecord, caller: Caller) -> web.Response:
        return answer(await self._document(record, caller, noted=True))

    def _held(self) -> dict[str, int]:
        """How many processors jobs hold on each node; counted once for each view."""
        view = self.host.view()
        if self._counted[0] is not view:
            self._counted = view, held_procs(view)
        return self._counted[1]

    async def _list(self, records: list[JobRecord], caller: Caller) -> web.Response:
        """A list; of the first that wait, it says why they wait now."""
        waiting = [record.id for record in records if record.state is JobState.QUEUED][:EXPLAINED]
        explained = {*waiting, *(record.id for record in records if record.state is JobState.STARTING)}
        shown = []
        for at, each in enumerate(records):
            if at % _IN_ONE_GO == 0:
                await asyncio.sleep(0)  # others have a turn
            shown.append(await self._document(each, caller, explained=each.id in explained))
        return answer(docs.JobList(shown))

    async def _document(
        self, record: JobRecord, caller: Caller, *, explained: bool = True, noted: bool = False
    ) -> docs.JobDoc:
        clock, present, own = self.host.clock, None, caller.may_change(record.user)
        aside = self.host.view().aside.get(record.id)
        if aside is None and explained and record.state in _CHANGING:
            with suppress(Failed):  # one job that cannot be explained hides no list: its last step has a reason, too
                found = await self.host.explain(record.id)
                numbers = found.reason.numbers if found.reason is not None else {}
                later = (
                    record.state is JobState.QUEUED
                    or found.decided_us > (record.start_us or 0)
                    or not numbers.keys().isdisjoint(("blocking_job", "waiting_job"))
                )
                present = found.reason if later and found.state is record.state else None  # it has gone on meanwhile
        found_doc = documents.job_doc(
            record, clock.when, clock.now_us(), own=own, present=present, reshaping=self._resizes, aside=aside
        )
        limited = limited_on(record, self._held, self.book)
        return msgspec.structs.replace(
            found_doc,
            paused=paused_for(caller, paused_on(record, self.book, self.config)),
            slowed=bool(limited),
            limited=limited if own else [],
            stalled=stalled_on(self.book, job_id=record.id, own=caller.may_change),
            history=story_for(caller, found_doc.history),
            notes=script_notes(record.submission.script) if noted and own else [],
        )


#: In these states a job's reason may be later than its last step.
_CHANGING: Final = (JobState.QUEUED, JobState.STARTING, JobState.RUNNING)
