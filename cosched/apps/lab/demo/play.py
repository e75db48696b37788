"""The demo itself: brings the lab up, plays the story, watches, keeps what there is to look at, takes the lab down."""

import contextlib
import getpass
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.live import Live

from cosched.apps.lab.demo import story
from cosched.apps.lab.demo.account import Account
from cosched.apps.lab.demo.view import picture
from cosched.apps.lab.lab import Lab
from cosched.client import places
from cosched.client.client import Client
from cosched.client.page import page_of
from cosched.errors import BadInput
from cosched.wire.api import JobDoc, Submission

NODES: Final = 4
_SAMPLE_S: Final = 0.5
_TERMINAL: Final = frozenset({"completed", "failed", "cancelled", "timed out", "launch failed", "node lost"})


@dataclass
class Outcome:
    """What the demo leaves: every job's document, what was seen at the desks, and what the user measured."""

    tier: str
    jobs: list[JobDoc] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    desk: str = ""
    user: dict[str, Any] = field(default_factory=dict)
    late: bool = False


def play(out: Path, console: Console, *, tier: int | None = None, short: bool = False, page: bool = False) -> Outcome:
    """Run the demo once; files go to ``out``. ``page``: its page is served meanwhile.

    The lab is gone when this returns, also after an exception.

    Raises :class:`BadInput`, before anything is made, where ``out`` cannot be written to.
    """
    _usable(out)
    told = story.SHORT if short else story.WHOLE
    say: Callable[[str], None] = lambda line: console.print(line, markup=False, soft_wrap=True)  # noqa: E731
    with Lab.up(nodes=NODES, tier=tier, name=f"{places.DEMO}{time.time_ns() % 1_000_000:06d}") as lab:
        say(lab.headline)
        outcome = Outcome(lab.headline, desk=lab.nodes[-1])
        with lab.client() as client, page_of(client, say) if page else contextlib.nullcontext():
            _Played(lab, client, told, outcome, console, say, out).all()
        return outcome


def _usable(out: Path) -> None:
    """Make the directory, where it is missing, and look whether files can be made and replaced there."""
    expected = "a directory that this user may write to; --out names another"
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise BadInput(f"--out {out}", error.strerror or str(error), expected) from None
    if kept := [file.name for file in out.iterdir() if not os.access(file, os.W_OK)]:
        raise BadInput(f"--out {out}", f"{', '.join(sorted(kept))} of somebody else", expected)


