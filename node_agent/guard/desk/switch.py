"""The owner's own switch: what may run on this desk, decided here, without anybody else being asked.

One JSON object there and one back (``guard.desk.doors`` has the sockets). ``status`` is answered to all: in full to
root, the agent and those who decide, else as ``guard.desk.view`` has it. Who is
logged in at this very machine may tell that a film runs there (``inhibited``), which logind does not know of. What
decides (``pause``, ``resume``, ``end``, ``ban``, ``allow``, ``hours``, ``share``) is for root, for the guard's own
user, for those that ``security.desk_users`` names and for whoever is logged in at this very machine
(``linux.sessions.local_users``), and for no process of a job, whoever it runs as.

Paused, or outside of the owner's hours, means that every job's processes on this node are frozen, that nothing new
starts here, and that time limits of jobs do not run. All of it outlives the guard, and a restart of the machine too, by
the wall clock then.
"""

import contextlib
import json
import os
import pwd
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cosched.linux import process
from cosched.linux.sessions import local_users
from cosched.linux.users import local_name
from node_agent.guard.base.loop import Loop
from node_agent.guard.base.records import Records
from node_agent.guard.base.requests import Refusal
from node_agent.guard.desk.asks import Ask, asked
from node_agent.guard.desk.doors import DeskDoors, Peer
from node_agent.guard.desk.owners_word import OwnersWord
from node_agent.guard.desk.pause import Pause
from node_agent.guard.desk.view import availability, public_status

#: How often it is looked who is logged in, and so has a door of his own; and what hour it is.
_LOOK_US: Final = 10 * process.US_PER_S
#: For how long at most it is believed that somebody watches a film.
_LONGEST_INHIBITED_S: Final = 120.0
#: So many spans in which the machine may be woken are told, the next ones. (A test compares it with the model's.)
MOST_SPANS: Final = 64


class Reach(NamedTuple):
    """What the desk can do to the rest of the guard.

    ``hold(held, since_us)`` stops and frees all jobs, for a time that began then; ``share(cpu_ratio)`` has the
    contract follow the owner's word, ``probe(on)`` the wake-up probe, and says whether that may run; ``jobs()`` are
    shown, ``end(job)`` ends one (None: all), ``ended()`` are those that were; ``is_job(pid)``: whether a process is
    one's. ``limits()`` is part of the status, ``changed()`` is called after each decision.
    """

    hold: Callable[[bool, int], None]
    share: Callable[[float | None], None]
    probe: Callable[[bool], bool]
    jobs: Callable[[], list[dict[str, Any]]]
    end: Callable[[int | None], list[int]]
    ended: Callable[[], list[list[int]]]
    is_job: Callable[[int], bool]
    limits: Callable[[], dict[str, Any]]
    changed: Callable[[], None]


