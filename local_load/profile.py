"""What kind of user sits at a desk: a profile, as data in YAML, with the paper's two built in.

Hanzich et al. 2005 (Workloads and Metrics) fix a local user by CPU load, memory and network traffic; his activity
alternates CPU bursts with interaction. A profile has those three targets and how they are spent: phases of interaction
(keys, thoughts, system calls, memory transfers, messages), each ended by a burst that pays what the CPU target owes.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from msgspec import structs

from cosched.config.load import load
from cosched.config.units import size_bytes
from cosched.errors import BadInput, nearest

#: System calls that a user's interaction is made of (``local_load.calls`` has them).
INTERACTIVE_CALLS: Final = ("getpid", "pipe", "open", "mmap", "nanosleep", "poll", "spawn")
KINDS: Final = ("constant", "exponential", "lognormal", "uniform")
MAX_CPU_SHARE: Final = 0.95
_MAX_TRANSFER_BYTES: Final = 64 << 20
_LONGEST_S: Final = 7 * 86_400.0
_BUILT_IN: Final = Path(__file__).with_name("profiles")


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A random amount by its mean. ``spread`` is a lognormal's sigma, or half a uniform's width over its mean.

    What is drawn below ``least`` is ``least``; an exponential is shifted by it instead, so that its mean stays.
    """

    kind: str
    mean: float
    spread: float = 0.5
    least: float = 0.0

    def draw(self, random: Random) -> float:
        """One value."""
        if self.kind == "exponential":
            return self.least + random.expovariate(1 / (self.mean - self.least))
        if self.kind == "lognormal":
            return max(self.least, random.lognormvariate(math.log(self.mean) - self.spread**2 / 2, self.spread))
        if self.kind == "uniform":
            return max(self.least, self.mean * random.uniform(1 - self.spread, 1 + self.spread))
        return self.mean

    def problem(self) -> tuple[str, object, str, str] | None:
        """The first key that makes no sense: (key, found, expected, nearest), or None."""
        if self.kind not in KINDS:
            return "kind", self.kind, "one of " + ", ".join(KINDS), nearest(self.kind, KINDS)
        if not 0 < self.mean <= _LONGEST_S:
            return "mean", self.mean, f"more than 0, at most {_LONGEST_S:.0f}", ""
        if not 0 <= self.spread <= (1 if self.kind == "uniform" else 3):
            return "spread", self.spread, "0 to 1" if self.kind == "uniform" else "0 to 3", ""
        if not 0 <= self.least < self.mean:
            return "least", self.least, f"0 to below the mean, {self.mean:g}", ""
        return None


class Typing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys at a terminal: how many to a word, how far apart, the thought after a word, the editor's CPU for a key."""

    word_keys: Distribution
    key_gap_s: Distribution
    think_s: Distribution
    work_s: float = 0.0005


