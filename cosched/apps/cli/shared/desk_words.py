"""What ``cosched desk`` says to the person at the desk, made of what the guard answers."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from cosched.apps.cli.shared.words import lasting
from cosched.config.units import memory_text
from cosched.model.presets import DAYS
from cosched.model.time import US_PER_S


def document(answer: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer for programs. ``before``: an earlier one, by which the CPUs in use are known."""
    kept = ("availability", "paused", "paused_for_s", "armed", "contract", "limits", "word", "problems")
    told = {key: answer.get(key) for key in kept}
    used = {(job["job"], job["attempt"]): job for job in (before or {}).get("jobs", ())}
    jobs = [_job(job, used.get((job["job"], job["attempt"]))) for job in answer.get("jobs", ())]
    return told | {"jobs": jobs}


def lines(told: dict[str, Any]) -> list[str]:
    """The same for people."""
    problems = [f"problem: {problem}" for problem in told["problems"] or ()]
    return [_limits(told), *problems, *map(_job_line, told["jobs"]), *_word(told["word"] or {}, told["contract"])]


def _job(job: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """A job, its moments by the clock (ISO 8601). Strangers are told little of another user's: the rest is None."""
    kept = ("job", "user", "state", "tasks", "processes", "cpus", "memory_bytes", "stopped")
    moments = {"since": _moment(job["since_us"]), "until": _moment(job["until_us"])}
    return {key: job[key] for key in kept} | {"cpus_used": _cpus_used(job, before)} | moments


def _cpus_used(job: dict[str, Any], before: dict[str, Any] | None) -> float | None:
    """How many CPUs it has used since an earlier answer; None where that is not known."""
    if before is None or None in (job["cpu_us"], before["cpu_us"]) or min(job["cpu_us"], before["cpu_us"]) < 0:
        return None
    passed_us, used_us = job["seen_us"] - before["seen_us"], job["cpu_us"] - before["cpu_us"]
    return round(max(0.0, used_us / passed_us), 2) if passed_us > 0 else None


def _moment(boot_us: int | None) -> str | None:
    """A moment of the clock that counts since boot, by the wall clock."""
    if boot_us is None:
        return None
    ago_s = time.clock_gettime(time.CLOCK_BOOTTIME) - boot_us / US_PER_S
    return datetime.fromtimestamp(time.time() - ago_s).astimezone().isoformat(timespec="seconds")


def _limits(told: dict[str, Any]) -> str:
    limits, left = told["limits"], told.get("paused_for_s")
    if told["paused"]:
        return f"paused: {told['paused']}" + ("" if left is None else f", for {lasting(left)} more")
    cpus = limits["cpus"]
    ceiling = "no limit on CPU" if cpus is None else f"at most {cpus:g} CPU{'s' * (cpus != 1)}"
    return f"parallel work: {ceiling}, {'behind' if limits['idle'] else 'beside'} everything of yours"


def _job_line(job: dict[str, Any]) -> str:
    state = "" if job["state"] == "running" else f" ({job['state']})"
    if job["user"] is None:
        return f"  job {job['job']}{state}: another user's"
    count = job["processes"]
    parts = (
        f"{count} process{'' if count == 1 else 'es'}",
        "" if job["cpus_used"] is None else f"uses {job['cpus_used']:.2g} CPUs",
        f"{memory_text(job['memory_bytes'])} of memory",
        f"here since {_clock(job['since'])}" if job["since"] else "",
        _end(job["until"]),
    )
    return f"  job {job['job']} of {job['user']}{state}: {', '.join(filter(None, parts))}"


def _end(until: str | None) -> str:
    """When a job ends at the latest; one that stays past that time is overdue."""
    if until is None:
        return "without an end that is known here"
    overdue = datetime.fromisoformat(until) < datetime.now().astimezone()
    return f"overdue since {_clock(until)}" if overdue else f"until {_clock(until)} at most"


def _word(word: dict[str, Any], contract: dict[str, Any]) -> Iterator[str]:
    """What the owner has said, beside a pause."""
    if (ratio := word.get("cpu_ratio")) is not None:
        less = "" if ratio <= contract["cpu_ratio"] else f" (the contract allows {contract['cpu_ratio']:g})"
        yield f"share: {ratio:g} of the CPU while somebody is here{less}"
    if word.get("hours"):
        yield f"hours: {' and '.join(_window(*each) for each in word['hours'])}"
    if word.get("probe") is False:
        yield "probe: off, how late programs wake up is not measured"
    if word.get("wake"):
        yield "wake: on, this computer may be woken from its sleep for jobs that wait"
    yield from (f"banned: {user}{_until(ban['until_s'])}" for user, ban in sorted((word.get("bans") or {}).items()))


def _until(until_s: float | None) -> str:
    return "" if until_s is None else f" until {_clock(datetime.fromtimestamp(until_s).astimezone().isoformat())}"


def _window(begin: int, end: int, days: list[int]) -> str:
    span = f"{begin // 60:02d}:{begin % 60:02d}-{end // 60:02d}:{end % 60:02d}"
    return span if len(days) == len(DAYS) else f"{','.join(DAYS[day] for day in days)}@{span}"


def _clock(moment: str) -> str:
    """The clock alone where it is today, else with the date."""
    found = datetime.fromisoformat(moment)
    today = found.date() == datetime.now().astimezone().date()
    return found.strftime("%H:%M" if today else "%Y-%m-%d %H:%M")
