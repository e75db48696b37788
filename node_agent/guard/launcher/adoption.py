"""A guard that starts finds what its predecessor left: jobs that run on, commands that ended meanwhile, records.

Nothing that runs is ended because of it. A supervisor is known by pid *and* start time of this boot; a command without
a living supervisor and without an exit record ended in an unknown way, which is never a success.
"""

from typing import Final

from cosched.linux import process
from cosched.linux.cgroups import Cgroups, job_of
from node_agent.guard.base.records import Record, Records
from node_agent.guard.base.requests import Prepare
from node_agent.guard.launcher.groups import UNKNOWN, Command, Group

_NOBODY: Final = "?"


def adopted(records: Records, cgroups: Cgroups) -> list[Group]:
    """The attempts that are on record or have a group. ``pidfd`` of a running command is its supervisor's."""
    found, boot_id = {}, process.boot_id()
    for job, attempt in records.groups():
        record = records.read("group", job, attempt) or {}
        try:
            group = Group.of_record(record)
        except (KeyError, TypeError, ValueError):
            group = _unrecorded(job, attempt)
        found[group.key] = group
        same_boot = record.get("boot_id") == boot_id
        for n in records.commands(job, attempt):
            group.commands[n] = _command(group, n, records, cgroups, boot_id if same_boot else "")
        if not same_boot:
            group.deadline_us = group.kill_at_us = None
            group.ending = group.ending or "killed"  # by what ended that boot; nothing more is started in it
    for name in cgroups.names():
        key = job_of(name)
        if key is not None and key not in found:
            found[key] = _unrecorded(*key)  # it may be anybody's work: shown, and ended when the agent says so
    for group in found.values():
        cgroups.watch_over(group.name, group.mark, None, group.memory_bytes)
        group.told_empty = not group.alive and cgroups.empty(group.name)
    return list(found.values())


def _command(group: Group, n: int, records: Records, cgroups: Cgroups, boot_id: str) -> Command:
    command = Command(n)
    run: Record = records.read("run", *group.key, n) or {}
    supervisor, started = run.get("supervisor"), run.get("supervisor_start")
    if run.get("boot_id") == boot_id and type(supervisor) is int and type(started) is int:
        command.pid = run.get("pid", 0)
        command.pidfd = process.open_if_same(supervisor, started)
        if command.pidfd is not None:
            cgroups.watch_over(group.name, group.mark, supervisor, group.memory_bytes)
    # After looking whether it lives: a supervisor writes its record before it ends.
    exit_record = records.read("exit", *group.key, n)
    if exit_record is not None or command.pidfd is None:
        command.state, command.exit = "ended", exit_record or UNKNOWN
    else:
        command.child = command.pid, run.get("start_time", -1)
        command.state = "running" if command.executed() else "starting"
    return command


def _unrecorded(job: int, attempt: int) -> Group:
    return Group(Prepare(job, attempt, _NOBODY, "/", 1, None, None, 0), unrecorded=True)