class Desk:
    """What is said at the desk, and what is done about it."""

    def __init__(
        self,
        loop: Loop,
        run: str,
        records: Records,
        pause: Pause,
        word: OwnersWord,
        users: tuple[str, ...],
        agent_uid: int,
        to: Reach,
    ) -> None:
        """Raises OSError where the sockets cannot be made. What is on record is in force at once."""
        self._agent_uid = agent_uid
        self._pause = pause
        self._word = word
        self._records = records
        self._to = to
        self._doors = DeskDoors(loop, run, self._heard)
        self._look_us = 0
        self._inhibited_until_us = 0  # until then a program on the screen keeps the desktop from being idle
        self._names = _by_number(users)  # once: where names are on a network, each look may take its time
        to.share(word.said.cpu_ratio)
        to.probe(word.said.probe)
        held_us = self._held_on_record()
        self._held_us = pause.since_us if held_us is None else held_us  # since when jobs are stopped; None: they run
        if self._held_us is not None:
            to.hold(True, self._held_us)
        self._follow()
        for problem in self._problems():
            loop.complain("taking up what was said at this desk", ValueError(problem))

    @property
    def why(self) -> str:
        """Why nothing runs here now; empty where parallel work is welcome."""
        return self._pause.why or self._word.closed

    def banned(self, user: str) -> str:
        """Why that user's jobs are not taken here; empty where they are."""
        return "its owner does not take this user's jobs" if user in self._word.said.bans else ""

    def due_us(self) -> int:
        """When :meth:`tick` is wanted."""
        moments = (self._pause.until_us, self._doors.due_us(), self._look_us)
        return min(each for each in moments if each is not None)

    def tick(self, now_us: int) -> None:
        """End what has its end; put out guests who say nothing; doors for those who decide here."""
        if self._pause.until_us is not None and now_us >= self._pause.until_us:
            self._pause.end()
            self._decided()
        self._doors.tick(now_us)
        if now_us >= self._look_us:
            self._look_us = now_us + _LOOK_US
            self._doors.open_for({0, os.geteuid()} | local_users() | self._names.keys())
            if self._word.forget_old_bans() or bool(self.why) != (self._held_us is not None):
                self._decided()

    def close(self) -> None:
        """Listen no more."""
        self._doors.close()

    def status_fields(self) -> dict[str, Any]:
        """For the agent's ``status``: why nothing runs here, until when, and what its owner has said."""
        word = self._word.status_fields()
        said = {"cpu_ratio": word["cpu_ratio"], "bans": sorted(word["bans"]), "ended": self._to.ended()}
        return {
            **self._paused(),
            "inhibited_until_us": self._inhibited_until_us,
            "pauses": self._pause.count,
            "word": said,
            "wake": self._wake(),
        }

    def _wake(self) -> list[list[int]] | None:
        """From when until when this machine may be woken for jobs, in microseconds since boot; None: it may not.

        Of the coming days alone: one that sleeps for longer is left alone.
        """
        if not self._word.said.wake:
            return None
        if self._pause.why and self._pause.until_us is None:
            return []
        now_us = process.boottime_us()
        from_us = max(now_us, self._pause.until_us or 0)
        spans = [[max(begin_us, from_us), end_us] for begin_us, end_us in self._word.open_spans_us(now_us)]
        return [span for span in spans if span[0] < span[1]][:MOST_SPANS]

    def _paused(self) -> dict[str, Any]:
        return {
            "paused": self.why,
            "paused_until_us": self._until_us(),
            "closed": bool(self.why) and not self._pause.why,
            "problems": self._problems(),
        }

    def _problems(self) -> list[str]:
        """What was said at this desk and is not on record as it holds now."""
        return [problem for problem in (self._pause.problem, self._word.problem) if problem]

    def _until_us(self) -> int | None:
        """When jobs go on by themselves, as far as that is known."""
        if self._pause.why and self._pause.until_us is None:
            return None
        opens_s = self._word.opens_in_s()
        opens_us = None if opens_s is None else process.boottime_us() + round(opens_s * process.US_PER_S)
        return max((each for each in (opens_us, self._pause.until_us) if each is not None), default=None)

    def _heard(self, packet: bytes, peer: Peer) -> bytes:
        try:
            answer: dict[str, Any] = {"ok": True, **self._obeyed(asked(packet), peer)}
        except Refusal as refusal:
            answer = refusal.fields
        except OSError as error:
            answer = {"error": "failed", "message": f"{error.filename or 'the system'}: {error.strerror or error}"}
        return json.dumps(answer).encode()

    def _obeyed(self, ask: Ask, peer: Peer) -> dict[str, Any]:
        if ask.do == "inhibited":
            self._inhibited(ask, peer)
            return {}
        told: dict[str, Any] = {}
        if ask.do != "status":
            self._must_decide(peer, decides=self._decides(peer))
            told = self._obey(ask, peer.uid)
            self._decided()
        status = {
            **self._to.limits(),
            **self._paused(),
            "word": self._word.status_fields(),
            "jobs": self._to.jobs(),
            **told,
        }
        status["availability"] = availability(status)
        return status if self._sees_all(peer) else public_status(status, peer.uid)

    def _inhibited(self, ask: Ask, peer: Peer) -> None:
        """Who is at this machine watches something: that is presence, and for so long only as it is said again."""
        self._must_decide(peer, decides=peer.uid in local_users())
        now_us = process.boottime_us()
        fresh = self._inhibited_until_us <= now_us
        seconds = min(ask.seconds or _LONGEST_INHIBITED_S, _LONGEST_INHIBITED_S)
        self._inhibited_until_us = now_us + round(seconds * process.US_PER_S)
        if fresh:
            self._to.changed()

    def _obey(self, ask: Ask, by: int) -> dict[str, Any]:
        """Do what was decided. What the status says beside the usual."""
        match ask.do:
            case "end":
                return {"ended": self._to.end(ask.job)}
            case "pause":
                self._pause.begin(self._user(by), ask.seconds)
            case "resume" if self._pause.why:
                self._pause.end()
            case "ban":
                self._word.ban(ask.user, self._user(by), ask.seconds)
            case "allow":
                self._word.allow(ask.user)
            case "hours":
                self._word.keep(hours=ask.windows)
            case "wake":
                self._word.keep(wake=ask.on)
            case "probe":
                self._word.keep(probe=ask.on)
                if not self._to.probe(ask.on) and ask.on:
                    raise Refusal("user", "node.toml allows no probe here (monitoring.wakeups, parallel)")
            case "share":
                self._word.keep(cpu_ratio=ask.cpu_ratio)
                self._to.share(ask.cpu_ratio)
        return {}

    def _decided(self) -> None:
        self._follow()
        self._to.changed()

    def _follow(self) -> None:
        """Have jobs stand still or go on, as pause and hours have it: on record before, and until they go on again."""
        before_us = self._held_us
        if self.why:
            self._held_us = before_us or self._pause.since_us or process.boottime_us()
            self._keep_held(self._held_us)
            if before_us is None:
                self._to.hold(True, self._held_us)
        elif before_us is not None:
            self._held_us = None
            self._to.hold(False, before_us)
            self._keep_held(None)

    def _held_on_record(self) -> int | None:
        """Since when (us since this boot) all jobs are stopped; None: they are not, or that was in another boot."""
        found = self._records.read("held") or {}
        since_us = found.get("since_us")
        return since_us if found.get("boot_id") == process.boot_id() and type(since_us) is int else None

    def _keep_held(self, since_us: int | None) -> None:
        if since_us != self._held_on_record():
            held = None if since_us is None else {"since_us": since_us, "boot_id": process.boot_id()}
            with contextlib.suppress(OSError):  # a full disk: a successor counts from its own start
                self._records.write(held, "held")

    def _user(self, uid: int) -> str:
        """Whose word it is."""
        return self._names.get(uid) or local_name(uid)

    def _decides(self, peer: Peer) -> bool:
        """Whether somebody has a say about this desk. By numbers: a directory of names may be away, for anybody."""
        return peer.uid in {0, os.geteuid()} | self._names.keys() or peer.uid in local_users()

    def _sees_all(self, peer: Peer) -> bool:
        """Whether the status is told in full: to root always, and to no other process that is, or may be, a job's."""
        if peer.uid == 0:
            return True
        knows = peer.uid == self._agent_uid or self._decides(peer)
        return knows and not self._to.is_job(peer.pid) and not peer.has_ended()

    def _must_decide(self, peer: Peer, *, decides: bool) -> None:
        """Raises :class:`Refusal` for those who have no say about this desk."""
        if not decides:
            raise Refusal(
                "user",
                f"user {peer.uid} is not logged in at this machine itself: only who is, root, and those that "
                "security.desk_users names decide about this desk",
            )
        if self._to.is_job(peer.pid):
            raise Refusal("user", "a job decides nothing about the desk that it runs on")
        if peer.has_ended():  # it may have been a job's
            raise Refusal("user", "who has connected has ended, or is not seen from here: such decide nothing")


def _by_number(names: tuple[str, ...]) -> dict[int, str]:
    found = {}
    for name in names:
        with contextlib.suppress(KeyError):
            found[pwd.getpwnam(name).pw_uid] = name
    return found