class _Played:
    def __init__(
        self,
        lab: Lab,
        client: Client,
        played: story.Story,
        outcome: Outcome,
        console: Console,
        say: Callable[[str], None],
        out: Path,
    ) -> None:
        self.lab = lab
        self.client = client
        self.story = played
        self.outcome = outcome
        self.console = console
        self.say = say
        self.out = out
        self.began_s = time.monotonic()
        self.due = list(played.fitted(lab.widest_job))
        self.ours: list[int] = []
        self.told: dict[int, str] = {}
        self.user: subprocess.Popen[bytes] | None = None
        self.user_came = False

    def all(self) -> None:
        """Play to the end."""
        # Where jobs run must be a directory of every node: the programs' own, which no job writes to.
        with tempfile.TemporaryFile() as measured, self._drawing() as draw:
            try:
                while self._go_on():
                    self._submit_what_is_due()
                    self._user_comes_and_goes(measured)
                    self._look(draw)
                    time.sleep(_SAMPLE_S)
            finally:
                self._send_user_home(measured)
        self.outcome.jobs = [self.client.job(job_id) for job_id in self.ours]
        self._keep()

    def _go_on(self) -> bool:
        if self._now_s() > story.DEADLINE_S:
            self.outcome.late = True
            for job_id in self.ours:
                if self.told.get(job_id) not in _TERMINAL:
                    self.client.cancel(job_id)
                    self.client.wait(job_id, 10.0)
            return False
        return bool(self.due) or any(self.told.get(job_id) not in _TERMINAL for job_id in self.ours)

    def _now_s(self) -> float:
        return time.monotonic() - self.began_s

    def _submit_what_is_due(self) -> None:
        while self.due and self.due[0].at_s <= self._now_s():
            job = self.due.pop(0)
            self.ours.append(self.client.submit(_submission(job)).job_id)

    def _user_comes_and_goes(self, measured: Any) -> None:
        if self.user is None and not self.user_came and self._now_s() >= self.story.user_comes_s:
            self.user_came = True
            stay_s = self.story.user_leaves_s - self.story.user_comes_s
            argv = [sys.executable, "-P", "-m", "cosched.apps.cli.main", "local-load", "run", "--profile", "xwindows"]
            argv += ["--seconds", str(stay_s), "--seed", "1", "--json"]
            self.user = self.lab.popen(self.outcome.desk, argv, stdout=measured, stderr=subprocess.DEVNULL)
            self.say(f"{self._now_s():5.1f} s  a user sits down at {self.outcome.desk}")
        elif self.user is not None and self.user.poll() is not None:
            self.say(f"{self._now_s():5.1f} s  the user at {self.outcome.desk} leaves")
            self._send_user_home(measured)

    def _send_user_home(self, measured: Any) -> None:
        if self.user is None:
            return
        self.user.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.user.wait(5.0)
        self.user = None
        measured.seek(0)
        lines = measured.read().splitlines()
        if lines:
            self.outcome.user = json.loads(lines[-1])

    def _look(self, draw: Callable[[Any], None]) -> None:
        nodes = self.client.nodes()
        alive = self.client.jobs()
        self.outcome.account.sample(nodes, time.monotonic())
        known = {job.job_id: job for job in alive}
        for job_id in self.ours:
            if self.told.get(job_id) in _TERMINAL:
                continue
            job = known.get(job_id) or self.client.job(job_id)
            if job.state != self.told.get(job_id):
                self.told[job_id] = job.state
                self._tell(job)
        done = sum(state in _TERMINAL for state in self.told.values())
        headline = f"{self._now_s():.0f} s: {done} of {len(self.ours) + len(self.due)} jobs have ended"
        draw(picture(headline, nodes, alive))

    def _tell(self, job: JobDoc) -> None:
        where = " on " + " ".join(share.name for share in job.nodes) if job.nodes else ""
        why = f": {job.reason.text}" if job.reason and not job.nodes else ""
        if job.failure:
            why = f": {job.failure.message}"
        ranks = "1 rank" if job.tasks == 1 else f"{job.tasks} ranks"
        self.say(f"{self._now_s():5.1f} s  job {job.job_id} {job.name} ({ranks}) {job.state}{where}{why}")

    @contextlib.contextmanager
    def _drawing(self) -> Iterator[Callable[[Any], None]]:
        """A live picture on a terminal; in a pipe the lines of ``say`` tell the story."""
        if not self.console.is_terminal:
            yield lambda _frame: None
            return
        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            yield lambda frame: live.update(frame, refresh=True)

    def _keep(self) -> None:
        """What there is to look at afterwards: documents, outputs, the journal."""
        for old in self.out.glob("job-*"):
            old.unlink()
        (self.out / "jobs.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.outcome.jobs)))
        for job in self.outcome.jobs:
            for stream in ("stdout", "stderr"):
                piece = self.client.output(job.job_id, stream)
                if piece.data:
                    (self.out / f"job-{job.job_id}.{stream}").write_bytes(piece.data)
        (self.out / "nodes.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.client.nodes())))
        (self.out / "metrics.txt").write_text(self.client.metrics())
        for file in self.lab.journal.parent.glob(self.lab.journal.name + "*"):
            shutil.copy(file, self.out)


def _submission(job: story.Submitted) -> Submission:
    return Submission(
        script=job.script(sys.executable),
        name=job.name,
        tasks=job.ranks,
        time_limit_s=job.estimate_s,
        kind=story.ORIENTATION[job.program],
        directory="/",
        environment={"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "USER": getpass.getuser()},
    )
