"""Open MPI's own words for what went wrong, read from the end of a job's error output.

The texts are those of Open MPI 4.1.4 and 5.0.11 (``tests/launch/outputs`` has real ones). A script may call ``mpirun``
several times: the last report counts. Of the reports of one run the most telling counts: a rank that says itself why
it ends, then what ``mpirun`` saw of a rank's end, then what may be the fault of another (ranks whose peer vanished
abort too, and may be accused first).
"""

import contextlib
import re
import signal
from collections.abc import Callable, Sequence
from typing import Final

from cosched.wire.api import Failure
from cosched.wire.hostfile import peer_named
from cosched.wire.messages import Peer

Match = re.Match[str]
_LOST_DAEMON: Final = r"lost communication with a remote daemon\.\s+HNP.*\s+Remote daemon: .* on node (?P<host>\S+)"
Reader = Callable[[Match, Sequence[Peer]], Failure]


def read(error: str, peers: Sequence[Peer]) -> Failure | None:
    """The failure that the text tells of, or None."""
    error = error.replace("\0", "")  # Open MPI 5 ends its messages with one
    for reports in _BY_WEIGHT:
        found = sorted(
            (
                (match.start(), number, match)
                for number, (words, _) in enumerate(reports)
                for match in words.finditer(error)
            ),
            key=lambda each: each[:2],
        )
        if found:
            _, number, match = found[-1]
            return reports[number][1](match, peers)
    return None


def lost_daemon(error: str, peers: Sequence[Peer]) -> Failure | None:
    """The one failure after which ``mpirun``, that of Open MPI 5, exits with status 0."""
    found = list(re.finditer(_LOST_DAEMON, error))
    return _lost(found[-1], peers) if found else None


def node_of_rank(rank: int, peers: Sequence[Peer]) -> str | None:
    """Where that rank is, when ranks fill the nodes in their order (the launchers' default)."""
    for peer in peers:
        if rank < peer.tasks:
            return peer.name
        rank -= peer.tasks
    return None


def _node(host: str | None, rank: int | None, peers: Sequence[Peer]) -> str | None:
    """The node that is meant by a host's name, else by the rank's place."""
    peer = peer_named(host.rstrip("."), peers) if host else None
    return peer.name if peer else node_of_rank(rank, peers) if rank is not None else None


def _told(what: str, rank: int | None, host: str | None, peers: Sequence[Peer]) -> Failure:
    node = _node(host, rank, peers)
    who = "a rank" if rank is None else f"rank {rank}"
    return Failure(message=f"{who}{f' on {node}' if node else ''} {what}", node=node, rank=rank)


def _aborted(match: Match, peers: Sequence[Peer]) -> Failure:
    # the rank in the first line is the communicator's own numbering; Open MPI 5 also has that of the whole job
    world = match["world"] or (match["rank"] if match["where"] == "MPI_COMM_WORLD" else None)
    code = match["code"] or match["code4"]
    return _told(f"called MPI_Abort with error code {code}", None if world is None else int(world), None, peers)


def _misused(match: Match, peers: Sequence[Peer]) -> Failure:
    return _told(f"stopped at {match['what']} in {match['call']}", int(match["rank"]), match["host"], peers)


def _signalled(match: Match, peers: Sequence[Peer]) -> Failure:
    name = f" ({match['name']})" if match["name"] else ""
    return _told(f"was ended by signal {match['signal']}{name}", int(match["rank"]), match["host"], peers)


def _exited(match: Match, peers: Sequence[Peer]) -> Failure:
    status = int(match["status"])
    how = f"exited with status {status}"
    if status > 128:  # a shell's way to say it, and a rank's witness's
        with contextlib.suppress(ValueError):
            how = f"was ended by signal {status - 128} ({signal.Signals(status - 128).name})"
    return _told(how, int(match["rank"]), None, peers)


def _left(match: Match, peers: Sequence[Peer]) -> Failure:
    return _told("ended without MPI_Finalize (or before MPI_Init)", int(match["rank"]), match["host"], peers)


def _missing(match: Match, peers: Sequence[Peer]) -> Failure:
    node = _node(match["host"], 0 if len(peers) == 1 else None, peers)
    where = f"on {node or match['host']}"
    return Failure(message=f"mpirun found no program {match['program']} that can be run {where}", node=node)