class Day(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When sessions begin, as arrivals an hour for each of the 24 hours, and how long they last."""

    arrivals_per_h: list[float]
    stay_s: Distribution


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A local user. ``cpu_share`` is of one CPU, ``memory_share`` of the node's memory, the rate counts both ways.

    ``phase_s`` is how long he interacts between two bursts; ``calls`` and ``transfers`` (sizes) have weights;
    ``users_share`` says how many users are of this kind where a mixture is seated.
    """

    name: str
    cpu_share: float
    memory_share: float
    network_bytes_per_s: float
    phase_s: Distribution
    message_gap_s: Distribution
    typing: Typing
    about: str = ""
    users_share: float = 0.0
    calls_per_key: int = 4
    calls: dict[str, float] = {}
    transfers: dict[str, float] = {}
    day: Day | None = None

    def on_part(self, part: float) -> "Profile":
        """The same user on a machine that has this part of a CPU: what he asks of it is in proportion."""
        typing = structs.replace(self.typing, work_s=self.typing.work_s * part)
        return structs.replace(self, cpu_share=self.cpu_share * part, typing=typing)

    def transfer_sizes(self) -> dict[int, float]:
        """Bytes of a memory transfer, with their weights."""
        return {size_bytes(text, f"transfers.{text}"): weight for text, weight in self.transfers.items()}


def built_in() -> list[str]:
    """Names of the profiles that come with the package."""
    return sorted(path.stem for path in _BUILT_IN.glob("*.yaml"))


def is_file(name: str) -> bool:
    """Whether that is meant to be a profile's file, not a built-in's name."""
    return name.endswith((".yaml", ".yml", ".json")) or "/" in name


def find(name: str, option: str = "--profile") -> Profile:
    """A built-in profile by name, or one in a file. Raises :class:`BadInput` with the key's path."""
    if name.casefold() in built_in():
        return checked(load(_BUILT_IN / f"{name.casefold()}.yaml", Profile), name)
    if not is_file(name):
        close = nearest(name, built_in())
        raise BadInput(option, repr(name), f"a file, or one of {', '.join(built_in())}", nearest=close)
    return checked(load(Path(name), Profile), name)


def seated(count: int, seed: int) -> list[str]:
    """Built-in profiles for so many desks, in the proportions of ``users_share``, in an order drawn from the seed.

    The proportions hold for the first desks as well as they can (largest remainder), so that four desks are a mixture.
    """
    if not count:
        return []  # no profile has to be read
    shares = {name: find(name).users_share for name in built_in()}
    total = sum(shares.values())
    chosen = Random(f"seats {seed}").choices(list(shares), list(shares.values()))[:count]  # the first is chance
    while len(chosen) < count:
        owed = {name: share / total * (len(chosen) + 1) - chosen.count(name) for name, share in shares.items()}
        chosen.append(max(owed, key=lambda name: (owed[name], name)))
    return chosen


def checked(profile: Profile, where: str) -> Profile:
    """The profile, if a user can have it. Raises :class:`BadInput` with the path of the first key that is wrong."""
    for key, found, expected, near in _problems(profile):
        raise BadInput(f"{where}: {key}", f"found {found!r}", expected, nearest=near)
    return profile


def _problems(profile: Profile) -> Iterator[tuple[str, object, str, str]]:
    if not profile.name or not profile.name.replace("-", "").replace("_", "").isalnum() or len(profile.name) > 40:
        yield "name", profile.name, "up to 40 letters, digits, - and _", ""
    for key, most in (("cpu_share", MAX_CPU_SHARE), ("memory_share", 1.0), ("users_share", 1.0)):
        value = getattr(profile, key)
        if not 0 <= value <= most:
            yield key, value, f"a share, 0 to {most:g}", ""
    if not 0 <= profile.network_bytes_per_s <= 1e9:
        yield "network_bytes_per_s", profile.network_bytes_per_s, "0 to 1e9", ""
    typing = profile.typing
    amounts = {
        "phase_s": profile.phase_s, "message_gap_s": profile.message_gap_s, "typing.word_keys": typing.word_keys,
        "typing.key_gap_s": typing.key_gap_s, "typing.think_s": typing.think_s,
    }  # fmt: skip
    if profile.day:
        amounts["day.stay_s"] = profile.day.stay_s
    for path, amount in amounts.items():
        if problem := amount.problem():
            key, found, expected, near = problem
            yield f"{path}.{key}", found, expected, near
    for path in ("phase_s", "message_gap_s", "typing.key_gap_s"):
        if amounts[path].mean < 0.01:
            yield f"{path}.mean", amounts[path].mean, "at least 0.01 s: more often than that is no person", ""
    if not 0 <= typing.work_s <= 1:
        yield "typing.work_s", typing.work_s, "0 to 1 s", ""
    if not 0 <= profile.calls_per_key <= 1000:
        yield "calls_per_key", profile.calls_per_key, "0 to 1000", ""
    yield from _weight_problems(profile)
    if profile.day:
        yield from _day_problems(profile.day)


def _weight_problems(profile: Profile) -> Iterator[tuple[str, object, str, str]]:
    for name in profile.calls:
        if name not in INTERACTIVE_CALLS:
            expected = "a call: " + ", ".join(INTERACTIVE_CALLS)
            yield f"calls.{name}", name, expected, nearest(name, INTERACTIVE_CALLS)
    for text in profile.transfers:
        if not 0 < size_bytes(text, f"transfers.{text}") <= _MAX_TRANSFER_BYTES:
            yield f"transfers.{text}", text, "a size above 0, at most 64MiB", ""
    for key in ("calls", "transfers"):
        weights: dict[str, float] = getattr(profile, key)
        for name, weight in weights.items():
            if not 0 <= weight < math.inf:
                yield f"{key}.{name}", weight, "a weight, 0 or more", ""
        if weights and not sum(weights.values()) > 0:
            yield key, weights, "some weight above 0", ""
    if profile.calls_per_key and not profile.calls:
        yield "calls", profile.calls, "calls with weights, or calls_per_key: 0", ""


def _day_problems(day: Day) -> Iterator[tuple[str, object, str, str]]:
    if len(day.arrivals_per_h) != 24:
        yield "day.arrivals_per_h", len(day.arrivals_per_h), "24 numbers, one for each hour", ""
    for hour, value in enumerate(day.arrivals_per_h):
        if not 0 <= value <= 3600:
            yield f"day.arrivals_per_h[{hour}]", value, "0 to 3600 arrivals an hour", ""
    if not sum(day.arrivals_per_h) > 0:
        yield "day.arrivals_per_h", day.arrivals_per_h, "some hour with arrivals", ""