def _too_many(match: Match, peers: Sequence[Peer]) -> Failure:
    tasks = sum(peer.tasks for peer in peers)
    wanted = match["wanted"]
    return Failure(
        message=f"mpirun was to start {wanted} ranks, and the job has {tasks} tasks: submit with -n {wanted}"
    )


def _refused(match: Match, peers: Sequence[Peer]) -> Failure:
    peer = peer_named(match["host"], peers)
    return Failure(message=match[0].strip(), node=peer.name if peer else None)


def _lost(match: Match, peers: Sequence[Peer]) -> Failure:
    node = _node(match["host"], None, peers)
    return Failure(message=f"mpirun lost its daemon on {node or match['host']}, and the ranks there", node=node)


def _no_daemon(match: Match, peers: Sequence[Peer]) -> Failure:
    node = _node(match["host"], None, peers)
    return Failure(message=f"mpirun could not start its daemon on {node or match['host']}", node=node)


def _no_daemon_anywhere(match: Match, peers: Sequence[Peer]) -> Failure:
    return Failure(message="mpirun could not start its daemon on one of the nodes")


def _vanished(match: Match, peers: Sequence[Peer]) -> Failure:
    node = _node(match["host"], None, peers)
    there = [rank for rank in range(sum(peer.tasks for peer in peers)) if node and node_of_rank(rank, peers) == node]
    return _told(
        "closed its connections: it crashed, or ended early", there[0] if len(there) == 1 else None, node, peers
    )


def _accused(match: Match, peers: Sequence[Peer]) -> Failure:
    # it may be the victim of another, so it is not named
    return Failure(message="a rank closed its connections: it crashed, or ended early")


def _nobody_said(match: Match, peers: Sequence[Peer]) -> Failure:
    return Failure(message="a rank exited with a status other than 0; mpirun does not say which")


def _reports(*pairs: tuple[str, Reader]) -> list[tuple[re.Pattern[str], Reader]]:
    return [(re.compile(words, re.MULTILINE), reader) for words, reader in pairs]


_BY_WEIGHT: Final = (
    _reports(
        (
            r"MPI_ABORT was invoked on rank (?P<rank>\d+) in communicator (?P<where>.+)\n"
            r"(?:  Proc: \[.*,(?P<world>\d+)\]\n  Errorcode: (?P<code>-?\d+)|with errorcode (?P<code4>-?\d+)\.)",
            _aborted,
        ),
        (
            r"^\[(?P<host>[^:\]]+):\d+\] \*\*\* An error occurred in (?P<call>\w+)\n"
            r".*\*\*\* reported by process \[\d+,(?P<rank>\d+)\]\n.*\n.*\*\*\* (?P<what>MPI_ERR_\w+.*)",
            _misused,
        ),
        (
            r"noticed that process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on\s+"
            r"signal (?P<signal>\d+)(?: \((?P<name>[^)]*)\))?",
            _signalled,
        ),
        (r"Process name: \[.*,(?P<rank>\d+)\]\n\s+Exit code: +(?P<status>\d+)", _exited),
        (
            r"has exited due to process rank (?P<rank>\d+) with PID \d+ on\s+node (?P<host>\S+) exiting\s+improperly",
            _left,
        ),
        (
            r"could not\s+access\s+(?:or execute )?an executable:\s+Executable: (?P<program>.+)\n"
            r"\s*Node: (?P<host>\S+)",
            _missing,
        ),
        (r"not enough slots available in the system to satisfy the (?P<wanted>\d+)\s", _too_many),
        (r"^cosched-rsh: (?P<host>[^\s:]+): .+", _refused),
        (_LOST_DAEMON, _lost),
    ),
    _reports(
        (r"failed to report back after being spawned(?:.|\n)*?Remote host: +(?P<host>\S+)", _no_daemon),
        (r"ORTE was unable to reliably start one or more daemons", _no_daemon_anywhere),
    ),
    _reports(
        (r"communication peer process has unexpectedly disconnected(?:.|\n)*?Peer host: +(?P<host>\S+)", _vanished)
    ),
    _reports(
        # a rank's witness's own words, the first of a run: others may have ended for want of that one
        (r"^cosched: rank (?P<rank>\d+) ended with status (?P<status>\d+)$(?:.|\n)*", _exited)
    ),
    _reports(
        (r"has exited due to process rank \d+ with PID \d+ on node \S+ calling\s+\"abort\"", _accused),
        (r"\d+ process(?:es)? returned\s+a non-zero exit code", _nobody_said),
    ),
)
